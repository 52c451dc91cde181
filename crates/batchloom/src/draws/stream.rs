//! `Stream`: all samples of one source, over and over: pass after pass, each in an order of its own.

use std::ops::Range;

use crate::order::{Key, Order, Purpose};

/// An endless sequence of samples. Each pass over them is a permutation, so no sample comes again before all have come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    pub(crate) samples: u64,
    pub(crate) seed: u64,
    /// The number of the source. Passes of source 0 are the epochs of a dataset of its own.
    pub(crate) source: u64,
    /// False if samples come as stored in every pass.
    pub(crate) shuffled: bool,
}

impl Stream {
    /// The order of a pass.
    pub(super) fn pass(&self, pass: u64) -> Order {
        let purpose = match self.source {
            0 => Purpose::Samples,
            number => Purpose::Source { number },
        };
        let key = Key::new(self.seed, pass, purpose);
        Order::new(self.samples, self.shuffled.then_some(&key))
    }

    /// Writes the samples from place `first` of the sequence on.
    pub(super) fn fill(&self, first: u64, out: &mut [u64]) {
        let (mut place, mut out) = (first, out);
        while !out.is_empty() {
            let (pass, within) = (place / self.samples, place % self.samples);
            let left = usize::try_from(self.samples - within).unwrap_or(usize::MAX);
            let (now, later) = out.split_at_mut(left.min(out.len()));
            self.pass(pass).fill(within, now);
            (place, out) = (place + now.len() as u64, later);
        }
    }

    /// The places of a sample among some places of the sequence.
    pub(super) fn find(&self, sample: u64, places: Range<u64>) -> impl Iterator<Item = u64> + use<> {
        let (stream, samples) = (*self, self.samples);
        let passes =
            if places.is_empty() { 0..0 } else { places.start / samples..(places.end - 1) / samples + 1 };
        let place = move |pass: u64| pass * samples + stream.pass(pass).find(sample);
        passes.map(place).filter(move |place| places.contains(place))
    }
}
