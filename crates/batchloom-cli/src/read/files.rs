//! Parquet and Arrow files, read by their own crates.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;

use anyhow::{Context, Result, bail};
use arrow_ipc::reader::{FileReader, StreamReader};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::{Table, Tables};

/// Files on disk.
#[derive(Debug, Clone, Copy)]
pub struct Files;

/// The first bytes of files.
const PARQUET: &[u8] = b"PAR1";
const ARROW: &[u8] = b"ARROW1";

impl Tables for Files {
    fn open(&self, path: &Path, column: Option<&str>) -> Result<Table> {
        let mut file = File::open(path)?;
        let mut start = [0; 6];
        let read = file.read(&mut start)?;
        file.rewind()?;
        let end = path.extension().map(|end| end.to_string_lossy().to_lowercase());
        let is_parquet = matches!(end.as_deref(), Some("parquet" | "pq"));
        match (is_parquet, start[..read].starts_with(PARQUET), start[..read].starts_with(ARROW)) {
            (true, true, _) => parquet(file, column),
            (true, false, _) => bail!("this is not a Parquet file"),
            (false, _, true) => arrow_file(file, column),
            (false, _, false) => arrow_stream(file, column),
        }
    }
}

fn parquet(file: File, column: Option<&str>) -> Result<Table> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).context("this is not a Parquet file")?;
    let schema = builder.schema().clone();
    let mask = match column {
        Some(column) => ProjectionMask::roots(builder.parquet_schema(), [schema.index_of(column)?]),
        None => ProjectionMask::all(),
    };
    let rows = u64::try_from(builder.metadata().file_metadata().num_rows()).ok();
    let chunks = Some(builder.metadata().num_row_groups() as u64);
    let batches = builder.with_projection(mask).build()?.map(|batch| Ok(batch?));
    Ok(Table { schema, rows, chunks, batches: Box::new(batches) })
}

fn arrow_file(file: File, column: Option<&str>) -> Result<Table> {
    let reader =
        FileReader::try_new(BufReader::new(file.try_clone()?), None).context("this is not an Arrow file")?;
    let (schema, chunks) = (reader.schema(), Some(reader.num_batches() as u64));
    let Some(column) = column else {
        return Ok(Table { schema, rows: None, chunks, batches: Box::new(reader.map(|batch| Ok(batch?))) });
    };
    let columns = Some(vec![schema.index_of(column)?]);
    let reader = FileReader::try_new(BufReader::new(file), columns)?;
    Ok(Table { schema, rows: None, chunks, batches: Box::new(reader.map(|batch| Ok(batch?))) })
}

fn arrow_stream(mut file: File, column: Option<&str>) -> Result<Table> {
    let reader = StreamReader::try_new(BufReader::new(file.try_clone()?), None)
        .context("this is not an Arrow file")?;
    let schema = reader.schema();
    let Some(column) = column else {
        return Ok(Table {
            schema,
            rows: None,
            chunks: None,
            batches: Box::new(reader.map(|batch| Ok(batch?))),
        });
    };
    let columns = Some(vec![schema.index_of(column)?]);
    file.rewind()?;
    let reader = StreamReader::try_new(BufReader::new(file), columns)?;
    Ok(Table { schema, rows: None, chunks: None, batches: Box::new(reader.map(|batch| Ok(batch?))) })
}
