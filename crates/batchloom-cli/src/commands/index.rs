//! `index`: the indices of files, kept beside them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Error, Result, anyhow, bail, ensure};
use batchloom_formats::json_lines::JsonWord;
use batchloom_formats::parquet::{ColumnLayout, FieldColumns};
use batchloom_formats::{BESIDE, FileSource, JsonLines, ParquetFiles, ParquetIndex, ParquetSource};
use serde::Serialize;

use crate::output::{Output, count_in_words};
use crate::progress::Progress;
use crate::read::list_files;

/// The index of a file, in numbers.
#[derive(Debug, Serialize)]
struct Indexed {
    file: String,
    columns: Vec<String>,
    rows: u64,
    chunks: u64,
    /// The elements of the lists of all rows, if there are lists.
    elements: Option<u64>,
}

pub(super) fn run(files: &[PathBuf], columns: &[String], output: &mut Output<'_>) -> Result<()> {
    let files = list_files(files)?;
    let indexed =
        files.iter().map(|file| index(file, columns).map_err(explain_nulls)).collect::<Result<Vec<_>>>()?;
    let mut text = String::new();
    for file in &indexed {
        let (rows, chunks) = (count_in_words(file.rows, "row"), count_in_words(file.chunks, "chunk"));
        write!(text, "{}: {rows} in {chunks}", file.file)?;
        if let Some(elements) = file.elements {
            write!(text, ", {}", count_in_words(elements, "element"))?;
        }
        writeln!(text, "; {}", file.columns.join(", "))?;
    }
    Ok(output.result(&indexed, text)?)
}

fn index(file: &Path, columns: &[String]) -> Result<Indexed> {
    let end = file.extension().map(|end| end.to_string_lossy().to_lowercase());
    match end.as_deref() {
        Some("parquet" | "pq") => index_parquet(file, columns),
        Some("jsonl" | "ndjson") => index_lines(file, columns),
        _ => bail!(
            "{} has a name of no kind that has an index; expected .parquet or .jsonl: other files need none",
            file.display()
        ),
    }
}

/// Adds where nulls have a policy to an error about them: the program has none.
fn explain_nulls(error: Error) -> Error {
    let text = format!("{error:#}");
    match text.contains("nulls=") {
        true => anyhow!(
            "{text}, in batchloom.open, which makes the index of such a column itself; or --column with other columns"
        ),
        false => error,
    }
}

/// The columns that were named, in the order of their names; otherwise those that make tensors.
fn choose<'a>(
    file: &Path,
    columns: &[String],
    known: impl Iterator<Item = (&'a str, bool)>,
) -> Result<Vec<String>> {
    let mut chosen = columns.to_vec();
    if chosen.is_empty() {
        chosen = known.filter(|known| known.1).map(|known| known.0.to_owned()).collect();
    }
    ensure!(!chosen.is_empty(), "{} has no column of numbers or of lists of numbers", file.display());
    chosen.sort_unstable();
    chosen.dedup();
    Ok(chosen)
}

fn index_parquet(file: &Path, columns: &[String]) -> Result<Indexed> {
    let files = ParquetFiles::open([file])?;
    let known = files.columns().iter().map(|column| {
        let makes_tensor = matches!(
            column.layout,
            Ok(ColumnLayout::Scalar(_) | ColumnLayout::Fixed(..) | ColumnLayout::List(_))
        );
        (column.name.as_str(), makes_tensor)
    });
    let chosen = choose(file, columns, known)?;
    let bar = Bar::new(file);
    let index =
        ParquetIndex::make(&files, &chosen, &[], Some(Path::new(BESIDE)), &|done, all| bar.show(done, all))?;
    drop(bar);
    let fields: Vec<FieldColumns> = chosen.iter().map(FieldColumns::single).collect();
    Ok(describe(file, chosen, &ParquetSource::new(files, index, &fields)?))
}

fn index_lines(file: &Path, columns: &[String]) -> Result<Indexed> {
    let lines = JsonLines::open([file])?;
    let known = lines.columns().iter();
    let known =
        known.map(|column| (column.name.as_str(), matches!(column.word, JsonWord::Number | JsonWord::List)));
    let chosen = choose(file, columns, known)?;
    let bar = Bar::new(file);
    let source = lines
        .source(&chosen, &chosen, &[], false, Some(Path::new(BESIDE)), &|done, all| bar.show(done, all))?;
    drop(bar);
    Ok(describe(file, chosen, &source))
}

fn describe(file: &Path, columns: Vec<String>, source: &dyn FileSource) -> Indexed {
    let chunks = source.chunks();
    let elements = source.lengths().map(|lengths| lengths.iter().map(|&length| u64::from(length)).sum());
    Indexed {
        file: file.display().to_string(),
        columns,
        rows: chunks.samples(),
        chunks: chunks.len(),
        elements,
    }
}

/// A bar for one file, made once its number of parts is known.
struct Bar {
    text: String,
    shown: Mutex<Option<(Progress, usize)>>,
}

impl Bar {
    fn new(file: &Path) -> Self {
        Self { text: format!("looking at {}", file.display()), shown: Mutex::default() }
    }

    fn show(&self, done: usize, all: usize) -> bool {
        if let Ok(mut shown) = self.shown.lock() {
            let (bar, before) = shown.get_or_insert_with(|| (Progress::of(all as u64, &*self.text), 0));
            bar.add(done.saturating_sub(*before) as u64);
            *before = done.max(*before);
        }
        true
    }
}
