//! `Buckets`: rows on the way to their files. Each file has a bucket, in which its rows lie in the order of reading.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use batchloom_formats::FileSource;

use super::rows::Rows;

/// The bytes of a bucket that wait to be written.
const BUFFER: usize = 1 << 20;

/// The buckets of a conversion, in a folder of their own.
#[derive(Debug)]
pub(super) struct Buckets {
    folder: PathBuf,
    files: u64,
    rows_per_file: u64,
    columns: Rows,
}

impl Buckets {
    pub(super) fn new(folder: &Path, files: u64, rows_per_file: u64, like: &Rows) -> Self {
        Self { folder: folder.join(".buckets"), files, rows_per_file, columns: like.empty() }
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

    /// Puts all rows into buckets; `place` is the place of a row among the rows of all files.
    pub(super) fn scatter(
        &self,
        source: &dyn FileSource,
        place: impl Fn(u64) -> u64,
        done: impl Fn(u64),
    ) -> Result<()> {
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder).with_context(|| self.folder.display().to_string())?;
        }
        fs::create_dir_all(&self.folder).with_context(|| self.folder.display().to_string())?;
        let mut waiting: Vec<Vec<u8>> = vec![Vec::new(); usize::try_from(self.files)?];
        let chunks = source.chunks();
        for chunk in 0..chunks.len() {
            let rows = Rows::of_chunk(source, chunk)?;
            let first = chunks.range(chunk).start;
            rows.for_each(|row, parts| {
                let place = place(first + row as u64);
                let file = usize::try_from(place / self.rows_per_file).unwrap_or(0);
                let within = place % self.rows_per_file;
                let bucket = &mut waiting[file];
                // A file has fewer than 2^32 rows.
                bucket.extend_from_slice(&within.to_le_bytes()[..4]);
                for (length, values) in parts {
                    if let Some(length) = length {
                        bucket.extend_from_slice(&length.to_le_bytes());
                    }
                    bucket.extend_from_slice(values);
                }
            });
            for (file, bucket) in waiting.iter_mut().enumerate().filter(|(_, bucket)| bucket.len() >= BUFFER)
            {
                self.flush(file as u64, bucket)?;
            }
            done(rows.count() as u64);
        }
        for (file, bucket) in waiting.iter_mut().enumerate() {
            self.flush(file as u64, bucket)?;
        }
        File::create(self.mark())
            .and_then(|file| file.sync_all())
            .with_context(|| self.mark().display().to_string())
    }

    fn flush(&self, file: u64, bucket: &mut Vec<u8>) -> Result<()> {
        let path = self.path(file);
        let opened = OpenOptions::new().create(true).append(true).open(&path);
        opened.and_then(|mut file| file.write_all(bucket)).with_context(|| path.display().to_string())?;
        bucket.clear();
        Ok(())
    }

    /// The rows of a file, in its order.
    pub(super) fn gather(&self, file: u64, count: u64) -> Result<Rows> {
        let path = self.path(file);
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        let count = usize::try_from(count)?;
        let damaged = || format!("{} is damaged: remove its folder, and convert anew", path.display());
        let mut records = vec![None; count];
        let mut rest = &bytes[..];
        let mut gathered = self.columns.clone();
        while let Some((place, record)) = rest.split_first_chunk::<4>() {
            let place = u32::from_le_bytes(*place) as usize;
            rest = self.columns.skip(record).with_context(damaged)?;
            ensure!(place < count && records[place].is_none(), damaged());
            records[place] = Some(record);
        }
        for record in records {
            gathered.append(record.with_context(damaged)?).with_context(damaged)?;
        }
        Ok(gathered)
    }

    /// Removes all buckets.
    pub(super) fn remove(&self) {
        drop(fs::remove_dir_all(&self.folder));
    }
}
