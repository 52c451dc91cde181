//! `Stretch`: a part of an epoch in which sources take turns, sample by sample, by the same weights.

use std::sync::Arc;

use super::history::{Passage, Reached};
use super::mix::{Exhausted, Mix, find_limiting};
use super::turns::Turns;
use crate::order::{Key, Purpose};

/// A part of an epoch.
#[derive(Debug)]
pub(super) struct Stretch {
    /// Its first position in the epoch.
    pub(super) start: u64,
    pub(super) turns: Turns,
    /// The number of draws of each source before it, over all epochs.
    pub(super) first: Vec<u64>,
}

impl Stretch {
    /// The position after the last one.
    pub(super) fn end(&self) -> u64 {
        self.start.saturating_add(self.turns.len())
    }
}

/// The parts of an epoch, in which `seed` decides about the order of sources that are due alike; `None` keeps them as
/// stored.
pub(super) fn stretches(mix: &Mix, num_samples: Option<u64>, epoch: u64, seed: Option<u64>) -> Vec<Stretch> {
    let sources = mix.len();
    let mut run = Run {
        mix,
        num_samples,
        seed,
        epoch: 0,
        ratios: Arc::new([]),
        before: vec![0; sources],
        drawn: vec![0; sources],
        len: 0,
        stretches: Vec::new(),
    };
    mix.history().walk(epoch, &mut run);
    run.stretches
}

/// A run, with the parts of the epoch under way.
struct Run<'a> {
    mix: &'a Mix,
    num_samples: Option<u64>,
    /// The seed of the phases of turns, unless sources take turns as stored. The counts of epochs do not depend on it.
    seed: Option<u64>,
    /// The epoch under way.
    epoch: u64,
    ratios: Arc<[u32]>,
    /// The number of draws of each source before the epoch, and in it.
    before: Vec<u64>,
    drawn: Vec<u64>,
    /// The number of all draws in the epoch.
    len: u64,
    stretches: Vec<Stretch>,
}

impl Run<'_> {
    /// The turns of each source until the epoch ends.
    fn rest(&self) -> Arc<[u64]> {
        if let Some(draws) = self.num_samples {
            return Turns::first(&self.ratios, draws - self.len);
        }
        let left = |source: usize| self.mix.count(source).saturating_sub(self.drawn[source]);
        let until = |first| {
            let source = find_limiting(&self.ratios, |source| u128::from(left(source)), first);
            Turns::until(&self.ratios, source, left(source))
        };
        match self.mix.exhausted() {
            Exhausted::Stop => until(true),
            Exhausted::Repeat => until(false),
            Exhausted::Renormalise => {
                let all = |(source, &ratio)| if ratio > 0 { left(source) } else { 0 };
                self.ratios.iter().enumerate().map(all).collect()
            }
        }
    }

    /// `counts` turns of each source, by the present ratios.
    fn turns(&self, counts: &Arc<[u64]>) -> Turns {
        let turns = Turns::new(Arc::clone(&self.ratios), Arc::clone(counts));
        let Some(seed) = self.seed else { return turns };
        turns.with_phases(Turns::phases(&self.ratios, counts, &Key::new(seed, self.epoch, Purpose::Turns)))
    }

    /// Goes through turns.
    fn take(&mut self, turns: Turns) {
        let zipped = self.before.iter().zip(&self.drawn);
        let first = zipped.map(|(before, drawn)| before.wrapping_add(*drawn)).collect();
        self.drawn.iter_mut().enumerate().for_each(|(source, drawn)| *drawn += turns.of(source));
        let stretch = Stretch { start: self.len, turns, first };
        self.len = stretch.end();
        self.stretches.push(stretch);
    }

    /// The number of draws of all sources before the epoch.
    fn amount_before(&self) -> u128 {
        self.before.iter().map(|&count| u128::from(count)).sum()
    }
}

impl Passage for Run<'_> {
    fn turn_to(&mut self, ratios: &Arc<[u32]>) {
        self.ratios = Arc::clone(ratios);
    }

    fn amount(&self) -> u128 {
        self.amount_before() + u128::from(self.len)
    }

    fn epochs_until(&self, amount: u64) -> u64 {
        let in_epoch: u128 = self.rest().iter().map(|&count| u128::from(count)).sum();
        let left = u128::from(amount).saturating_sub(self.amount_before());
        u64::try_from(left / in_epoch.max(1)).unwrap_or(u64::MAX)
    }

    fn skip(&mut self, epochs: u64) {
        self.epoch += epochs;
        let rest = self.rest();
        for (before, &count) in self.before.iter_mut().zip(&*rest) {
            *before = before.wrapping_add(count.wrapping_mul(epochs));
        }
    }

    fn go(&mut self, position: Option<u64>, amount: Option<u64>) -> Reached {
        let before = u64::try_from(self.amount_before()).unwrap_or(u64::MAX);
        let by_amount = amount.map(|amount| amount.saturating_sub(before));
        let turns = self.turns(&self.rest());
        let stop = position.into_iter().chain(by_amount).min().map(|stop| stop.max(self.len));
        let Some(stop) = stop.filter(|&stop| stop < self.len.saturating_add(turns.len())) else {
            self.take(turns);
            return Reached::EndOfEpoch;
        };
        if stop > self.len {
            let counts = turns.counts_at(stop - self.len);
            self.take(turns.cap(counts.into()));
        }
        if position.is_some_and(|position| position <= stop) { Reached::Position } else { Reached::Amount }
    }

    fn begin(&mut self) {
        let zipped = self.before.iter_mut().zip(&mut self.drawn);
        zipped.for_each(|(before, drawn)| *before = before.wrapping_add(std::mem::take(drawn)));
        self.len = 0;
        self.epoch += 1;
        self.stretches.clear();
    }

    fn is_at_start(&self) -> bool {
        self.len == 0
    }
}
