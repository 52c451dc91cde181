//! Some samples of a dataset.

use batchloom::dataset::{PartEnd as EngineEnd, Selection as EngineSelection};
use pyo3::prelude::*;

use super::part_end::PartEnd;
use crate::dlpack::Tensor;
use crate::error::{DataError, raise};
use crate::interpreter::detach;
use crate::memory::collect;

/// Samples by their numbers. They are documented in batchloom/dataset/base.py.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct Selection(pub(crate) EngineSelection);

/// A selection written down: the ends of a run of neighbours, or a list; the number of samples to select from; the
/// number of the first of them in all of the data; and the number of all.
type Written = (Option<(u64, u64)>, Option<Tensor>, u64, u64, u64);

#[pymethods]
impl Selection {
    /// The samples `start..end` of `total`.
    #[staticmethod]
    fn neighbours(start: u64, end: u64, samples: u64) -> PyResult<Self> {
        EngineSelection::range(start..end, samples).map(Self).map_err(|error| raise(&error))
    }

    /// Samples in an array of int64 that holds no negative number, or of uint32.
    #[staticmethod]
    fn listed(numbers: &Tensor, samples: u64) -> PyResult<Self> {
        let numbers: Vec<u64> = match (numbers.0.as_slice::<i64>(), numbers.0.as_slice::<u32>()) {
            (Some(wide), _) => collect(wide.iter().map(|number| number.cast_unsigned()))?,
            (None, Some(narrow)) => collect(narrow.iter().map(|&number| u64::from(number)))?,
            (None, None) => {
                return Err(DataError::new_err("numbers are no compact array of int64 or uint32"));
            }
        };
        EngineSelection::list(&numbers, samples).map(Self).map_err(|error| raise(&error))
    }

    /// The samples of each part of a split, drawn by `seed`, or neighbours without one. `strata` is an array of int64.
    #[staticmethod]
    #[expect(clippy::needless_pass_by_value, reason = "extracted from a list of Python")]
    fn split(
        py: Python<'_>,
        samples: u64,
        parts: Vec<(String, PyRef<'_, PartEnd>)>,
        seed: Option<u64>,
        strata: Option<&Tensor>,
    ) -> PyResult<Vec<Self>> {
        let parts: Vec<(&str, EngineEnd)> =
            parts.iter().map(|(name, end)| (name.as_str(), end.0.clone())).collect();
        let not_compact = || DataError::new_err("strata are no compact array of int64");
        let strata = strata.map(|strata| strata.0.as_slice::<i64>().ok_or_else(not_compact)).transpose()?;
        let split = || EngineSelection::split(samples, &parts, seed, strata);
        let parts = detach(py, split).map_err(|error| raise(&error))?;
        Ok(parts.into_iter().map(Self).collect())
    }

    /// A selection that was written down.
    #[staticmethod]
    fn restored(
        range: Option<(u64, u64)>,
        list: Option<&Tensor>,
        samples: u64,
        base: u64,
        total: u64,
    ) -> PyResult<Self> {
        let selection = match (range, list) {
            (Some((start, end)), _) => Self::neighbours(start, end, samples)?,
            (None, Some(list)) => Self::listed(list, samples)?,
            (None, None) => return Err(DataError::new_err("a selection has neither a range nor a list")),
        };
        selection.0.restored(base, total).map(Self).map_err(|error| raise(&error))
    }

    /// The arguments of [`restored`](Self::restored).
    fn written(&self) -> PyResult<Written> {
        let range = self.0.as_range().map(|range| (range.start, range.end));
        let list = match (range, self.0.as_narrow()) {
            (Some(_), _) => None,
            (None, Some(narrow)) => {
                let list = batchloom::Tensor::from_vec(narrow.to_vec(), &[narrow.len()]);
                Some(Tensor(list.map_err(|error| raise(&error))?))
            }
            (None, None) => Some(Tensor::of_indices(&self.0.to_vec())?),
        };
        Ok((range, list, self.0.samples(), self.0.base(), self.0.total()))
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.0.len()).unwrap_or(usize::MAX)
    }

    /// The first of the samples and the one after the last, if they are neighbours.
    #[getter]
    fn range(&self) -> Option<(u64, u64)> {
        self.0.as_range().map(|range| (range.start, range.end))
    }

    /// The number of the sample at a place below [`__len__`](Self::__len__).
    fn number(&self, place: u64) -> u64 {
        self.0.get(place)
    }

    /// The numbers of the samples in the data that is there, as int64.
    fn numbers(&self) -> PyResult<Tensor> {
        Tensor::of_indices(&self.0.to_vec())
    }

    /// The number, in all of the data, of the first sample that is there.
    #[getter]
    fn base(&self) -> u64 {
        self.0.base()
    }

    /// The samples that these places of `outer` hold.
    fn within(&self, outer: &Self) -> PyResult<Self> {
        self.0.within(&outer.0).map(Self).map_err(|error| raise(&error))
    }

    /// The same samples of data that was cut to a range that holds all of them.
    fn cut(&self, start: u64, end: u64) -> PyResult<Self> {
        self.0.cut(start..end).map(Self).map_err(|error| raise(&error))
    }
}
