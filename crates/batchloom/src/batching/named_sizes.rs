//! `NamedSizes`: sizes of samples under a name, by which budgets count.
//!
//! A sample has one size that rules sort by and any number of sizes with names: its patches beside its tokens, its bonds
//! beside its atoms. A name may stand for the first of these, too, and takes no memory then.

use std::sync::Arc;

/// The sizes of all samples under a name.
#[derive(Debug, Clone)]
pub(super) struct NamedSizes {
    pub(super) name: Arc<str>,
    /// One size for each sample, or `None` for the sizes that rules sort by.
    pub(super) values: Option<Arc<[u32]>>,
    /// True if batches pad the field that has these sizes, unless they are concatenations.
    pub(super) is_padded: bool,
}

impl NamedSizes {
    /// The sizes under this name, given those that rules sort by.
    pub(super) fn values<'a>(&'a self, primary: &'a [u32]) -> &'a [u32] {
        self.values.as_deref().unwrap_or(primary)
    }

    /// The sizes of the samples at `numbers`.
    pub(super) fn gather(&self, numbers: impl Iterator<Item = u64>) -> Self {
        let index = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let gathered = |values: &Arc<[u32]>| numbers.map(|number| values[index(number)]).collect();
        Self { values: self.values.as_ref().map(gathered), ..self.clone() }
    }

    /// The sizes of the samples of several datasets, one after the other, under the names that all have.
    /// `each` holds the sizes that rules sort by, and those with names, of each dataset.
    pub(super) fn join(each: &[(&[u32], &[Self])]) -> Vec<Self> {
        let Some((_, first)) = each.first() else { return Vec::new() };
        let joined = |named: &Self| {
            let others = each.iter().map(|(primary, named_sizes)| {
                named_sizes.iter().find(|other| other.name == named.name).map(|found| (*primary, found))
            });
            let found: Vec<(&[u32], &Self)> = others.collect::<Option<_>>()?;
            let is_primary = found.iter().all(|(_, named)| named.values.is_none());
            let values =
                || found.iter().flat_map(|(primary, named)| named.values(primary)).copied().collect();
            let is_padded = found.iter().all(|(_, named)| named.is_padded);
            Some(Self { name: Arc::clone(&named.name), values: (!is_primary).then(values), is_padded })
        };
        first.iter().filter_map(joined).collect()
    }
}
