//! `found`: gathers rows that are looked up for each window, one for each of its places. A place without a row holds a
//! value, or repeats the row that is nearest to it.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use super::copy::copy_rows;
use super::pad::repeat;
use super::prefetch::prefetch_rows;
use super::{Fill, Form, Members, Padding, RowSlots, Taken};
use crate::tensor::ChunkedTensor;
use crate::{DType, Result};

/// Finds a row for each place of a window.
pub(crate) trait FindRows: Debug + Send + Sync {
    /// The number of places of a window.
    fn count(&self) -> usize;

    /// Replaces `found` by the row of each place of a window.
    fn find(&self, window: u64, found: &mut Vec<Found>);
}

/// The row of one place of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// The row.
    Row(usize),
    /// No row exists. The nearest row of the series, if the series has rows.
    Absent(Option<usize>),
}

impl Found {
    /// The number in an index table: the row, -1 where neither it nor a nearest one exists, and -2 less the nearest row
    /// where only that exists.
    pub(crate) fn number(self) -> i64 {
        let index = |row: usize| row.cast_signed() as i64;
        match self {
            Self::Row(row) => index(row),
            Self::Absent(None) => -1,
            Self::Absent(Some(nearest)) => -2 - index(nearest),
        }
    }

    /// The row that is copied, if one is.
    fn copied(self, fill: &Fill) -> Option<usize> {
        match (self, fill) {
            (Self::Row(row), _) | (Self::Absent(Some(row)), Fill::Edge) => Some(row),
            (Self::Absent(_), _) => None,
        }
    }
}

/// Visits runs of neighbouring rows: their places, and the first row.
fn visit_runs(found: &[Found], fill: &Fill, mut each: impl FnMut(Range<usize>, usize)) {
    let mut place = 0;
    while place < found.len() {
        let Some(first) = found[place].copied(fill) else {
            place += 1;
            continue;
        };
        let is_next = |count: &usize| {
            found.get(place + count).is_some_and(|found| found.copied(fill) == Some(first + count))
        };
        let count = 1 + (1..).take_while(is_next).count();
        each(place..place + count, first);
        place += count;
    }
}

/// The rows of each window: `[samples, places, ..row]`.
#[derive(Debug, Clone)]
pub(crate) struct FoundRows {
    pub(crate) values: ChunkedTensor,
    pub(crate) finder: Arc<dyn FindRows>,
    pub(crate) fill: Fill,
    /// True if some place may have no row.
    pub(crate) pads: bool,
}

impl Form for FoundRows {
    fn dtype(&self) -> DType {
        self.values.dtype()
    }

    fn padding(&self) -> Option<&dyn Padding> {
        self.pads.then_some(self)
    }

    fn repeats_edge(&self) -> bool {
        matches!(self.fill, Fill::Edge)
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        [&[members.count, self.finder.count()], &self.values.shape()[1..]].concat()
    }

    fn is_data(&self) -> bool {
        true
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let slots = RowSlots { batch: range.len(), stride: target.len(), fillers: 0, loss_denominator: 0 };
        self.gather(members.take(range), target, slots)
    }

    fn gather(&self, taken: Taken<'_>, target: &mut [u8], slots: RowSlots) -> Result<()> {
        let slot = self.finder.count() * self.values.row_bytes();
        if slot == 0 {
            return Ok(());
        }
        let mut ahead = taken.rows.iter();
        let (mut found, mut next) = (Vec::new(), Vec::new());
        self.find_ahead(ahead.next(), &mut next);
        for (batch, wanted) in target.chunks_mut(slots.stride).zip(taken.rows.chunks(slots.batch)) {
            for (slot, _) in batch.chunks_exact_mut(slot).zip(wanted) {
                std::mem::swap(&mut found, &mut next);
                self.find_ahead(ahead.next(), &mut next);
                self.copy(&found, slot);
            }
        }
        Ok(())
    }
}

impl Padding for FoundRows {
    fn data(&self, members: &Members, member: usize, each: &mut dyn FnMut(Range<usize>)) {
        let row = self.values.row_bytes() / self.values.dtype().size();
        let mut found = Vec::new();
        self.finder.find(members.rows(member..member + 1)[0], &mut found);
        visit_runs(&found, &self.fill, |places, _| each(places.start * row..places.end * row));
    }

    fn value(&self) -> Option<&[u8]> {
        match &self.fill {
            Fill::Value(value) => Some(value),
            Fill::Zeros | Fill::Edge => None,
        }
    }
}

impl FoundRows {
    /// Finds the rows of a window, if there is one more, and prefetches them.
    fn find_ahead(&self, window: Option<&u64>, found: &mut Vec<Found>) {
        let Some(&window) = window else { return };
        self.finder.find(window, found);
        visit_runs(found, &self.fill, |places, row| {
            prefetch_rows(&self.values, row, places.len() * self.values.row_bytes());
        });
    }

    fn copy(&self, found: &[Found], slot: &mut [u8]) {
        let (bytes, mut filled) = (self.values.row_bytes(), 0);
        visit_runs(found, &self.fill, |places, first| {
            let (before, data) = slot[filled..places.end * bytes].split_at_mut(places.start * bytes - filled);
            self.pad(before);
            copy_rows(&self.values, first, places.len(), data);
            filled = places.end * bytes;
        });
        self.pad(&mut slot[filled..]);
    }

    /// Fills places without a row.
    fn pad(&self, target: &mut [u8]) {
        match &self.fill {
            Fill::Value(value) => repeat(value, target),
            // A series without rows has no nearest one.
            Fill::Zeros | Fill::Edge => target.fill(0),
        }
    }
}

/// True at places of a window that have a row: `[samples, places]`.
#[derive(Debug, Clone)]
pub(crate) struct FoundMask(pub(crate) Arc<dyn FindRows>);

impl Form for FoundMask {
    fn dtype(&self) -> DType {
        DType::Bool
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        vec![members.count, self.0.count()]
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let slots = RowSlots { batch: range.len(), stride: target.len(), fillers: 0, loss_denominator: 0 };
        self.gather(members.take(range), target, slots)
    }

    fn gather(&self, taken: Taken<'_>, target: &mut [u8], slots: RowSlots) -> Result<()> {
        let mut found = Vec::new();
        for (batch, wanted) in target.chunks_mut(slots.stride).zip(taken.rows.chunks(slots.batch)) {
            for (slot, &window) in batch.chunks_exact_mut(self.0.count()).zip(wanted) {
                self.0.find(window, &mut found);
                let exists = |found: &Found| u8::from(matches!(found, Found::Row(_)));
                slot.iter_mut().zip(&found).for_each(|(slot, found)| *slot = exists(found));
            }
        }
        Ok(())
    }
}
