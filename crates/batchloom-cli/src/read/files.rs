//! Parquet and Arrow files, read by their own crates.
//!
//! These panic on some damaged files. Such a panic is an error here, and is not printed.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use arrow_array::RecordBatch;
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_schema::{ArrowError, Schema};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::arrow_blocks::{require_blocks, require_messages};
use super::{Table, Tables};

/// Files on disk.
#[derive(Debug, Clone, Copy)]
pub struct Files;

/// The first bytes of files.
const PARQUET: &[u8] = b"PAR1";
const ARROW: &[u8] = b"ARROW1";

impl Files {
    /// Keeps panics of the readers of tables, which become errors, from being printed. Other panics are printed as
    /// before.
    pub fn silence_panics(self) {
        batchloom_formats::silence_panics();
    }
}

/// Reads a part of a table. A panic on the way is an error.
fn catch_panic<T>(read: impl FnOnce() -> T) -> Result<T> {
    batchloom_formats::catch_panic(read).map_err(|reason| anyhow!("the file is damaged: {reason}"))
}

/// The batches of a table, up to an error.
struct Guarded<B>(Option<B>);

impl<B: Iterator<Item = Result<RecordBatch, ArrowError>>> Iterator for Guarded<B> {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Result<RecordBatch>> {
        let batches = self.0.as_mut()?;
        let batch = catch_panic(|| batches.next()).transpose()?.and_then(|batch| Ok(batch?));
        if batch.is_err() {
            self.0 = None;
        }
        Some(batch)
    }
}

/// The batches of a table.
fn guarded_batches(
    batches: impl Iterator<Item = Result<RecordBatch, ArrowError>> + 'static,
) -> Box<dyn Iterator<Item = Result<RecordBatch>>> {
    Box::new(Guarded(Some(batches)))
}

impl Tables for Files {
    fn open(&self, path: &Path, columns: Option<&[String]>) -> Result<Table> {
        let mut file = File::open(path)?;
        let mut start = [0; 6];
        let read = file.read(&mut start)?;
        file.rewind()?;
        let end = path.extension().map(|end| end.to_string_lossy().to_lowercase());
        let is_parquet = matches!(end.as_deref(), Some("parquet" | "pq"));
        match (is_parquet, start[..read].starts_with(PARQUET), start[..read].starts_with(ARROW)) {
            (true, true, _) => catch_panic(|| parquet(file, columns))?,
            (true, false, _) => bail!("this is not a Parquet file"),
            (false, _, true) => catch_panic(|| arrow_file(file, columns))?,
            (false, _, false) => catch_panic(|| arrow_stream(file, columns))?,
        }
    }
}

/// The places of columns.
fn places(schema: &Schema, columns: &[String]) -> Result<Vec<usize>> {
    columns.iter().map(|column| Ok(schema.index_of(column)?)).collect()
}

fn parquet(file: File, columns: Option<&[String]>) -> Result<Table> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).context("this is not a Parquet file")?;
    let schema = builder.schema().clone();
    let mask = match columns {
        Some(columns) => ProjectionMask::roots(builder.parquet_schema(), places(&schema, columns)?),
        None => ProjectionMask::all(),
    };
    let rows = u64::try_from(builder.metadata().file_metadata().num_rows()).ok();
    let chunks = Some(builder.metadata().num_row_groups() as u64);
    let batches = guarded_batches(builder.with_projection(mask).build()?);
    Ok(Table { schema, rows, chunks, batches })
}

fn arrow_file(mut file: File, columns: Option<&[String]>) -> Result<Table> {
    let rows = Some(require_blocks(&mut file).context("this is not an Arrow file")?);
    let reader =
        FileReader::try_new(BufReader::new(file.try_clone()?), None).context("this is not an Arrow file")?;
    let (schema, chunks) = (reader.schema(), Some(reader.num_batches() as u64));
    let Some(columns) = columns else {
        return Ok(Table { schema, rows, chunks, batches: guarded_batches(reader) });
    };
    let columns = Some(places(&schema, columns)?);
    let reader = FileReader::try_new(BufReader::new(file), columns)?;
    Ok(Table { schema, rows, chunks, batches: guarded_batches(reader) })
}

fn arrow_stream(mut file: File, columns: Option<&[String]>) -> Result<Table> {
    let rows = Some(require_messages(&mut file).context("this is not an Arrow file")?);
    let reader = StreamReader::try_new(BufReader::new(file.try_clone()?), None)
        .context("this is not an Arrow file")?;
    let schema = reader.schema();
    let Some(columns) = columns else {
        return Ok(Table { schema, rows, chunks: None, batches: guarded_batches(reader) });
    };
    let columns = Some(places(&schema, columns)?);
    file.rewind()?;
    let reader = StreamReader::try_new(BufReader::new(file), columns)?;
    Ok(Table { schema, rows, chunks: None, batches: guarded_batches(reader) })
}
