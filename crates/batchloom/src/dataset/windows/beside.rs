//! Fields beside the windows: a row or a number that is looked up for each window, not cut from the series.
//!
//! Promise: a window keeps its row in every part of a split and in every selection.

use std::sync::Arc;

use super::error::WindowsCause;
use super::places::Windows;
use crate::Result;
use crate::collate::{Form, Lookup, Places, Stack, WindowNumber, WindowRow};
use crate::tensor::ChunkedTensor;

/// A field that is looked up for each window.
#[derive(Debug, Clone)]
pub(super) enum Beside {
    /// The row of its series.
    OfSeries(ChunkedTensor),
    /// Its own row.
    OfWindow(ChunkedTensor, Arc<Labelled>),
    /// The row of the step at an offset from its beginning, or of the nearest step that exists.
    OfStep(ChunkedTensor, usize),
    /// The number of its series.
    Series,
    /// The step of its series at an offset from its beginning: negative before the series.
    Step(usize),
}

impl Beside {
    /// The array that rows are taken from, if they are.
    pub(super) fn values(&self) -> Option<&ChunkedTensor> {
        match self {
            Self::OfSeries(values) | Self::OfWindow(values, _) | Self::OfStep(values, _) => Some(values),
            Self::Series | Self::Step(_) => None,
        }
    }

    /// The form of the field `name`. Series begin with the rows `starts`.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if an array is a scalar.
    pub(super) fn form(
        &self,
        name: &str,
        windows: &Arc<Windows>,
        starts: &Arc<[usize]>,
    ) -> Result<Arc<dyn Form>> {
        let windows = || Arc::clone(windows);
        let rows = |values| Stack::new(name, values);
        Ok(match self {
            Self::OfSeries(values) => {
                Arc::new(WindowRow { rows: rows(values)?, lookup: SeriesOf(windows()) })
            }
            Self::OfWindow(values, labelled) => {
                let lookup = LabelOf { windows: windows(), labelled: Arc::clone(labelled) };
                Arc::new(WindowRow { rows: rows(values)?, lookup })
            }
            &Self::OfStep(ref values, anchor) => {
                Arc::new(WindowRow { rows: rows(values)?, lookup: RowOf { windows: windows(), anchor } })
            }
            Self::Series => Arc::new(WindowNumber(SeriesOf(windows()))),
            &Self::Step(anchor) => {
                let starts = Arc::clone(starts);
                Arc::new(WindowNumber(StepOf { windows: windows(), starts, anchor }))
            }
        })
    }
}

/// Windows that have labels, each once.
pub(super) struct Labelled {
    windows: Windows,
    /// The number of windows before each series that makes some, and of all windows.
    before: Vec<u64>,
}

crate::brief::debug_in_brief!(Labelled, [windows], [before]);

impl Labelled {
    /// Labels for each of `windows`, by their number.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if some of them were selected.
    pub(super) fn new(windows: &Windows) -> Result<Self> {
        if let Some(selection) = &windows.selection {
            let (selected, windows) = (selection.len(), selection.samples());
            return Err(WindowsCause::LabelsOfSelected { selected, windows }.into());
        }
        let ends = windows.holders.iter().scan(0, |end, holder| {
            *end += holder.windows;
            Some(*end)
        });
        Ok(Self { before: [0].into_iter().chain(ends).collect(), windows: windows.clone() })
    }

    /// The number of windows.
    pub(super) fn len(&self) -> usize {
        self.before.last().map_or(0, |&windows| usize::try_from(windows).unwrap_or(usize::MAX))
    }

    /// The number of the window of `series` that begins with `row`.
    fn number(&self, series: usize, row: isize) -> Option<u64> {
        let holder = self.windows.holders.binary_search_by_key(&series, |holder| holder.series).ok()?;
        let window = self.windows.holders[holder].window_at(&self.windows.shape, row)?;
        Some(self.before[holder] + window)
    }

    /// Refuses windows that are not among those that have labels, which are the field `name`.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if one has none.
    pub(super) fn require(&self, name: &str, windows: &Windows) -> Result<()> {
        for holder in &windows.holders {
            for window in [0, holder.windows - 1] {
                let place = holder.place(&windows.shape, window);
                if self.number(holder.series, place.begin()).is_none() {
                    let (field, series, row) = (name.to_owned(), holder.series, place.row);
                    let stride = windows.shape.stride;
                    return Err(match place.missing {
                        0 => WindowsCause::WithoutLabel { field, series, row, stride },
                        zeros => WindowsCause::PaddedWithoutLabel { field, series, row, zeros },
                    }
                    .into());
                }
            }
        }
        Ok(())
    }
}

/// Looks up the series of a window.
#[derive(Debug)]
struct SeriesOf(Arc<Windows>);

impl Lookup for SeriesOf {
    fn look_up(&self, window: u64) -> u64 {
        self.0.series_of(window) as u64
    }
}

/// Looks up the step of a series that is `anchor` steps after the beginning of a window.
struct StepOf {
    windows: Arc<Windows>,
    starts: Arc<[usize]>,
    anchor: usize,
}

crate::brief::debug_in_brief!(StepOf, [windows, anchor], [starts]);

impl Lookup for StepOf {
    fn look_up(&self, window: u64) -> u64 {
        let (place, series) = (self.windows.place(window), self.windows.series_of(window));
        let row = place.begin() + self.anchor.cast_signed();
        ((row - self.starts[series].cast_signed()) as i64).cast_unsigned()
    }
}

/// Looks up the row of that step, or of the nearest that exists.
#[derive(Debug)]
struct RowOf {
    windows: Arc<Windows>,
    anchor: usize,
}

impl Lookup for RowOf {
    fn look_up(&self, window: u64) -> u64 {
        let place = self.windows.place(window);
        let row = place.row + self.anchor.saturating_sub(place.missing);
        row.min(place.end - 1) as u64
    }
}

/// Looks up the number of a window among those that have labels.
#[derive(Debug)]
struct LabelOf {
    windows: Arc<Windows>,
    labelled: Arc<Labelled>,
}

impl Lookup for LabelOf {
    fn look_up(&self, window: u64) -> u64 {
        let place = self.windows.place(window);
        let number = self.labelled.number(self.windows.series_of(window), place.begin());
        // Parts whose windows have no labels are refused when they are made.
        number.unwrap_or(u64::MAX)
    }
}
