//! Groups of rows.

use batchloom::GroupDataset;
use batchloom::dataset::{Dataset as EngineDataset, Groups as EngineGroups, TextIds};
use pyo3::prelude::*;

use crate::batching::parse;
use crate::chunked::FieldArray;
use crate::dataset::Dataset;
use crate::dataset::selection::Selection;
use crate::dlpack::Tensor;
use crate::error::{DataError, raise};
use crate::interpreter::detach;
use crate::memory::collect;

/// Numbers texts in the order in which they first appear: text `k` is `values[offsets[k]..offsets[k + 1]]`, offsets are
/// int64. Returns the number of each text and the first place of each number, both int64.
#[pyfunction]
pub(crate) fn text_ids(py: Python<'_>, values: &[u8], offsets: &Tensor) -> PyResult<(Tensor, Tensor)> {
    let offsets = offsets.0.as_slice::<i64>();
    let offsets = offsets.ok_or_else(|| DataError::new_err("offsets are no compact array of int64"))?;
    let text = |ends: &[i64]| values.get(usize::try_from(ends[0]).ok()?..usize::try_from(ends[1]).ok()?);
    if detach(py, || offsets.windows(2).any(|ends| text(ends).is_none())) {
        return Err(DataError::new_err("offsets do not lie in the values"));
    }
    let ids = detach(py, || TextIds::new(offsets.windows(2).filter_map(text)));
    let (codes, first_rows) = ids.map_err(|error| raise(&error))?.into_parts();
    let first_rows = collect(first_rows.into_iter().map(|row| row.cast_signed() as i64))?;
    Ok((Tensor::of_list(codes)?, Tensor::of_list(first_rows)?))
}

/// The rows of each group. They are documented in batchloom/dataset/groups.py.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct Groups(EngineGroups);

#[pymethods]
impl Groups {
    /// The groups of rows with these ids, int64.
    #[new]
    fn new(py: Python<'_>, ids: &Tensor) -> PyResult<Self> {
        let ids = ids.0.as_slice::<i64>();
        let ids = ids.ok_or_else(|| DataError::new_err("ids are no compact array of int64"))?;
        detach(py, || EngineGroups::of(ids)).map(Self).map_err(|error| raise(&error))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// The first place of each group, and the number of rows, as int64.
    fn offsets(&self) -> PyResult<Tensor> {
        Tensor::of_numbers(self.0.offsets())
    }

    /// The row at each place, as int64, or `None` if row `k` is at place `k`.
    fn order(&self) -> PyResult<Option<Tensor>> {
        self.0.order().map(Tensor::of_indices).transpose()
    }

    /// Groups, their rows, the rows of the longest, groups that `max_rows` cuts, and the rows that this leaves out: of all
    /// groups, or of selected ones.
    #[pyo3(signature = (max_rows, selection))]
    fn counts(
        &self,
        max_rows: Option<u32>,
        selection: Option<&Selection>,
    ) -> PyResult<(u64, u64, u64, u64, u64)> {
        let counts = match selection {
            None => self.0.counts(max_rows),
            Some(selection) => self.0.counts_of(&selection.0, max_rows).map_err(|error| raise(&error))?,
        };
        Ok((counts.groups, counts.rows, counts.longest, counts.longer, counts.left_out))
    }

    /// A dataset of fields, each with its name, its array, and true if the array has a row for each group instead of
    /// each row.
    fn dataset(
        &self,
        fields: Vec<(String, FieldArray<'_>, bool)>,
        layout: &str,
        max_rows: Option<u32>,
        oversize: &str,
        shuffles_rows: bool,
        offsets: bool,
    ) -> PyResult<Dataset> {
        let mut builder = GroupDataset::new(self.0.clone()).layout(parse(layout)?);
        for (name, values, fixed) in fields {
            builder = match fixed {
                true => builder.fixed(name, values),
                false => builder.rows(name, values).map_err(|error| raise(&error))?,
            };
        }
        if let Some(max_rows) = max_rows {
            builder = builder.max_rows(max_rows, parse(oversize)?);
        }
        let builder = if shuffles_rows { builder.shuffle_rows() } else { builder };
        let builder = if offsets { builder.offsets() } else { builder };
        builder.build().map(|dataset| Dataset(EngineDataset::from(dataset))).map_err(|error| raise(&error))
    }
}
