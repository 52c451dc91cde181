//! `Problem`: the samples of a call as units in order, checked, and what is dropped.

use super::error::MicroBatchCause;
use super::lists::Lists;
use super::options::{OversizeSample, Whole};
use super::price::{Moments, Price, in_integers};
use super::rollouts::Rollouts;
use super::units::{Room, Units, numbered};
use crate::Result;

/// The limits of a micro-batch, and the samples that it takes whole.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) room: Room,
    pub(super) multiple_of: u32,
    pub(super) oversize: OversizeSample,
    pub(super) whole: Option<Whole>,
}

/// The samples of a call.
#[derive(Debug)]
pub(super) struct Problem {
    /// The length of each sample, rounded up.
    pub(super) rounded: Vec<u64>,
    pub(super) units: Units,
    /// The samples of each unit, in order.
    pub(super) members: Lists,
    /// The class of each unit.
    pub(super) class: Vec<usize>,
    pub(super) classes: usize,
    /// The take of each unit: what is planned as a whole or left, by the number of its first sample.
    pub(super) take: Vec<usize>,
    /// The first sample of each take.
    pub(super) first: Vec<usize>,
    pub(super) dropped: Vec<usize>,
}

/// Samples that a micro-batch takes whole, before they are sorted.
#[derive(Debug, Default)]
struct Unsorted {
    units: Units,
    members: Lists,
    class: Vec<usize>,
}

impl Problem {
    /// Reads and checks samples.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) for a sample, or a group, that exceeds a micro-batch, and for a group of several
    /// classes.
    pub(super) fn new(rollouts: &Rollouts<'_>, limits: Limits, price: &Price) -> Result<Self> {
        let step = u64::from(limits.multiple_of);
        let rounded: Vec<u64> =
            rollouts.lengths.iter().map(|&length| u64::from(length).next_multiple_of(step)).collect();
        let groups = rollouts.groups.map(|groups| numbered(groups.iter().copied()));
        let class = match rollouts.classes {
            Some(classes) => numbered(classes.iter().copied()),
            None => vec![0; rounded.len()],
        };
        let alone = groups.as_deref().filter(|_| limits.whole == Some(Whole::MicroBatch));
        let unsorted = gather(&rounded, alone, &class)?;
        let oversize: Vec<usize> = (0..unsorted.members.len())
            .filter(|&unit| unsorted.units.is_oversize(unit, limits.room))
            .collect();
        if let (OversizeSample::Error, Some(&unit)) = (limits.oversize, oversize.first()) {
            return Err(refuse(rollouts, &unsorted, unit, limits));
        }
        let drops = if limits.oversize == OversizeSample::Drop { oversize } else { Vec::new() };
        let mut dropped: Vec<usize> =
            drops.iter().flat_map(|&unit| unsorted.members.of(unit).iter().copied()).collect();
        dropped.sort_unstable();
        let mut kept = unsorted.without(&drops);
        kept.set_costs(&rounded, price);
        let together = groups.as_deref().filter(|_| limits.whole == Some(Whole::Rank));
        Ok(kept.sort(rounded, together, dropped))
    }

    /// The units of the first so many takes, in order.
    pub(super) fn units_of(&self, takes: usize) -> Vec<usize> {
        (0..self.take.len()).filter(|&unit| self.take[unit] < takes).collect()
    }
}

impl Unsorted {
    /// The units that are not in a sorted list.
    fn without(self, drops: &[usize]) -> Self {
        if drops.is_empty() {
            return self;
        }
        let kept = |unit: &usize| drops.binary_search(unit).is_err();
        let numbers: Vec<usize> = (0..self.members.len()).filter(kept).collect();
        let of = |values: &[u64]| numbers.iter().map(|&unit| values[unit]).collect();
        let units =
            Units { cost: Vec::new(), tokens: of(&self.units.tokens), samples: of(&self.units.samples) };
        let class = numbers.iter().map(|&unit| self.class[unit]).collect();
        Self { units, members: self.members.select(&numbers), class }
    }

    fn set_costs(&mut self, rounded: &[u64], price: &Price) {
        let of = |samples: &[usize]| {
            let mut moments = Moments::default();
            samples.iter().for_each(|&sample| moments.add(rounded[sample]));
            price.of_samples(moments)
        };
        let costs: Vec<f64> = self.members.iter().map(of).collect();
        self.units.cost = in_integers(&costs);
    }

    fn sort(self, rounded: Vec<u64>, together: Option<&[usize]>, dropped: Vec<usize>) -> Problem {
        // Units are in the order of their first samples.
        let take: Vec<usize> = match together {
            Some(groups) => numbered(self.members.iter().map(|samples| groups[samples[0]] as u64)),
            None => (0..self.members.len()).collect(),
        };
        let mut first = Vec::new();
        for (unit, &take) in take.iter().enumerate() {
            if take == first.len() {
                first.push(self.members.of(unit)[0]);
            }
        }
        let (units, places) = self.units.sorted();
        Problem {
            rounded,
            units,
            class: places.iter().map(|&place| self.class[place]).collect(),
            classes: self.class.iter().max().map_or(0, |most| most + 1),
            take: places.iter().map(|&place| take[place]).collect(),
            members: self.members.select(&places),
            first,
            dropped,
        }
    }
}

/// Samples, or groups that stay whole, as units, in the order of their first samples.
///
/// # Errors
/// A group with samples of several classes.
fn gather(rounded: &[u64], groups: Option<&[usize]>, class: &[usize]) -> Result<Unsorted> {
    let members = groups.map_or_else(|| Lists::alone(rounded.len()), Lists::of_places);
    let mut units = Units::default();
    let mut class_of = Vec::with_capacity(members.len());
    for samples in members.iter() {
        let first = samples[0];
        if samples.iter().any(|&sample| class[sample] != class[first]) {
            return Err(MicroBatchCause::MixedGroup { sample: first as u64 }.into());
        }
        class_of.push(class[first]);
        units.tokens.push(samples.iter().map(|&sample| rounded[sample]).sum());
        units.samples.push(samples.len() as u64);
    }
    Ok(Unsorted { units, members, class: class_of })
}

/// The error for a unit that exceeds a micro-batch.
fn refuse(rollouts: &Rollouts<'_>, unsorted: &Unsorted, unit: usize, limits: Limits) -> crate::Error {
    let Limits { room, multiple_of, .. } = limits;
    let first = unsorted.members.of(unit)[0];
    let sample = first as u64;
    match unsorted.members.of(unit).len() {
        1 => {
            let length = rollouts.lengths[first];
            MicroBatchCause::Oversize { sample, length, multiple_of, max_tokens: room.tokens }.into()
        }
        _ => MicroBatchCause::OversizeGroup {
            sample,
            tokens: unsorted.units.tokens[unit],
            samples: unsorted.units.samples[unit],
            max_tokens: room.tokens,
            max_samples: u32::try_from(room.samples).ok(),
        }
        .into(),
    }
}
