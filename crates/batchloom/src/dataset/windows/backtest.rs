//! Rolling-origin backtests: a part to train on and a part to test on, again and again, each time later.
//!
//! Promise: no window of a part to train on has a step that lies at or after the origin, where the part to test on
//! begins.

use std::ops::Range;

use super::WindowDataset;
use super::error::WindowsCause;
use crate::Result;
use crate::dataset::parts::{PartEnd, borders};

/// The parts of a backtest, in steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BacktestShape {
    /// The number of steps of each part to test on: at least the horizon of the windows.
    pub horizon: usize,
    /// The number of steps from one origin to the next.
    pub stride: usize,
    /// The number of folds that share a part to train on; 0 if all do.
    pub refit: usize,
    /// The number of steps of the parts to train on, or `None` for all steps before the origin.
    pub train_len: Option<usize>,
}

/// The folds of a backtest. They are views: each costs O(series), and shares all arrays with the dataset.
#[derive(Clone)]
pub struct Backtest {
    dataset: WindowDataset,
    shape: BacktestShape,
    /// The number of steps of each series, and its first origin.
    series: Vec<(usize, usize)>,
    folds: usize,
}

crate::brief::debug_in_brief!(Backtest, [dataset, shape, folds], [series]);

impl WindowDataset {
    /// The folds with `start` as first origin, in every series. A series takes part in a fold if it has all steps of
    /// the part to test on; the last fold is the last one in which some series does.
    ///
    /// ```
    /// use batchloom::dataset::{BacktestShape, PartEnd, WindowShape};
    /// use batchloom::{Tensor, WindowDataset};
    ///
    /// let series = Tensor::from_vec((0..100).map(|step| step as f32).collect(), &[100])?;
    /// let dataset = WindowDataset::new(&[0, 100], WindowShape::new(10).horizon(4))?;
    /// let dataset = dataset.input("x", series.clone())?.target("y", series)?;
    /// let shape = BacktestShape { horizon: 12, stride: 12, refit: 1, train_len: None };
    /// let backtest = dataset.backtest(&PartEnd::Share(0.5), shape)?;
    /// assert_eq!(backtest.folds(), 4);
    /// let (train, test) = (backtest.train(1)?, backtest.test(1)?);
    /// assert_eq!((train.len(), test.len()), (62 - 14 + 1, 12 - 4 + 1));
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if `horizon` is shorter than the horizon of the windows, if `stride`
    /// is 0, or if no series has a whole fold; the errors of [`borders`] for `start`; [`Kind::Data`](crate::Kind::Data)
    /// if the first parts have no windows.
    pub fn backtest(&self, start: &PartEnd, shape: BacktestShape) -> Result<Backtest> {
        let least = self.shape().horizon.max(1);
        if shape.horizon < least {
            return Err(WindowsCause::BacktestHorizon { found: shape.horizon, least }.into());
        }
        if shape.stride == 0 {
            return Err(WindowsCause::BacktestStride.into());
        }
        let lengths: Vec<usize> = self.parts().iter().map(ExactSizeIterator::len).collect();
        let starts = borders(&lengths, &[("start", start.clone())])?.concat();
        let series: Vec<(usize, usize)> = lengths.into_iter().zip(starts).collect();
        let folds = |&(length, start): &(usize, usize)| {
            (length - start).checked_sub(shape.horizon).map_or(0, |rest| rest / shape.stride + 1)
        };
        let folds = series.iter().map(folds).max().unwrap_or(0);
        if folds == 0 {
            let most = series.iter().map(|(length, start)| length - start).max().unwrap_or(0);
            return Err(WindowsCause::BacktestRoom { found: shape.horizon, most }.into());
        }
        let backtest = Backtest { dataset: self.clone(), shape, series, folds };
        backtest.train(0)?;
        backtest.test(0)?;
        Ok(backtest)
    }
}

impl Backtest {
    /// The number of folds.
    pub fn folds(&self) -> usize {
        self.folds
    }

    /// The first fold that has the same part to train on as `fold`.
    pub fn trained_at(&self, fold: usize) -> usize {
        fold.checked_rem(self.shape.refit).map_or(0, |since| fold - since)
    }

    /// The windows of `fold` to train on: all of their steps are before the origin.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if there are none.
    pub fn train(&self, fold: usize) -> Result<WindowDataset> {
        let origin = self.trained_at(fold);
        let part = |&series: &(usize, usize)| {
            let end = self.origin(series, origin).min(series.0);
            end.saturating_sub(self.shape.train_len.unwrap_or(usize::MAX))..end
        };
        self.part("train", &self.series.iter().map(part).collect::<Vec<_>>(), false)
    }

    /// The windows of `fold` to test on: their horizons are at the origin or after it, and their inputs may be before.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if there are none.
    pub fn test(&self, fold: usize) -> Result<WindowDataset> {
        let part = |&series: &(usize, usize)| {
            let origin = self.origin(series, fold);
            let end = origin.saturating_add(self.shape.horizon);
            if end <= series.0 { origin..end } else { series.0..series.0 }
        };
        self.part("test", &self.series.iter().map(part).collect::<Vec<_>>(), true)
    }

    fn origin(&self, (_, start): (usize, usize), fold: usize) -> usize {
        start.saturating_add(fold.saturating_mul(self.shape.stride))
    }

    fn part(&self, name: &str, within: &[Range<usize>], reach_back: bool) -> Result<WindowDataset> {
        let part = self.dataset.part(within, reach_back);
        part.map_err(|error| error.in_part(name))
    }
}
