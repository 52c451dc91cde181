//! `WindowDataset`: every window of a given number of steps of a time series is a sample.
//!
//! Windows take no memory of their own, and never cross series: `places.rs` finds each by its number. Fields are cut
//! from arrays with a row for each step, or looked up for each window: labels, covariates of series and places by
//! `beside.rs`, rows with separate times by `timed.rs`.

mod backtest;
mod beside;
mod error;
mod places;
mod search;
mod shape;
mod split;
mod timed;
mod with_timed;

use std::ops::Range;
use std::sync::Arc;

pub use backtest::{Backtest, BacktestShape};
use beside::{Beside, Labelled};
use places::Windows;
pub use search::{Match, Tick};
pub use shape::{Anchor, SampledBy, Short, WindowShape};
use timed::TimedField;
pub use timed::{Missing, MissingRow, Timed};

use super::collation::{CollateOptions, Collation, Index};
use super::kind::{Content, ContentRequest, EpochKey, Kind};
use super::selection::Selection;
use crate::batching::Rule;
use crate::batching::error::BatchingCause;
use crate::collate::{Form, Places, Span, Window, WindowMask, WindowSteps};
use crate::dataset::error::{DatasetCause, SelectionCause};
use crate::tensor::error::TensorCause;
use crate::{ChunkedTensor, Result, Tensor, memory};
use error::{ShapeCause, WindowsCause};

/// The most bytes that a series takes while its windows are counted.
const SERIES_BYTES: usize = 160;

/// The numbers of windows and of series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WindowCounts {
    /// The number of samples of an epoch.
    pub samples: u64,
    /// The number of different windows: fewer than samples only with [`SampledBy::Series`].
    pub windows: u64,
    /// The number of series.
    pub series: usize,
    /// The number of series that are shorter than a window and make one that begins with zeros.
    pub padded: usize,
    /// The number of series that make no window: those that [`Short::Drop`] leaves out, and those without any step.
    pub without: usize,
}

/// The rows that are the `steps` of `whole`, for the series `number`.
fn steps_of(number: usize, whole: &Range<usize>, steps: &Range<usize>) -> Result<Range<usize>> {
    let (Range { start, end }, length) = (steps, whole.len());
    match start <= end && *end <= length {
        true => Ok(whole.start + start..whole.start + end),
        false => {
            let (series, start, end) = (number, *start, *end);
            Err(WindowsCause::PartRange { series, start, end, length }.into())
        }
    }
}

/// Sliding windows over one series or many.
///
/// ```
/// use batchloom::dataset::WindowShape;
/// use batchloom::{Tensor, WindowDataset};
///
/// let series = Tensor::from_vec((0..100).map(|step| step as f32).collect(), &[50, 2])?;
/// let shape = WindowShape::new(10).horizon(4);
/// let dataset = WindowDataset::new(&[0, 50], shape)?.input("x", series.clone())?.target("y", series)?;
/// assert_eq!(dataset.len(), 50 - 14 + 1);
/// let batch = dataset.view(0, 16).expect("neighbours in one series");
/// assert_eq!(batch[0].shape(), [16, 10, 2]); // over the memory of the series: no copy
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Clone)]
pub struct WindowDataset {
    windows: Arc<Windows>,
    /// The number of rows that every array has.
    rows: usize,
    /// The first row of each series.
    starts: Arc<[usize]>,
    spans: Vec<(String, Span)>,
    masks: Vec<(String, WindowSteps)>,
    timed: Vec<TimedField>,
    beside: Vec<(String, Beside)>,
    /// True if batches hold the number of each window.
    index: bool,
}

crate::brief::debug_in_brief!(WindowDataset, [windows, rows, spans, masks, timed, beside, index], [starts]);

impl WindowDataset {
    /// The windows of series that lie one after the other: series `k` is the rows `offsets[k]..offsets[k + 1]`.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the shape makes no sense; [`Kind::Data`](crate::Kind::Data) if a
    /// series is too short, if there is no window, or if offsets decrease.
    pub fn new(offsets: &[usize], shape: WindowShape) -> Result<Self> {
        shape.check()?;
        if let Some(series) = offsets.windows(2).position(|pair| pair[1] < pair[0]) {
            return Err(TensorCause::Offsets {
                field: "series".to_owned(),
                sample: series as u64,
                start: offsets[series].cast_signed() as i64,
                end: offsets[series + 1].cast_signed() as i64,
                values: offsets.last().copied().unwrap_or(0) as u64,
                expected: "expected offsets that do not decrease",
            }
            .into());
        }
        memory::require_each(offsets.len(), SERIES_BYTES)?;
        let series: Vec<_> = offsets.windows(2).map(|pair| pair[0]..pair[1]).collect();
        let starts = series.iter().map(|rows| rows.start).collect();
        let windows = Arc::new(Windows::new(shape, series.clone(), series, false)?);
        let rows = offsets.last().copied().unwrap_or(0);
        let (spans, masks, timed, beside) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Ok(Self { windows, rows, starts, spans, masks, timed, beside, index: false })
    }

    /// Adds a field that holds the steps of input of an array `[time, ..]`.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if an array is a scalar, if a name is given twice, or if it has fewer steps
    /// than the series.
    pub fn input(self, name: impl Into<String>, values: impl Into<ChunkedTensor>) -> Result<Self> {
        let steps = WindowSteps::neighbours(0, self.windows.shape.input_len);
        self.steps(name, values, steps)
    }

    /// Adds a field that holds the horizon of an array `[time, ..]`, and the `label_len` steps before it.
    ///
    /// # Errors
    /// The same as those of [`input`](Self::input).
    pub fn target(self, name: impl Into<String>, values: impl Into<ChunkedTensor>) -> Result<Self> {
        let (start, len) = self.windows.shape.target();
        self.steps(name, values, WindowSteps::neighbours(start, len))
    }

    /// Adds a field that holds some steps of each window of an array `[time, ..]`.
    ///
    /// # Errors
    /// The same as those of [`input`](Self::input), and [`Kind::Argument`](crate::Kind::Argument) if a step lies
    /// outside the window.
    pub fn steps(
        mut self,
        name: impl Into<String>,
        values: impl Into<ChunkedTensor>,
        steps: WindowSteps,
    ) -> Result<Self> {
        let name = name.into();
        self.require_steps(&name, &steps)?;
        let values = values.into();
        let length = values.shape().first().copied();
        let length = length.ok_or_else(|| TensorCause::ScalarField { field: name.clone() })?;
        let expected = self.rows;
        if length != expected {
            return Err(WindowsCause::Rows { field: name, found: length, of: "steps", expected }.into());
        }
        self.require_new(&name)?;
        self.spans.push((name, Span { values, steps }));
        Ok(self)
    }

    /// Adds `mask`, which is true for the steps of input that exist, and, if there is a horizon, `target_mask`, which
    /// is true for such steps of targets. Other steps are zeros, or what a loader pads with.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if a name is given twice.
    pub fn mask(self) -> Result<Self> {
        let (start, len) = self.shape().target();
        let input = WindowSteps::neighbours(0, self.shape().input_len);
        let masked = self.mask_of("mask", input)?;
        if len > 0 { masked.mask_of("target_mask", WindowSteps::neighbours(start, len)) } else { Ok(masked) }
    }

    /// Adds a field that is true for those of some steps of each window that exist.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if a name is given twice; [`Kind::Argument`](crate::Kind::Argument) if a step
    /// lies outside the window.
    pub fn mask_of(mut self, name: impl Into<String>, steps: WindowSteps) -> Result<Self> {
        let name = name.into();
        self.require_steps(&name, &steps)?;
        self.require_new(&name)?;
        self.masks.push((name, steps));
        Ok(self)
    }

    /// Adds a field that holds, for each window, the row of its series of an array `[series, ..]`.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if an array is a scalar, if a name is given twice, or if there is not a row
    /// for each series.
    pub fn of_series(self, name: impl Into<String>, values: impl Into<ChunkedTensor>) -> Result<Self> {
        let series = self.starts.len();
        self.look_up(name.into(), values.into(), ("series", series), Beside::OfSeries)
    }

    /// Adds a field that holds, for each window, its own row of an array `[windows, ..]`: windows are numbered as they
    /// are now, each once, and keep their rows in parts and selections.
    ///
    /// # Errors
    /// As [`of_series`](Self::of_series), and [`Kind::Argument`](crate::Kind::Argument) if windows were selected
    /// before.
    pub fn of_windows(self, name: impl Into<String>, values: impl Into<ChunkedTensor>) -> Result<Self> {
        let labelled = Arc::new(Labelled::new(&self.windows)?);
        let windows = labelled.len();
        self.look_up(name.into(), values.into(), ("windows", windows), |values| {
            Beside::OfWindow(values, labelled)
        })
    }

    /// Adds a field that holds, for each window, a row of an array `[time, ..]`, such as its time: that of the step
    /// which is `anchor` steps after the beginning of the window, or of the nearest step of the window that exists.
    ///
    /// # Errors
    /// As [`of_series`](Self::of_series), for steps; [`Kind::Argument`](crate::Kind::Argument) if the window has no
    /// such step.
    pub fn of_step(
        self,
        name: impl Into<String>,
        values: impl Into<ChunkedTensor>,
        anchor: usize,
    ) -> Result<Self> {
        let (name, rows) = (name.into(), self.rows);
        self.require_steps(&name, &WindowSteps::neighbours(anchor, 1))?;
        self.look_up(name, values.into(), ("steps", rows), |values| Beside::OfStep(values, anchor))
    }

    /// Adds `series`, the number of the series of each window, and the field `step`: the step of that series which is
    /// `anchor` steps after the beginning of the window, negative where the window begins before its series. At the end
    /// of a batch holds `index`, the number of the window.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if a name is given twice.
    pub fn index(mut self, step: &str, anchor: usize) -> Result<Self> {
        for (name, number) in [("series", Beside::Series), (step, Beside::Step(anchor))] {
            self.require_new(name)?;
            self.beside.push((name.to_owned(), number));
        }
        self.index = true;
        Ok(self)
    }

    fn look_up(
        mut self,
        name: String,
        values: ChunkedTensor,
        (of, expected): (&'static str, usize),
        beside: impl FnOnce(ChunkedTensor) -> Beside,
    ) -> Result<Self> {
        self.require_new(&name)?;
        match values.shape().first() {
            None => Err(TensorCause::ScalarField { field: name }.into()),
            Some(&length) if length != expected => {
                Err(WindowsCause::Rows { field: name, found: length, of, expected }.into())
            }
            Some(_) => {
                self.beside.push((name, beside(values)));
                Ok(self)
            }
        }
    }

    fn require_new(&self, name: &str) -> Result<()> {
        let spans = self.spans.iter().map(|(name, _)| name);
        let masks = self.masks.iter().map(|(name, _)| name);
        let timed = self.timed.iter().flat_map(|field| field.mask.iter().chain([&field.name]));
        let beside = self.beside.iter().map(|(name, _)| name);
        match spans.chain(masks).chain(timed).chain(beside).any(|other| other == name) {
            true => Err(DatasetCause::DuplicateField { field: name.to_owned() }.into()),
            false => Ok(()),
        }
    }

    fn require_steps(&self, name: &str, steps: &WindowSteps) -> Result<()> {
        let (end, span, field) = (steps.end(), self.shape().span(), name.to_owned());
        match steps {
            WindowSteps::Range { every: 0, .. } => Err(ShapeCause::StepsApart { field }.into()),
            _ if end > span => Err(ShapeCause::StepsBeyond { field, step: end - 1, span }.into()),
            _ => Ok(()),
        }
    }

    /// The windows whose horizon lies in a part of the time: in the steps `within[k]` of series `k`, relative to the
    /// part that this dataset is. With `reach_back`, the steps before the horizon may lie before the part. Without a
    /// horizon, the whole window lies in its part.
    ///
    /// The horizons of parts that do not overlap have no step in common: a part of a series that is shorter than a
    /// horizon is too short, and makes no window even with [`Short::Pad`]. A part that has no step of a series is no
    /// error. Fields with [separate times](Self::timed) end with the part too; they begin with it unless windows reach
    /// back.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there is not one part for each series, or if one ends before it
    /// starts or after its series; [`Kind::Data`](crate::Kind::Data) if a series is too short, if there is no window, or if
    /// a window lacks a row and that is an [error](Missing::Error).
    pub fn part(&self, within: &[Range<usize>], reach_back: bool) -> Result<Self> {
        let Windows { shape, series, parts, selection, .. } = &*self.windows;
        if let Some(selection) = selection {
            let (selected, windows) = (selection.len(), selection.samples());
            return Err(WindowsCause::SplitOfSelected { selected, windows }.into());
        }
        if within.len() != series.len() {
            let (parts, expected) = (within.len(), series.len());
            return Err(WindowsCause::PartCount { found: parts, expected }.into());
        }
        let reach = if reach_back && shape.horizon > 0 { shape.context() } else { 0 };
        memory::require_each(series.len(), SERIES_BYTES)?;
        let (mut rows, mut steps_in_part) =
            (Vec::with_capacity(series.len()), Vec::with_capacity(series.len()));
        for (number, ((series, whole), steps)) in series.iter().zip(parts).zip(within).enumerate() {
            let part = steps_of(number, whole, steps)?;
            // Rows before the part, as far as the series has them.
            rows.push(part.start.saturating_sub(reach).max(series.start)..part.end);
            steps_in_part.push(part);
        }
        let windows = Windows::new(*shape, rows, steps_in_part, true)?;
        for (name, beside) in &self.beside {
            if let Beside::OfWindow(_, labelled) = beside {
                labelled.require(name, &windows)?;
            }
        }
        let (offsets, reaches_back) = (self.offsets(), reach_back && shape.horizon > 0);
        let within = |field: &TimedField| field.within(&offsets, &windows.parts, reaches_back);
        let timed = self.timed.iter().map(within).collect();
        let part = Self { windows: Arc::new(windows), timed, ..self.clone() };
        part.require_rows()?;
        Ok(part)
    }

    /// The selected windows of these, numbered anew. Neighbours in a series are views, as before.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if the selection is one of another number of samples.
    pub fn select(&self, selection: &Selection) -> Result<Self> {
        let outer = self.windows.selection.as_ref();
        let (samples, expected) = (selection.samples(), self.windows.len());
        if samples != expected {
            return Err(SelectionCause::Samples { found: samples, expected }.into());
        }
        let selection = outer.map_or_else(|| Ok(selection.clone()), |outer| selection.within(outer))?;
        let windows = Windows { selection: Some(selection), ..(*self.windows).clone() };
        Ok(Self { windows: Arc::new(windows), ..self.clone() })
    }

    /// The rows of each array that is not cut along with the windows.
    fn whole_arrays(&self) -> impl Iterator<Item = usize> {
        let beside = self.beside.iter().filter_map(|(_, beside)| beside.values());
        beside.chain(self.timed.iter().map(|field| &field.values)).map(|values| values.shape()[0])
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        usize::try_from(self.windows.len()).unwrap_or(usize::MAX)
    }

    /// Returns true if there are no windows, which never happens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names of the fields that are cut from series, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.spans.iter().map(|(name, _)| name.as_str())
    }

    /// The shape of a window.
    pub fn shape(&self) -> &WindowShape {
        &self.windows.shape
    }

    /// The rows of each series that horizons may take: all, or those of a [`part`](Self::part).
    pub fn parts(&self) -> &[Range<usize>] {
        &self.windows.parts
    }

    /// The numbers of windows and of series. Of samples that were selected, this sorts all windows.
    ///
    /// # Errors
    /// [`Kind::Memory`](crate::Kind::Memory).
    pub fn counts(&self) -> Result<WindowCounts> {
        let Windows { series, holders, .. } = &*self.windows;
        Ok(WindowCounts {
            samples: self.windows.len(),
            windows: self.windows.count_distinct()?,
            series: series.len(),
            padded: self.windows.count_padded(),
            without: series.len() - holders.len(),
        })
    }

    /// The series of `window`, its first row, and the number of rows of zeros before that.
    ///
    /// # Errors
    /// [`Kind::Range`](crate::Kind::Range) if there is no such sample.
    pub fn place(&self, window: u64) -> Result<(usize, usize, usize)> {
        let samples = self.windows.len();
        if window >= samples {
            return Err(BatchingCause::SampleRange { sample: window, samples }.into());
        }
        let place = self.windows.place(window);
        let (holder, _) = self.windows.window(window);
        Ok((self.windows.holders[holder].series, place.row, place.missing))
    }

    /// The first sample that is the window of `series` which begins with step `start`, negative if zeros are put before
    /// the series; `None` if there is no such window. O(log series), and O(samples) if samples were selected.
    pub fn sample_at(&self, series: usize, start: isize) -> Option<u64> {
        let row = self.starts.get(series)?.cast_signed().checked_add(start)?;
        self.windows.sample_at(series, row)
    }

    /// For each series, the number of different windows before those that it makes, and the row with which its first
    /// one begins, which may lie before the series. `None` for a series without a window.
    pub fn firsts(&self) -> Vec<Option<(u64, isize)>> {
        let mut firsts = vec![None; self.starts.len()];
        let mut before = 0;
        for holder in &self.windows.holders {
            firsts[holder.series] = Some((before, holder.first()));
            before += holder.windows;
        }
        firsts
    }

    /// The number of steps from one window of a series to the next.
    pub fn stride(&self) -> usize {
        self.windows.shape.stride
    }

    /// Returns true if the windows `start..end` are one strided view of the series.
    pub fn is_view(&self, start: u64, end: u64) -> bool {
        let is_strided = |(_, span): &(String, Span)| matches!(span.steps, WindowSteps::Range { .. });
        end <= self.windows.len() && self.spans.iter().all(is_strided) && self.windows.is_view(start, end)
    }

    /// The windows `start..end` without a copy: for each field that is cut from series an array `[windows, steps, ..]`
    /// over the memory of the series, with rows that overlap. `None` if they do not lie in one series, if a field holds
    /// steps that are not at equal distances, or if its series lie in several chunks.
    pub fn view(&self, start: u64, end: u64) -> Option<Vec<Tensor>> {
        if !self.is_view(start, end) {
            return None;
        }
        let (row, count) = (self.windows.place(start).row, usize::try_from(end - start).ok()?);
        let view = |(_, span): &(String, Span)| {
            let WindowSteps::Range { start, len, every } = span.steps else { return None };
            let values = span.values.as_tensor()?;
            let (stride, shape) = (values.strides()[0], values.shape());
            let shape = [&[count, len], &shape[1..]].concat();
            let step = stride * self.windows.shape.stride.cast_signed();
            let strides = [&[step, stride * every.cast_signed()], &values.strides()[1..]].concat();
            // An empty field may begin anywhere, and its own start may lie outside the series.
            let first = if len == 0 { 0 } else { stride * (row + start).cast_signed() };
            let offset = values.layout().offset().checked_add_signed(first)?;
            Tensor::new(values.bytes().clone(), values.dtype(), &shape, &strides, offset).ok()
        };
        self.spans.iter().map(view).collect()
    }
}

impl Kind for WindowDataset {
    fn len(&self) -> usize {
        self.len()
    }

    fn view(&self, samples: Range<u64>) -> Option<Vec<(&str, Tensor)>> {
        let names = self.spans.iter().map(|(name, _)| name.as_str());
        Some(names.zip(self.view(samples.start, samples.end)?).collect())
    }

    fn arrays(&self) -> Vec<(&str, &ChunkedTensor)> {
        let spans = self.spans.iter().map(|(name, span)| (name.as_str(), &span.values));
        let beside = self.beside.iter().filter_map(|(name, beside)| Some((name.as_str(), beside.values()?)));
        let timed = self.timed.iter().map(|field| (field.name.as_str(), &field.values));
        spans.chain(beside).chain(timed).collect()
    }

    fn collation(&self, _: &Rule, options: &CollateOptions, _: EpochKey) -> Result<Collation> {
        let windows = || Arc::clone(&self.windows);
        let mut fields: Vec<(String, Arc<dyn Form>)> = Vec::new();
        for (name, span) in &self.spans {
            let fill = options.window_fill(name, span.values.dtype())?;
            fields.push((name.clone(), Arc::new(Window { windows: windows(), span: span.clone(), fill })));
        }
        for (name, steps) in &self.masks {
            fields.push((name.clone(), Arc::new(WindowMask { windows: windows(), steps: steps.clone() })));
        }
        let finders = self.finders();
        for (field, finder) in self.timed.iter().zip(&finders) {
            fields.extend(field.forms(finder, options)?);
        }
        for (name, beside) in &self.beside {
            fields.push((name.clone(), beside.form(name, &self.windows, &self.starts)?));
        }
        let collation =
            Collation::new(fields, Index::Windows { places: windows(), finders, lists: self.index })?;
        if self.index { collation.with_index() } else { Ok(collation) }
    }

    fn select(&self, selection: &Selection) -> Option<Result<Arc<dyn Kind>>> {
        Some(self.select(selection).map(|selected| Arc::new(selected) as Arc<dyn Kind>))
    }

    fn content(&self, _: &ContentRequest) -> Result<Option<Content>> {
        let selected = self.windows.selection.as_ref();
        Ok(selected.map(|selected| Content {
            text: format!("select {}", selected.text()),
            rows: None,
            tail: 0,
        }))
    }

    fn rows(&self, samples: Range<usize>) -> Vec<Range<usize>> {
        let covered = self.windows.find_covered(samples);
        let whole = self.whole_arrays().map(|rows| 0..rows);
        self.spans.iter().map(|_| covered.clone()).chain(whole).collect()
    }

    fn most_rows(&self, samples: usize) -> Vec<usize> {
        let most = self.windows.most_covered(samples, self.rows);
        self.spans.iter().map(|_| most).chain(self.whole_arrays()).collect()
    }
}
