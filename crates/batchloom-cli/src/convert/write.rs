//! `Target`: the format of files that are written, one function for each.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray, FixedSizeListArray, ListArray, PrimitiveArray,
    RecordBatch,
};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::Field;
use batchloom::DType;
use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize};

use super::rows::{Column, Rows};

/// The rows of a record batch.
const BATCH: usize = 8192;

/// The format of files that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// Arrow IPC files that are not compressed.
    Arrow,
    /// A tensor for each column.
    Safetensors,
    /// Tokens of one column, one document after the other.
    Tokens {
        /// The bytes of a token: 2 or 4.
        width: usize,
        /// The token behind each document, if there is one.
        end: Option<u32>,
    },
}

impl Target {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Arrow => "arrow",
            Self::Safetensors => "safetensors",
            Self::Tokens { .. } => "bin",
        }
    }

    pub(super) fn suffix(self) -> &'static str {
        self.name()
    }

    /// The options of the format, in words.
    pub(super) fn options(self) -> String {
        match self {
            Self::Tokens { width, end } => format!("uint{}, end {end:?}", 8 * width),
            _ => String::new(),
        }
    }

    /// Refuses columns that the format does not hold.
    pub(super) fn require(self, rows: &Rows) -> Result<()> {
        match self {
            Self::Arrow => Ok(()),
            Self::Safetensors => match rows.columns.iter().find(|column| column.lengths.is_some()) {
                Some(column) => bail!(
                    "column {} holds lists that differ in length; expected --to arrow, or --column without it",
                    column.name
                ),
                None => Ok(()),
            },
            Self::Tokens { .. } => {
                let names: Vec<_> = rows.columns.iter().map(|column| column.name.as_str()).collect();
                ensure!(
                    names.len() == 1,
                    "there are columns {}; expected one of them, as --column {}",
                    names.join(", "),
                    names[0]
                );
                let dtype = rows.columns[0].dtype;
                let is_whole = matches!(
                    dtype,
                    DType::U8
                        | DType::U16
                        | DType::U32
                        | DType::U64
                        | DType::I8
                        | DType::I16
                        | DType::I32
                        | DType::I64
                );
                ensure!(
                    is_whole,
                    "column {} holds {}; expected whole numbers for tokens",
                    names[0],
                    dtype.name()
                );
                Ok(())
            }
        }
    }

    /// Writes a file.
    pub(super) fn write(self, path: &Path, rows: &Rows) -> Result<()> {
        match self {
            Self::Arrow => write_arrow(path, rows),
            Self::Safetensors => write_safetensors(path, rows),
            Self::Tokens { width, end } => write_tokens(path, &rows.columns[0], rows.count(), width, end),
        }
    }
}

fn write_arrow(path: &Path, rows: &Rows) -> Result<()> {
    let columns =
        rows.columns.iter().map(|column| Ok((column.name.as_str(), arrow_column(column, rows.count())?)));
    let batch = RecordBatch::try_from_iter(columns.collect::<Result<Vec<_>>>()?)?;
    let mut writer =
        arrow_ipc::writer::FileWriter::try_new(BufWriter::new(File::create(path)?), &batch.schema())?;
    for first in (0..batch.num_rows()).step_by(BATCH) {
        writer.write(&batch.slice(first, BATCH.min(batch.num_rows() - first)))?;
    }
    writer.finish()?;
    Ok(writer.into_inner()?.flush()?)
}

fn arrow_column(column: &Column, rows: usize) -> Result<ArrayRef> {
    let elements = arrow_values(column)?;
    let field = Arc::new(Field::new_list_field(elements.data_type().clone(), false));
    if let Some(lengths) = &column.lengths {
        let offsets = OffsetBuffer::from_lengths(lengths.iter().map(|&length| length as usize));
        return Ok(Arc::new(ListArray::try_new(field, offsets, elements, None)?));
    }
    match column.inner.iter().product::<usize>() {
        _ if column.inner.is_empty() => Ok(elements),
        extent => {
            ensure!(rows > 0 || extent > 0, "column {} has rows without elements", column.name);
            Ok(Arc::new(FixedSizeListArray::try_new(field, i32::try_from(extent)?, elements, None)?))
        }
    }
}

fn arrow_values(column: &Column) -> Result<ArrayRef> {
    fn of<T: ArrowPrimitiveType>(column: &Column) -> ArrayRef {
        let count = column.values.len() / column.dtype.size();
        // A copy lies as the elements need it.
        let buffer = Buffer::from(column.values.as_slice());
        Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::new(buffer, 0, count), None))
    }
    Ok(match column.dtype {
        DType::Bool => Arc::new(BooleanArray::from_iter(column.values.iter().map(|&value| Some(value != 0)))),
        DType::U8 => of::<UInt8Type>(column),
        DType::U16 => of::<UInt16Type>(column),
        DType::U32 => of::<UInt32Type>(column),
        DType::U64 => of::<UInt64Type>(column),
        DType::I8 => of::<Int8Type>(column),
        DType::I16 => of::<Int16Type>(column),
        DType::I32 => of::<Int32Type>(column),
        DType::I64 => of::<Int64Type>(column),
        DType::F16 => of::<Float16Type>(column),
        DType::F32 => of::<Float32Type>(column),
        DType::F64 => of::<Float64Type>(column),
        other => bail!("column {} holds {}, which Arrow has no type for", column.name, other.name()),
    })
}

fn write_safetensors(path: &Path, rows: &Rows) -> Result<()> {
    let tensor = |column: &Column| -> Result<(String, Vec<usize>, Dtype)> {
        let dtype = match column.dtype {
            DType::Bool => Dtype::BOOL,
            DType::U8 => Dtype::U8,
            DType::U16 => Dtype::U16,
            DType::U32 => Dtype::U32,
            DType::U64 => Dtype::U64,
            DType::I8 => Dtype::I8,
            DType::I16 => Dtype::I16,
            DType::I32 => Dtype::I32,
            DType::I64 => Dtype::I64,
            DType::F16 => Dtype::F16,
            DType::BF16 => Dtype::BF16,
            DType::F32 => Dtype::F32,
            DType::F64 => Dtype::F64,
            other => {
                bail!("column {} holds {}, which safetensors has no type for", column.name, other.name())
            }
        };
        Ok((column.name.clone(), [&[rows.count()], column.inner.as_slice()].concat(), dtype))
    };
    let mut views = Vec::new();
    for column in &rows.columns {
        let (name, shape, dtype) = tensor(column)?;
        views.push((name, TensorView::new(dtype, shape, &column.values)?));
    }
    Ok(fs::write(path, serialize(views, None)?)?)
}

fn write_tokens(path: &Path, column: &Column, rows: usize, width: usize, end: Option<u32>) -> Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    let size = column.dtype.size();
    let is_signed = matches!(column.dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
    let most = if width == 2 { u64::from(u16::MAX) } else { u64::from(u32::MAX) };
    let each = column.inner.iter().product::<usize>();
    let mut values = column.values.chunks_exact(size);
    for row in 0..rows {
        let count = each * column.lengths.as_ref().map_or(1, |lengths| lengths[row] as usize);
        for value in values.by_ref().take(count) {
            let mut bytes = [0; 8];
            bytes[..size].copy_from_slice(value);
            let is_negative = is_signed && value[size - 1] & 0x80 != 0;
            let token = Some(u64::from_le_bytes(bytes)).filter(|&token| !is_negative && token <= most);
            let token = token.with_context(|| {
                format!(
                    "a token of column {} is no number from 0 to {most}; expected --dtype uint32",
                    column.name
                )
            })?;
            out.write_all(&token.to_le_bytes()[..width])?;
        }
        if let Some(end) = end {
            out.write_all(&end.to_le_bytes()[..width])?;
        }
    }
    Ok(out.flush()?)
}
