//! `Mixed`: the draws of one epoch of several sources.

use std::sync::OnceLock;

use super::measured::{Listed, Measured};
use super::mix::Mix;
use super::stream::Stream;
use super::stretch::{Stretch, stretches};

/// The draws of one epoch of a mix.
#[derive(Debug)]
pub(crate) struct Mixed {
    pub(super) mix: Mix,
    epoch: u64,
    /// The passes over each source.
    pub(super) streams: Vec<Stream>,
    arrangement: Arrangement,
    /// The draws of each source before every so many positions, where turns have no formula.
    counted: OnceLock<Vec<u64>>,
    /// The number of slots of all sources in this epoch, once it was counted.
    pub(super) all_slots: OnceLock<u64>,
}

/// The number of positions between two at which the draws of sources are counted.
const COUNTED: u64 = 1024;

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
        let streams = mix.streams(seed, shuffled);
        Self { mix, epoch, streams, arrangement, counted: OnceLock::new(), all_slots: OnceLock::new() }
    }

    /// The number of draws.
    pub(super) fn len(&self) -> u64 {
        match &self.arrangement {
            Arrangement::Turns(stretches) => stretches.last().map_or(0, Stretch::end),
            Arrangement::Measured(measured) => self.list(measured).samples.len() as u64,
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
                let listed = &self.list(measured).samples[index(start)..];
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
                    let drawn = self.streams[source].find(number, first, stretch.turns.of(source));
                    let place = |turn| stretch.start + stretch.turns.place(source, turn);
                    drawn.map(place).collect::<Vec<u64>>()
                };
                stretches.iter().flat_map(drawn).collect()
            }
            Arrangement::Measured(measured) => {
                let listed = self.list(measured).samples.iter().enumerate();
                let same = listed.filter(|&(_, &other)| u64::from(other) == sample);
                same.map(|(place, _)| place as u64).collect()
            }
        }
    }

    /// The first position of a sample.
    pub(super) fn find_first(&self, sample: u64) -> Option<u64> {
        match &self.arrangement {
            Arrangement::Turns(stretches) => {
                let (source, number) = self.mix.origin(sample)?;
                stretches.iter().find_map(|stretch| {
                    let first = stretch.first[source];
                    let turn = self.streams[source].find(number, first, stretch.turns.of(source)).next()?;
                    Some(stretch.start + stretch.turns.place(source, turn))
                })
            }
            Arrangement::Measured(_) => self.find(sample).first().copied(),
        }
    }

    fn list<'a>(&self, measured: &'a Measured) -> &'a Listed {
        measured.draws_of_epoch(&self.mix, &self.streams, self.epoch)
    }

    /// The number of draws of each source in earlier epochs.
    pub(super) fn draws_before_epoch(&self) -> Vec<u64> {
        match &self.arrangement {
            Arrangement::Turns(stretches) => {
                stretches.first().map_or_else(|| vec![0; self.streams.len()], |stretch| stretch.first.clone())
            }
            Arrangement::Measured(measured) => self.list(measured).first.clone(),
        }
    }

    /// The number of draws of each source in this epoch before a position.
    pub(super) fn draws_before(&self, position: u64) -> Vec<u64> {
        match &self.arrangement {
            Arrangement::Turns(stretches) => {
                let next = stretches.partition_point(|stretch| stretch.start <= position);
                let Some(stretch) = next.checked_sub(1).map(|last| &stretches[last]) else {
                    return vec![0; self.streams.len()];
                };
                let within = (position - stretch.start).min(stretch.turns.len());
                let counts = stretch.turns.counts_at(within).into_iter();
                let before = stretch.first.iter().zip(&stretches[0].first);
                counts.zip(before).map(|(own, (first, epoch))| own + first.wrapping_sub(*epoch)).collect()
            }
            Arrangement::Measured(measured) => {
                let listed = &self.list(measured).samples;
                let (sources, counted) = (self.streams.len(), self.count_draws(listed));
                let from = (position / COUNTED).min((listed.len() as u64) / COUNTED);
                let mut counts = counted[index(from) * sources..][..sources].to_vec();
                let end = index(position).min(listed.len());
                for source in listed[index(from * COUNTED)..end].iter().filter_map(|&it| self.source(it)) {
                    counts[source] += 1;
                }
                counts
            }
        }
    }

    /// The position of a draw of a source in this epoch; the number of positions if there are fewer draws.
    pub(super) fn position_of(&self, source: usize, draw: u64) -> u64 {
        match &self.arrangement {
            Arrangement::Turns(stretches) => {
                let epoch = stretches.first().map_or(0, |stretch| stretch.first[source]);
                let before = |stretch: &Stretch| stretch.first[source].wrapping_sub(epoch);
                let holds = |stretch: &&Stretch| draw < before(stretch) + stretch.turns.of(source);
                let place = |stretch: &Stretch| {
                    stretch.start + stretch.turns.place(source, draw.saturating_sub(before(stretch)))
                };
                stretches.iter().find(holds).map_or_else(|| self.len(), place)
            }
            Arrangement::Measured(measured) => {
                let listed = &self.list(measured).samples;
                let (sources, counted) = (self.streams.len(), self.count_draws(listed));
                let (mut low, mut high) = (0, counted.len() / sources.max(1));
                while high - low > 1 {
                    let middle = low.midpoint(high);
                    if counted[middle * sources + source] <= draw { low = middle } else { high = middle }
                }
                let start = (low * index(COUNTED)).min(listed.len());
                let left = draw - counted.get(low * sources + source).copied().unwrap_or(0);
                let own =
                    listed[start..].iter().enumerate().filter(|(_, it)| self.source(**it) == Some(source));
                own.map(|(place, _)| (start + place) as u64).nth(index(left)).unwrap_or(listed.len() as u64)
            }
        }
    }

    /// The draws of each source before every so many positions of an epoch that is listed.
    fn count_draws(&self, listed: &[u32]) -> &[u64] {
        self.counted.get_or_init(|| {
            let mut counts = vec![0; self.streams.len()];
            let mut counted = counts.clone();
            for samples in listed.chunks(index(COUNTED)) {
                samples.iter().filter_map(|&it| self.source(it)).for_each(|source| counts[source] += 1);
                counted.extend_from_slice(&counts);
            }
            counted
        })
    }

    /// The source of a sample.
    fn source(&self, sample: u32) -> Option<usize> {
        self.mix.origin(u64::from(sample)).map(|(source, _)| source)
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
            self.streams[source].fill(stretch.first[source], *first, samples);
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
