//! `Selection`: some samples of a dataset, by their numbers: a run of neighbours, or a list.
//!
//! A selection of a selection is one of the dataset itself. A list takes four bytes a sample, a run nothing.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use super::error::SelectionCause;
use super::parts::{PartEnd, ends};
use crate::batching::error::BatchingCause;
use crate::brief::Brief;
use crate::order::{Key, Order, Purpose};
use crate::{Result, memory};

/// Some samples of a dataset, in any order. A sample may be selected several times.
///
/// ```
/// use batchloom::dataset::Selection;
///
/// let every_third = Selection::list(&[0, 3, 6, 9], 12)?;
/// assert_eq!(Selection::range(1..3, 4)?.within(&every_third)?.to_vec(), [3, 6]);
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Selection {
    numbers: Numbers,
    /// The number of samples to select from.
    samples: u64,
    /// The number, in all of the data, of the first of them, if the data was cut.
    base: u64,
    /// The number of samples of all of the data.
    total: u64,
    /// The samples that the numbers stand for, in words, for fingerprints.
    text: Arc<str>,
}

/// The numbers of the samples.
#[derive(Clone)]
enum Numbers {
    Range(Range<u64>),
    Narrow(Arc<[u32]>),
    Wide(Arc<[u64]>),
}

impl std::fmt::Debug for Numbers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Range(range) => range.fmt(formatter),
            Self::Narrow(numbers) => Brief(numbers).fmt(formatter),
            Self::Wide(numbers) => Brief(numbers).fmt(formatter),
        }
    }
}

impl Numbers {
    /// A text that identifies these numbers, counted from `base`, among all selections of `total` samples.
    fn text(&self, base: u64, total: u64) -> Arc<str> {
        let digest = match self {
            Self::Range(Range { start, end }) => {
                return format!("{}..{} of {total}", base + start, base + end).into();
            }
            Self::Narrow(list) => digest(list.iter().map(|&number| base + u64::from(number)), total),
            Self::Wide(list) => digest(list.iter().map(|&number| base + number), total),
        };
        format!("{digest:032x} of {total}").into()
    }

    /// Numbers below `samples`. Neighbours are a range.
    ///
    /// # Errors
    /// [`Kind::Memory`](crate::Kind::Memory).
    fn from_list(list: impl ExactSizeIterator<Item = u64> + Clone, samples: u64) -> Result<Self> {
        let first = list.clone().next().unwrap_or(0);
        if list.clone().zip(first..).all(|(number, expected)| number == expected) {
            return Ok(Self::Range(first..first + list.len() as u64));
        }
        // The numbers are there twice until they are shared.
        memory::require_each(list.len(), 2 * size_of::<u64>())?;
        Ok(match u32::try_from(samples.saturating_sub(1)) {
            // Numbers below `samples` are at most this.
            Ok(most) => Self::Narrow(list.map(|number| u32::try_from(number).unwrap_or(most)).collect()),
            Err(_) => Self::Wide(list.collect()),
        })
    }
}

/// The hash of numbers below `total`, in order, each as four bytes where that is enough and as eight otherwise, the
/// lowest first.
fn digest(mut numbers: impl Iterator<Item = u64>, total: u64) -> u128 {
    let narrow = u32::try_from(total.saturating_sub(1)).is_ok();
    let (mut hash, mut some) = (Xxh3::new(), Vec::with_capacity(8 << 10));
    loop {
        some.clear();
        for number in numbers.by_ref().take(1 << 10) {
            let bytes = number.to_le_bytes();
            some.extend_from_slice(if narrow { &bytes[..4] } else { &bytes });
        }
        if some.is_empty() {
            return hash.digest128();
        }
        hash.update(&some);
    }
}

impl Selection {
    /// The samples `range` of `samples`.
    ///
    /// # Errors
    /// [`Kind::Range`](crate::Kind::Range) if the range leaves them; [`Kind::Data`](crate::Kind::Data) if it is empty.
    pub fn range(range: Range<u64>, samples: u64) -> Result<Self> {
        match range {
            Range { start, end } if start >= end => Err(SelectionCause::Empty { samples }.into()),
            Range { end, .. } if end > samples => {
                Err(BatchingCause::SampleRange { sample: end - 1, samples }.into())
            }
            range => Ok(Self::of(Numbers::Range(range), samples)),
        }
    }

    /// The samples `list` of `samples`, in this order.
    ///
    /// # Errors
    /// [`Kind::Range`](crate::Kind::Range), with the first sample that there is not; [`Kind::Data`](crate::Kind::Data)
    /// if the list is empty.
    pub fn list(list: &[u64], samples: u64) -> Result<Self> {
        match list.iter().find(|&&number| number >= samples) {
            _ if list.is_empty() => Err(SelectionCause::Empty { samples }.into()),
            Some(&sample) => Err(BatchingCause::SampleRange { sample, samples }.into()),
            None => Ok(Self::of(Numbers::from_list(list.iter().copied(), samples)?, samples)),
        }
    }

    fn of(numbers: Numbers, samples: u64) -> Self {
        Self::from_base(numbers, samples, 0, samples)
    }

    /// Numbers that count from `base`, out of `samples` of the `total` that there are.
    fn from_base(numbers: Numbers, samples: u64, base: u64, total: u64) -> Self {
        let text = numbers.text(base, total);
        Self { numbers, samples, base, total, text }
    }

    /// The samples of each part of a split of `samples` samples, in the order in which they are stored. They are drawn
    /// at random by `seed`, or are neighbours without one. This takes one pass over the samples.
    ///
    /// With `strata`, a number for each sample, samples of each number are shared out like all of them: to one or two
    /// samples, each part holds its share of each.
    ///
    /// ```
    /// use batchloom::dataset::{PartEnd, Selection};
    ///
    /// let ends = [("train", PartEnd::Share(0.8)), ("test", PartEnd::Rest)];
    /// let parts = Selection::split(10, &ends, Some(0), None)?;
    /// assert_eq!((parts[0].len(), parts[1].len()), (8, 2));
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`borders`](super::borders); [`Kind::Data`](crate::Kind::Data) if a part is empty, if there is not
    /// one number for each sample, or if numbers are given without a seed.
    pub fn split(
        samples: u64,
        parts: &[(&str, PartEnd)],
        seed: Option<u64>,
        strata: Option<&[i64]>,
    ) -> Result<Vec<Self>> {
        if parts.len() >= usize::from(u16::MAX) {
            return Err(SelectionCause::TooManyParts { found: parts.len(), limit: u16::MAX }.into());
        }
        let index = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let of_samples = |cause| match cause {
            SelectionCause::PartStep { part, step, .. } => {
                SelectionCause::PartSamples { part, found: step, samples }
            }
            cause => cause,
        };
        let ends: Vec<u64> = ends(&[index(samples)], parts)
            .map_err(of_samples)?
            .iter()
            .map(|ends| ends.first().map_or(0, |&end| end as u64))
            .collect();
        let starts = [0].into_iter().chain(ends.iter().copied());
        if let Some(place) = starts.clone().zip(&ends).position(|(start, &end)| start == end) {
            let part = parts[place].0.to_owned();
            return Err(SelectionCause::EmptyPart { part, end: ends[place], count: samples }.into());
        }
        let key = match (seed, strata) {
            (Some(seed), strata) => {
                let count = strata.map_or(samples, |strata| strata.len() as u64);
                if count != samples {
                    return Err(SelectionCause::StrataCount { found: count, samples }.into());
                }
                Key::new(seed, 0, Purpose::Split)
            }
            (None, Some(_)) => {
                return Err(SelectionCause::StrataWithoutSeed.into());
            }
            (None, None) => {
                return starts.zip(&ends).map(|(start, &end)| Self::range(start..end, samples)).collect();
            }
        };
        // The part of each sample, its number, what sorting by strata takes, and the lists of all parts.
        memory::require_each(index(samples), size_of::<u16>() + 4 * size_of::<u64>())?;
        let order = Order::new(samples, Some(&key));
        let part_of = match strata {
            None => by_place(&order, &ends),
            Some(strata) => by_turns(&order, &ends, strata),
        };
        let mut numbers: Vec<Vec<u64>> =
            starts.zip(&ends).map(|(start, &end)| Vec::with_capacity(index(end - start))).collect();
        for (number, part) in (0..).zip(part_of) {
            if let Some(numbers) = numbers.get_mut(usize::from(part)) {
                numbers.push(number);
            }
        }
        numbers.iter().map(|numbers| Self::list(numbers, samples)).collect()
    }

    /// The number of samples selected.
    pub fn len(&self) -> u64 {
        match &self.numbers {
            Numbers::Range(range) => range.end - range.start,
            Numbers::Narrow(list) => list.len() as u64,
            Numbers::Wide(list) => list.len() as u64,
        }
    }

    /// Returns true if no sample is selected, which never happens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of samples that were there to select from.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The number of the sample at `place`.
    ///
    /// # Panics
    /// Panics if `place` is not below [`len`](Self::len).
    pub fn get(&self, place: u64) -> u64 {
        let index = || usize::try_from(place).unwrap_or(usize::MAX);
        match &self.numbers {
            Numbers::Range(range) => {
                let number = range.start + place;
                assert!(number < range.end, "place {place} is not below {}", self.len());
                number
            }
            Numbers::Narrow(list) => u64::from(list[index()]),
            Numbers::Wide(list) => list[index()],
        }
    }

    /// Replaces each of some places by the number of the sample there.
    ///
    /// # Panics
    /// Panics if a place is not below [`len`](Self::len).
    pub(crate) fn map(&self, places: &mut [u64]) {
        places.iter_mut().for_each(|place| *place = self.get(*place));
    }

    /// The numbers as a range, if they are neighbours.
    pub fn as_range(&self) -> Option<Range<u64>> {
        match &self.numbers {
            Numbers::Range(range) => Some(range.clone()),
            _ => None,
        }
    }

    /// Returns true if all samples are selected, in their order.
    pub(crate) fn is_everything(&self) -> bool {
        self.as_range() == Some(0..self.samples)
    }

    /// The smallest range that holds all of the numbers.
    pub fn span(&self) -> Range<u64> {
        match &self.numbers {
            Numbers::Range(range) => range.clone(),
            _ => self.iter().min().unwrap_or(0)..self.iter().max().map_or(0, |most| most + 1),
        }
    }

    /// The numbers, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u64> + Clone + '_ {
        (0..usize::try_from(self.len()).unwrap_or(usize::MAX)).map(|place| self.get(place as u64))
    }

    /// The numbers as a list.
    pub fn to_vec(&self) -> Vec<u64> {
        self.iter().collect()
    }

    /// The numbers as a list of at most four bytes a sample, if all numbers that there are fit.
    pub fn as_narrow(&self) -> Option<Cow<'_, [u32]>> {
        match &self.numbers {
            Numbers::Range(_) | Numbers::Wide(_) => None,
            Numbers::Narrow(list) => Some(Cow::Borrowed(list)),
        }
    }

    /// The samples that these places of `outer` hold, as a selection of what that was selected from.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if this does not select from as many samples as that has.
    pub fn within(&self, outer: &Self) -> Result<Self> {
        if self.samples != outer.len() {
            return Err(SelectionCause::Samples { found: self.samples, expected: outer.len() }.into());
        }
        if self.is_everything() {
            return Ok(outer.clone());
        }
        let numbers = match (&self.numbers, &outer.numbers) {
            (Numbers::Range(inner), Numbers::Range(outer)) => {
                Numbers::Range(outer.start + inner.start..outer.start + inner.end)
            }
            _ => Numbers::from_list(self.iter().map(|place| outer.get(place)), outer.samples)?,
        };
        Ok(Self::from_base(numbers, outer.samples, outer.base, outer.total))
    }

    /// The same samples of data that was cut to `span`, which holds all of them. Fingerprints stay as they are.
    ///
    /// # Errors
    /// [`Kind::Range`](crate::Kind::Range) if a number is not in `span`.
    pub fn cut(&self, span: Range<u64>) -> Result<Self> {
        let held = self.span();
        let samples = span.end - span.start;
        if held.start < span.start || held.end > span.end {
            return Err(BatchingCause::SampleRange { sample: held.end - 1, samples }.into());
        }
        let numbers = match &self.numbers {
            Numbers::Range(range) => Numbers::Range(range.start - span.start..range.end - span.start),
            _ => Numbers::from_list(self.iter().map(|number| number - span.start), samples)?,
        };
        let base = self.base + span.start;
        Ok(Self { numbers, samples, base, total: self.total, text: Arc::clone(&self.text) })
    }

    /// The same samples as a selection of data that was [cut](Self::cut), written down and read again: `base` is the
    /// number, in all of the data, of the first sample that is there, and `total` the number of all.
    ///
    /// # Errors
    /// [`Kind::Range`](crate::Kind::Range) if the data that is there does not lie in all of it.
    pub fn restored(self, base: u64, total: u64) -> Result<Self> {
        match base.checked_add(self.samples).filter(|&end| end <= total) {
            Some(_) => Ok(Self::from_base(self.numbers, self.samples, base, total)),
            None => {
                let (sample, samples) = (base.saturating_add(self.samples), total);
                Err(BatchingCause::SampleRange { sample, samples }.into())
            }
        }
    }

    /// The number of samples of all of the data.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The number, in all of the data, of the first sample that is there: 0, unless the data was [cut](Self::cut).
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The selection in words that identify it among selections of the same number of samples: a part of fingerprints.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// The part of each sample: those at the first places of the order are the first part, and so on.
fn by_place(order: &Order, ends: &[u64]) -> Vec<u16> {
    let mut part_of = leave_unassigned(order, ends);
    let mut start = 0;
    for (part, &end) in (0..).zip(ends) {
        visit(order, start..end, |sample| part_of[sample] = part);
        start = end;
    }
    part_of
}

/// The part of each sample, where parts take turns within each stratum.
///
/// Strata follow each other, the samples of each in the random order. Parts take turns in proportion to their shares,
/// so that any number of samples in a row are shared out like all of them, and a stratum is samples in a row.
fn by_turns(order: &Order, ends: &[u64], strata: &[i64]) -> Vec<u16> {
    let mut part_of = leave_unassigned(order, ends);
    let mut samples = Vec::with_capacity(part_of.len());
    visit(order, 0..order.len(), |sample| samples.push(sample));
    samples.sort_by_key(|&sample| strata[sample]);
    let turns = Turns::new(ends, order.len());
    for (sample, part) in samples.into_iter().zip(turns) {
        if let Some(part) = part {
            part_of[sample] = part;
        }
    }
    part_of
}

/// The parts of samples before they are known: one past the last, for samples that no part takes.
fn leave_unassigned(order: &Order, ends: &[u64]) -> Vec<u16> {
    vec![u16::try_from(ends.len()).unwrap_or(u16::MAX); usize::try_from(order.len()).unwrap_or(usize::MAX)]
}

/// Calls `each` with the samples at some places of an order.
fn visit(order: &Order, places: Range<u64>, mut each: impl FnMut(usize)) {
    let mut numbers = [0; 1024];
    for first in places.clone().step_by(numbers.len()) {
        let count = usize::try_from(places.end - first).unwrap_or(usize::MAX).min(numbers.len());
        order.fill(first, &mut numbers[..count]);
        numbers[..count].iter().for_each(|&number| each(usize::try_from(number).unwrap_or(usize::MAX)));
    }
}

/// The turns of parts, which take all places as evenly as whole numbers allow.
///
/// The turn of a part is due before its share of the places so far reaches the next whole number, and begins when it
/// has passed the last one. Of those that have begun, the one that is due first takes the place (R. Tijdeman, "The
/// chairman assignment problem", 1980): at every place, each part has had its share to less than one place.
struct Turns {
    /// The places that each part takes of `places`; the last entry is what no part takes.
    shares: Vec<u64>,
    taken: Vec<u64>,
    places: u64,
    place: u64,
}

impl Turns {
    fn new(ends: &[u64], places: u64) -> Self {
        let starts = [0].into_iter().chain(ends.iter().copied());
        let ends = ends.iter().copied().chain([places]);
        let shares: Vec<u64> = starts.zip(ends).map(|(start, end)| end - start).collect();
        Self { taken: vec![0; shares.len()], shares, places, place: 0 }
    }
}

impl Iterator for Turns {
    type Item = Option<u16>;

    fn next(&mut self) -> Option<Self::Item> {
        let (place, places) = (u128::from(self.place), u128::from(self.places));
        let wide = |number: u64| u128::from(number);
        let begun = |&part: &usize| wide(self.shares[part]) * (place + 1) > wide(self.taken[part]) * places;
        let open = (0..self.shares.len()).filter(begun);
        // The place at which its share reaches the next whole number.
        let due = |&part: &usize| ((wide(self.taken[part]) + 1) * places).div_ceil(wide(self.shares[part]));
        let part = open.min_by_key(due)?;
        (self.taken[part], self.place) = (self.taken[part] + 1, self.place + 1);
        Some(u16::try_from(part).ok().filter(|_| part + 1 < self.shares.len()))
    }
}
