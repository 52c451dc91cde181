//! Rests: what a row has no room for is continued in a later one, so that rows are full.
//!
//! Samples are put into bins as always. As many bins as their elements fill are kept, the fullest ones; the samples of
//! the other bins fill the gaps of these, cut where a gap ends. Bins by best fit have few gaps, so few samples are cut,
//! and every row begins with a sample or with its rest.
//!
//! Promise: rows are full, but for one, as long as they have places for more samples. Each element is in one row, and
//! the parts of a sample follow each other in the order of rows.

use std::cmp::Reverse;

use serde::Serialize;

use super::{PoolBatches, to_index, to_place};
use crate::named::named;

/// The treatment of what a row has no room for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Rests {
    /// Samples are put into rows whole, and rows are nearly full.
    #[default]
    None,
    /// A sample that does not fit is continued in a later row of the epoch, and rows are full.
    Continue,
}

impl Rests {
    pub(super) fn is_none(&self) -> bool {
        *self == Self::None
    }
}

named!(Rests, "rests", {
    "none" => None,
    "continue" => Continue,
});

/// A part of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// The place of the sample in its pool.
    pub(super) place: u32,
    pub(super) start: u32,
    pub(super) size: u32,
}

/// Samples cut at every `capacity` elements: the parts that fill a row, and the rest of each sample.
pub(super) fn cut_full_rows(
    sizes: impl Iterator<Item = (u32, u32)>,
    capacity: u32,
) -> (Vec<Part>, Vec<Part>) {
    let (mut full, mut rests) = (Vec::new(), Vec::new());
    for (place, size) in sizes {
        let mut start = 0;
        while size - start >= capacity {
            full.push(Part { place, start, size: capacity });
            start += capacity;
        }
        if start < size || size == 0 {
            rests.push(Part { place, start, size: size - start });
        }
    }
    (full, rests)
}

/// The limits of a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowLimits {
    /// The largest number of elements.
    pub(super) tokens: u32,
    /// The largest number of samples.
    pub(super) samples: usize,
}

/// Rows of parts: first `full` rows without padding, and then the rest.
pub(super) struct FilledRows {
    pub(super) rows: PoolBatches,
    pub(super) full: usize,
}

/// Rows of the parts in `bins`, which end in the places `ends`, and of `full`, each of which is a row.
pub(super) fn fill_rows(full: &[Part], bins: &[Part], ends: &[u32], limits: RowLimits) -> FilledRows {
    let range =
        |bin: usize| bin.checked_sub(1).map_or(0, |before| to_index(ends[before]))..to_index(ends[bin]);
    let used = |bin: usize| bins[range(bin)].iter().map(|part| u64::from(part.size)).sum::<u64>();
    let mut by_use: Vec<(Reverse<u64>, usize)> =
        (0..ends.len()).map(|bin| (Reverse(used(bin)), bin)).collect();
    by_use.sort_unstable();
    let total: u64 = by_use.iter().map(|(used, _)| used.0).sum();
    let kept = usize::try_from(total / u64::from(limits.tokens)).unwrap_or(usize::MAX).min(by_use.len());
    let (kept, given) = by_use.split_at(kept);
    let mut fillers = Fillers::new(given.iter().flat_map(|&(_, bin)| &bins[range(bin)]).copied().collect());
    let mut rows = Rows { limits, full: RowList::default(), partial: RowList::default() };
    let mut row = Vec::new();
    for &part in full {
        row.clear();
        row.push(part);
        fillers.fill(&mut row, limits);
        rows.push(&mut row);
    }
    // Large gaps take large fillers.
    for &(_, bin) in kept.iter().rev() {
        row.clear();
        row.extend_from_slice(&bins[range(bin)]);
        fillers.fill(&mut row, limits);
        rows.push(&mut row);
    }
    while !fillers.are_used() {
        row.clear();
        fillers.fill(&mut row, limits);
        rows.push(&mut row);
    }
    rows.finish()
}

/// The parts that fill gaps, the largest first, and those without elements, which fill none.
struct Fillers {
    parts: std::vec::IntoIter<Part>,
    /// The rest of the part that was cut last.
    rest: Option<Part>,
    empty: Vec<Part>,
}

impl Fillers {
    fn new(mut parts: Vec<Part>) -> Self {
        parts.sort_unstable_by_key(|part| (Reverse(part.size), part.place, part.start));
        let empty = parts.split_off(parts.partition_point(|part| part.size > 0));
        Self { parts: parts.into_iter(), rest: None, empty }
    }

    fn are_used(&self) -> bool {
        self.rest.is_none() && self.parts.as_slice().is_empty() && self.empty.is_empty()
    }

    /// Adds parts to a row until it is full, or holds as many as it may.
    fn fill(&mut self, row: &mut Vec<Part>, limits: RowLimits) {
        let mut gap = limits.tokens - row.iter().map(|part| part.size).sum::<u32>();
        while gap > 0 && row.len() < limits.samples {
            let Some(part) = self.rest.take().or_else(|| self.parts.next()) else { break };
            let size = part.size.min(gap);
            row.push(Part { size, ..part });
            gap -= size;
            if size < part.size {
                self.rest = Some(Part { start: part.start + size, size: part.size - size, ..part });
            }
        }
        while row.len() < limits.samples
            && let Some(part) = self.empty.pop()
        {
            row.push(part);
        }
    }
}

/// Rows that are made, those without padding apart.
struct Rows {
    limits: RowLimits,
    full: RowList,
    partial: RowList,
}

#[derive(Default)]
struct RowList {
    parts: Vec<Part>,
    ends: Vec<usize>,
}

impl Rows {
    fn push(&mut self, row: &mut Vec<Part>) {
        let is_full = row.iter().map(|part| part.size).sum::<u32>() == self.limits.tokens;
        let list = if is_full { &mut self.full } else { &mut self.partial };
        list.parts.append(row);
        list.ends.push(list.parts.len());
    }

    fn finish(self) -> FilledRows {
        let before = self.full.parts.len();
        let parts = || self.full.parts.iter().chain(&self.partial.parts);
        let ends = self.full.ends.iter().copied().chain(self.partial.ends.iter().map(|end| before + end));
        let rows = PoolBatches {
            places: parts().map(|part| part.place).collect(),
            starts: parts().map(|part| part.start).collect(),
            taken: parts().map(|part| part.size).collect(),
            ends: ends.map(to_place).collect(),
            row_ends: Vec::new(),
        };
        FilledRows { rows, full: self.full.ends.len() }
    }
}
