//! Ends of the parts of a time split.

use batchloom::dataset::{ETT_HOUR, ETT_MINUTE, PartEnd as EngineEnd, tslib_ends};
use pyo3::prelude::*;

use crate::dlpack::Tensor;
use crate::error::{DataError, raise};

/// The end of one part of a time split. Written about in batchloom/dataset/windows/time_split.py.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct PartEnd(pub(super) EngineEnd);

#[pymethods]
impl PartEnd {
    #[staticmethod]
    fn share(share: f64) -> Self {
        Self(EngineEnd::Share(share))
    }

    #[staticmethod]
    fn step(step: i64) -> Self {
        Self(EngineEnd::Step(step))
    }

    /// The step of each series, int64.
    #[staticmethod]
    fn steps(steps: &Tensor) -> PyResult<Self> {
        self::steps(steps).map(|steps| Self(EngineEnd::Steps(steps)))
    }

    #[staticmethod]
    fn rest() -> Self {
        Self(EngineEnd::Rest)
    }

    /// The ends of three parts of series of these lengths, int64, by their shares, as the Time-Series-Library counts.
    #[staticmethod]
    #[expect(clippy::needless_pass_by_value, reason = "extracted from a list of Python")]
    fn tslib(lengths: &Tensor, shares: [(String, f64); 3]) -> PyResult<Vec<Self>> {
        let shares = shares.each_ref().map(|(name, share)| (name.as_str(), *share));
        let ends = tslib_ends(&steps(lengths)?, shares).map_err(|error| raise(&error))?;
        Ok(ends.into_iter().map(Self).collect())
    }

    /// The steps at which the three parts of the ETT sets end, by the hour or every 15 minutes.
    #[staticmethod]
    fn ett(by_hour: bool) -> [i64; 3] {
        if by_hour { ETT_HOUR } else { ETT_MINUTE }
    }
}

/// The steps of series in an array of int64.
pub(super) fn steps(steps: &Tensor) -> PyResult<Vec<usize>> {
    let given = steps.0.as_slice::<i64>();
    let given = given.ok_or_else(|| DataError::new_err("steps are no compact array of int64"))?;
    let step = |(series, &step): (usize, &i64)| {
        let negative = || DataError::new_err(format!("series {series} has step {step}; expected at least 0"));
        usize::try_from(step).map_err(|_| negative())
    };
    given.iter().enumerate().map(step).collect()
}
