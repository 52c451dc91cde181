//! `window`: gathers windows of a series, each in one piece. Zeros come before a short series.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use super::prefetch::prefetch_rows;
use super::stack::copy_rows;
use super::{Form, Members, Padding, Slots, Taken};
use crate::tensor::Rows;
use crate::{DType, Result, Tensor};

/// The prefetch distance, in windows.
const AHEAD: usize = 2;

/// Finds the place of each window.
pub(crate) trait Places: Debug + Send + Sync {
    /// The place of window `window`.
    fn place(&self, window: u64) -> Place;
}

/// The place of one window in the rows of all series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The first of its rows that exists.
    pub(crate) row: usize,
    /// The number of rows before that one, which are zeros.
    pub(crate) missing: usize,
}

/// Some steps of a window, of one array.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) values: Tensor,
    pub(crate) rows: Rows,
    /// The first step of the window that the span holds.
    pub(crate) start: usize,
    /// The number of steps.
    pub(crate) len: usize,
}

/// Some steps of each window: `[samples, steps, ..row]`.
#[derive(Debug, Clone)]
pub(crate) struct Window<P> {
    pub(crate) windows: Arc<P>,
    pub(crate) span: Span,
}

impl<P: Places> Form for Window<P> {
    fn dtype(&self) -> DType {
        self.span.values.dtype()
    }

    fn padding(&self) -> Option<&dyn Padding> {
        Some(self)
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        [&[members.count, self.span.len], &self.span.values.shape()[1..]].concat()
    }

    fn is_data(&self) -> bool {
        true
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let slots = Slots { batch: range.len(), stride: target.len(), fillers: 0 };
        self.gather(members.taken(range), target, slots)
    }

    fn gather(&self, taken: Taken<'_>, target: &mut [u8], slots: Slots) -> Result<()> {
        let slot = self.span.len * self.span.rows.bytes();
        if slot == 0 {
            return Ok(());
        }
        let mut ahead = taken.rows.iter().skip(AHEAD);
        for (batch, wanted) in target.chunks_mut(slots.stride).zip(taken.rows.chunks(slots.batch)) {
            for (slot, &window) in batch.chunks_exact_mut(slot).zip(wanted) {
                if let Some(&next) = ahead.next() {
                    self.prefetch(next);
                }
                self.copy(window, slot);
            }
        }
        Ok(())
    }
}

impl<P: Places> Padding for Window<P> {
    fn data(&self, members: &Members, member: usize, each: &mut dyn FnMut(Range<usize>)) {
        let Span { values, rows, len, .. } = &self.span;
        let row = rows.bytes() / values.dtype().size();
        each(self.zeros(self.windows.place(members.rows(member..member + 1)[0])) * row..len * row);
    }
}

impl<P: Places> Window<P> {
    /// The number of steps of the span that are zeros.
    fn zeros(&self, place: Place) -> usize {
        place.missing.saturating_sub(self.span.start).min(self.span.len)
    }

    fn copy(&self, window: u64, slot: &mut [u8]) {
        let Span { values, rows, start, len } = &self.span;
        let place = self.windows.place(window);
        let zeros = self.zeros(place);
        let (before, data) = slot.split_at_mut(zeros * rows.bytes());
        before.fill(0);
        let first = place.row + (start + zeros).saturating_sub(place.missing);
        copy_rows(values.bytes(), rows, first, len - zeros, data);
    }

    fn prefetch(&self, window: u64) {
        let Span { values, rows, start, len } = &self.span;
        let place = self.windows.place(window);
        let row = place.row + start.saturating_sub(place.missing);
        prefetch_rows(values.bytes(), rows, row, len * rows.bytes());
    }
}

/// Tells steps of a window that exist from the zeros before them: `[samples, steps]`.
#[derive(Debug, Clone)]
pub(crate) struct WindowMask<P> {
    pub(crate) windows: Arc<P>,
    /// The first step of the window that the mask is about.
    pub(crate) start: usize,
    /// The number of steps.
    pub(crate) len: usize,
}

impl<P: Places> Form for WindowMask<P> {
    fn dtype(&self) -> DType {
        DType::Bool
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        vec![members.count, self.len]
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let slots = Slots { batch: range.len(), stride: target.len(), fillers: 0 };
        self.gather(members.taken(range), target, slots)
    }

    fn gather(&self, taken: Taken<'_>, target: &mut [u8], slots: Slots) -> Result<()> {
        for (batch, wanted) in target.chunks_mut(slots.stride).zip(taken.rows.chunks(slots.batch)) {
            for (slot, &window) in batch.chunks_exact_mut(self.len).zip(wanted) {
                let missing = self.windows.place(window).missing.saturating_sub(self.start);
                let (before, data) = slot.split_at_mut(missing.min(self.len));
                before.fill(0);
                data.fill(1);
            }
        }
        Ok(())
    }
}
