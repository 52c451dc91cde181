//! `SparseRows`: a matrix that keeps only the entries that are not zero, row by row (CSR).

use std::ops::Range;

use super::error::TensorCause;
use super::{DType, Element, Tensor};
use crate::Result;
use crate::named::named;

/// The form in which a batch holds sparse rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SparseLayout {
    /// Compressed rows, as they are stored: `crow_indices` `[rows + 1]`, `col_indices` and `values` `[entries]`.
    #[default]
    Csr,
    /// All columns, zeros among them: `[rows, columns]`.
    Dense,
}

named!(SparseLayout, "layout", {
    "csr" => Csr,
    "dense" => Dense,
});

/// Rows with only some columns stored. Row `k` has the entries `offsets[k]..offsets[k + 1]`: of each, `columns`
/// has the column and `values` the value. The three arrays are shared, never copied.
///
/// Columns may be in any order. If a row holds a column twice, dense rows hold the sum. Columns are checked when a
/// batch takes the row, not before.
///
/// ```
/// use batchloom::dataset::{Dataset, SparseLayout, SparseRows};
/// use batchloom::{Tensor, TensorDataset};
///
/// let offsets = Tensor::from_vec(vec![0_i64, 2, 2, 3], &[4])?; // two entries, none, one
/// let columns = Tensor::from_vec(vec![0_i32, 3, 1], &[3])?;
/// let values = Tensor::from_vec(vec![1.0_f32, 2.0, 3.0], &[3])?;
/// let rows = SparseRows::new("x", offsets, columns, values, 4)?.layout(SparseLayout::Dense);
/// let dataset = Dataset::from(TensorDataset::new([("x", rows)])?);
/// assert_eq!(dataset.sample(0)?[0].1.as_slice::<f32>(), Some(&[1.0, 0.0, 0.0, 2.0][..]));
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SparseRows {
    name: String,
    offsets: Tensor,
    columns: Tensor,
    values: Tensor,
    width: usize,
    layout: SparseLayout,
}

impl SparseRows {
    /// Rows of `width` columns, of the field `name`. Offsets and columns are int32 or int64.
    ///
    /// # Errors
    /// [`Kind::Type`](crate::Kind::Type) if offsets or columns are of another type; [`Kind::Data`](crate::Kind::Data)
    /// if an array is not one compact dimension, if there are not as many values as columns, if this process cannot
    /// read offsets or columns, and with the first row whose offsets descend or leave the values.
    pub fn new(
        name: impl Into<String>,
        offsets: Tensor,
        columns: Tensor,
        values: Tensor,
        width: usize,
    ) -> Result<Self> {
        let name = name.into();
        for (what, array) in [("offsets", &offsets), ("columns", &columns)] {
            if !matches!(array.dtype(), DType::I32 | DType::I64) {
                return Err(TensorCause::SparseType { field: name, what, found: array.dtype() }.into());
            }
        }
        for array in [&offsets, &columns, &values] {
            if array.shape().len() != 1 || !array.layout().is_compact(array.dtype().size()) {
                return Err(TensorCause::NotCompact { field: name, found: array.shape().to_vec() }.into());
            }
            if array.is_elsewhere() {
                return Err(TensorCause::Elsewhere { field: name }.into());
            }
        }
        let (length, expected) = (values.shape()[0], columns.shape()[0]);
        if length != expected {
            return Err(TensorCause::SparseValues { field: name, found: length, expected }.into());
        }
        let rows = Self { name, offsets, columns, values, width, layout: SparseLayout::default() };
        rows.check_offsets()?;
        Ok(rows)
    }

    /// Sets the form in which batches hold the rows. Default: CSR.
    #[must_use]
    pub fn layout(self, layout: SparseLayout) -> Self {
        Self { layout, ..self }
    }

    /// The form in which batches hold the rows.
    pub fn batch_layout(&self) -> SparseLayout {
        self.layout
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.offsets.shape()[0].saturating_sub(1)
    }

    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The name of the field.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The column of each entry.
    pub fn columns(&self) -> &Tensor {
        &self.columns
    }

    /// The value of each entry.
    pub fn values(&self) -> &Tensor {
        &self.values
    }

    /// The entries of a row.
    pub(crate) fn entries(&self, row: usize) -> Range<usize> {
        place(self.offset(row))..place(self.offset(row + 1))
    }

    /// The first entry of a row, as it is stored: read from bytes, as this is asked for every row of every batch.
    #[inline(always)]
    fn offset(&self, row: usize) -> i64 {
        let bytes = &self.offsets.bytes()[self.offsets.layout().offset()..];
        match self.offsets.dtype() {
            DType::I64 => i64::from_ne_bytes(bytes.as_chunks().0[row]),
            _ => i64::from(i32::from_ne_bytes(bytes.as_chunks().0[row])),
        }
    }

    /// The largest number of entries of `rows` neighbouring rows.
    pub(crate) fn most_entries(&self, rows: usize) -> usize {
        let entries = |first: usize| self.entries(first + rows - 1).end - self.entries(first).start;
        if rows == 0 { 0 } else { (0..=self.len() - rows).map(entries).max().unwrap_or(0) }
    }

    /// The columns of some entries of row `row`, if all of them lie in the matrix.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if a column is outside the matrix.
    pub(crate) fn check_columns<'a, C: Column>(
        &self,
        columns: &'a [C],
        row: usize,
        entries: Range<usize>,
    ) -> Result<&'a [C]> {
        let columns = &columns[entries];
        // No branch for each column: the loop is one of vectors. A negative number is a large one.
        let most = columns.iter().fold(0, |most: u64, column| most.max(column.to_unsigned()));
        if columns.is_empty() || most < self.width as u64 {
            return Ok(columns);
        }
        let wrong = columns.iter().find(|column| column.to_unsigned() >= self.width as u64);
        let column = wrong.map_or(0, |column| column.to_signed());
        Err(TensorCause::SparseColumn {
            field: self.name.clone(),
            row: row as u64,
            column,
            columns: self.width as u64,
        }
        .into())
    }

    /// Checks the columns of all rows, for data that moves where columns are no longer checked. Returns true if a row
    /// holds a column twice.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if a column is outside the matrix, or if values of such a type are not added.
    pub fn check(&self) -> Result<bool> {
        let rows = (0..self.len()).map(|row| (row, self.entries(row)));
        match self.columns.as_slice::<i32>() {
            Some(columns) => self.check_rows(columns, rows),
            None => self.check_rows(self.columns.as_slice::<i64>().unwrap_or(&[]), rows),
        }
    }

    fn check_rows<C: Column>(
        &self,
        columns: &[C],
        rows: impl Iterator<Item = (usize, Range<usize>)>,
    ) -> Result<bool> {
        let mut repeats = false;
        for (row, entries) in rows {
            let columns = self.check_columns(columns, row, entries)?;
            repeats |= !is_ascending(columns) && self.repeats(columns, row)?;
        }
        Ok(repeats)
    }

    /// Returns true if columns of row `row`, in any order, hold one twice.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if values of such a type are not added.
    pub(crate) fn repeats<C: Column>(&self, columns: &[C], row: usize) -> Result<bool> {
        let mut sorted = columns.to_vec();
        sorted.sort_unstable();
        let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) else { return Ok(false) };
        let dtype = self.values.dtype();
        if matches!(
            dtype,
            DType::F16
                | DType::BF16
                | DType::F8E4M3FN
                | DType::F8E4M3FNUZ
                | DType::F8E5M2
                | DType::F8E5M2FNUZ
        ) {
            let (field, column) = (self.name.clone(), pair[0].to_signed());
            return Err(TensorCause::SparseRepeat { field, row: row as u64, column, dtype }.into());
        }
        Ok(true)
    }

    fn check_offsets(&self) -> Result<()> {
        let values = self.values.shape()[0] as u64;
        let wrong = |sample, start, end, expected| {
            Err(TensorCause::Offsets { field: self.name.clone(), sample, start, end, values, expected }
                .into())
        };
        let count = self.offsets.shape()[0];
        if count == 0 {
            return wrong(0, 0, 0, "expected one offset more than there are rows");
        }
        for row in 0..count - 1 {
            let (start, end) = (self.offset(row), self.offset(row + 1));
            if start < 0 {
                return wrong(row as u64, start, end, "expected offsets of at least 0");
            }
            if end < start {
                return wrong(row as u64, start, end, "expected offsets that do not decrease");
            }
            if end.cast_unsigned() > values {
                return wrong(row as u64, start, end, "expected offsets within the values");
            }
        }
        Ok(())
    }
}

/// The number of a column, in either width.
pub(crate) trait Column: Element + Ord {
    /// The number; a large one if it is negative.
    fn to_unsigned(self) -> u64;

    /// The number as it is.
    fn to_signed(self) -> i64;
}

impl Column for i32 {
    #[inline(always)]
    fn to_unsigned(self) -> u64 {
        u64::from(self.cast_unsigned())
    }

    fn to_signed(self) -> i64 {
        i64::from(self)
    }
}

impl Column for i64 {
    #[inline(always)]
    fn to_unsigned(self) -> u64 {
        self.cast_unsigned()
    }

    fn to_signed(self) -> i64 {
        self
    }
}

/// Returns true if columns increase.
pub(crate) fn is_ascending<C: Column>(columns: &[C]) -> bool {
    columns.iter().zip(columns.iter().skip(1)).fold(true, |ascending, (now, next)| ascending & (now < next))
}

fn place(offset: i64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}
