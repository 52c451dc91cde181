//! `Located`: where the samples of a dataset lie in the data that its forms read.

use std::sync::Arc;

use super::selection::Selection;
use crate::collate::Taken;
use crate::order::RunEpoch;

/// The places of samples in the data that forms read: of all samples, or of selected samples, in one source of
/// data, or one source after the other.
#[derive(Debug, Clone, Default)]
pub(crate) struct Located {
    selection: Option<Selection>,
    sources: Option<Arc<[LocatedSource]>>,
}

/// The samples of one source, or of several that were put together before.
#[derive(Debug)]
struct LocatedSource {
    /// The number of samples before this source.
    before: u64,
    /// The number of the first source of these samples.
    first: u32,
    located: Located,
}

/// The places of some samples. Empty if samples are their own places, or there is one source.
#[derive(Debug, Default)]
pub(crate) struct Places {
    rows: Vec<u64>,
    sources: Vec<u32>,
}

impl Located {
    /// The places of the samples of several datasets, one after the other: of each, the number of its samples, of the
    /// sources that it has, and the places of its samples.
    pub(super) fn join(parts: impl IntoIterator<Item = (u64, u32, Self)>) -> Self {
        let (mut before, mut first) = (0, 0);
        let source = |(samples, sources, located)| {
            let source = LocatedSource { before, first, located };
            before += samples;
            first += sources;
            source
        };
        Self { selection: None, sources: Some(parts.into_iter().map(source).collect()) }
    }

    /// The places of selected samples, given the places of the samples that were there to select from.
    ///
    /// # Errors
    /// The errors of [`Selection::within`].
    pub(super) fn select(self, selection: &Selection) -> crate::Result<Self> {
        let selection = match &self.selection {
            None => selection.clone(),
            Some(outer) => selection.within(outer)?,
        };
        Ok(Self { selection: Some(selection).filter(|selection| !selection.is_everything()), ..self })
    }

    /// Returns true if every sample is its own place.
    pub(crate) fn is_plain(&self) -> bool {
        self.selection.is_none() && self.sources.is_none()
    }

    /// The place of a sample, and its source.
    fn place(&self, sample: u64) -> (u64, u32) {
        let sample = self.selection.as_ref().map_or(sample, |selection| selection.get(sample));
        let Some(sources) = &self.sources else { return (sample, 0) };
        let source = &sources[sources.partition_point(|source| source.before <= sample) - 1];
        let (row, number) = source.located.place(sample - source.before);
        (row, source.first + number)
    }

    /// The places of some samples.
    pub(crate) fn places(&self, samples: &[u64]) -> Places {
        if self.sources.is_some() {
            let (rows, sources) = samples.iter().map(|&sample| self.place(sample)).unzip();
            return Places { rows, sources };
        }
        let Some(selection) = &self.selection else { return Places::default() };
        let mut rows = samples.to_vec();
        selection.map(&mut rows);
        Places { rows, sources: Vec::new() }
    }
}

impl Places {
    /// The samples with their places.
    pub(crate) fn of<'a>(&'a self, samples: &'a [u64]) -> Taken<'a> {
        let rows = if self.rows.is_empty() { samples } else { &self.rows };
        Taken { samples, rows, sources: &self.sources, epoch: RunEpoch::default(), held: None }
    }
}
