//! `PerClass`: the draws of one epoch of classes that take turns of several samples.
//!
//! A turn is some samples of one class, and a batch is some turns. Classes come by a [`Wheel`] with the turns of a batch
//! as its groups, and the samples of a class by a wheel with the samples of a turn as its groups. Both go on from epoch
//! to epoch, so an epoch has whole batches. Nothing is listed: turn `t` of a run is turn `t / classes` of its class.

use super::mix::Mix;
use super::wheel::{Pass, Wheel};

/// The draws of one epoch, turn by turn.
#[derive(Debug)]
pub(crate) struct PerClass {
    mix: Mix,
    /// The number of samples in a turn.
    per_class: u64,
    /// The wheel of the classes.
    classes: Wheel,
    /// The number of turns before the epoch.
    before: u128,
    /// The number of turns in the epoch.
    turns: u64,
}

impl PerClass {
    /// The draws of an epoch of `num_samples` samples, in batches of `batch_size`. Both are multiples of `per_class`,
    /// and `num_samples` is one of `batch_size`.
    pub(crate) fn new(
        mix: Mix,
        (per_class, batch_size, num_samples): (u64, u64, u64),
        seed: u64,
        epoch: u64,
        shuffled: bool,
    ) -> Self {
        let (things, turns) = (mix.len() as u64, num_samples / per_class);
        let classes = Wheel { things, group: batch_size / per_class, seed, number: 0, shuffled };
        Self { mix, per_class, classes, before: u128::from(epoch) * u128::from(turns), turns }
    }

    /// The number of draws.
    pub(super) fn len(&self) -> u64 {
        self.turns * self.per_class
    }

    /// The wheel of the samples of a class.
    fn samples(&self, class: usize) -> Wheel {
        let Wheel { seed, shuffled, .. } = self.classes;
        Wheel {
            things: self.mix.count(class),
            group: self.per_class,
            seed,
            number: class as u64 + 1,
            shuffled,
        }
    }

    /// Writes the samples at some positions.
    pub(super) fn fill(&self, start: u64, out: &mut [u64]) {
        let classes = u128::from(self.classes.things);
        let (mut position, mut out) = (start, out);
        let mut open: Option<(u128, Pass)> = None;
        while !out.is_empty() {
            let within = position % self.per_class;
            let left = usize::try_from(self.per_class - within).unwrap_or(usize::MAX);
            let (now, later) = out.split_at_mut(left.min(out.len()));
            let turn = self.before + u128::from(position / self.per_class);
            let number = turn / classes;
            let same = open.take().filter(|(open, _)| *open == number);
            let (_, pass) = open.insert(same.unwrap_or_else(|| (number, self.classes.pass(number))));
            let class = index(pass.get(low(turn % classes)));
            self.fill_turn(class, number * u128::from(self.per_class) + u128::from(within), now);
            (position, out) = (position + now.len() as u64, later);
        }
    }

    /// Writes samples of a class from a draw of its wheel on.
    fn fill_turn(&self, class: usize, first: u128, out: &mut [u64]) {
        let wheel = self.samples(class);
        let samples = u128::from(wheel.things);
        let (mut draw, mut out) = (first, out);
        while !out.is_empty() {
            let within = low(draw % samples);
            let left = usize::try_from(wheel.things - within).unwrap_or(usize::MAX);
            let (now, later) = out.split_at_mut(left.min(out.len()));
            let pass = wheel.pass(draw / samples);
            for (sample, place) in now.iter_mut().zip(within..) {
                *sample = self.mix.sample(class, pass.get(place));
            }
            (draw, out) = (draw + now.len() as u128, later);
        }
    }

    /// The positions of a sample.
    pub(super) fn find(&self, sample: u64) -> Vec<u64> {
        let Some((class, number)) = self.mix.origin(sample) else { return Vec::new() };
        let (classes, per_class) = (u128::from(self.classes.things), u128::from(self.per_class));
        let (start, end) = (self.before, self.before + u128::from(self.turns));
        let wheel = self.samples(class);
        let samples = u128::from(wheel.things);
        // The draws of the class from the first turn of all that it may have in the epoch to the last one.
        let draws = start / classes * per_class..end.div_ceil(classes) * per_class;
        let passes = draws.start / samples..draws.end.div_ceil(samples);
        let drawn = passes.map(|pass| pass * samples + u128::from(wheel.pass(pass).find(number)));
        let position = |draw: u128| {
            let turn = draw / per_class;
            let place = turn * classes + u128::from(self.classes.pass(turn).find(class as u64));
            let is_drawn = draws.contains(&draw) && (start..end).contains(&place);
            is_drawn.then(|| low((place - start) * per_class + draw % per_class))
        };
        drawn.filter_map(position).collect()
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A number that is known to fit 64 bits.
fn low(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
