//! `Taken`: samples to gather, with the places where forms find them.

use super::held::HeldMembers;
use crate::order::RunEpoch;

/// Samples to gather.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken<'a> {
    /// The samples.
    pub(crate) samples: &'a [u64],
    /// The place of each sample in the data that forms read.
    pub(crate) rows: &'a [u64],
    /// The data, of several, that holds each sample. Empty if there is one.
    pub(crate) sources: &'a [u32],
    /// The epoch in which they are gathered, for slots that draw random numbers.
    pub(crate) epoch: RunEpoch,
    /// The samples themselves, if they are in chunks that are held.
    pub(crate) held: Option<&'a HeldMembers>,
}

impl<'a> Taken<'a> {
    /// Samples with their numbers as places in the data.
    pub(crate) fn as_stored(samples: &'a [u64]) -> Self {
        Self { samples, rows: samples, sources: &[], epoch: RunEpoch::default(), held: None }
    }

    /// The source of the sample at a place.
    pub(crate) fn source(&self, place: usize) -> usize {
        self.sources.get(place).map_or(0, |&source| usize::try_from(source).unwrap_or(usize::MAX))
    }

    /// The samples, `count` at a time.
    pub(crate) fn chunks(self, count: usize) -> impl Iterator<Item = Self> {
        (0..self.samples.len()).step_by(count).map(move |start| {
            let range = start..(start + count).min(self.samples.len());
            let sources = self.sources.get(range.clone()).unwrap_or_default();
            Self { samples: &self.samples[range.clone()], rows: &self.rows[range], sources, ..self }
        })
    }
}
