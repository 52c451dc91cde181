//! `SampleFacts`: what is known of samples before any of them is read.

use std::sync::Arc;

use super::reading::OnError;
use crate::batching::Sizes;
use crate::dataset::Selection;
use crate::dataset::collation::{CollateOptions, Ragged};

/// The facts about samples that are made on demand.
#[derive(Debug, Clone, Default)]
pub(super) struct SampleFacts {
    /// The size of each sample.
    pub(super) sizes: Option<Sizes>,
    /// The fields that are as long as the size of their sample; all with at least one dimension, if none are named.
    pub(super) variable: Option<Vec<String>>,
    pub(super) on_error: OnError,
    /// The number of samples in each dataset and all before it, if batches hold the number of the dataset.
    pub(super) sources: Option<Arc<[u64]>>,
}

impl SampleFacts {
    /// Returns true if a field is as long as the size of its sample, given the shape of one.
    pub(super) fn is_variable(&self, options: &CollateOptions, name: &str, shape: &[usize]) -> bool {
        let has_slot = options.slots.iter().any(|(field, _)| field == name);
        let named = self.variable.as_ref().is_none_or(|names| names.iter().any(|other| other == name));
        !has_slot && named && self.sizes.is_some() && !shape.is_empty()
    }

    /// The facts by which batches are padded or packed, if samples have sizes.
    pub(super) fn ragged(&self) -> Option<Ragged> {
        let sizes = self.sizes.clone()?;
        Some(Ragged { guide: None, sizes, own_sizes: true, subsamples: false, shuffles: false })
    }

    /// The number of selected samples in each dataset and all before it, where samples are selected as they are stored.
    pub(super) fn select_sources(&self, selection: &Selection) -> Option<Arc<[u64]>> {
        let ends = self.sources.as_ref()?;
        let mut counts = vec![0_u64; ends.len()];
        for sample in selection.iter() {
            counts[ends.partition_point(|&end| end <= sample).min(ends.len() - 1)] += 1;
        }
        let sum = |end: &mut u64, count: u64| {
            *end += count;
            Some(*end)
        };
        Some(counts.into_iter().scan(0, sum).collect())
    }

    /// Returns true if samples that cannot be read are left out.
    pub(super) fn skips(&self) -> bool {
        self.on_error == OnError::Skip
    }
}
