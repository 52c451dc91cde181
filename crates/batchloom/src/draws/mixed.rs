//! `Mixed`: the draws of one epoch of several sources.

use super::measured::Measured;
use super::mix::Mix;
use super::stream::Stream;
use super::stretch::{Stretch, stretches};

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
    Turns(Vec<Stretch>),
    /// Sources take turns by a measure of samples.
    Measured(Measured),
}

impl Mixed {
    /// The draws of an epoch: `num_samples` of them, or a number that follows from the sources.
    pub(crate) fn new(mix: Mix, num_samples: Option<u64>, seed: u64, epoch: u64, shuffled: bool) -> Self {
        let arrangement = match mix.is_measured() {
            true => Arrangement::Measured(Measured::default()),
            false => Arrangement::Turns(stretches(&mix, num_samples, epoch, shuffled.then_some(seed))),
        };
        Self { mix, seed, epoch, shuffled, arrangement }
    }

    /// The number of draws.
    pub(super) fn len(&self) -> u64 {
        match &self.arrangement {
            Arrangement::Turns(stretches) => stretches.last().map_or(0, Stretch::end),
            Arrangement::Measured(measured) => self.list_samples(measured).len() as u64,
        }
    }

    /// Writes the samples at some positions.
    pub(super) fn fill(&self, start: u64, out: &mut [u64]) {
        match &self.arrangement {
            Arrangement::Turns(stretches) => {
                let (mut start, mut out) = (start, out);
                let first = stretches.partition_point(|stretch| stretch.end() <= start);
                for stretch in &stretches[first..] {
                    let left = usize::try_from(stretch.end() - start).unwrap_or(usize::MAX);
                    let (now, later) = out.split_at_mut(left.min(out.len()));
                    self.fill_turns(stretch, start - stretch.start, now);
                    (start, out) = (stretch.end(), later);
                }
            }
            Arrangement::Measured(measured) => {
                let listed = &self.list_samples(measured)[index(start)..];
                out.iter_mut().zip(listed).for_each(|(sample, &number)| *sample = u64::from(number));
            }
        }
    }

    /// The positions of a sample, in order.
    pub(super) fn find(&self, sample: u64) -> Vec<u64> {
        match &self.arrangement {
            Arrangement::Turns(stretches) => {
                let Some((source, number)) = self.mix.origin(sample) else { return Vec::new() };
                let drawn = |stretch: &Stretch| {
                    let first = stretch.first[source];
                    let drawn = self.stream(source).find(number, first, stretch.turns.of(source));
                    let place = |turn| stretch.start + stretch.turns.place(source, turn);
                    drawn.map(place).collect::<Vec<u64>>()
                };
                stretches.iter().flat_map(drawn).collect()
            }
            Arrangement::Measured(measured) => {
                let listed = self.list_samples(measured).iter().enumerate();
                let same = listed.filter(|&(_, &other)| u64::from(other) == sample);
                same.map(|(place, _)| place as u64).collect()
            }
        }
    }

    fn stream(&self, source: usize) -> Stream {
        self.mix.stream(source, self.seed, self.shuffled)
    }

    fn list_samples<'a>(&self, measured: &'a Measured) -> &'a [u32] {
        measured.samples_of_epoch(&self.mix, self.seed, self.epoch, self.shuffled)
    }

    fn fill_turns(&self, stretch: &Stretch, start: u64, out: &mut [u64]) {
        let taken: Vec<(usize, u64)> = stretch.turns.from(start).take(out.len()).collect();
        // The turns of a source follow each other, so its samples are filled together.
        let mut drawn: Vec<(u64, Vec<u64>)> = vec![(0, Vec::new()); self.mix.len()];
        for &(source, turn) in &taken {
            let (first, samples) = &mut drawn[source];
            *first = if samples.is_empty() { turn } else { *first };
            samples.push(0);
        }
        for (source, (first, samples)) in drawn.iter_mut().enumerate() {
            self.stream(source).fill(stretch.first[source], *first, samples);
        }
        for (sample, (source, turn)) in out.iter_mut().zip(taken) {
            let (first, samples) = &drawn[source];
            *sample = self.mix.sample(source, samples[index(turn - first)]);
        }
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
