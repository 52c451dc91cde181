//! The samples of one batch, as forms have to know them.

use std::ops::Range;

use super::by_source::BySource;
use super::held::HeldMembers;
use super::taken::Taken;
use crate::order::RunEpoch;
use crate::tensor::{Sequences, SparseRows};

/// The shape of batches in rows: the number of rows, the elements of a row, and the samples that a row has places for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowFrame {
    pub(crate) rows: usize,
    pub(crate) tokens: usize,
    pub(crate) samples: usize,
}

/// The samples of a batch, the elements that it takes of each, and the shape that follows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Members {
    /// The number of members.
    pub(crate) count: usize,
    /// The epoch in which the batch is made, for slots that draw random numbers.
    pub(crate) epoch: RunEpoch,
    /// The number that the loss of the update is divided by; 0 where batches have no weights of labels.
    pub(crate) loss_denominator: u64,
    /// The number of members, at the end, that only fill up the batch.
    pub(crate) fillers: usize,
    /// True for each member that is banned: its place holds no data. Empty if all count.
    pub(crate) banned: Vec<bool>,
    /// The samples. If they do not differ in size this is empty, and workers read them from the plan.
    pub(crate) samples: Vec<u64>,
    /// The place of each sample in the data that forms read. Empty if it is the sample itself.
    pub(crate) rows: Vec<u64>,
    /// The data, of several, that holds each sample. Empty if there is one.
    pub(crate) sources: Vec<u32>,
    /// The first element that is taken of each sample, along the only dimension that varies.
    pub(crate) starts: Vec<u32>,
    /// The extent that is taken of each sample in each dimension that varies.
    pub(crate) extents: Vec<u32>,
    /// The number, within its sample, of each element that is taken, if samples are subsampled. Empty otherwise.
    pub(crate) picks: Vec<u32>,
    /// The shape that the samples are padded to.
    pub(crate) union: Vec<usize>,
    /// The place where each sample begins in a concatenation, and where the last one ends.
    pub(crate) ends: Vec<usize>,
    /// For each field of compressed rows, the entry with which each sample begins, and the number of all.
    pub(crate) entry_ends: Vec<Vec<usize>>,
    /// The members as each field with separate lengths has them.
    pub(crate) own: Vec<Self>,
    /// The shape of batches in rows, and the end of each row among the members, if batches are rows of one shape.
    pub(crate) row_frame: Option<RowFrame>,
    pub(crate) row_ends: Vec<u32>,
    /// True for each member that is continued by another part of its sample. Empty if no sample is.
    pub(crate) continued: Vec<bool>,
    /// The samples themselves, if they are in chunks that are held.
    pub(crate) held: Option<HeldMembers>,
}

impl Members {
    /// The members of a batch, given its samples and the elements taken of each in `dimensions` dimensions, and the
    /// way in which padded extents are rounded.
    pub(crate) fn new(
        samples: Vec<u64>,
        starts: Vec<u32>,
        extents: Vec<u32>,
        dimensions: usize,
        rounded: impl Fn(u32) -> u64 + Copy,
    ) -> Self {
        let mut union = vec![0; dimensions];
        for extents in extents.chunks(dimensions) {
            union.iter_mut().zip(extents).for_each(|(most, &extent)| *most = extent.max(*most));
        }
        let index = |most: u32| usize::try_from(rounded(most)).unwrap_or(usize::MAX);
        let union = union.into_iter().map(index).collect();
        let ends = extents.chunks(dimensions).scan(0, |end: &mut usize, extents| {
            *end = end.saturating_add(number(extents[0]));
            Some(*end)
        });
        let ends = std::iter::once(0).chain(ends).collect();
        Self { count: samples.len(), samples, starts, extents, union, ends, ..Self::default() }
    }

    /// The same members; fields with separate lengths take all of them.
    pub(crate) fn with_own(
        mut self,
        fields: &[BySource<Sequences>],
        rounded: impl Fn(u32) -> u64 + Copy,
    ) -> Self {
        let own = |sequences: &BySource<Sequences>| {
            let sizes = |member| sequences.of(self.source(member)).sizes_of(self.row(member));
            let extents = (0..self.count).flat_map(sizes).collect();
            let (samples, starts) = (self.samples.clone(), vec![0; self.count]);
            let members = Self::new(samples, starts, extents, sequences.first().varying().len(), rounded);
            let (rows, sources) = (self.rows.clone(), self.sources.clone());
            let (epoch, fillers, banned) = (self.epoch, self.fillers, self.banned.clone());
            Self { epoch, fillers, banned, rows, sources, ..members }
        };
        self.own = fields.iter().map(own).collect();
        self
    }

    /// The members of a batch that holds one of these, as long as it is.
    pub(super) fn keep_only(&self, member: usize) -> Self {
        let one = self.part(member..member + 1);
        let union = one.extents.iter().map(|&extent| number(extent)).collect();
        Self { union, own: self.own.iter().map(|own| own.keep_only(member)).collect(), ..one }
    }

    /// The members of a batch that holds some of these, padded as these are.
    pub(crate) fn part(&self, range: Range<usize>) -> Self {
        fn some<T: Copy>(values: &[T], range: Range<usize>) -> Vec<T> {
            values.get(range).map(<[T]>::to_vec).unwrap_or_default()
        }
        let dimensions = self.union.len();
        let ends = some(&self.ends, range.start..range.end + 1);
        let (start, end) = (ends.first().copied().unwrap_or(0), ends.last().copied().unwrap_or(0));
        Self {
            count: range.len(),
            epoch: self.epoch,
            loss_denominator: self.loss_denominator,
            fillers: self.fillers_in(&range),
            banned: some(&self.banned, range.clone()),
            samples: some(&self.samples, range.clone()),
            rows: some(&self.rows, range.clone()),
            sources: some(&self.sources, range.clone()),
            starts: some(&self.starts, range.clone()),
            extents: some(&self.extents, range.start * dimensions..range.end * dimensions),
            picks: some(&self.picks, start..end),
            union: self.union.clone(),
            ends: ends.iter().map(|end| end - start).collect(),
            entry_ends: Vec::new(),
            own: self.own.iter().map(|own| own.part(range.clone())).collect(),
            row_frame: None,
            row_ends: Vec::new(),
            continued: some(&self.continued, range.clone()),
            held: self
                .held
                .as_ref()
                .map(|held| HeldMembers { first: held.first + range.start, ..held.clone() }),
        }
    }

    /// The rows of values that some members take, if these do not lie one after the other.
    pub(super) fn find_scattered_rows(&self, sequences: &Sequences, range: Range<usize>) -> Option<Vec<u64>> {
        let order = sequences.order();
        if order.is_none() && self.picks.is_empty() {
            return None;
        }
        let mut rows = Vec::with_capacity(self.ends[range.end] - self.ends[range.start]);
        for member in range {
            let first = sequences.start(self.row(member));
            let places = self.ends[member]..self.ends[member + 1];
            let row = |place: usize| order.map_or(place as u64, |order| order[place]);
            match self.picks.get(places.clone()) {
                Some(picks) if !self.picks.is_empty() => {
                    rows.extend(picks.iter().map(|&pick| row(first + number(pick))));
                }
                _ => rows.extend((0..places.len()).map(|step| row(first + self.start(member) + step))),
            }
        }
        Some(rows)
    }

    /// The members of a batch whose samples do not differ in size.
    pub(crate) fn of_samples(taken: Taken<'_>, fillers: usize) -> Self {
        let Taken { samples, rows, sources, epoch, held } = taken;
        let rows = if rows == samples { Vec::new() } else { rows.to_vec() };
        let (samples, sources) = (samples.to_vec(), sources.to_vec());
        let held = held.cloned();
        Self { count: samples.len(), epoch, fillers, samples, rows, sources, held, ..Self::default() }
    }

    /// The same members, with any number of entries in sparse rows.
    pub(crate) fn with_entries(self, compressed: &[BySource<SparseRows>]) -> Self {
        let ends = |rows: &BySource<SparseRows>| {
            let ends = (0..self.count).scan(0, |end: &mut usize, member| {
                *end += rows.of(self.source(member)).entries(self.row(member)).len();
                Some(*end)
            });
            std::iter::once(0).chain(ends).collect()
        };
        Self { entry_ends: compressed.iter().map(ends).collect(), ..self }
    }

    /// The entry of a batch with which a member begins in the compressed rows number `place`: 0 for members that are
    /// not listed.
    pub(super) fn entry(&self, place: usize, member: usize) -> usize {
        self.entry_ends.get(place).map_or(0, |ends| ends[member])
    }

    /// The members of a batch whose samples do not differ in size.
    pub(crate) fn of_count(count: usize, fillers: usize) -> Self {
        Self { count, fillers, ..Self::default() }
    }

    /// Returns true if the samples are known, so that forms take them from here and not from the plan.
    pub(crate) fn are_listed(&self) -> bool {
        !self.samples.is_empty()
    }

    /// Returns true if a member does not count: it only fills up the batch, or is banned.
    pub(crate) fn is_filler(&self, member: usize) -> bool {
        member >= self.count - self.fillers || self.is_banned(member)
    }

    /// Returns true if a member is banned.
    pub(crate) fn is_banned(&self, member: usize) -> bool {
        self.banned.get(member).is_some_and(|&banned| banned)
    }

    /// The same members, with the samples in `banned` banned. It is in ascending order.
    pub(crate) fn ban(self, banned: &[u64]) -> Self {
        let is_banned = |sample: &u64| banned.binary_search(sample).is_ok();
        match self.samples.iter().any(is_banned) {
            true => Self { banned: self.samples.iter().map(is_banned).collect(), ..self },
            false => self,
        }
    }

    /// The number of members of `range` that only fill up the batch: the last ones.
    pub(crate) fn fillers_in(&self, range: &Range<usize>) -> usize {
        range.end.saturating_sub(range.start.max(self.count - self.fillers))
    }

    /// The number of elements of all samples together, if they are concatenated.
    pub(crate) fn elements(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The extent that is taken of a member in each dimension that varies.
    pub(crate) fn extents(&self, member: usize) -> &[u32] {
        let dimensions = self.union.len();
        &self.extents[member * dimensions..(member + 1) * dimensions]
    }

    /// The number of elements that are taken of a member along the only dimension that varies.
    pub(crate) fn length(&self, member: usize) -> usize {
        number(self.extents(member)[0])
    }

    /// The length of the longest member, or that of a row if batches are rows of one shape.
    pub(crate) fn longest(&self) -> usize {
        let longest = || self.extents.iter().copied().max().map_or(0, number);
        self.row_frame.map_or_else(longest, |frame| frame.tokens)
    }

    /// The row that holds a member: the first and only one, unless batches are rows of one shape.
    pub(super) fn row_of(&self, member: usize) -> usize {
        self.row_ends.partition_point(|&end| number(end) <= member)
    }

    /// The row that holds a member of a later row than `row`.
    pub(super) fn row_after(&self, row: usize, member: usize) -> usize {
        let passed = self.row_ends.iter().skip(row + 1).take_while(|&&end| number(end) <= member);
        row + 1 + passed.count()
    }

    /// The members of a row.
    pub(super) fn row_members(&self, row: usize) -> Range<usize> {
        let start = row.checked_sub(1).map_or(0, |before| number(self.row_ends[before]));
        start..self.row_ends.get(row).map_or(self.count, |&end| number(end))
    }

    /// Returns true if another part of the member's sample follows.
    pub(super) fn is_continued(&self, member: usize) -> bool {
        self.continued.get(member).is_some_and(|&continued| continued)
    }

    /// The place of a member in the data that forms read.
    pub(crate) fn row(&self, member: usize) -> usize {
        usize::try_from(self.rows(member..member + 1)[0]).unwrap_or(usize::MAX)
    }

    /// The source of a member, of several.
    pub(crate) fn source(&self, member: usize) -> usize {
        self.sources.get(member).map_or(0, |&source| number(source))
    }

    /// The places of some members in the data that forms read.
    pub(super) fn rows(&self, range: Range<usize>) -> &[u64] {
        if self.rows.is_empty() { &self.samples[range] } else { &self.rows[range] }
    }

    /// Some members with samples of one size.
    pub(super) fn take(&self, range: Range<usize>) -> Taken<'_> {
        let sources = self.sources.get(range.clone()).unwrap_or_default();
        let samples = &self.samples[range.clone()];
        Taken { samples, rows: self.rows(range), sources, epoch: self.epoch, held: None }
    }

    pub(crate) fn start(&self, member: usize) -> usize {
        number(self.starts[member])
    }
}

/// An extent as an index.
pub(super) fn number(extent: u32) -> usize {
    usize::try_from(extent).unwrap_or(usize::MAX)
}
