//! `CostModel`: the cost of a batch from its shape, given or fitted to measurements.
//!
//! A fit is the least sum of squared relative errors with no coefficient below 0. There are three coefficients, so
//! every choice of those that are not 0 is tried: the best solution without a negative number is the answer. Each
//! choice is solved by a singular value decomposition (one-sided Jacobi rotations), which also finds the shapes that
//! leave a coefficient undetermined.

use std::collections::HashSet;
use std::fmt;
use std::time::Instant;

use serde::Serialize;

use super::error::BatchingCause;
use crate::{Error, Result};

/// The cost of a batch of `n` samples padded to `L`: `fixed + per_token * n * L + per_pair * n * L^2`.
///
/// Samples that are concatenated have their own lengths: `fixed + per_token * sum L + per_pair * sum L^2`.
///
/// The unit does not matter: seconds, or anything else that adds up. [`CostModel::default`] is about the shape of a
/// language model of 7 billion parameters, [`CostModel::of`] counts the operations of a transformer, and
/// [`CostModel::calibrate`] times your step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CostModel {
    fixed: f64,
    per_token: f64,
    per_pair: f64,
}

/// The length at which attention costs as much as all else, by default.
const CROSSOVER: f64 = 24_576.0;

/// A token costs 1, and attention costs as much as all else in a sample of 24 576 tokens.
///
/// A transformer of width 4096, as models of 7 billion parameters have, costs this by the count of [`CostModel::of`].
impl Default for CostModel {
    fn default() -> Self {
        Self { fixed: 0.0, per_token: 1.0, per_pair: 1.0 / CROSSOVER }
    }
}

/// Writes the coefficients that are not 0, as the text of a rule has them: `per_token=1,per_pair=0.125`.
impl fmt::Display for CostModel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [("fixed", self.fixed), ("per_token", self.per_token), ("per_pair", self.per_pair)];
        let given = all.iter().filter(|(_, cost)| *cost != 0.0).map(|(name, cost)| format!("{name}={cost}"));
        formatter.pad(&given.collect::<Vec<_>>().join(","))
    }
}

/// The time that a batch of one shape took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measurement {
    /// Samples in the batch.
    pub samples: u64,
    /// The length that they were padded to.
    pub length: u64,
    /// The time, best the least of several runs.
    pub seconds: f64,
}

impl Measurement {
    /// The least time of several runs of a batch of each shape, `(samples, length)`; `timed` runs one once and returns
    /// the seconds.
    ///
    /// A first run of each shape warms up and does not count. At least 5 more runs follow, and at most 20, until they
    /// took 0.2 seconds. Shapes take turns, so a machine that is slower for a while is so for all of them. Other work
    /// on the machine only adds to a time, so the least one is nearest to the time of the step.
    /// [`CostModel::calibrate`] measures by the clock of the CPU; a device has another clock.
    ///
    /// # Errors
    /// The first error of `timed`.
    pub fn of_shapes<E>(
        shapes: &[(u64, u64)],
        mut timed: impl FnMut(u64, u64) -> Result<f64, E>,
    ) -> Result<Vec<Self>, E> {
        for &(samples, length) in shapes {
            timed(samples, length)?;
        }
        let mut runs = vec![Runs::default(); shapes.len()];
        while !runs.iter().all(Runs::are_enough) {
            for (runs, &(samples, length)) in
                runs.iter_mut().zip(shapes).filter(|(runs, _)| !runs.are_enough())
            {
                runs.add(timed(samples, length)?.max(LEAST_SECONDS));
            }
        }
        let measured =
            |(runs, &(samples, length)): (&Runs, &(u64, u64))| Self { samples, length, seconds: runs.least };
        Ok(runs.iter().zip(shapes).map(measured).collect())
    }
}

/// The runs of one shape.
#[derive(Clone, Default)]
struct Runs {
    count: usize,
    /// The seconds of all runs, and of the shortest one.
    seconds: f64,
    least: f64,
}

impl Runs {
    fn add(&mut self, seconds: f64) {
        self.least = if self.count == 0 { seconds } else { self.least.min(seconds) };
        self.count += 1;
        self.seconds += seconds;
    }

    fn are_enough(&self) -> bool {
        self.count >= MOST_RUNS || self.count >= LEAST_RUNS && self.seconds >= ENOUGH
    }
}

/// A cost model fitted to measurements, and how far it is from them.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Fit {
    /// The model.
    pub model: CostModel,
    /// The median of the relative errors.
    pub error: f64,
    /// The largest relative error.
    pub worst: f64,
}

impl CostModel {
    /// A model with these coefficients.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if one of them is negative or not finite, or all are 0.
    pub fn new(fixed: f64, per_token: f64, per_pair: f64) -> Result<Self> {
        let valid = |cost: &f64| cost.is_finite() && *cost >= 0.0;
        let all = [fixed, per_token, per_pair];
        match all.iter().all(valid) && all.iter().any(|&cost| cost > 0.0) {
            true => Ok(Self { fixed, per_token, per_pair }),
            false => Err(BatchingCause::Cost { fixed, per_token, per_pair }.into()),
        }
    }

    /// Times `step` on batches of several shapes, and fits a model to the times, in seconds.
    ///
    /// `step` runs the model, forward or a whole training step, on a batch of a number of samples of a number of
    /// elements. Choose shapes near those of your batches, or [`shapes`](Self::shapes): a model is accurate near its
    /// measurements. The fit has its distance from them; with an error above 0.2 it does not describe the cost of
    /// `step`.
    ///
    /// ```
    /// use batchloom::batching::{CostModel, CostOptimal};
    ///
    /// let mut weights = vec![0.5_f32; 64];
    /// let step = |samples: u64, length: u64| {
    ///     for element in 0..(samples * length) as usize {
    ///         weights[element % 64] *= 0.999;
    ///     }
    /// };
    /// let fit = CostModel::calibrate([(1, 64), (16, 64), (4, 256), (1, 1024), (16, 1024)], step)?;
    /// let rule = CostOptimal::new(fit.model);
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`check_shapes`](Self::check_shapes), before anything is timed.
    pub fn calibrate(
        shapes: impl IntoIterator<Item = (u64, u64)>,
        mut step: impl FnMut(u64, u64),
    ) -> Result<Fit> {
        let shapes: Vec<_> = shapes.into_iter().collect();
        Self::check_shapes(&shapes)?;
        let measured = Measurement::of_shapes(&shapes, |samples, length| {
            let start = Instant::now();
            step(samples, length);
            Ok::<_, Error>(start.elapsed().as_secs_f64())
        });
        Self::fit(&measured?)
    }

    /// A spread of shapes, `(samples, length)`: few and many samples, short and long, up to 16 384 elements.
    pub fn shapes() -> Vec<(u64, u64)> {
        let of = |length| [1, 4, 16, 64, 256].map(|samples| (samples, length));
        let all = [8, 32, 128, 512, 1024].into_iter().flat_map(of);
        all.filter(|(samples, length)| samples * length <= MOST_ELEMENTS).collect()
    }

    /// Fits a model to measurements: the least squares of the relative errors, with no coefficient below 0.
    ///
    /// ```
    /// use batchloom::batching::{CostModel, Measurement};
    ///
    /// // A step of 1 ms, and 2 microseconds for each element.
    /// let step = |samples: u64, length: u64| 1e-3 + 2e-6 * (samples * length) as f64;
    /// let shapes = [(1, 8), (16, 8), (1, 64), (16, 64), (4, 512)];
    /// let measurements =
    ///     shapes.map(|(samples, length)| Measurement { samples, length, seconds: step(samples, length) });
    /// let fit = CostModel::fit(&measurements)?;
    /// assert!((fit.model.per_token() / 2e-6 - 1.0).abs() < 1e-6);
    /// assert!(fit.error < 1e-6);
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`check_shapes`](Self::check_shapes), and [`Kind::Argument`](crate::Kind::Argument) for a time
    /// that is not finite or not above 0.
    pub fn fit(measurements: &[Measurement]) -> Result<Fit> {
        let shapes: Vec<_> =
            measurements.iter().map(|measurement| (measurement.samples, measurement.length)).collect();
        Self::check_shapes(&shapes)?;
        if let Some(wrong) = measurements
            .iter()
            .find(|measurement| !(measurement.seconds.is_finite() && measurement.seconds > 0.0))
        {
            return Err(measurement_error((wrong.samples, wrong.length), wrong.seconds));
        }
        let rows = measurements.iter().map(|measurement| {
            terms(measurement.samples, measurement.length).map(|term| term / measurement.seconds)
        });
        let (scaled, scale) = scale_columns(rows.collect());
        let [fixed, per_token, per_pair] = non_negative(&scaled);
        let model = Self::new(fixed / scale[0], per_token / scale[1], per_pair / scale[2])?;
        let error = |measurement: &Measurement| {
            (model.cost(measurement.samples, measurement.length) / measurement.seconds - 1.0).abs()
        };
        let mut errors: Vec<f64> = measurements.iter().map(error).collect();
        let middle = median(&mut errors);
        Ok(Fit { model, error: middle, worst: errors[errors.len() - 1] })
    }

    /// Checks that measurements of these shapes, `(samples, length)`, determine all coefficients, before they are made.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there are fewer than three shapes, if they do not tell the
    /// coefficients apart, or if one has no elements.
    pub fn check_shapes(shapes: &[(u64, u64)]) -> Result<()> {
        if let Some(&empty) = shapes.iter().find(|shape| shape.0 == 0 || shape.1 == 0) {
            return Err(measurement_error(empty, f64::NAN));
        }
        let distinct: HashSet<_> = shapes.iter().collect();
        if distinct.len() < TERMS {
            return Err(BatchingCause::TooFewShapes { found: distinct.len() }.into());
        }
        let (rows, _) =
            scale_columns(shapes.iter().map(|&(samples, length)| terms(samples, length)).collect());
        match Decomposition::of(&rows, &[0, 1, 2]).rank() == TERMS {
            true => Ok(()),
            false => Err(BatchingCause::AlikeShapes { shapes: shapes.to_vec() }.into()),
        }
    }

    /// The cost of a batch of `samples` samples padded to `length`.
    pub fn cost(&self, samples: u64, length: u64) -> f64 {
        self.fixed + samples as f64 * self.price(length)
    }

    /// The cost of a batch of concatenated samples, from the sum of their lengths and the sum of the squares of their
    /// lengths.
    ///
    /// Both sums are integers, so neither the order of the samples nor the platform changes a bit of the cost.
    ///
    /// ```
    /// use batchloom::batching::CostModel;
    ///
    /// let cost = CostModel::new(0.0, 1.0, 1.0 / 8192.0)?;
    /// // One sample of 8192 tokens costs more than 16 of 512.
    /// assert_eq!(cost.packed_cost(8192, 8192 * 8192), 16_384.0);
    /// assert_eq!(cost.packed_cost(8192, 16 * 512 * 512), 8704.0);
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    #[expect(clippy::suboptimal_flops, reason = "a fused product differs between platforms")]
    pub fn packed_cost(&self, tokens: u64, squares: u128) -> f64 {
        self.fixed + (self.per_token * tokens as f64 + self.per_pair * squares as f64)
    }

    /// The cost of any batch, whatever it contains.
    pub fn fixed(&self) -> f64 {
        self.fixed
    }

    /// The cost of an element.
    pub fn per_token(&self) -> f64 {
        self.per_token
    }

    /// The cost of a pair of elements of one sample.
    pub fn per_pair(&self) -> f64 {
        self.per_pair
    }

    /// A model of numbers of operations, which are above 0.
    pub(super) fn from_operations(per_token: f64, per_pair: f64) -> Self {
        Self { fixed: 0.0, per_token, per_pair }
    }

    /// The cost that one sample padded to `length` adds.
    pub(crate) fn price(&self, length: u64) -> f64 {
        let length = length as f64;
        (self.per_token + self.per_pair * length) * length
    }
}

/// The number of elements of the largest shape of a spread.
const MOST_ELEMENTS: u64 = 16_384;

/// The runs of a step that are timed: at least, at most, and the seconds after which they are enough.
const LEAST_RUNS: usize = 5;
const MOST_RUNS: usize = 20;
const ENOUGH: f64 = 0.2;

/// The time of a run that is too short for the clock.
const LEAST_SECONDS: f64 = 1e-9;

/// The number of coefficients.
const TERMS: usize = 3;

/// The choices of coefficients that are not 0.
const CHOICES: [&[usize]; 7] = [&[0], &[1], &[2], &[0, 1], &[0, 2], &[1, 2], &[0, 1, 2]];

/// The largest number of sweeps. Rotations of all pairs of columns converge long before.
const MOST_SWEEPS: usize = 60;

/// One number for each coefficient.
type Row = [f64; TERMS];

/// Sorts numbers, at least one, and returns the middle one.
fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    (numbers[(numbers.len() - 1) / 2] + numbers[numbers.len() / 2]) / 2.0
}

fn measurement_error((samples, length): (u64, u64), seconds: f64) -> Error {
    let seconds = if seconds.is_nan() { "unknown".to_owned() } else { seconds.to_string() };
    BatchingCause::Measurement { samples, length, seconds }.into()
}

/// The factors of the coefficients in the cost of a batch.
fn terms(samples: u64, length: u64) -> Row {
    let (samples, length) = (samples as f64, length as f64);
    [1.0, samples * length, samples * length * length]
}

/// The rows with each column divided by its largest number, and these numbers.
fn scale_columns(mut rows: Vec<Row>) -> (Vec<Row>, Row) {
    let scale =
        rows.iter().fold([0.0; TERMS], |most, row| [0, 1, 2].map(|column| row[column].max(most[column])));
    for row in &mut rows {
        *row = [0, 1, 2].map(|column| row[column] / scale[column]);
    }
    (rows, scale)
}

/// The coefficients, none below 0, that bring all rows nearest to 1.
fn non_negative(rows: &[Row]) -> Row {
    let mut best = ([0.0; TERMS], f64::INFINITY);
    for columns in CHOICES {
        let coefficients = Decomposition::of(rows, columns).nearest_to_ones();
        let said = rows
            .iter()
            .map(|row| row.iter().zip(coefficients).map(|(term, number)| term * number).sum::<f64>());
        let error: f64 = said.map(|said| (said - 1.0).powi(2)).sum();
        if coefficients.iter().all(|&number| number >= 0.0) && error < best.1 {
            best = (coefficients, error);
        }
    }
    best.0
}

/// A singular value decomposition of some columns: rotations that make them orthogonal.
struct Decomposition {
    /// The places of these columns.
    chosen: Vec<usize>,
    /// The columns after the rotations; their lengths are the singular values.
    columns: Vec<Vec<f64>>,
    /// Each rotated column as a sum of those before.
    rotation: Vec<Row>,
}

impl Decomposition {
    fn of(rows: &[Row], chosen: &[usize]) -> Self {
        let columns = chosen.iter().map(|&column| rows.iter().map(|row| row[column]).collect()).collect();
        let rotation =
            (0..chosen.len()).map(|place| [0, 1, 2].map(|column| f64::from(column == place))).collect();
        let mut decomposition = Self { chosen: chosen.to_vec(), columns, rotation };
        let pairs: Vec<_> = (0..chosen.len()).flat_map(|a| (0..a).map(move |b| (b, a))).collect();
        for _ in 0..MOST_SWEEPS {
            let turned =
                pairs.iter().filter(|&&(first, second)| decomposition.make_orthogonal(first, second)).count();
            if turned == 0 {
                break;
            }
        }
        decomposition
    }

    /// Rotates two columns so that they are orthogonal. Returns false if they already were.
    fn make_orthogonal(&mut self, first: usize, second: usize) -> bool {
        let (a, b) = (&self.columns[first], &self.columns[second]);
        let (aa, bb, ab) = (dot(a, a), dot(b, b), dot(a, b));
        if ab == 0.0 || ab.abs() <= f64::EPSILON * (aa * bb).sqrt() {
            return false;
        }
        let slope = (bb - aa) / (2.0 * ab);
        let tangent = slope.signum() / (slope.abs() + slope.hypot(1.0));
        let cosine = 1.0 / tangent.hypot(1.0);
        let sine = cosine * tangent;
        let turn = |a: &mut f64, b: &mut f64| (*a, *b) = (cosine * *a - sine * *b, sine * *a + cosine * *b);
        let (left, right) = self.columns.split_at_mut(second);
        left[first].iter_mut().zip(&mut right[0]).for_each(|(a, b)| turn(a, b));
        let (left, right) = self.rotation.split_at_mut(second);
        left[first].iter_mut().zip(&mut right[0]).for_each(|(a, b)| turn(a, b));
        true
    }

    /// The singular values, and the one up to which they count as 0.
    fn singular_values(&self) -> (Vec<f64>, f64) {
        let values: Vec<f64> = self.columns.iter().map(|column| dot(column, column).sqrt()).collect();
        let largest = values.iter().copied().fold(0.0, f64::max);
        let rows = self.columns[0].len().max(self.columns.len());
        (values, largest * rows as f64 * f64::EPSILON)
    }

    /// The number of independent columns.
    fn rank(&self) -> usize {
        let (values, least) = self.singular_values();
        values.iter().filter(|&&value| value > least).count()
    }

    /// The shortest of the coefficients that bring all rows nearest to 1; coefficients of other columns are 0.
    fn nearest_to_ones(&self) -> Row {
        let (values, least) = self.singular_values();
        let mut coefficients = [0.0; TERMS];
        for ((column, rotation), value) in self.columns.iter().zip(&self.rotation).zip(values) {
            if value > least {
                let factor = column.iter().sum::<f64>() / (value * value);
                self.chosen
                    .iter()
                    .zip(rotation)
                    .for_each(|(&place, part)| coefficients[place] += factor * part);
            }
        }
        coefficients
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
