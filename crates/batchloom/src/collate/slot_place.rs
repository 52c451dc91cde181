//! `SlotPlace`: a sample that goes into a slot, and the random numbers that are drawn for it.

use crate::order::{Purpose, RunEpoch, SampleRng};

/// A sample among those that were read together, and the part of it that goes into the next slot.
#[derive(Debug, Clone, Copy)]
pub struct SlotPlace {
    /// The number of the sample in its dataset.
    pub number: u64,
    /// The epoch in which the slot is filled.
    pub epoch: RunEpoch,
    /// The number of the sample among those that were read together, or `None` for a slot of zeros.
    pub sample: Option<usize>,
    /// The elements along the first dimension that are taken, or `None` for all.
    pub part: Option<(usize, usize)>,
}

impl SlotPlace {
    /// The whole of a sample.
    pub(crate) fn whole(number: u64, sample: usize) -> Self {
        Self { number, epoch: RunEpoch::default(), sample: Some(sample), part: None }
    }

    /// The generator for the slots of the sample. Its numbers follow from the seed of the run, the epoch and the sample,
    /// so that all fields of a sample draw the same ones.
    pub fn generator(&self) -> SampleRng {
        self.epoch.generator(Purpose::Slot { number: self.number })
    }

    /// The numbers that a generator of a front end for the slots of the sample starts from.
    #[doc(hidden)]
    pub fn key_numbers(&self) -> [u64; 2] {
        self.epoch.key_numbers(Purpose::Slot { number: self.number })
    }
}
