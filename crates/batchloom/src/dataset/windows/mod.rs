//! `WindowDataset`: every window of a given number of steps of a time series is a sample.
//!
//! Windows take no memory of their own. The windows of a series are counted by a closed form, and the number of a window
//! tells where it begins: O(log series) for any window. A window never crosses series.

mod backtest;
mod shape;
mod split;

use std::ops::Range;
use std::sync::Arc;

pub use backtest::{Backtest, BacktestShape};
pub use shape::{Anchor, SampledBy, Short, WindowShape};

use super::kind::{CollateOptions, Collation, Content, ContentRequest, EpochKey, Index, Kind};
use super::selection::Selection;
use crate::batching::Rule;
use crate::collate::{Form, Place, Places, Span, Window, WindowMask};
use crate::{Error, Result, Tensor};

/// The places of all windows.
#[derive(Debug)]
pub(crate) struct Windows {
    shape: WindowShape,
    /// The rows of every series that windows may take.
    series: Vec<Range<usize>>,
    /// The rows of every series that horizons may take: fewer in a part that windows reach back from.
    parts: Vec<Range<usize>>,
    /// The series that make windows.
    holders: Vec<Holder>,
    /// The number of samples before each holder, and of all samples.
    before: Vec<u64>,
    /// The samples that were selected of these, if some were.
    selection: Option<Selection>,
}

/// A series that makes windows.
#[derive(Debug, Clone)]
struct Holder {
    /// The number of the series.
    series: usize,
    /// The number of its windows.
    windows: u64,
    /// The row with which the first window begins.
    row: usize,
    /// The number of rows of zeros before that row.
    missing: usize,
}

/// The numbers of windows and of series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowCounts {
    /// The number of samples of an epoch.
    pub samples: u64,
    /// The number of different windows: fewer than samples only with [`SampledBy::Series`].
    pub windows: u64,
    /// The number of series.
    pub series: usize,
    /// The number of series that are too short and make one window that begins with zeros.
    pub padded: usize,
    /// The number of series that make no window.
    pub without: usize,
}

impl Windows {
    fn new(shape: WindowShape, series: Vec<Range<usize>>, parts: Vec<Range<usize>>) -> Result<Self> {
        let mut holders = Vec::new();
        for (number, (rows, part)) in series.iter().zip(&parts).enumerate() {
            // A horizon that is padded in front would reach into the rows before the part.
            let leaks = part.start > rows.start && part.len() < shape.horizon;
            let rows = if leaks { part.end..part.end } else { rows.clone() };
            holders.extend(Holder::new(&shape, number, &rows)?);
        }
        let most = holders.iter().map(|holder| holder.windows).max().unwrap_or(0);
        let mut before = vec![0_u64];
        for holder in &holders {
            let samples = if shape.sampled_by == SampledBy::Series { most } else { holder.windows };
            before.push(before[before.len() - 1].saturating_add(samples));
        }
        match holders.is_empty() {
            true => Err(Error::NoWindows { series: series.len() as u64, span: shape.span() }),
            false => Ok(Self { shape, series, parts, holders, before, selection: None }),
        }
    }

    /// The number of samples.
    pub(crate) fn len(&self) -> u64 {
        self.selection.as_ref().map_or_else(|| self.all(), Selection::len)
    }

    /// The number of samples, selected or not.
    fn all(&self) -> u64 {
        self.before.last().copied().unwrap_or(0)
    }

    /// The number of `sample` among all samples, selected or not.
    fn number(&self, sample: u64) -> u64 {
        self.selection.as_ref().map_or(sample, |selection| selection.get(sample))
    }

    /// The number of different windows.
    fn distinct(&self) -> u64 {
        let Some(selection) = &self.selection else {
            return self.holders.iter().map(|holder| holder.windows).sum();
        };
        if selection.as_range().is_some() && self.shape.sampled_by == SampledBy::Windows {
            return selection.len();
        }
        let mut windows: Vec<(usize, u64)> = (0..self.len()).map(|sample| self.window(sample)).collect();
        windows.sort_unstable();
        windows.dedup();
        windows.len() as u64
    }

    /// The place in `holders` of the series that makes `sample`, and the number of the window in it. Windows are
    /// repeated if every series counts the same.
    fn window(&self, sample: u64) -> (usize, u64) {
        self.numbered(self.number(sample))
    }

    /// The same for a sample by its number among all samples.
    fn numbered(&self, sample: u64) -> (usize, u64) {
        let holder = match self.holders.len() {
            1 => 0,
            _ => self.before.partition_point(|&before| before <= sample) - 1,
        };
        (holder, (sample - self.before[holder]) % self.holders[holder].windows)
    }

    /// The steps from the first window of a series to window `window`: no more than the rows of the series.
    fn steps(&self, window: u64) -> usize {
        usize::try_from(window).unwrap_or(usize::MAX).saturating_mul(self.shape.stride)
    }

    /// The rows that the samples `samples` cover, of `rows` in all. O(log series).
    ///
    /// Series lie one after the other, and so do the windows of one, so the first row belongs to the first series and
    /// the last row to the last. If windows repeat, all windows of these two series are covered.
    fn covered(&self, samples: Range<usize>, rows: usize) -> Range<usize> {
        if samples.is_empty() {
            return 0..0;
        }
        let samples = match &self.selection {
            None => samples,
            Some(selection) => {
                let index = |number| usize::try_from(number).unwrap_or(usize::MAX);
                let numbers = samples.map(|sample| index(selection.get(sample as u64)));
                numbers.clone().min().unwrap_or(0)..numbers.max().map_or(0, |last| last + 1)
            }
        };
        self.covered_by(samples, rows)
    }

    /// The same for samples by their numbers among all samples.
    fn covered_by(&self, samples: Range<usize>, rows: usize) -> Range<usize> {
        let (first, from) = self.numbered(samples.start as u64);
        let (last, to) = self.numbered(samples.end as u64 - 1);
        let (from, to) = match self.shape.sampled_by {
            SampledBy::Windows => (from, to),
            SampledBy::Series if first == last && to >= from && to - from == samples.len() as u64 - 1 => {
                (from, to)
            }
            SampledBy::Series => (0, self.holders[last].windows - 1),
        };
        let start = self.holders[first].row.saturating_add(self.steps(from));
        let end = self.holders[last].row.saturating_add(self.steps(to)).saturating_add(self.shape.span());
        start..end.min(rows)
    }

    /// The largest number of rows that `samples` neighbouring samples cover.
    ///
    /// Moving on by a window moves both ends alike, unless the last sample enters another series, which adds the rows
    /// in between. So the most rows are covered by samples that end with the first window of a series, or begin the
    /// first series.
    fn most_covered(&self, samples: usize, rows: usize) -> usize {
        if self.selection.as_ref().is_some_and(|selection| selection.as_range().is_none()) {
            return rows;
        }
        let all = usize::try_from(self.all()).unwrap_or(usize::MAX);
        let samples = samples.min(all);
        if samples == 0 {
            return 0;
        }
        let begin = |before: &u64| usize::try_from(*before).unwrap_or(usize::MAX);
        let entering = self.before.iter().map(begin).filter(|&entered| entered < all);
        let starts =
            entering.flat_map(|entered| [(entered + 1).saturating_sub(samples), entered.min(all - samples)]);
        let neighbours = starts.map(|start| self.covered_by(start..start + samples, rows).len());
        // Two samples of a series whose windows repeat may be its last window and its first, and cover all between.
        let most = self.holders.iter().map(|holder| holder.windows).max().unwrap_or(0);
        let repeats = |holder: &&Holder| {
            self.shape.sampled_by == SampledBy::Series && samples > 1 && holder.windows < most
        };
        let whole = self.holders.iter().filter(repeats).map(|holder| {
            let end =
                holder.row.saturating_add(self.steps(holder.windows - 1)).saturating_add(self.shape.span());
            end.min(rows) - holder.row
        });
        neighbours.chain(whole).max().unwrap_or(0)
    }

    /// Returns true if the samples `start..end` are one strided view: in one series, at equal distances, without zeros.
    pub(crate) fn is_view(&self, start: u64, end: u64) -> bool {
        if start >= end {
            return false;
        }
        if let Some(selection) = self.selection.as_ref().filter(|selection| selection.as_range().is_none()) {
            let first = selection.get(start);
            if !(start..end).zip(first..).all(|(sample, number)| selection.get(sample) == number) {
                return false;
            }
        }
        let ((first, window), (last, last_window)) = (self.window(start), self.window(end - 1));
        first == last
            && last_window.checked_sub(window) == Some(end - 1 - start)
            && self.holders[first].missing == 0
    }
}

impl Places for Windows {
    fn place(&self, sample: u64) -> Place {
        let (holder, window) = self.window(sample);
        let Holder { row, missing, .. } = self.holders[holder];
        Place { row: row.saturating_add(self.steps(window)), missing }
    }
}

impl Holder {
    /// The windows of the series `number` in these rows, or `None` if it is too short and skipped.
    fn new(shape: &WindowShape, number: usize, rows: &Range<usize>) -> Result<Option<Self>> {
        let (length, span) = (rows.len(), shape.span());
        if let Some(rest) = length.checked_sub(span) {
            let skipped = if shape.anchor == Anchor::End { rest % shape.stride } else { 0 };
            let windows = (rest / shape.stride) as u64 + 1;
            return Ok(Some(Self { series: number, windows, row: rows.start + skipped, missing: 0 }));
        }
        match shape.short {
            Short::Pad if length > 0 => {
                Ok(Some(Self { series: number, windows: 1, row: rows.start, missing: span - length }))
            }
            Short::Pad | Short::Skip => Ok(None),
            Short::Error => Err(Error::SeriesTooShort { series: number as u64, length, span }),
        }
    }
}

/// The rows that are the `steps` of `whole`, for the series `number`.
fn steps_of(number: usize, whole: &Range<usize>, steps: &Range<usize>) -> Result<Range<usize>> {
    let (Range { start, end }, length) = (steps, whole.len());
    match start <= end && *end <= length {
        true => Ok(whole.start + start..whole.start + end),
        false => {
            let reason = format!(
                "the part of series {number} goes from step {start} to {end}; expected it to lie in its {length} steps"
            );
            Err(Error::Parts { reason })
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
/// let shape = WindowShape { horizon: 4, ..WindowShape::new(10) };
/// let dataset = WindowDataset::new(&[0, 50], shape)?.input("x", series.clone())?.target("y", series)?;
/// assert_eq!(dataset.len(), 50 - 14 + 1);
/// let batch = dataset.view(0, 16).expect("neighbours in one series");
/// assert_eq!(batch[0].shape(), [16, 10, 2]); // over the memory of the series: no copy
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct WindowDataset {
    windows: Arc<Windows>,
    /// The number of rows that every array has.
    rows: usize,
    names: Vec<String>,
    spans: Vec<Span>,
    mask: bool,
}

impl WindowDataset {
    /// The windows of series that lie one after the other: series `k` is the rows `offsets[k]..offsets[k + 1]`.
    ///
    /// # Errors
    /// [`Error::WindowShape`], [`Error::SeriesTooShort`], [`Error::NoWindows`], and [`Error::Offsets`] if they
    /// decrease.
    pub fn new(offsets: &[usize], shape: WindowShape) -> Result<Self> {
        shape.check()?;
        if let Some(series) = offsets.windows(2).position(|pair| pair[1] < pair[0]) {
            return Err(Error::Offsets {
                field: "series".to_owned(),
                sample: series as u64,
                start: offsets[series].cast_signed() as i64,
                end: offsets[series + 1].cast_signed() as i64,
                values: offsets.last().copied().unwrap_or(0) as u64,
                expected: "expected offsets that do not decrease",
            });
        }
        let series: Vec<_> = offsets.windows(2).map(|pair| pair[0]..pair[1]).collect();
        let windows = Arc::new(Windows::new(shape, series.clone(), series)?);
        let rows = offsets.last().copied().unwrap_or(0);
        Ok(Self { windows, rows, names: Vec::new(), spans: Vec::new(), mask: false })
    }

    /// Adds a field that holds the steps of input of an array `[time, ..]`.
    ///
    /// # Errors
    /// [`Error::ScalarField`], [`Error::DuplicateField`], and [`Error::FieldLength`] if it has fewer steps than the
    /// series.
    pub fn input(self, name: impl Into<String>, values: Tensor) -> Result<Self> {
        let len = self.windows.shape.input_len;
        self.add(name.into(), values, 0, len)
    }

    /// Adds a field that holds the horizon of an array `[time, ..]`, and the `label_len` steps before it.
    ///
    /// # Errors
    /// The same as those of [`input`](Self::input).
    pub fn target(self, name: impl Into<String>, values: Tensor) -> Result<Self> {
        let (start, len) = self.windows.shape.target();
        self.add(name.into(), values, start, len)
    }

    /// Adds `mask`, which is true for the steps of input that exist, and, if there is a horizon, `target_mask`, which is
    /// true for such steps of targets. Short series are padded with others.
    #[must_use]
    pub fn mask(mut self) -> Self {
        self.mask = true;
        self
    }

    fn add(mut self, name: String, values: Tensor, start: usize, len: usize) -> Result<Self> {
        let rows = values.layout().rows(values.dtype().size());
        let rows = rows.ok_or_else(|| Error::ScalarField { field: name.clone() })?;
        let (found, expected) = (values.shape()[0], self.rows);
        if found != expected {
            return Err(Error::FieldLength {
                field: name,
                found,
                first: "of the offsets".to_owned(),
                expected,
            });
        }
        if self.names.contains(&name) {
            return Err(Error::DuplicateField { name });
        }
        self.names.push(name);
        self.spans.push(Span { values, rows, start, len });
        Ok(self)
    }

    /// The windows whose horizon lies in a part of the time: in the steps `within[k]` of series `k`, relative to the
    /// part that this dataset is. With `reach_back`, the steps before the horizon may lie before the part. Without a
    /// horizon, the whole window lies in its part.
    ///
    /// The horizons of parts that do not overlap have no step in common: if a part is shorter than a horizon, that
    /// series makes no window there, whatever [`Short`] says, unless it is [`Short::Error`].
    ///
    /// # Errors
    /// [`Error::Parts`] if there is not one part for each series, or one ends before it starts or after its series;
    /// [`Error::SeriesTooShort`], [`Error::NoWindows`].
    pub fn part(&self, within: &[Range<usize>], reach_back: bool) -> Result<Self> {
        let Windows { shape, series, parts, selection, .. } = &*self.windows;
        if let Some(selection) = selection {
            let reason = format!(
                "{} windows of {} were selected, and a split of time has all of its parts; expected to split first",
                selection.len(),
                selection.samples()
            );
            return Err(Error::Parts { reason });
        }
        if within.len() != series.len() {
            let (found, expected) = (within.len(), series.len());
            let reason =
                format!("there are {found} parts for {expected} series; expected one part for each series");
            return Err(Error::Parts { reason });
        }
        let reach = if reach_back && shape.horizon > 0 { shape.context() } else { 0 };
        let (mut rows, mut found) = (Vec::new(), Vec::new());
        for (number, ((series, whole), steps)) in series.iter().zip(parts).zip(within).enumerate() {
            let part = steps_of(number, whole, steps)?;
            // Rows before the part, as far as the series has them.
            rows.push(part.start.saturating_sub(reach).max(series.start)..part.end);
            found.push(part);
        }
        let windows = Arc::new(Windows::new(*shape, rows, found)?);
        Ok(Self { windows, ..self.clone() })
    }

    /// The selected windows of these, numbered anew. Neighbours in a series are views, as before.
    ///
    /// # Errors
    /// [`Error::SelectionSamples`] if the selection is one of another number of samples.
    pub fn select(&self, selection: &Selection) -> Result<Self> {
        let Windows { shape, series, parts, holders, before, selection: outer } = &*self.windows;
        let (found, expected) = (selection.samples(), self.windows.len());
        if found != expected {
            return Err(Error::SelectionSamples { found, expected });
        }
        let selection =
            outer.as_ref().map_or_else(|| Ok(selection.clone()), |outer| selection.within(outer))?;
        let windows = Windows {
            shape: *shape,
            series: series.clone(),
            parts: parts.clone(),
            holders: holders.clone(),
            before: before.clone(),
            selection: Some(selection),
        };
        Ok(Self { windows: Arc::new(windows), ..self.clone() })
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        usize::try_from(self.windows.len()).unwrap_or(usize::MAX)
    }

    /// Returns true if there are no windows, which never happens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names of the fields, in order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The shape of a window.
    pub fn shape(&self) -> &WindowShape {
        &self.windows.shape
    }

    /// The rows of each series that horizons may take: all, or those of a [`part`](Self::part).
    pub fn parts(&self) -> &[Range<usize>] {
        &self.windows.parts
    }

    /// The numbers of windows and of series.
    pub fn counts(&self) -> WindowCounts {
        let Windows { series, holders, .. } = &*self.windows;
        WindowCounts {
            samples: self.windows.len(),
            windows: self.windows.distinct(),
            series: series.len(),
            padded: holders.iter().filter(|holder| holder.missing > 0).count(),
            without: series.len() - holders.len(),
        }
    }

    /// The series of `window`, its first row, and the number of rows of zeros before that.
    ///
    /// # Errors
    /// [`Error::SampleRange`].
    pub fn place(&self, window: u64) -> Result<(usize, usize, usize)> {
        let samples = self.windows.len();
        if window >= samples {
            return Err(Error::SampleRange { found: window, samples });
        }
        let place = self.windows.place(window);
        let (holder, _) = self.windows.window(window);
        Ok((self.windows.holders[holder].series, place.row, place.missing))
    }

    /// Returns true if the windows `start..end` are one strided view of the series.
    pub fn is_view(&self, start: u64, end: u64) -> bool {
        end <= self.windows.len() && self.windows.is_view(start, end)
    }

    /// The windows `start..end` without a copy: for each field an array `[windows, steps, ..]` over the memory of the
    /// series, whose rows overlap. `None` if they do not lie in one series.
    pub fn view(&self, start: u64, end: u64) -> Option<Vec<Tensor>> {
        if !self.is_view(start, end) {
            return None;
        }
        let (row, count) = (self.windows.place(start).row, usize::try_from(end - start).ok()?);
        let view = |span: &Span| {
            let (stride, shape) = (span.values.strides()[0], span.values.shape());
            let shape = [&[count, span.len], &shape[1..]].concat();
            let step = stride * self.windows.shape.stride.cast_signed();
            let strides = [&[step, stride], &span.values.strides()[1..]].concat();
            // An empty field may begin anywhere, and its own start may lie outside the series.
            let first = if span.len == 0 { 0 } else { stride * (row + span.start).cast_signed() };
            let offset = span.values.layout().offset().checked_add_signed(first)?;
            Tensor::new(span.values.bytes().clone(), span.values.dtype(), &shape, &strides, offset).ok()
        };
        self.spans.iter().map(view).collect()
    }
}

impl Kind for WindowDataset {
    fn len(&self) -> usize {
        self.len()
    }

    fn arrays(&self) -> Vec<(&str, &Tensor)> {
        self.names.iter().map(String::as_str).zip(self.spans.iter().map(|span| &span.values)).collect()
    }

    fn collation(&self, _: &Rule, _: &CollateOptions, _: EpochKey) -> Result<Collation> {
        let windows = || Arc::clone(&self.windows);
        let form = |span: &Span| Arc::new(Window { windows: windows(), span: span.clone() }) as Arc<dyn Form>;
        let mut fields: Vec<_> = self.names.iter().cloned().zip(self.spans.iter().map(form)).collect();
        if self.mask {
            let shape = self.shape();
            let (start, len) = shape.target();
            let masks = [("mask", 0, shape.input_len), ("target_mask", start, len)];
            for (name, start, len) in masks.into_iter().filter(|(.., len)| *len > 0) {
                fields.push((name.to_owned(), Arc::new(WindowMask { windows: windows(), start, len })));
            }
        }
        Collation::new(fields, Index::Windows(windows()))
    }

    fn select(&self, selection: &Selection) -> Option<Result<Arc<dyn Kind>>> {
        Some(self.select(selection).map(|selected| Arc::new(selected) as Arc<dyn Kind>))
    }

    fn content(&self, _: &ContentRequest) -> Result<Option<Content>> {
        let selected = self.windows.selection.as_ref();
        Ok(selected.map(|selected| Content { text: format!("select {}", selected.text()), rows: None }))
    }

    fn rows(&self, samples: Range<usize>) -> Vec<Range<usize>> {
        vec![self.windows.covered(samples, self.rows); self.spans.len()]
    }

    fn most_rows(&self, samples: usize) -> Vec<usize> {
        vec![self.windows.most_covered(samples, self.rows); self.spans.len()]
    }
}
