//! `Stream`: all samples of one source, over and over: pass after pass, each in another order.

use std::sync::Arc;

use super::source_window::Passes;
use crate::order::{Key, Order, Purpose};

/// An endless sequence of samples. Each pass is a permutation: every sample is used once before any repeats.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    pub(crate) samples: u64,
    pub(crate) seed: u64,
    /// The number of the source. Passes of source 0 are the epochs of the same dataset alone.
    pub(crate) source: u64,
    /// False if every pass is in stored order.
    pub(crate) shuffled: bool,
    /// The orders of passes, if the source is read chunk by chunk.
    pub(crate) passes: Option<Arc<Passes>>,
}

impl Stream {
    /// The order of a pass.
    pub(super) fn pass(&self, pass: u64) -> Order {
        if let Some(passes) = &self.passes {
            return Order::from(passes.order(pass));
        }
        let purpose = match self.source {
            0 => Purpose::Samples,
            number => Purpose::Source { number },
        };
        let key = Key::new(self.seed, pass, purpose);
        Order::new(self.samples, self.shuffled.then_some(&key))
    }

    /// Writes the samples from place `first + start` of the sequence on.
    pub(super) fn fill(&self, first: u64, start: u64, out: &mut [u64]) {
        let samples = u128::from(self.samples);
        let (mut place, mut out) = (u128::from(first) + u128::from(start), out);
        while !out.is_empty() {
            let within = low(place % samples);
            let left = usize::try_from(self.samples - within).unwrap_or(usize::MAX);
            let (now, later) = out.split_at_mut(left.min(out.len()));
            self.pass(low(place / samples)).fill(within, now);
            (place, out) = (place + now.len() as u128, later);
        }
    }

    /// The places of a sample among `len` places of the sequence from `first` on, counted from there.
    pub(super) fn find(&self, sample: u64, first: u64, len: u64) -> impl Iterator<Item = u64> + use<> {
        let (stream, samples, start) = (self.clone(), u128::from(self.samples), u128::from(first));
        let end = start + u128::from(len);
        let place = move |pass: u128| pass * samples + u128::from(stream.pass(low(pass)).find(sample));
        let within = move |place: u128| (start..end).contains(&place).then(|| low(place - start));
        (start / samples..end.div_ceil(samples)).map(place).filter_map(within)
    }
}

/// The low half of a number. Places of an epoch with a number near the largest may lie past 2^64, and so may their
/// passes, which then have the numbers of earlier ones.
pub(super) fn low(number: u128) -> u64 {
    u64::try_from(number & u128::from(u64::MAX)).unwrap_or(0)
}
