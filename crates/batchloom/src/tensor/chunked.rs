//! `ChunkedTensor`: an array whose rows lie in one piece of memory, or in several, one after the other.
//!
//! The record batches of a table, the files of a data set and the shards of a corpus are one array so, without a copy.
//!
//! Promises:
//!
//! - Row `k` is the same row, whatever the chunks: no result tells where one chunk ends and the next begins.
//! - An array of one chunk costs no more than its [`Tensor`]: the rows of several chunks are looked up, those of one are
//!   not.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::error::TensorCause;
use super::{DType, Element, MappedFile, Rows, Tensor};
use crate::{Result, memory};

/// Rows of one type and shape in one [`Tensor`] or in several, shared, never copied.
///
/// Chunks may differ in length and in strides; chunks without rows are left out.
///
/// ```
/// use batchloom::tensor::ChunkedTensor;
/// use batchloom::{Tensor, TensorDataset};
///
/// let chunks = [Tensor::from(vec![1_i64, 2]), Tensor::from(vec![3_i64])];
/// let x = ChunkedTensor::new("x", chunks)?;
/// assert_eq!((x.shape(), x.chunks().count()), (&[3][..], 2));
/// let dataset = TensorDataset::new([("x", x)])?;
/// assert_eq!(dataset.len(), 3);
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Clone)]
pub struct ChunkedTensor {
    dtype: DType,
    /// The shape of all rows together.
    shape: Vec<usize>,
    /// At least one.
    chunks: Arc<[Chunk]>,
    /// The chunk of each row; `None` for one chunk.
    table: Option<Arc<ChunkTable>>,
    /// True if rows of a chunk are read from a file.
    is_read: bool,
}

/// One piece of memory, and the rows in it.
struct Chunk {
    array: Tensor,
    rows: Rows,
}

impl Chunk {
    fn new(array: Tensor) -> Self {
        let rows = array.layout().rows(array.dtype().size()).unwrap_or_default();
        Self { array, rows }
    }

    #[inline(always)]
    fn place(&self, row: usize) -> Place<'_> {
        Place { source: self.array.bytes(), rows: &self.rows, row, file: self.array.file() }
    }

    /// The memory of the rows, if they lie one after the other without gaps.
    fn dense_rows(&self) -> Option<Bytes> {
        let (start, bytes) = (self.rows.offset, self.rows.bytes());
        self.rows.are_dense().then(|| self.array.bytes().slice(start..start + self.array.shape()[0] * bytes))
    }
}

/// A row of a chunked array: the memory of its chunk, and where it lies there.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The memory of the chunk.
    pub(crate) source: &'a [u8],
    /// The rows of the chunk.
    pub(crate) rows: &'a Rows,
    /// The number of the row in the chunk.
    pub(crate) row: usize,
    /// The file that the memory is a map of, if rows are read from there.
    pub(crate) file: Option<&'a MappedFile>,
}

/// The rows of several chunks, each row in `bytes` bytes, one row after the other in each chunk.
#[derive(Clone, Copy)]
pub(crate) struct DenseChunks<'a> {
    rows: &'a [Bytes],
    table: &'a ChunkTable,
    bytes: usize,
}

impl<'a> DenseChunks<'a> {
    /// The memory of the chunk of a row, and the place of the row's first byte there.
    #[inline(always)]
    pub(crate) fn find(&self, row: usize) -> (&'a [u8], usize) {
        let (chunk, row) = self.table.find(row);
        (&self.rows[chunk], row * self.bytes)
    }
}

impl std::fmt::Debug for ChunkedTensor {
    /// Writes the type and the shape, not the elements.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "ChunkedTensor({}, {:?}, {} chunks)", self.dtype, self.shape, self.chunks.len())
    }
}

impl From<Tensor> for ChunkedTensor {
    fn from(array: Tensor) -> Self {
        let (dtype, shape) = (array.dtype(), array.shape().to_vec());
        let is_read = array.file().is_some();
        Self { dtype, shape, chunks: Arc::new([Chunk::new(array)]), table: None, is_read }
    }
}

impl<T: Element> From<Vec<T>> for ChunkedTensor {
    /// An array of one dimension, without a copy.
    fn from(values: Vec<T>) -> Self {
        Tensor::from(values).into()
    }
}

impl ChunkedTensor {
    /// The rows of `chunks`, at least one, as the field `field`, which errors name.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if there is no chunk, if one is a scalar, if chunks differ in the shape of
    /// their rows, or if this process cannot read one of several; [`Kind::Type`](crate::Kind::Type) if they differ in
    /// type; [`Kind::Memory`](crate::Kind::Memory).
    pub fn new(field: &str, chunks: impl IntoIterator<Item = Tensor>) -> Result<Self> {
        let mut chunks: Vec<Tensor> = chunks.into_iter().collect();
        let (dtype, mut shape) = require_alike(field, &chunks)?;
        match chunks.iter().any(|chunk| chunk.shape()[0] > 0) {
            true => chunks.retain(|chunk| chunk.shape()[0] > 0),
            // No row is looked up: one chunk tells the type and the shape.
            false => chunks.truncate(1),
        }
        if chunks.len() < 2 {
            return chunks.pop().map(Self::from).ok_or_else(|| no_chunk(field));
        }
        if chunks.iter().any(Tensor::is_elsewhere) {
            return Err(TensorCause::Elsewhere { field: field.to_owned() }.into());
        }
        let mut table = ChunkTable::new(chunks.iter().map(|chunk| chunk.shape()[0]))?;
        shape[0] = table.rows();
        let chunks: Arc<[Chunk]> = chunks.into_iter().map(Chunk::new).collect();
        table.dense = chunks.iter().map(Chunk::dense_rows).collect();
        let is_read = chunks.iter().any(|chunk| chunk.array.file().is_some());
        Ok(Self { dtype, shape, chunks, table: Some(Arc::new(table)), is_read })
    }

    /// The rows of several arrays, one array after the other.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn concat<'a>(field: &str, arrays: impl IntoIterator<Item = &'a Self>) -> Result<Self> {
        Self::new(field, arrays.into_iter().flat_map(Self::chunks).cloned())
    }

    /// The type of an element.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The lengths of the dimensions, over all chunks.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The chunks, in order: at least one.
    pub fn chunks(&self) -> impl ExactSizeIterator<Item = &Tensor> {
        self.chunks.iter().map(|chunk| &chunk.array)
    }

    /// The array, if it is one chunk.
    pub fn as_tensor(&self) -> Option<&Tensor> {
        self.table.is_none().then(|| &self.chunks[0].array)
    }

    /// The values, if they are one chunk in row-major order without gaps, and `T` is their type.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        self.as_tensor().and_then(Tensor::as_slice)
    }

    /// Returns true if it has elements, and these are in memory that this process cannot read.
    pub fn is_elsewhere(&self) -> bool {
        self.as_tensor().is_some_and(Tensor::is_elsewhere)
    }

    /// `self[range]` along the first dimension, sharing the memory. `None` if it leaves the dimension.
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        let Some(table) = &self.table else { return self.as_tensor()?.slice(range).map(Self::from) };
        if range.start > range.end || range.end > table.rows() {
            return None;
        }
        let part = |(number, chunk): (usize, &Chunk)| {
            let before = table.before[number];
            let local = |row: usize| row.saturating_sub(before).min(chunk.array.shape()[0]);
            chunk.array.slice(local(range.start)..local(range.end))
        };
        let parts = self.chunks.iter().enumerate().map(part).collect::<Option<Vec<_>>>()?;
        Self::new("", parts).ok()
    }

    /// Returns true if rows of a chunk are read from a file.
    #[inline(always)]
    pub(crate) fn is_read(&self) -> bool {
        self.is_read
    }

    /// The number of bytes of one row.
    pub(crate) fn row_bytes(&self) -> usize {
        self.chunks[0].rows.bytes()
    }

    /// The memory and the rows of the only chunk; `None` if there are several.
    #[inline(always)]
    pub(crate) fn only_chunk(&self) -> Option<(&[u8], &Rows)> {
        self.table.is_none().then(|| (self.chunks[0].array.bytes().as_ref(), &self.chunks[0].rows))
    }

    /// The memory of rows that lie one after the other in each of several chunks, without gaps; `None` if they do not, and
    /// for one chunk.
    pub(crate) fn dense_chunks(&self) -> Option<DenseChunks<'_>> {
        let table = self.table.as_ref()?;
        Some(DenseChunks { rows: table.dense.as_deref()?, table, bytes: self.row_bytes() })
    }

    /// Finds a row. A row that does not exist is found behind the rows of the last chunk, where a bounds check fails.
    #[inline]
    pub(crate) fn find(&self, row: usize) -> Place<'_> {
        let (number, row) = self.table.as_ref().map_or((0, row), |table| table.find(row));
        let chunk = &self.chunks[number];
        chunk.place(row)
    }

    /// Visits `count` rows from row `first` on, chunk by chunk: the place of the first row in each, and the number of
    /// rows there.
    pub(crate) fn visit(&self, first: usize, count: usize, mut each: impl FnMut(Place<'_>, usize)) {
        let Some(table) = &self.table else { return each(self.find(first), count) };
        let (mut number, mut row) = table.find(first);
        let mut left = count;
        while left > 0 {
            let chunk = &self.chunks[number];
            let there = (chunk.array.shape()[0].saturating_sub(row)).min(left);
            // The last chunk takes what is too much, where a bounds check fails.
            let taken = if number + 1 < self.chunks.len() { there } else { left };
            each(chunk.place(row), taken);
            (number, row, left) = (number + 1, 0, left - taken);
        }
    }
}

/// The type and the shape of the first of some chunks, if the others are alike but for their lengths.
fn require_alike(field: &str, chunks: &[Tensor]) -> Result<(DType, Vec<usize>)> {
    let first = chunks.first().ok_or_else(|| no_chunk(field))?;
    for (number, chunk) in chunks.iter().enumerate() {
        if chunk.shape().is_empty() {
            return Err(TensorCause::ScalarField { field: field.to_owned() }.into());
        }
        let (field, chunk_number) = (field.to_owned(), number);
        if chunk.dtype() != first.dtype() {
            let (found, expected) = (chunk.dtype(), first.dtype());
            return Err(TensorCause::ChunkType { field, chunk: chunk_number, found, expected }.into());
        }
        if chunk.shape()[1..] != first.shape()[1..] {
            let (found, expected) = (chunk.shape()[1..].to_vec(), first.shape()[1..].to_vec());
            return Err(TensorCause::ChunkShape { field, chunk: chunk_number, found, expected }.into());
        }
    }
    Ok((first.dtype(), first.shape().to_vec()))
}

fn no_chunk(field: &str) -> crate::Error {
    TensorCause::NoChunk { field: field.to_owned() }.into()
}

/// The chunk of each row: a guess by the leading bits of its number, and a search among the few chunks that share them.
struct ChunkTable {
    /// The number of rows before each chunk, and of all rows.
    before: Vec<usize>,
    /// The chunk of the first row with each value of the leading bits, and the last chunk.
    first: Vec<u32>,
    /// The number of bits of a row's number that are no leading bits.
    shift: u32,
    /// The memory of the rows of each chunk, if they lie one after the other without gaps in all chunks.
    dense: Option<Box<[Bytes]>>,
}

impl ChunkTable {
    /// The table of chunks of these lengths: of several, none empty.
    ///
    /// # Errors
    /// [`Kind::Memory`](crate::Kind::Memory).
    fn new(lengths: impl ExactSizeIterator<Item = usize>) -> Result<Self> {
        let chunks = lengths.len();
        memory::require_each(chunks + 1, size_of::<usize>() + 2 * GUESSES * size_of::<u32>())?;
        let mut before = Vec::with_capacity(chunks + 1);
        before.push(0);
        before.extend(lengths.scan(0_usize, |rows, length| {
            *rows = rows.saturating_add(length);
            Some(*rows)
        }));
        let rows = before[chunks];
        // As many leading values as make about `GUESSES` for each chunk, so that most guesses are right.
        let shift = (rows / (chunks * GUESSES)).max(1).ilog2();
        let mut first = Vec::with_capacity((rows >> shift) + 2);
        let mut chunk = 0;
        for start in (0..rows).step_by(1 << shift) {
            while before[chunk + 1] <= start {
                chunk += 1;
            }
            first.push(u32::try_from(chunk).unwrap_or(u32::MAX));
        }
        first.push(u32::try_from(chunks - 1).unwrap_or(u32::MAX));
        Ok(Self { before, first, shift, dense: None })
    }

    /// The number of all rows.
    fn rows(&self) -> usize {
        self.before[self.before.len() - 1]
    }

    /// The chunk of a row, and the number of the row in it. A row that does not exist is behind those of the last chunk.
    #[inline(always)]
    fn find(&self, row: usize) -> (usize, usize) {
        let guess = (row >> self.shift).min(self.first.len() - 2);
        let (low, high) = (index(self.first[guess]), index(self.first[guess + 1]));
        // The chunk is one of `low..=high`: of one or two, mostly.
        let chunk = match high - low {
            0 => low,
            1 => low + usize::from(self.before[high] <= row),
            _ => low + self.before[low + 1..=high].partition_point(|&before| before <= row),
        };
        (chunk, row - self.before[chunk])
    }
}

/// The number of guesses for each chunk.
const GUESSES: usize = 2;

fn index(chunk: u32) -> usize {
    usize::try_from(chunk).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A table finds the chunk that a linear search finds, for chunks of any lengths.
        #[test]
        fn a_table_finds_each_row(lengths in proptest::collection::vec(1_usize..40, 2..60), long in 0_usize..5_000) {
            let lengths: Vec<usize> = lengths.into_iter().chain([long + 1]).collect();
            let table = ChunkTable::new(lengths.iter().copied()).unwrap();
            let mut row = 0;
            for (chunk, length) in lengths.iter().enumerate() {
                for place in 0..*length {
                    prop_assert_eq!(table.find(row), (chunk, place));
                    row += 1;
                }
            }
            prop_assert_eq!(table.rows(), row);
            prop_assert_eq!(table.find(row + 3), (lengths.len() - 1, lengths[lengths.len() - 1] + 3));
        }
    }
}
