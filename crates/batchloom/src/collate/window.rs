//! `window`: gathers stretches of a series, each in one piece; before a short series come zeros.

use std::sync::Arc;

use super::Slots;
use super::stack::{copy_rows, prefetch_rows};
use crate::dataset::{Span, Windows};

/// How many windows ahead a window is asked for.
const AHEAD: usize = 2;

/// One field of windows: some steps of each.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    pub(crate) windows: Arc<Windows>,
    pub(crate) span: Span,
}

impl Window {
    /// Copies the steps of the windows `indices` to `target`, batch by batch.
    pub(super) fn gather(&self, indices: &[u64], target: &mut [u8], slots: Slots) {
        let slot = self.span.len * self.span.rows.bytes();
        if slot == 0 {
            return;
        }
        let mut ahead = indices.iter().skip(AHEAD);
        for (batch, wanted) in target.chunks_mut(slots.stride).zip(indices.chunks(slots.batch)) {
            for (slot, &window) in batch.chunks_exact_mut(slot).zip(wanted) {
                if let Some(&next) = ahead.next() {
                    self.prefetch(next);
                }
                self.copy(window, slot);
            }
        }
    }

    fn copy(&self, window: u64, slot: &mut [u8]) {
        let Span { values, rows, start, len } = &self.span;
        let place = self.windows.place(window);
        let zeros = place.missing.saturating_sub(*start).min(*len);
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

/// Which steps of input exist.
pub(super) fn mask(windows: &Windows, input_len: usize, indices: &[u64], target: &mut [u8], slots: Slots) {
    for (batch, wanted) in target.chunks_mut(slots.stride).zip(indices.chunks(slots.batch)) {
        for (slot, &window) in batch.chunks_exact_mut(input_len).zip(wanted) {
            let (before, data) = slot.split_at_mut(windows.place(window).missing.min(input_len));
            before.fill(0);
            data.fill(1);
        }
    }
}
