//! `Buckets`: rows on the way to their files. Each file has a bucket, in which its rows lie in the order of reading, as a
//! stream of Arrow with the place of each row.

use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Error, Result, ensure};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::interleave::{interleave, interleave_record_batch};
use batchloom_formats::catch_panic;

use super::rows::SourceRows;

/// The bytes of a bucket that wait to be written.
const BUFFER: usize = 1 << 20;

/// The bytes of rows that are sorted into buckets at a time: the more, the larger the parts of a bucket.
const SORTED: usize = 32 << 20;

/// The name of the column of places. Columns are told apart by their order, so that it may be the name of another one.
const PLACE: &str = "place";

/// The buckets of a conversion, in a folder that holds nothing else.
#[derive(Debug)]
pub(super) struct Buckets {
    folder: PathBuf,
    files: u64,
    rows_per_file: u64,
    /// The columns of rows, and their places.
    schema: SchemaRef,
}

/// Rows of a file in the order of reading, and where each row of the file lies in them.
#[derive(Debug)]
pub(super) struct Gathered {
    batches: Vec<RecordBatch>,
    /// The batch and the row in it, in the order of the file.
    order: Vec<(usize, usize)>,
}

impl Gathered {
    pub(super) fn count(&self) -> usize {
        self.order.len()
    }

    /// Some rows, in order.
    pub(super) fn rows(&self, first: usize, count: usize) -> Result<RecordBatch> {
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        Ok(interleave_record_batch(&batches, &self.order[first..first + count])?)
    }
}

impl Buckets {
    pub(super) fn new(folder: &Path, files: u64, rows_per_file: u64, schema: &Schema) -> Self {
        let mut fields = schema.fields().to_vec();
        fields.push(Arc::new(Field::new(PLACE, DataType::UInt32, false)));
        let schema = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
        Self { folder: folder.join(".buckets"), files, rows_per_file, schema }
    }

    fn path(&self, file: u64) -> PathBuf {
        self.folder.join(format!("{file:05}"))
    }

    fn mark(&self) -> PathBuf {
        self.folder.join("whole")
    }

    /// Returns true if all rows lie in buckets.
    pub(super) fn are_whole(&self) -> bool {
        self.mark().exists()
    }

    /// Puts all rows into buckets. `place` returns the place of a row among the rows of all files. `check` may refuse rows:
    /// it takes their file, and the number of their first row in it. `require_same` may refuse all rows after the last one.
    pub(super) fn scatter(
        &self,
        source: &SourceRows<'_>,
        place: impl Fn(u64) -> u64,
        check: impl Fn(&Path, u64, &RecordBatch) -> Result<()>,
        done: impl Fn(u64),
        require_same: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder).with_context(|| self.folder.display().to_string())?;
        }
        fs::create_dir_all(&self.folder).with_context(|| self.folder.display().to_string())?;
        let mut writers = Vec::new();
        for _ in 0..self.files {
            writers.push(StreamWriter::try_new(Vec::new(), &self.schema)?);
        }
        let (mut held, mut bytes, mut row) = (Vec::new(), 0, 0);
        for (number, path) in source.files().iter().enumerate() {
            let mut first = 0;
            for batch in source.batches(number)? {
                let batch = batch?;
                check(path, first, &batch)?;
                let count = batch.num_rows() as u64;
                bytes += batch.get_array_memory_size();
                held.push(batch);
                (first, row) = (first + count, row + count);
                if bytes >= SORTED {
                    self.sort(&held, row, &place, &mut writers)?;
                    held.clear();
                    bytes = 0;
                }
                done(count);
            }
        }
        ensure!(
            row == source.rows(),
            "{row} rows were read, and {} were counted before: a file was changed; expected files that stay as they are",
            source.rows()
        );
        self.sort(&held, row, &place, &mut writers)?;
        for (file, writer) in writers.iter_mut().enumerate() {
            writer.finish()?;
            self.flush(file as u64, writer.get_mut())?;
        }
        require_same()?;
        File::create(self.mark())
            .and_then(|file| file.sync_all())
            .with_context(|| self.mark().display().to_string())
    }

    /// Puts rows into the buckets of their files; `end` is the number of rows that were read.
    fn sort(
        &self,
        held: &[RecordBatch],
        end: u64,
        place: &impl Fn(u64) -> u64,
        writers: &mut [StreamWriter<Vec<u8>>],
    ) -> Result<()> {
        let mut row = end - held.iter().map(|batch| batch.num_rows() as u64).sum::<u64>();
        let mut chosen = vec![(Vec::new(), Vec::new()); writers.len()];
        for (number, batch) in held.iter().enumerate() {
            for within in 0..batch.num_rows() {
                let place = place(row);
                let (rows, places) = &mut chosen[usize::try_from(place / self.rows_per_file)?];
                rows.push((number, within));
                // A file has fewer than 2^32 rows.
                places.push(u32::try_from(place % self.rows_per_file)?);
                row += 1;
            }
        }
        for (file, (rows, places)) in
            chosen.into_iter().enumerate().filter(|(_, chosen)| !chosen.0.is_empty())
        {
            let column = |column: usize| -> Result<ArrayRef> {
                let parts: Vec<&dyn Array> = held.iter().map(|batch| &**batch.column(column)).collect();
                let name = self.schema.field(column).name();
                let named =
                    || format!("column {name}: its rows cannot be moved; expected --column without it");
                // What is behind a null may lie outside of an array, where the library stops.
                catch_panic(|| interleave(&parts, &rows))
                    .map_err(Error::msg)
                    .with_context(named)?
                    .with_context(named)
            };
            let mut columns = (0..self.schema.fields().len() - 1).map(column).collect::<Result<Vec<_>>>()?;
            columns.push(Arc::new(UInt32Array::from(places)));
            writers[file].write(&RecordBatch::try_new(self.schema.clone(), columns)?)?;
            if writers[file].get_ref().len() >= BUFFER {
                self.flush(file as u64, writers[file].get_mut())?;
            }
        }
        Ok(())
    }

    fn flush(&self, file: u64, bucket: &mut Vec<u8>) -> Result<()> {
        let path = self.path(file);
        let opened = OpenOptions::new().create(true).append(true).open(&path);
        opened.and_then(|mut file| file.write_all(bucket)).with_context(|| path.display().to_string())?;
        bucket.clear();
        Ok(())
    }

    /// The rows of a file.
    pub(super) fn gather(&self, file: u64, count: u64) -> Result<Gathered> {
        let path = self.path(file);
        self.read(&path, usize::try_from(count)?).with_context(|| {
            // The next run reads all rows anew.
            self.remove();
            format!("{} was damaged; run the same command again", path.display())
        })
    }

    fn read(&self, path: &Path, count: usize) -> Result<Gathered> {
        let mut batches = Vec::new();
        let mut order = vec![None; count];
        for batch in StreamReader::try_new(BufReader::new(File::open(path)?), None)? {
            let mut batch = batch?;
            let places = batch.remove_column(self.schema.fields().len() - 1);
            let places = places.as_primitive_opt::<UInt32Type>().context("places are no numbers")?;
            for (row, &place) in places.values().iter().enumerate() {
                let free = order.get_mut(place as usize).filter(|free| free.is_none());
                *free.context("a place is taken, or is none of this file")? = Some((batches.len(), row));
            }
            batches.push(batch);
        }
        let order: Option<Vec<_>> = order.into_iter().collect();
        Ok(Gathered { batches, order: order.context("a row is missing")? })
    }

    /// Removes all buckets, the mark first: an interrupt leaves none that passes for whole.
    pub(super) fn remove(&self) {
        drop(fs::remove_file(self.mark()));
        drop(fs::remove_dir_all(&self.folder));
    }
}
