//! `window`: gathers windows of a series. Steps that a series does not have, before its beginning or after its end, hold
//! a value, or repeat the nearest step of the series.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use super::copy::copy_rows;
use super::index::write;
use super::pad::repeat;
use super::prefetch::prefetch_rows;
use super::{Form, Members, Padding, RowSlots, Stack, Taken};
use crate::tensor::ChunkedTensor;
use crate::{DType, Result};

/// The prefetch distance, in windows.
const AHEAD: usize = 2;

/// Finds the place of each window.
pub(crate) trait Places: Debug + Send + Sync {
    /// The place of window `window`.
    fn place(&self, window: u64) -> WindowPlace;
}

/// The place of one window in the rows of all series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowPlace {
    /// The first of its rows that exists.
    pub(crate) row: usize,
    /// The number of rows before that one, which the series does not have.
    pub(crate) missing: usize,
    /// The row at which its series ends. It is after the first row, as no series without a row makes a window.
    pub(crate) end: usize,
}

/// The steps of a window that a field holds, counted from the beginning of the window.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WindowSteps {
    /// `len` steps from `start` on, one every `every` steps.
    Range {
        /// The first step.
        start: usize,
        /// The number of steps.
        len: usize,
        /// The number of steps from one to the next.
        every: usize,
    },
    /// Any steps, in any order, as often as they are listed: a field of them is gathered, never a view.
    Listed(Arc<[usize]>),
}

impl WindowSteps {
    /// Neighbouring steps.
    pub fn neighbours(start: usize, len: usize) -> Self {
        Self::Range { start, len, every: 1 }
    }

    /// The number of steps.
    pub fn len(&self) -> usize {
        match self {
            Self::Range { len, .. } => *len,
            Self::Listed(steps) => steps.len(),
        }
    }

    /// Returns true if there are no steps.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The step at `place`, counted from the beginning of the window.
    ///
    /// # Panics
    /// Panics if there is no such place.
    pub(crate) fn step(&self, place: usize) -> usize {
        match self {
            Self::Range { start, every, .. } => start + place * every,
            Self::Listed(steps) => steps[place],
        }
    }

    /// The number of steps from the beginning of the window to the last one that is held, and that one.
    pub(crate) fn end(&self) -> usize {
        match self {
            Self::Range { len: 0, .. } => 0,
            Self::Range { start, len, every } => {
                start.saturating_add((len - 1).saturating_mul(*every)).saturating_add(1)
            }
            Self::Listed(steps) => steps.iter().map(|step| step.saturating_add(1)).max().unwrap_or(0),
        }
    }

    /// Visits runs of steps that exist in a window: the places of a run, and the row of the first of them.
    fn visit_existing(&self, window: WindowPlace, mut each: impl FnMut(Range<usize>, usize)) {
        let WindowPlace { row, missing, end } = window;
        if let Self::Range { start, len, every: 1 } = *self {
            let zeros = missing.saturating_sub(start).min(len);
            let first = row + (start + zeros).saturating_sub(missing);
            let count = (len - zeros).min(end.saturating_sub(first));
            if count > 0 {
                each(zeros..zeros + count, first);
            }
            return;
        }
        let row_of = |place| Some(row + self.step(place).checked_sub(missing)?).filter(|row| *row < end);
        let mut place = 0;
        while place < self.len() {
            let Some(first) = row_of(place) else {
                place += 1;
                continue;
            };
            // Steps that follow each other are one run.
            let is_next =
                |count: &usize| place + count < self.len() && row_of(place + count) == Some(first + count);
            let count = 1 + (1..).take_while(is_next).count();
            each(place..place + count, first);
            place += count;
        }
    }
}

/// Some steps of a window, of one array.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) values: ChunkedTensor,
    pub(crate) steps: WindowSteps,
}

/// The contents of the steps of a window that its series does not have.
#[derive(Debug, Clone)]
pub(crate) enum Fill {
    /// Zeros.
    Zeros,
    /// One element, over and over.
    Value(Vec<u8>),
    /// The nearest step that the window may take of its series.
    Edge,
}

/// Some steps of each window: `[samples, steps, ..row]`.
#[derive(Debug, Clone)]
pub(crate) struct Window<P> {
    pub(crate) windows: Arc<P>,
    pub(crate) span: Span,
    pub(crate) fill: Fill,
}

impl<P: Places> Form for Window<P> {
    fn dtype(&self) -> DType {
        self.span.values.dtype()
    }

    fn padding(&self) -> Option<&dyn Padding> {
        // A repeated step is data: it is converted like the step that it repeats.
        (!self.repeats_edge()).then_some(self)
    }

    fn repeats_edge(&self) -> bool {
        matches!(self.fill, Fill::Edge)
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        [&[members.count, self.span.steps.len()], &self.span.values.shape()[1..]].concat()
    }

    fn is_data(&self) -> bool {
        true
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let slots = RowSlots { batch: range.len(), stride: target.len(), fillers: 0, loss_denominator: 0 };
        self.gather(members.take(range), target, slots)
    }

    fn gather(&self, taken: Taken<'_>, target: &mut [u8], slots: RowSlots) -> Result<()> {
        let slot = self.span.steps.len() * self.span.values.row_bytes();
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
        let Span { values, steps } = &self.span;
        let row = values.row_bytes() / values.dtype().size();
        let place = self.windows.place(members.rows(member..member + 1)[0]);
        steps.visit_existing(place, |places, _| each(places.start * row..places.end * row));
    }

    fn value(&self) -> Option<&[u8]> {
        match &self.fill {
            Fill::Value(value) => Some(value),
            Fill::Zeros | Fill::Edge => None,
        }
    }
}

impl<P: Places> Window<P> {
    fn copy(&self, window: u64, slot: &mut [u8]) {
        let Span { values, steps } = &self.span;
        let (bytes, mut filled) = (values.row_bytes(), 0);
        let place = self.windows.place(window);
        steps.visit_existing(place, |places, first| {
            let (before, data) = slot[filled..places.end * bytes].split_at_mut(places.start * bytes - filled);
            match &self.fill {
                Fill::Zeros => before.fill(0),
                fill => self.pad(fill, place, filled / bytes, before),
            }
            copy_rows(values, first, places.len(), data);
            filled = places.end * bytes;
        });
        match &self.fill {
            Fill::Zeros => slot[filled..].fill(0),
            fill => self.pad(fill, place, filled / bytes, &mut slot[filled..]),
        }
    }

    /// Fills the steps of a window, from the step at `first` on, that its series does not have. It is no part of the loop
    /// over windows with zeros, which is faster so.
    #[inline(never)]
    fn pad(&self, fill: &Fill, window: WindowPlace, first: usize, target: &mut [u8]) {
        let Span { values, steps } = &self.span;
        match fill {
            Fill::Zeros => target.fill(0),
            Fill::Value(value) => repeat(value, target),
            Fill::Edge => {
                for (place, target) in (first..).zip(target.chunks_exact_mut(values.row_bytes())) {
                    let is_before = steps.step(place) < window.missing;
                    let nearest = if is_before { window.row } else { window.end - 1 };
                    copy_rows(values, nearest, 1, target);
                }
            }
        }
    }

    fn prefetch(&self, window: u64) {
        let Span { values, steps } = &self.span;
        steps.visit_existing(self.windows.place(window), |places, row| {
            prefetch_rows(values, row, places.len() * values.row_bytes());
        });
    }
}

/// Tells steps of a window that exist from padding: `[samples, steps]`.
#[derive(Debug, Clone)]
pub(crate) struct WindowMask<P> {
    pub(crate) windows: Arc<P>,
    /// The steps of the window that the mask is about.
    pub(crate) steps: WindowSteps,
}

impl<P: Places> Form for WindowMask<P> {
    fn dtype(&self) -> DType {
        DType::Bool
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        vec![members.count, self.steps.len()]
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let slots = RowSlots { batch: range.len(), stride: target.len(), fillers: 0, loss_denominator: 0 };
        self.gather(members.take(range), target, slots)
    }

    fn gather(&self, taken: Taken<'_>, target: &mut [u8], slots: RowSlots) -> Result<()> {
        for (batch, wanted) in target.chunks_mut(slots.stride).zip(taken.rows.chunks(slots.batch)) {
            for (slot, &window) in batch.chunks_exact_mut(self.steps.len()).zip(wanted) {
                slot.fill(0);
                self.steps.visit_existing(self.windows.place(window), |places, _| slot[places].fill(1));
            }
        }
        Ok(())
    }
}

/// Looks up a number for each window: a row of an array, or what a batch is to hold.
pub(crate) trait Lookup: Debug + Send + Sync {
    /// The number of window `window`.
    fn look_up(&self, window: u64) -> u64;
}

/// A row for each window, of an array that is not cut like a series: `[samples, ..row]`.
#[derive(Debug)]
pub(crate) struct WindowRow<L> {
    pub(crate) rows: Stack,
    pub(crate) lookup: L,
}

impl<L: Lookup> Form for WindowRow<L> {
    fn dtype(&self) -> DType {
        self.rows.dtype()
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        self.rows.shape(members)
    }

    fn is_data(&self) -> bool {
        true
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let slots = RowSlots { batch: range.len(), stride: target.len(), fillers: 0, loss_denominator: 0 };
        self.gather(members.take(range), target, slots)
    }

    fn gather(&self, taken: Taken<'_>, target: &mut [u8], slots: RowSlots) -> Result<()> {
        let rows: Vec<u64> = taken.rows.iter().map(|&window| self.lookup.look_up(window)).collect();
        self.rows.gather(Taken { rows: &rows, ..taken }, target, slots)
    }
}

/// A number for each window: `[samples]`, int64.
#[derive(Debug)]
pub(crate) struct WindowNumber<L>(pub(crate) L);

impl<L: Lookup> Form for WindowNumber<L> {
    fn dtype(&self) -> DType {
        DType::I64
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        vec![members.count]
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let windows = members.rows(range).iter();
        write(windows.map(|&window| self.0.look_up(window).cast_signed()), target);
        Ok(())
    }
}
