//! `WindowDataset`: every stretch of so many steps of a time series is a sample.
//!
//! Nothing is stored for a window. The windows of a series are counted by a closed form, and a window's number says
//! where it begins: O(log series) for any window. A window never crosses series.

use std::sync::Arc;

use crate::tensor::Rows;
use crate::{Error, Result, Tensor};

/// Which end of a series the windows are counted from, where the last one does not end with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Anchor {
    /// The first window begins with the series.
    #[default]
    Start,
    /// The last window ends with the series.
    End,
}

/// What happens to a series that is too short for one window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Short {
    /// It makes one window, that begins with zeros.
    #[default]
    Pad,
    /// It makes none.
    Skip,
    /// No dataset is made; the error names the series.
    Error,
}

/// What a window looks like: so many steps of input, then `gap` steps that are not looked at, then the horizon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Steps of input.
    pub input_len: usize,
    /// Steps to predict; 0 for inputs alone.
    pub horizon: usize,
    /// Steps before the horizon that targets begin with.
    pub label_len: usize,
    /// Steps between input and horizon.
    pub gap: usize,
    /// Steps from one window to the next.
    pub stride: usize,
    /// Which end windows are counted from.
    pub anchor: Anchor,
    /// What happens to short series.
    pub short: Short,
}

impl Shape {
    /// Windows of `input_len` steps that begin at every step, and nothing to predict.
    pub fn new(input_len: usize) -> Self {
        let (anchor, short) = (Anchor::Start, Short::Pad);
        Self { input_len, horizon: 0, label_len: 0, gap: 0, stride: 1, anchor, short }
    }

    /// Steps of a series that a window takes.
    pub fn span(&self) -> usize {
        self.input_len.saturating_add(self.gap).saturating_add(self.horizon)
    }

    fn check(&self) -> Result<()> {
        let refused = |reason: String| Err(Error::WindowShape { reason });
        if self.input_len == 0 {
            return refused("input_len is 0; expected at least 1 step".to_owned());
        }
        if self.stride == 0 {
            return refused("stride is 0; expected at least 1 step".to_owned());
        }
        if self.horizon == 0 && (self.label_len > 0 || self.gap > 0) {
            let (label_len, gap) = (self.label_len, self.gap);
            return refused(format!(
                "label_len is {label_len} and gap is {gap}; expected 0 where horizon is 0"
            ));
        }
        if self.label_len > self.input_len + self.gap {
            let (found, most) = (self.label_len, self.input_len + self.gap);
            return refused(format!(
                "label_len is {found}; expected at most input_len + gap, which is {most}"
            ));
        }
        Ok(())
    }
}

/// Where each window lies.
#[derive(Debug)]
pub(crate) struct Windows {
    shape: Shape,
    /// For each series that makes windows: its number, its first row and its length.
    series: Vec<(usize, usize, usize)>,
    /// Windows in the series before each, and in all of them.
    before: Vec<u64>,
}

/// Where one window lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The first of its rows that exists.
    pub(crate) row: usize,
    /// Rows before that, which are zeros.
    pub(crate) missing: usize,
}

impl Windows {
    fn new(shape: Shape, offsets: &[usize]) -> Result<Self> {
        shape.check()?;
        let span = shape.span();
        let (mut series, mut before, mut total) = (Vec::new(), vec![0], 0);
        for (number, pair) in offsets.windows(2).enumerate() {
            let length = pair[1] - pair[0];
            let count = match length.checked_sub(span) {
                Some(rest) => rest as u64 / shape.stride as u64 + 1,
                None if shape.short == Short::Pad => 1,
                None if shape.short == Short::Skip => 0,
                None => return Err(Error::SeriesTooShort { series: number as u64, length, span }),
            };
            if count > 0 {
                total += count;
                series.push((number, pair[0], length));
                before.push(total);
            }
        }
        match total {
            0 => Err(Error::NoWindows { series: offsets.len().saturating_sub(1) as u64, span }),
            _ => Ok(Self { shape, series, before }),
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> u64 {
        self.before.last().copied().unwrap_or(0)
    }

    /// The place in `series` of the one that holds `window`.
    fn holder(&self, window: u64) -> usize {
        self.before.partition_point(|&before| before <= window) - 1
    }

    /// Where `window` lies.
    pub(crate) fn place(&self, window: u64) -> Place {
        let holder = if self.series.len() == 1 { 0 } else { self.holder(window) };
        let (_, first, length) = self.series[holder];
        let span = self.shape.span();
        let Some(rest) = length.checked_sub(span) else {
            return Place { row: first, missing: span - length };
        };
        let skipped = match self.shape.anchor {
            Anchor::Start => 0,
            Anchor::End => rest % self.shape.stride,
        };
        let steps = usize::try_from(window - self.before[holder]).unwrap_or(usize::MAX) * self.shape.stride;
        Place { row: first + skipped + steps, missing: 0 }
    }

    /// The number of the series that holds `window`.
    pub(crate) fn series(&self, window: u64) -> usize {
        self.series[self.holder(window)].0
    }

    /// Whether windows `start..end` lie at equal distances, so that they are one strided view: in one series, without
    /// zeros.
    pub(crate) fn is_view(&self, start: u64, end: u64) -> bool {
        start < end && self.holder(start) == self.holder(end - 1) && self.place(start).missing == 0
    }
}

/// One field of a window: some of its steps, of one array.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) values: Tensor,
    pub(crate) rows: Rows,
    /// The first step of the window, and how many.
    pub(crate) start: usize,
    pub(crate) len: usize,
}

/// Sliding windows over one series or many.
///
/// ```
/// use batchloom::dataset::{Shape, WindowDataset};
/// use batchloom::Tensor;
///
/// let series = Tensor::from_vec((0..100).map(|step| step as f32).collect(), &[50, 2])?;
/// let shape = Shape { horizon: 4, ..Shape::new(10) };
/// let dataset = WindowDataset::new(&[0, 50], shape)?.input("x", series.clone())?.target("y", series)?;
/// assert_eq!(dataset.len(), 50 - 14 + 1);
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct WindowDataset {
    windows: Arc<Windows>,
    /// Rows that every array has.
    rows: usize,
    names: Vec<String>,
    spans: Vec<Span>,
    mask: bool,
}

impl WindowDataset {
    /// The windows of series that lie one after the other: series `k` is the rows `offsets[k]..offsets[k + 1]`.
    ///
    /// # Errors
    /// [`Error::WindowShape`], [`Error::SeriesTooShort`], [`Error::NoWindows`], and [`Error::Offsets`] where they
    /// decrease.
    pub fn new(offsets: &[usize], shape: Shape) -> Result<Self> {
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
        let windows = Arc::new(Windows::new(shape, offsets)?);
        let rows = offsets.last().copied().unwrap_or(0);
        Ok(Self { windows, rows, names: Vec::new(), spans: Vec::new(), mask: false })
    }

    /// Adds a field that holds the steps of input of an array `[time, ..]`.
    ///
    /// # Errors
    /// [`Error::ScalarField`], [`Error::DuplicateField`], and [`Error::FieldLength`] where it has fewer steps than the
    /// series.
    pub fn input(self, name: impl Into<String>, values: Tensor) -> Result<Self> {
        let len = self.windows.shape.input_len;
        self.add(name.into(), values, 0, len)
    }

    /// Adds a field that holds the horizon of an array `[time, ..]`, and the `label_len` steps before it.
    ///
    /// # Errors
    /// As [`input`](Self::input).
    pub fn target(self, name: impl Into<String>, values: Tensor) -> Result<Self> {
        let Shape { input_len, horizon, label_len, gap, .. } = self.windows.shape;
        self.add(name.into(), values, input_len + gap - label_len, label_len + horizon)
    }

    /// Adds `mask`: which steps of input exist, those of short series being padded.
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

    /// The number of windows.
    pub fn len(&self) -> usize {
        usize::try_from(self.windows.len()).unwrap_or(usize::MAX)
    }

    /// Whether there are none; never.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names of the fields, in order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The series that `window` lies in, its first row, and how many of its rows are zeros before that.
    ///
    /// # Errors
    /// [`Error::SampleRange`].
    pub fn place(&self, window: u64) -> Result<(usize, usize, usize)> {
        let samples = self.windows.len();
        if window >= samples {
            return Err(Error::SampleRange { found: window, samples });
        }
        let place = self.windows.place(window);
        Ok((self.windows.series(window), place.row, place.missing))
    }

    /// The windows `start..end` without a copy: for each field an array `[windows, steps, ..]` over the memory of the
    /// series, whose rows overlap. None where they do not lie in one series.
    pub fn view(&self, start: u64, end: u64) -> Option<Vec<Tensor>> {
        if end > self.windows.len() || !self.windows.is_view(start, end) {
            return None;
        }
        let (row, count) = (self.windows.place(start).row, usize::try_from(end - start).ok()?);
        let view = |span: &Span| {
            let (stride, shape) = (span.values.strides()[0], span.values.shape());
            let shape = [&[count, span.len], &shape[1..]].concat();
            let step = stride * self.windows.shape.stride.cast_signed();
            let strides = [&[step, stride], &span.values.strides()[1..]].concat();
            let first = stride * (row + span.start).cast_signed();
            let offset = span.values.layout().offset().checked_add_signed(first)?;
            Tensor::new(span.values.bytes().clone(), span.values.dtype(), &shape, &strides, offset).ok()
        };
        self.spans.iter().map(view).collect()
    }

    pub(crate) fn windows(&self) -> &Arc<Windows> {
        &self.windows
    }

    pub(crate) fn spans(&self) -> &[Span] {
        &self.spans
    }

    pub(crate) fn masks(&self) -> bool {
        self.mask
    }

    pub(crate) fn input_len(&self) -> usize {
        self.windows.shape.input_len
    }
}
