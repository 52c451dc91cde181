//! `inspect`: the columns of files, and what batchloom can make of each.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use arrow_schema::DataType;
use serde::Serialize;

use crate::output::{Output, count_in_words};
use crate::read::{FileFormat, Tables, list_files, npy_array};

/// A file and its columns.
#[derive(Debug, Serialize)]
struct Inspected {
    file: String,
    bytes: u64,
    rows: Option<u64>,
    chunks: Option<u64>,
    columns: Vec<Column>,
}

#[derive(Debug, Serialize)]
struct Column {
    name: String,
    kind: String,
    /// The things that batchloom can make of it.
    makes: String,
}

pub(super) fn run(files: &[impl AsRef<Path>], tables: &dyn Tables, output: &mut Output<'_>) -> Result<()> {
    let files = files.iter().map(|file| list_files(file.as_ref())).collect::<Result<Vec<_>>>()?.concat();
    let inspected = files.iter().map(|file| inspect(file, tables)).collect::<Result<Vec<_>>>()?;
    let mut text = String::new();
    for file in &inspected {
        let count = |count: Option<u64>, thing: &str| match count {
            Some(count) => count_in_words(count, thing),
            None => format!("? {thing}s"),
        };
        let (rows, chunks) = (count(file.rows, "row"), count(file.chunks, "part"));
        writeln!(text, "{}: {}, {rows} in {chunks}", file.file, count_in_words(file.bytes, "byte"))?;
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
    let (rows, chunks, columns) = match FileFormat::of(path)? {
        FileFormat::Columns => {
            let table = tables.open(path, None).with_context(named)?;
            let column = |field: &arrow_schema::FieldRef| Column {
                name: field.name().clone(),
                kind: field.data_type().to_string(),
                makes: makes(field.data_type()),
            };
            let columns = table.schema.fields().iter().map(column).collect();
            (table.rows, table.chunks, columns)
        }
        FileFormat::Npy => {
            let (kind, shape) = npy_array(path).with_context(named)?;
            let makes = match shape.len() {
                0 => "nothing: it has no rows".to_owned(),
                1 => "rows, labels, lengths, or a stream of tokens".to_owned(),
                _ => "rows, or a series of steps for windows".to_owned(),
            };
            let rows = shape.first().copied();
            let kind = format!("{kind} {shape:?}");
            (rows, Some(1), vec![Column { name: "the array".to_owned(), kind, makes }])
        }
        FileFormat::Text | FileFormat::JsonLines => {
            bail!("{}: text has no columns to inspect; see `batchloom lengths`", named())
        }
    };
    Ok(Inspected { file: named(), bytes, rows, chunks, columns })
}

/// The things that batchloom can make of a column of a type.
fn makes(kind: &DataType) -> String {
    let text = match kind {
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
    };
    text.to_owned()
}
