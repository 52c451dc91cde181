//! `Located`: where the samples of a dataset lie in the data that its forms read.

use super::selection::Selection;
use crate::collate::Taken;

/// The places of samples in the data that forms read: those of all, or of some that were selected.
#[derive(Debug, Clone, Default)]
pub(crate) struct Located(Option<Selection>);

/// The places of some samples.
#[derive(Debug, Default)]
pub(crate) struct Places(Vec<u64>);

impl Located {
    /// The places of selected samples, given those of the samples that were there to select from.
    ///
    /// # Errors
    /// Those of [`Selection::within`].
    pub(super) fn selected(self, selection: &Selection) -> crate::Result<Self> {
        let found = match &self.0 {
            None => selection.clone(),
            Some(outer) => selection.within(outer)?,
        };
        Ok(Self(Some(found).filter(|found| !found.is_everything())))
    }

    /// Returns true if every sample is its own place.
    pub(crate) fn is_plain(&self) -> bool {
        self.0.is_none()
    }

    /// The place of a sample.
    pub(crate) fn row(&self, sample: u64) -> u64 {
        self.0.as_ref().map_or(sample, |selection| selection.get(sample))
    }

    /// The places of some samples.
    pub(crate) fn places(&self, samples: &[u64]) -> Places {
        let Some(selection) = &self.0 else { return Places::default() };
        let mut rows = samples.to_vec();
        selection.map(&mut rows);
        Places(rows)
    }
}

impl Places {
    /// The samples with their places.
    pub(crate) fn of<'a>(&'a self, samples: &'a [u64]) -> Taken<'a> {
        let rows = if self.0.is_empty() { samples } else { &self.0 };
        Taken { samples, rows, sources: &[] }
    }
}
