//! Windows of time series.

use std::collections::BTreeMap;

use batchloom::dataset::{
    Backtest as EngineBacktest, BacktestShape, Dataset as EngineDataset, Missing, Tick, Timed, WindowShape,
    WindowSteps,
};
use batchloom::{DType, WindowDataset};
use pyo3::prelude::*;

use crate::batching::parse;
use crate::chunked::FieldArray;
use crate::dataset::Dataset;
use crate::dataset::part_end::{PartEnd, steps};
use crate::dataset::selection::Selection;
use crate::dlpack::Tensor;
use crate::error::raise;
use crate::interpreter::detach;

/// Windows, and the fields that are taken from series for them. They are documented in batchloom/dataset/windows/.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct Windows(pub(crate) WindowDataset);

/// The numbers of samples, of different windows, of series, of padded series, and of series without a window.
type Counts = (u64, u64, usize, usize, usize);

/// A missing row: its field, its series, the step of the anchor, the place of the offset, and the closest row; then the
/// number of missing rows, and of all.
type FirstMissing = (String, usize, Option<usize>, usize, Option<usize>, u64, u64);

#[pymethods]
impl Windows {
    /// Windows over series, without a field.
    #[new]
    #[pyo3(signature = (
        offsets, *, input_len, horizon, label_len, gap, stride, lead, trail, whole, anchor, short, sampled_by
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of one constructor")]
    fn new(
        offsets: &Tensor,
        input_len: usize,
        horizon: usize,
        label_len: usize,
        gap: usize,
        stride: usize,
        lead: usize,
        trail: usize,
        whole: bool,
        anchor: &str,
        short: &str,
        sampled_by: &str,
    ) -> PyResult<Self> {
        let (anchor, short, sampled_by) = (parse(anchor)?, parse(short)?, parse(sampled_by)?);
        let shape = WindowShape::new(input_len)
            .horizon(horizon)
            .label_len(label_len)
            .gap(gap)
            .stride(stride)
            .lead(lead)
            .trail(trail)
            .whole(whole)
            .anchor(anchor)
            .short(short)
            .sampled_by(sampled_by);
        let offsets: Vec<usize> = steps(offsets)?;
        WindowDataset::new(&offsets, shape).map(Self).map_err(|error| raise(&error))
    }

    /// The same windows with a field that holds these steps of an array `[time, ..]`.
    fn with_steps(&self, name: String, values: FieldArray<'_>, steps: GivenSteps) -> PyResult<Self> {
        self.with(|windows| windows.steps(name, values, steps.into()))
    }

    /// The same windows with a field that is true at the given steps that exist.
    fn with_mask(&self, name: String, steps: GivenSteps) -> PyResult<Self> {
        self.with(|windows| windows.mask_of(name, steps.into()))
    }

    /// The same windows with a row for each: of its series, of the window, or of its step `anchor`.
    fn with_rows(&self, name: String, values: FieldArray<'_>, of: &str, anchor: usize) -> PyResult<Self> {
        self.with(|windows| match of {
            "series" => windows.of_series(name, values),
            "windows" => windows.of_windows(name, values),
            _ => windows.of_step(name, values, anchor),
        })
    }

    /// The same windows with a field of rows with separate times: int64 or float64, as all ticks are.
    #[pyo3(signature = (name, values, steps, times, series, offsets, *, tolerance, r#match, pads, anchor))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of one field")]
    fn with_timed(
        &self,
        name: String,
        values: FieldArray<'_>,
        steps: &Tensor,
        times: &Tensor,
        series: &Tensor,
        offsets: &Tensor,
        tolerance: Option<&Tensor>,
        r#match: &str,
        pads: bool,
        anchor: usize,
    ) -> PyResult<Self> {
        let rule = Rule { matching: r#match, pads, anchor, series: self::steps(series)? };
        let arrays = [&steps.0, &times.0, &offsets.0];
        let tolerance = tolerance.map(|tolerance| &tolerance.0);
        match offsets.0.dtype() {
            DType::I64 => self.with_ticks::<i64>(name, values.into(), arrays, tolerance, &rule),
            _ => self.with_ticks::<f64>(name, values.into(), arrays, tolerance, &rule),
        }
    }

    /// The same windows with a field that is true for the rows of the field `of` that exist.
    fn with_timed_mask(&self, name: &str, of: &str) -> PyResult<Self> {
        self.with(|windows| windows.timed_mask(name, of))
    }

    /// The first row that windows lack, of a field in which none may be missing: the field, the series, the step of the
    /// anchor, the place of the offset, the closest row; and the number of missing rows and of all.
    fn first_missing(&self, py: Python<'_>) -> Option<FirstMissing> {
        let row = detach(py, || self.0.first_missing())?;
        let closest = row.closest.map(|(row, _)| row);
        Some((row.field, row.series, row.step, row.offset, closest, row.missing, row.of))
    }

    /// The rows that are found for each of some windows, `[places, windows]`, for each place of each field; negative where
    /// there is none.
    fn timed_rows(&self, windows: &Tensor) -> PyResult<Tensor> {
        let windows: Vec<u64> = steps(windows)?.into_iter().map(|window| window as u64).collect();
        self.0.timed_rows(&windows).map(Tensor).map_err(|error| raise(&error))
    }

    /// The fields with separate times of a batch of some windows: for each its rows and its mask.
    fn form_timed(
        &self,
        py: Python<'_>,
        windows: &Tensor,
        pad_values: BTreeMap<String, Vec<u8>>,
        edges: Vec<String>,
    ) -> PyResult<Vec<Tensor>> {
        let windows: Vec<u64> = steps(windows)?.into_iter().map(|window| window as u64).collect();
        let pad_values: Vec<_> = pad_values.into_iter().collect();
        let formed = detach(py, || self.0.form_timed(&windows, pad_values, edges));
        Ok(formed.map_err(|error| raise(&error))?.into_iter().map(Tensor).collect())
    }

    /// The same windows with the number of the series, the step `anchor`, and the number of each.
    fn with_index(&self, step: &str, anchor: usize) -> PyResult<Self> {
        self.with(|windows| windows.index(step, anchor))
    }

    /// The first sample that is the window of a series which begins with a step.
    fn sample_at(&self, series: usize, start: isize) -> Option<u64> {
        self.0.sample_at(series, start)
    }

    /// For each series the number of different windows before its own, and the row with which its first one begins,
    /// `[series, 2]`, as int64; -1 for both if it makes no window.
    fn firsts(&self) -> PyResult<Tensor> {
        let first = |window: Option<(u64, isize)>| {
            window.map_or([-1, -1], |(before, row)| [before.cast_signed(), row as i64])
        };
        let firsts: Vec<i64> = self.0.firsts().into_iter().flat_map(first).collect();
        let shape = [firsts.len() / 2, 2];
        batchloom::Tensor::from_vec(firsts, &shape).map(Tensor).map_err(|error| raise(&error))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn counts(&self) -> PyResult<Counts> {
        let counts = self.0.counts().map_err(|error| raise(&error))?;
        Ok((counts.samples, counts.windows, counts.series, counts.padded, counts.without))
    }

    /// The first row of each series, or of the part of it that this dataset has, and the one after its last, `[series,
    /// 2]`, as int64.
    fn ranges(&self) -> PyResult<Tensor> {
        let ranges: Vec<i64> = self
            .0
            .parts()
            .iter()
            .flat_map(|rows| [rows.start, rows.end])
            .map(|row| row.cast_signed() as i64)
            .collect();
        let shape = [ranges.len() / 2, 2];
        batchloom::Tensor::from_vec(ranges, &shape).map(Tensor).map_err(|error| raise(&error))
    }

    /// The series of a window, its first row, and the number of rows of zeros before that.
    fn place(&self, window: u64) -> PyResult<(usize, usize, usize)> {
        self.0.place(window).map_err(|error| raise(&error))
    }

    /// The first row of windows that are one view of the series, or `None` if they are not one view.
    pub(crate) fn row(&self, start: u64, end: u64) -> PyResult<Option<usize>> {
        match self.0.is_view(start, end) {
            true => self.0.place(start).map(|(_, row, _)| Some(row)).map_err(|error| raise(&error)),
            false => Ok(None),
        }
    }

    /// The first row of each of some windows, as int64, and the number of rows of zeros before it.
    fn rows(&self, windows: &Tensor) -> PyResult<(Tensor, Tensor)> {
        let windows = steps(windows)?;
        let places = windows.iter().map(|&window| self.0.place(window as u64));
        let places = places.map(|place| place.map(|(_, row, missing)| (row as u64, missing as u64)));
        let places = places.collect::<batchloom::Result<(Vec<_>, Vec<_>)>>();
        let (rows, missing) = places.map_err(|error| raise(&error))?;
        Ok((Tensor::of_indices(&rows)?, Tensor::of_indices(&missing)?))
    }

    /// The windows with their horizon in `[starts[k], ends[k])` of series `k`.
    fn part(&self, starts: &Tensor, ends: &Tensor, reach_back: bool) -> PyResult<Self> {
        let within: Vec<_> =
            steps(starts)?.into_iter().zip(steps(ends)?).map(|(start, end)| start..end).collect();
        self.0.part(&within, reach_back).map(Self).map_err(|error| raise(&error))
    }

    /// Some of these windows.
    fn select(&self, selection: &Selection) -> PyResult<Self> {
        self.0.select(&selection.0).map(Self).map_err(|error| raise(&error))
    }

    /// The windows of each part of a time split, by name.
    #[expect(clippy::needless_pass_by_value, reason = "extracted from a list of Python")]
    fn split(&self, parts: Vec<(String, PyRef<'_, PartEnd>)>, reach_back: bool) -> PyResult<Vec<Self>> {
        let parts: Vec<_> = parts.iter().map(|(name, end)| (name.as_str(), end.0.clone())).collect();
        let parts = self.0.split(&parts, reach_back).map_err(|error| raise(&error))?;
        Ok(parts.into_iter().map(Self).collect())
    }

    /// The folds of a backtest.
    #[pyo3(signature = (start, *, horizon, stride, refit, train_len))]
    fn backtest(
        &self,
        start: &PartEnd,
        horizon: usize,
        stride: usize,
        refit: usize,
        train_len: Option<usize>,
    ) -> PyResult<Backtest> {
        let shape = BacktestShape { horizon, stride, refit, train_len };
        self.0.backtest(&start.0, shape).map(Backtest).map_err(|error| raise(&error))
    }

    fn dataset(&self) -> Dataset {
        Dataset(EngineDataset::from(self.0.clone()))
    }
}

/// The options of a field with separate times, beside its arrays.
struct Rule<'a> {
    matching: &'a str,
    pads: bool,
    anchor: usize,
    series: Vec<usize>,
}

impl Windows {
    fn with_ticks<T: Tick>(
        &self,
        name: String,
        values: batchloom::ChunkedTensor,
        [steps, times, offsets]: [&batchloom::Tensor; 3],
        tolerance: Option<&batchloom::Tensor>,
        rule: &Rule<'_>,
    ) -> PyResult<Self> {
        let ticks = |array: &batchloom::Tensor| {
            array.try_as_slice().map(<[T]>::to_vec).map_err(|error| raise(&error))
        };
        let tolerance = tolerance.map(ticks).transpose()?.and_then(|tolerance| tolerance.first().copied());
        let missing = if rule.pads { Missing::Pad } else { Missing::Checked };
        let timed = Timed::new(steps.clone(), times.clone(), &rule.series, &ticks(offsets)?)
            .matching(parse(rule.matching)?)
            .tolerance(tolerance)
            .missing(missing)
            .anchor(rule.anchor);
        self.with(|windows| windows.timed(name, values, timed))
    }

    /// The number of rows from one window to the next.
    pub(crate) fn stride(&self) -> usize {
        self.0.stride()
    }

    fn with(&self, add: impl FnOnce(WindowDataset) -> batchloom::Result<WindowDataset>) -> PyResult<Self> {
        add(self.0.clone()).map(Self).map_err(|error| raise(&error))
    }
}

/// Steps of a window: the first, their number and the distance from one to the next, or a list.
#[derive(FromPyObject)]
enum GivenSteps {
    Range((usize, usize, usize)),
    Listed(Vec<usize>),
}

impl From<GivenSteps> for WindowSteps {
    fn from(steps: GivenSteps) -> Self {
        match steps {
            GivenSteps::Range((start, len, every)) => Self::Range { start, len, every },
            GivenSteps::Listed(steps) => Self::Listed(steps.into()),
        }
    }
}

/// The folds of a backtest.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct Backtest(EngineBacktest);

#[pymethods]
impl Backtest {
    fn __len__(&self) -> usize {
        self.0.folds()
    }

    /// The first fold with the same windows to train on.
    fn trained_at(&self, fold: usize) -> usize {
        self.0.trained_at(fold)
    }

    /// The windows to train on.
    fn train(&self, fold: usize) -> PyResult<Windows> {
        self.0.train(fold).map(Windows).map_err(|error| raise(&error))
    }

    /// The windows to test on.
    fn test(&self, fold: usize) -> PyResult<Windows> {
        self.0.test(fold).map(Windows).map_err(|error| raise(&error))
    }
}
