//! `Mixed`: the draws of one epoch of several sources.

use std::sync::Arc;

use super::measured::Measured;
use super::mix::{Exhausted, Mix};
use super::stream::Stream;
use super::turns::Turns;

/// The draws of one epoch of a mix.
#[derive(Debug)]
pub(crate) struct Mixed {
    mix: Mix,
    seed: u64,
    epoch: u64,
    shuffled: bool,
    arrangement: Arrangement,
}

#[derive(Debug)]
enum Arrangement {
    /// Sources take turns sample by sample.
    Turns(Turns),
    /// Sources take turns by a measure of samples.
    Measured(Measured),
}

impl Mixed {
    /// The draws of an epoch: `num_samples` of them, or as many as follow from the sources.
    pub(crate) fn new(mix: Mix, num_samples: Option<u64>, seed: u64, epoch: u64, shuffled: bool) -> Self {
        let arrangement = match mix.is_measured() {
            true => Arrangement::Measured(Measured::default()),
            false => Arrangement::Turns(Turns::new(Arc::clone(mix.ratios()), counts(&mix, num_samples))),
        };
        Self { mix, seed, epoch, shuffled, arrangement }
    }

    /// The number of draws.
    pub(super) fn len(&self) -> u64 {
        match &self.arrangement {
            Arrangement::Turns(turns) => turns.len(),
            Arrangement::Measured(measured) => self.listed(measured).len() as u64,
        }
    }

    /// Writes the samples at some positions.
    pub(super) fn fill(&self, start: u64, out: &mut [u64]) {
        match &self.arrangement {
            Arrangement::Turns(turns) => self.fill_turns(turns, start, out),
            Arrangement::Measured(measured) => {
                let listed = &self.listed(measured)[index(start)..];
                out.iter_mut().zip(listed).for_each(|(sample, &found)| *sample = u64::from(found));
            }
        }
    }

    /// The positions of a sample, in order.
    pub(super) fn find(&self, sample: u64) -> Vec<u64> {
        match &self.arrangement {
            Arrangement::Turns(turns) => {
                let Some((source, number)) = self.mix.origin(sample) else { return Vec::new() };
                let first = self.first(turns, source);
                let places = first..first.saturating_add(turns.of(source));
                let drawn = self.stream(source).find(number, places);
                drawn.map(|place| turns.place(source, place - first)).collect()
            }
            Arrangement::Measured(measured) => {
                let listed = self.listed(measured).iter().enumerate();
                let same = listed.filter(|&(_, &other)| u64::from(other) == sample);
                same.map(|(place, _)| place as u64).collect()
            }
        }
    }

    fn stream(&self, source: usize) -> Stream {
        self.mix.stream(source, self.seed, self.shuffled)
    }

    fn listed<'a>(&self, measured: &'a Measured) -> &'a [u32] {
        measured.listed(&self.mix, self.seed, self.epoch, self.shuffled)
    }

    /// The number of draws of a source before this epoch.
    fn first(&self, turns: &Turns, source: usize) -> u64 {
        self.epoch.wrapping_mul(turns.of(source))
    }

    fn fill_turns(&self, turns: &Turns, start: u64, out: &mut [u64]) {
        let taken: Vec<(usize, u64)> = turns.from(start).take(out.len()).collect();
        // The turns of a source follow each other, so its samples are filled together.
        let mut drawn: Vec<(u64, Vec<u64>)> = vec![(0, Vec::new()); self.mix.ratios().len()];
        for &(source, turn) in &taken {
            let (first, samples) = &mut drawn[source];
            *first = if samples.is_empty() { turn } else { *first };
            samples.push(0);
        }
        for (source, (first, samples)) in drawn.iter_mut().enumerate() {
            self.stream(source).fill(self.first(turns, source) + *first, samples);
        }
        for (sample, (source, turn)) in out.iter_mut().zip(taken) {
            let (first, samples) = &drawn[source];
            *sample = self.mix.sample(source, samples[index(turn - first)]);
        }
    }
}

/// The draws of each source in an epoch.
fn counts(mix: &Mix, num_samples: Option<u64>) -> Arc<[u64]> {
    if let Some(draws) = num_samples {
        return Turns::first(mix.ratios(), draws);
    }
    let limiting = |first| {
        let source = mix.limiting(|source| u128::from(mix.count(source)), first);
        Turns::until(mix.ratios(), source, mix.count(source))
    };
    match mix.exhausted() {
        Exhausted::Stop => limiting(true),
        Exhausted::Repeat => limiting(false),
        Exhausted::Renormalise => {
            let all = |source| if mix.ratios()[source] > 0 { mix.count(source) } else { 0 };
            (0..mix.ratios().len()).map(all).collect()
        }
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
