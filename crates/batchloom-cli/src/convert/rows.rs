//! `Rows`: some rows, column by column, as bytes.

use anyhow::{Context, Result, bail};
use batchloom::DType;
use batchloom::dataset::ChunkField;
use batchloom_formats::FileSource;

/// A column of some rows.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    /// The shape of a row, without the length of its list.
    pub(crate) inner: Vec<usize>,
    /// The elements of all rows, one row after the other.
    pub(crate) values: Vec<u8>,
    /// The length of each row; `None` if all rows have one shape.
    pub(crate) lengths: Option<Vec<u32>>,
}

impl Column {
    /// The bytes of an element of a list, or of a row.
    pub(crate) fn width(&self) -> usize {
        self.inner.iter().product::<usize>() * self.dtype.size()
    }
}

/// Some rows.
#[derive(Debug, Clone)]
pub(crate) struct Rows {
    count: usize,
    pub(crate) columns: Vec<Column>,
}

impl Rows {
    /// The rows of a chunk.
    pub(crate) fn of_chunk(source: &dyn FileSource, chunk: u64) -> Result<Self> {
        let range = source.chunks().range(chunk);
        let count = usize::try_from(range.end - range.start)?;
        let fields = source.read_chunk(chunk)?;
        let lengths = || -> Result<Vec<u32>> {
            let all = source.lengths().context("lists without lengths")?;
            Ok(all[usize::try_from(range.start)?..usize::try_from(range.end)?].to_vec())
        };
        let column = |(name, field): (&String, ChunkField)| -> Result<Column> {
            let (values, lengths) = match &field {
                ChunkField::Rows(rows) => (rows, None),
                ChunkField::Lists(lists) => (lists.values(), Some(lengths()?)),
                _ => bail!("column {name} is of a kind that is not converted"),
            };
            let tensor = values.chunks().next().context("a column without memory")?;
            Ok(Column {
                name: name.clone(),
                dtype: tensor.dtype(),
                inner: tensor.shape()[1..].to_vec(),
                values: tensor.bytes().to_vec(),
                lengths,
            })
        };
        let columns = source.names().iter().zip(fields).map(column).collect::<Result<_>>()?;
        Ok(Self { count, columns })
    }

    /// No rows, with the columns of these.
    pub(crate) fn empty(&self) -> Self {
        let column = |column: &Column| Column {
            values: Vec::new(),
            lengths: column.lengths.as_ref().map(|_| Vec::new()),
            name: column.name.clone(),
            inner: column.inner.clone(),
            ..*column
        };
        Self { count: 0, columns: self.columns.iter().map(column).collect() }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn bytes(&self) -> usize {
        self.columns.iter().map(|column| column.values.len()).sum()
    }

    /// Calls `each` with the number of every row, and its bytes in each column, in order.
    pub(crate) fn for_each(&self, mut each: impl FnMut(usize, &[(Option<u32>, &[u8])])) {
        let mut starts = vec![0; self.columns.len()];
        let mut parts = Vec::with_capacity(self.columns.len());
        for row in 0..self.count {
            parts.clear();
            for (column, start) in self.columns.iter().zip(&mut starts) {
                let length = column.lengths.as_ref().map(|lengths| lengths[row]);
                let bytes = column.width() * length.map_or(1, |length| length as usize);
                parts.push((length, &column.values[*start..*start + bytes]));
                *start += bytes;
            }
            each(row, &parts);
        }
    }

    /// Passes over the row of a record, and returns the rest of the records.
    pub(crate) fn skip<'a>(&self, mut record: &'a [u8]) -> Option<&'a [u8]> {
        for column in &self.columns {
            let mut bytes = column.width();
            if column.lengths.is_some() {
                let (length, rest) = record.split_first_chunk::<4>()?;
                (bytes, record) = (bytes.checked_mul(u32::from_le_bytes(*length) as usize)?, rest);
            }
            record = record.get(bytes..)?;
        }
        Some(record)
    }

    /// Appends a row of a record, and returns the rest of the records.
    pub(crate) fn append<'a>(&mut self, mut record: &'a [u8]) -> Option<&'a [u8]> {
        for column in &mut self.columns {
            let width = column.width();
            let mut bytes = width;
            if let Some(lengths) = &mut column.lengths {
                let (length, rest) = record.split_first_chunk::<4>()?;
                let length = u32::from_le_bytes(*length);
                lengths.push(length);
                (bytes, record) = (width.checked_mul(length as usize)?, rest);
            }
            let (values, rest) = record.split_at_checked(bytes)?;
            column.values.extend_from_slice(values);
            record = rest;
        }
        self.count += 1;
        Some(record)
    }
}
