//! `inspect`: the columns of files, and what batchloom can make of each.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use arrow_schema::{DataType, FieldRef, Schema};
use serde::Serialize;

use crate::output::{Output, count_in_words};
use crate::read::{
    ArrayInfo, Extension, FileFormat, JsonTable, MegatronIndex, Tables, TarSamples, count_rows,
    describe_tokens, list_files, list_samples, npy_array, npz_arrays, read_megatron, safetensors_arrays,
};

/// A file and its columns.
#[derive(Debug, Serialize)]
struct Inspected {
    file: String,
    bytes: u64,
    rows: Option<u64>,
    chunks: Option<u64>,
    columns: Vec<Column>,
    /// The word for a row.
    #[serde(skip)]
    thing: &'static str,
}

#[derive(Debug, Serialize)]
struct Column {
    name: String,
    kind: String,
    /// The things that batchloom can make of it.
    makes: String,
}

pub(super) fn run(files: &[PathBuf], tables: &dyn Tables, output: &mut Output<'_>) -> Result<()> {
    let files = list_files(files)?;
    let inspected = files.iter().map(|file| inspect(file, tables)).collect::<Result<Vec<_>>>()?;
    let mut text = String::new();
    for file in &inspected {
        write!(text, "{}: {}", file.file, count_in_words(file.bytes, "byte"))?;
        if let Some(rows) = file.rows {
            write!(text, ", {}", count_in_words(rows, file.thing))?;
        }
        if let Some(chunks) = file.chunks {
            write!(text, " in {}", count_in_words(chunks, "part"))?;
        }
        writeln!(text)?;
        let name = file.columns.iter().map(|column| column.name.len()).max().unwrap_or(0);
        let kind = file.columns.iter().map(|column| column.kind.len()).max().unwrap_or(0).min(30);
        for column in &file.columns {
            writeln!(text, "  {:name$}  {:kind$}  {}", column.name, column.kind, column.makes)?;
        }
    }
    Ok(output.result(&inspected, text)?)
}

fn inspect(path: &Path, tables: &dyn Tables) -> Result<Inspected> {
    let named = || path.display().to_string();
    let bytes = fs::metadata(path).with_context(named)?.len();
    let format = FileFormat::of(path)?;
    let found = match format {
        FileFormat::Columns => inspect_table(path, tables),
        FileFormat::JsonLines => inspect_lines(path),
        FileFormat::Npy => npy_array(path).map(|(dtype, shape)| {
            describe_arrays(&[ArrayInfo { name: "the array".to_owned(), dtype, shape }])
        }),
        FileFormat::Npz => npz_arrays(path).map(|arrays| describe_arrays(&arrays)),
        FileFormat::Safetensors => safetensors_arrays(path).map(|arrays| describe_arrays(&arrays)),
        FileFormat::Megatron => read_megatron(path).map(|index| describe_megatron(&index)),
        FileFormat::Tokens => describe_tokens(path).map(|kind| Found {
            rows: None,
            chunks: None,
            columns: vec![column("the tokens", kind, "a stream of tokens, with dtype= and seq_len=")],
        }),
        FileFormat::Tar => list_samples(path).map(|samples| describe_tar(&samples)),
        FileFormat::Text => {
            bail!("{}: text has no columns to inspect; see `batchloom lengths`", named())
        }
    };
    let Found { rows, chunks, columns } = found.with_context(named)?;
    let thing = match format {
        FileFormat::Tar => "sample",
        FileFormat::Megatron => "sequence",
        _ => "row",
    };
    Ok(Inspected { file: named(), bytes, rows, chunks, columns, thing })
}

/// The contents of a file, as far as they are printed.
struct Found {
    rows: Option<u64>,
    chunks: Option<u64>,
    columns: Vec<Column>,
}

fn column(name: &str, kind: impl Into<String>, makes: &str) -> Column {
    Column { name: name.to_owned(), kind: kind.into(), makes: makes.to_owned() }
}

fn inspect_table(path: &Path, tables: &dyn Tables) -> Result<Found> {
    let table = tables.open(path, None)?;
    let rows = match table.rows {
        Some(rows) => rows,
        None => count_rows(tables, path)?,
    };
    Ok(Found { rows: Some(rows), chunks: table.chunks, columns: describe_schema(&table.schema) })
}

fn inspect_lines(path: &Path) -> Result<Found> {
    let lines = JsonTable::open(&[path.to_owned()], &[])?;
    Ok(Found { rows: Some(lines.rows()), chunks: None, columns: describe_schema(lines.schema()) })
}

fn describe_schema(schema: &Schema) -> Vec<Column> {
    let describe =
        |field: &FieldRef| column(field.name(), field.data_type().to_string(), makes(field.data_type()));
    schema.fields().iter().map(describe).collect()
}

/// Arrays of one file have one number of rows, or are no samples.
fn describe_arrays(arrays: &[ArrayInfo]) -> Found {
    let first = arrays.first().and_then(|array| array.shape.first().copied());
    let is_alike = arrays.iter().all(|array| array.shape.first().copied() == first);
    let describe = |array: &ArrayInfo| {
        let makes = match array.shape.len() {
            0 => "nothing: it has no rows",
            1 => "rows, labels, lengths, or a stream of tokens",
            _ => "rows, or a series of steps for windows",
        };
        column(&array.name, format!("{} {:?}", array.dtype, array.shape), makes)
    };
    let columns = arrays.iter().map(describe).collect();
    Found { rows: first.filter(|_| is_alike), chunks: first.filter(|_| is_alike).map(|_| 1), columns }
}

fn describe_megatron(index: &MegatronIndex) -> Found {
    let tokens: u64 = index.lengths.iter().map(|&length| u64::from(length)).sum();
    let (least, most) = (index.lengths.iter().min(), index.lengths.iter().max());
    let kind = format!(
        "{tokens} {}, {} to {} in a sequence, {}",
        index.dtype,
        least.unwrap_or(&0),
        most.unwrap_or(&0),
        count_in_words(index.documents, "document")
    );
    let columns = vec![column("input_ids", kind, "sequences of any length, or documents of tokens")];
    Found { rows: Some(index.lengths.len() as u64), chunks: None, columns }
}

fn describe_tar(samples: &TarSamples) -> Found {
    let describe = |extension: &Extension| {
        let members = count_in_words(extension.members, "member");
        let kind = format!("{members} of {} to {} bytes", extension.least, extension.most);
        column(&extension.name, kind, "samples on demand, which a function decodes")
    };
    let columns = samples.extensions.iter().map(describe).collect();
    Found { rows: Some(samples.samples), chunks: None, columns }
}

/// The things that batchloom can make of a column of a type.
fn makes(kind: &DataType) -> &'static str {
    match kind {
        DataType::List(inner) | DataType::LargeList(inner) if inner.data_type().is_numeric() => {
            "sequences of any length, or documents of tokens"
        }
        DataType::FixedSizeList(inner, _) if inner.data_type().is_numeric() => "rows of equal length",
        kind if kind.is_integer() => "rows, labels, groups or lengths",
        kind if kind.is_numeric() || *kind == DataType::Boolean => "rows or labels",
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => "the times of a series",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "groups, or lengths of texts",
        DataType::Dictionary(..) => "groups",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            "samples on demand, which a function decodes"
        }
        _ => "nothing directly; samples on demand, by a function",
    }
}
