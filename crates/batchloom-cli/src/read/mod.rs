//! Lengths of samples from files. The end of the name decides the form, and the file has to agree.

mod arrays;
#[cfg(feature = "columns")]
mod arrow_blocks;
mod columns;
#[cfg(feature = "columns")]
mod files;
mod folder;
mod json_table;
mod json_value;
mod npy;
mod tar;
mod text;
mod tokens;
mod zip;

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use batchloom::batching::{Budgets, Rule, Sizes};

use crate::arguments::LengthsSource;
use crate::progress::Progress;

pub(crate) use arrays::{ArrayInfo, npz_arrays, safetensors_arrays};
pub(crate) use columns::describe_missing;
#[cfg(feature = "columns")]
pub use files::Files;
pub(crate) use folder::list_files;
pub(crate) use json_table::JsonTable;
pub(crate) use npy::{npy_array, write_npy};
pub(crate) use tar::{Extension, TarSamples, list_samples};
pub(crate) use tokens::{MegatronIndex, describe_tokens, read_megatron};

/// A table with columns.
pub struct Table {
    /// The names and the types of columns.
    pub schema: SchemaRef,
    /// The number of rows, if the file holds it.
    pub rows: Option<u64>,
    /// The parts in which the file holds rows: row groups, or batches.
    pub chunks: Option<u64>,
    /// The rows, part by part.
    pub batches: Box<dyn Iterator<Item = Result<RecordBatch>>>,
}

impl fmt::Debug for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { schema, rows, chunks, .. } = self;
        formatter
            .debug_struct("Table")
            .field("schema", schema)
            .field("rows", rows)
            .field("chunks", chunks)
            .finish()
    }
}

/// A reader of files with columns.
pub trait Tables {
    /// Opens a Parquet or an Arrow file, to read some columns, which are there, or all.
    ///
    /// # Errors
    /// The file cannot be read, or is of another kind.
    fn open(&self, path: &Path, columns: Option<&[String]>) -> Result<Table>;
}

/// The number of rows of a Parquet or an Arrow file. Where nothing in the file has it, one column is read.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn count_rows(tables: &dyn Tables, path: &Path) -> Result<u64> {
    let table = tables.open(path, None)?;
    let first = table.schema.fields().first().map(|field| field.name().clone());
    match (table.rows, first) {
        (Some(rows), _) => Ok(rows),
        (None, None) => Ok(0),
        (None, Some(first)) => {
            let batches = tables.open(path, Some(&[first]))?.batches;
            batches.map(|batch| Ok(batch?.num_rows() as u64)).sum()
        }
    }
}

/// The form of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileFormat {
    Npy,
    Npz,
    Safetensors,
    Columns,
    Text,
    JsonLines,
    /// Tokens without an index.
    Tokens,
    /// The index of a Megatron corpus, which stands for its tokens too.
    Megatron,
    Tar,
}

impl FileFormat {
    /// The form that the name of a file stands for.
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let end = path.extension().map(|end| end.to_string_lossy().to_lowercase());
        Ok(match end.as_deref() {
            _ if path.as_os_str() == "-" => Self::Text,
            Some("npy") => Self::Npy,
            Some("npz") => Self::Npz,
            Some("safetensors") => Self::Safetensors,
            Some("bin") => Self::Tokens,
            Some("idx") => Self::Megatron,
            Some("tar") => Self::Tar,
            Some("parquet" | "pq" | "arrow" | "arrows" | "feather" | "ipc") => Self::Columns,
            Some("txt") => Self::Text,
            Some("jsonl" | "ndjson") => Self::JsonLines,
            _ => bail!(
                "{} has a name of no known kind; expected .npy, .npz, .safetensors, .parquet, .arrow, .bin, .idx, .tar, \
                 .txt, .jsonl, or - for standard input",
                path.display()
            ),
        })
    }
}

/// Reads the lengths of samples, of one file after the other.
///
/// # Errors
/// One that names the file, and the row or the line where there is one.
pub(crate) fn lengths(source: &LengthsSource, tables: &dyn Tables) -> Result<Vec<u32>> {
    let progress = Progress::new(format!("reading {}", source.title()));
    let files = list_files(&source.lengths)?;
    if source.is_standard_input() && files.len() > 1 {
        bail!("- is given beside files; expected standard input alone, or files");
    }
    let mut lengths = Vec::new();
    for file in files {
        lengths.extend(lengths_of(&file, source, tables)?);
    }
    drop(progress);
    if lengths.is_empty() {
        bail!("{}: there are no lengths; expected at least one", source.title());
    }
    Ok(lengths)
}

/// Reads the lengths of samples in one file.
fn lengths_of(path: &Path, source: &LengthsSource, tables: &dyn Tables) -> Result<Vec<u32>> {
    let form = FileFormat::of(path)?;
    let has_columns = !matches!(form, FileFormat::Npy | FileFormat::Text | FileFormat::Megatron);
    if source.column.is_some() && !has_columns {
        bail!("{} has no columns; expected no --column", path.display());
    }
    let lengths = match form {
        FileFormat::Npy => npy::read_lengths(open(path)?),
        FileFormat::Npz => arrays::npz_lengths(path, source.column.as_deref()),
        FileFormat::Safetensors => arrays::safetensors_lengths(path, source.column.as_deref()),
        FileFormat::Megatron => read_megatron(path).map(|index| index.lengths),
        FileFormat::Tokens => tokens::refuse_stream(),
        FileFormat::Tar => Err(anyhow::anyhow!(
            "members of a tar have no lengths before a function decodes them; expected lengths in another file, such \
             as .npy or .txt: `batchloom inspect` lists the members"
        )),
        FileFormat::Columns => columns::lengths(tables, path, source.column.as_deref()),
        FileFormat::Text => text::lines(open(path)?, source.count),
        FileFormat::JsonLines => text::json_lines(open(path)?, source.column.as_deref(), source.count),
    };
    lengths.with_context(|| path.display().to_string())
}

/// Reads the lengths of samples, and the sizes that the budgets of rules name, each from a column of the file.
///
/// # Errors
/// As for [`lengths`]; and the file has no columns, or not these.
pub(crate) fn sizes<'a>(
    source: &LengthsSource,
    tables: &dyn Tables,
    rules: impl IntoIterator<Item = &'a Rule>,
) -> Result<Sizes> {
    let budgets = rules.into_iter().filter_map(Rule::budgets).flat_map(Budgets::iter);
    let names: BTreeSet<&str> = budgets.map(|(name, _)| name).collect();
    let column = source.column.clone().or_else(|| names.first().map(|name| (*name).to_owned()));
    let read = |column: Option<String>| lengths(&LengthsSource { column, ..source.clone() }, tables);
    let sizes = Sizes::new(read(column.clone())?);
    let with = |sizes: Sizes, name: &str| match column.as_deref() == Some(name) {
        true => Ok(sizes.named(name)?),
        false => Ok(sizes.with(name, read(Some(name.to_owned()))?)?),
    };
    names.into_iter().try_fold(sizes, with)
}

fn open(path: &Path) -> Result<BufReader<Box<dyn Read>>> {
    let file: Box<dyn Read> = match path.as_os_str() == "-" {
        true => Box::new(io::stdin()),
        false => Box::new(File::open(path).with_context(|| path.display().to_string())?),
    };
    Ok(BufReader::with_capacity(1 << 20, file))
}

/// A number as the length of a sample.
pub(crate) fn length<T: TryInto<u32> + Copy + fmt::Display>(
    number: T,
    place: impl Fn() -> String,
) -> Result<u32> {
    let refused = || anyhow::anyhow!("{} is {number}; expected a length, 0 to {}", place(), u32::MAX);
    number.try_into().map_err(|_| refused())
}
