//! `Target`: the format of files that are written, one function for each.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use arrow_array::RecordBatch;
use arrow_ipc::writer::FileWriter;
use arrow_schema::{DataType, Field, Schema};
use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize};

use super::fields::{element_of, find_null, number_of, read_lists, read_numbers};
use super::scatter::Gathered;

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
    pub(super) fn require(self, schema: &Schema) -> Result<()> {
        match self {
            Self::Arrow => Ok(()),
            Self::Safetensors => require_tensors(schema),
            Self::Tokens { .. } => require_tokens(schema),
        }
    }

    /// Refuses nulls, if the format does not hold them. `first` is the number of the first row in its file.
    pub(super) fn require_values(self, path: &Path, first: u64, rows: &RecordBatch) -> Result<()> {
        if self == Self::Arrow {
            return Ok(());
        }
        for (field, column) in rows.schema_ref().fields().iter().zip(rows.columns()) {
            if let Some(row) = find_null(&**column)? {
                bail!(
                    "{}: row {} of column {} is null or holds a null; expected a value in every row for --to {}, or \
                     --to arrow, which keeps nulls",
                    path.display(),
                    first + row as u64,
                    field.name(),
                    self.name()
                );
            }
        }
        Ok(())
    }

    /// Writes a file.
    pub(super) fn write(self, path: &Path, rows: &Gathered, schema: &Schema) -> Result<()> {
        match self {
            Self::Arrow => write_arrow(path, rows, schema),
            Self::Safetensors => write_safetensors(path, &rows.rows(0, rows.count())?),
            Self::Tokens { width, end } => write_tokens(path, rows, width, end),
        }
    }
}

/// Refuses columns that make no tensor.
fn require_tensors(schema: &Schema) -> Result<()> {
    let makes_tensor = |field: &Field| number_of(field.data_type()).is_some();
    let Some(wrong) = schema.fields().iter().find(|field| !makes_tensor(field)) else { return Ok(()) };
    let others = schema.fields().iter().filter(|field| makes_tensor(field));
    let others: Vec<_> = others.map(|field| format!("--column {}", field.name())).collect();
    let held = match element_of(wrong.data_type()) {
        Some(_) => format!("lists that may differ in length, {}", wrong.data_type()),
        None => wrong.data_type().to_string(),
    };
    let others = if others.is_empty() { String::new() } else { format!(", or {}", others.join(" ")) };
    bail!(
        "column {} holds {held}, which is no tensor; expected --to arrow, which keeps every column{others}",
        wrong.name()
    )
}

/// Refuses all but one column of whole numbers, or of lists of them.
fn require_tokens(schema: &Schema) -> Result<()> {
    let is_tokens = |field: &Field| {
        let kind = element_of(field.data_type()).unwrap_or(field.data_type());
        number_of(kind).is_some_and(DataType::is_integer)
    };
    let usable: Vec<_> = schema.fields().iter().filter(|field| is_tokens(field)).collect();
    if let [field] = &schema.fields()[..] {
        ensure!(
            is_tokens(field),
            "column {} holds {}; expected whole numbers for tokens, or --to arrow, which keeps every column",
            field.name(),
            field.data_type()
        );
        return Ok(());
    }
    let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    // Lists are documents.
    let best = usable.iter().find(|field| element_of(field.data_type()).is_some()).or(usable.first());
    match best {
        Some(best) => bail!(
            "there are columns {}, and --to bin holds one; expected one of them, as --column {}",
            names.join(", "),
            best.name()
        ),
        None => {
            bail!(
                "columns {} hold no whole numbers; expected a column of tokens, or --to arrow, which keeps every column",
                names.join(", ")
            )
        }
    }
}

fn write_arrow(path: &Path, rows: &Gathered, schema: &Schema) -> Result<()> {
    let mut writer = FileWriter::try_new(BufWriter::new(File::create(path)?), schema)?;
    // A file has one dictionary for a column, which all its rows share.
    let has_dictionary = schema.fields().iter().any(|field| holds_dictionary(field.data_type()));
    let whole = if has_dictionary { Some(rows.rows(0, rows.count())?) } else { None };
    for first in (0..rows.count()).step_by(BATCH) {
        let count = BATCH.min(rows.count() - first);
        let batch = match &whole {
            Some(whole) => whole.slice(first, count),
            None => rows.rows(first, count)?,
        };
        writer.write(&batch)?;
    }
    writer.finish()?;
    Ok(writer.into_inner()?.flush()?)
}

/// Returns true if a type is a dictionary, or has one inside.
fn holds_dictionary(kind: &DataType) -> bool {
    match kind {
        DataType::Dictionary(..) => true,
        DataType::List(inner)
        | DataType::LargeList(inner)
        | DataType::ListView(inner)
        | DataType::LargeListView(inner)
        | DataType::FixedSizeList(inner, _)
        | DataType::RunEndEncoded(_, inner)
        | DataType::Map(inner, _) => holds_dictionary(inner.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| holds_dictionary(field.data_type())),
        DataType::Union(fields, _) => fields.iter().any(|(_, field)| holds_dictionary(field.data_type())),
        _ => false,
    }
}

fn write_safetensors(path: &Path, rows: &RecordBatch) -> Result<()> {
    let mut columns = Vec::new();
    for (field, column) in rows.schema_ref().fields().iter().zip(rows.columns()) {
        let numbers = read_numbers(&**column).with_context(|| format!("column {}", field.name()))?;
        let kind = match numbers.kind {
            DataType::Boolean => Dtype::BOOL,
            DataType::UInt8 => Dtype::U8,
            DataType::UInt16 => Dtype::U16,
            DataType::UInt32 => Dtype::U32,
            DataType::UInt64 => Dtype::U64,
            DataType::Int8 => Dtype::I8,
            DataType::Int16 => Dtype::I16,
            DataType::Int32 => Dtype::I32,
            DataType::Int64 => Dtype::I64,
            DataType::Float16 => Dtype::F16,
            DataType::Float32 => Dtype::F32,
            DataType::Float64 => Dtype::F64,
            other => bail!("column {} holds {other}, which safetensors has no type for", field.name()),
        };
        let shape = [&[rows.num_rows()], numbers.shape.as_slice()].concat();
        columns.push((field.name().clone(), kind, shape, numbers.bytes));
    }
    let mut views = Vec::new();
    for (name, kind, shape, bytes) in &columns {
        views.push((name.clone(), TensorView::new(*kind, shape.clone(), bytes)?));
    }
    Ok(fs::write(path, serialize(views, None)?)?)
}

fn write_tokens(path: &Path, rows: &Gathered, width: usize, end: Option<u32>) -> Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    for first in (0..rows.count()).step_by(BATCH) {
        let batch = rows.rows(first, BATCH.min(rows.count() - first))?;
        write_documents(&mut out, &batch, width, end)?;
    }
    Ok(out.flush()?)
}

fn write_documents(out: &mut impl Write, rows: &RecordBatch, width: usize, end: Option<u32>) -> Result<()> {
    let (numbers, lengths) = read_lists(&**rows.column(0))?;
    let size = numbers.kind.primitive_width().context("tokens are no numbers")?;
    let is_signed = numbers.kind.is_signed_integer();
    let most = if width == 2 { u64::from(u16::MAX) } else { u64::from(u32::MAX) };
    let each: usize = numbers.shape.iter().product();
    let mut values = numbers.bytes.chunks_exact(size);
    for row in 0..rows.num_rows() {
        let count = each * lengths.as_ref().map_or(1, |lengths| lengths[row]);
        for value in values.by_ref().take(count) {
            let mut bytes = [0; 8];
            bytes[..size].copy_from_slice(value);
            let is_negative = is_signed && value[size - 1] & 0x80 != 0;
            let token = Some(u64::from_le_bytes(bytes)).filter(|&token| !is_negative && token <= most);
            let token = token.with_context(|| {
                format!(
                    "a token of column {} is no number from 0 to {most}; expected --dtype uint32",
                    rows.schema_ref().field(0).name()
                )
            })?;
            out.write_all(&token.to_le_bytes()[..width])?;
        }
        if let Some(end) = end {
            out.write_all(&end.to_le_bytes()[..width])?;
        }
    }
    Ok(())
}
