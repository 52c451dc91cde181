//! Reads the columns `x` and `y` of a Parquet file in turns, on one thread: by batchloom's reader of pages, and by the
//! Arrow reader of the crate `parquet`. Prints the seconds of both, one line a round. The benchmark of storage runs it.
//!
//!     readers FILE ROUNDS

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::time::Instant;

use batchloom_formats::FileSource;
use batchloom_formats::parquet::{FieldColumns, ParquetFiles, ParquetIndex, ParquetSource};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

const COLUMNS: [&str; 2] = ["x", "y"];
/// The rows of a batch of the Arrow reader: a row group of the benchmark.
const ROWS: usize = 8192;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(rounds)) = (arguments.next(), arguments.next()) else {
        return Err("expected FILE ROUNDS".into());
    };
    let source = open(&path)?;
    // Both read once before the first round, so that the file and their memory are warm.
    for round in 0..=rounds.parse::<usize>()? {
        let start = Instant::now();
        let rows = read_pages(&source)?;
        let pages = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let expected = read_arrow(&path)?;
        let arrow = start.elapsed().as_secs_f64();
        if rows != expected {
            return Err(format!("found {rows} rows, expected {expected}").into());
        }
        if round > 0 {
            writeln!(std::io::stdout(), "{pages} {arrow}")?;
        }
    }
    Ok(())
}

fn open(path: &str) -> Result<ParquetSource, Box<dyn Error>> {
    let files = ParquetFiles::open([path])?;
    let index = ParquetIndex::make(&files, &COLUMNS.map(str::to_owned), &[], None, &|_, _| true)?;
    Ok(ParquetSource::new(files, index, &COLUMNS.map(FieldColumns::single))?)
}

/// Reads all chunks; returns the number of rows.
fn read_pages(source: &ParquetSource) -> Result<u64, Box<dyn Error>> {
    let chunks = source.chunks();
    for chunk in 0..chunks.len() {
        std::hint::black_box(source.read_chunk(chunk)?);
    }
    Ok(chunks.samples())
}

/// Reads all batches; returns the number of rows.
fn read_arrow(path: &str) -> Result<u64, Box<dyn Error>> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(path)?)?;
    let mask = ProjectionMask::columns(builder.parquet_schema(), COLUMNS);
    let mut rows = 0;
    for batch in builder.with_projection(mask).with_batch_size(ROWS).build()? {
        rows += std::hint::black_box(batch?).num_rows() as u64;
    }
    Ok(rows)
}
