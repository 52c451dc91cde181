//! `open`: files as a dataset, by the end of their names.

use std::path::{Path, PathBuf};

use batchloom::MapDataset;

use crate::error::{FormatError, FormatErrorKind, Result};
use crate::json_lines::{JsonLines, JsonWord};
use crate::parquet::{ColumnLayout, FieldColumns, ParquetFiles, ParquetIndex, ParquetSource};
use crate::source::{FileChunks, FileSource};

/// Files that become a dataset, and how.
#[derive(Debug, Clone)]
pub struct OpenFiles {
    paths: Vec<PathBuf>,
    columns: Option<Vec<String>>,
    cache: Option<PathBuf>,
    chunks_open: Option<u64>,
    memory: Option<u64>,
}

/// The options of a dataset of files: Parquet (`.parquet`, `.pq`), or lines of JSON (`.jsonl`, `.ndjson`), whose rows are
/// those of the first file, then the rows of the second, and so on.
///
/// ```
/// use batchloom::Loader;
/// use batchloom::batching::TokenBudget;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("documents.jsonl");
/// std::fs::write(&path, "{\"ids\": [1, 2, 3]}\n{\"ids\": [4]}\n{\"ids\": []}\n")?;
///
/// let dataset = batchloom_formats::open([&path]).columns(["ids"]).memory(64 << 20).dataset()?;
/// let loader = Loader::builder(dataset).rule(TokenBudget::new(6)?).shuffle(true).build()?;
/// let samples: usize = loader.iter().map(|batch| Ok(batch?.fields()[0].shape()[0])).sum::<batchloom::Result<_>>()?;
/// assert_eq!(samples, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn open<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> OpenFiles {
    let paths = paths.into_iter().map(|path| path.as_ref().to_owned()).collect();
    OpenFiles { paths, columns: None, cache: None, chunks_open: None, memory: None }
}

impl OpenFiles {
    /// The columns that become fields; all that hold numbers or lists of numbers by default.
    #[must_use]
    pub fn columns<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> Self {
        Self { columns: Some(names.into_iter().map(Into::into).collect()), ..self }
    }

    /// The folder in which the index of each file is kept for the next time. By default none is.
    #[must_use]
    pub fn cache(self, folder: impl Into<PathBuf>) -> Self {
        Self { cache: Some(folder.into()), ..self }
    }

    /// The number of chunks whose samples are mixed at a time.
    #[must_use]
    pub fn chunks_open(self, chunks: u64) -> Self {
        Self { chunks_open: Some(chunks), ..self }
    }

    /// The bytes of memory for chunks, in place of [`chunks_open`](Self::chunks_open).
    #[must_use]
    pub fn memory(self, bytes: u64) -> Self {
        Self { memory: Some(bytes), ..self }
    }

    /// Looks at the files, and makes the dataset. No value is kept.
    ///
    /// # Errors
    /// A file is of no such format, cannot be read, is damaged or differs from the first one; a column does not exist, makes
    /// no tensor or holds nulls; memory is too small for five chunks.
    pub fn dataset(self) -> Result<MapDataset> {
        let end = |path: &PathBuf| path.extension().map(|end| end.to_string_lossy().to_lowercase());
        let are_all = |ends: [&str; 2]| {
            self.paths.iter().all(|path| end(path).is_some_and(|end| ends.contains(&&*end)))
        };
        if are_all(["parquet", "pq"]) {
            let (source, lists) = self.open_parquet()?;
            return self.build(source, lists);
        }
        if are_all(["jsonl", "ndjson"]) {
            let (source, lists) = self.open_lines()?;
            return self.build(source, lists);
        }
        Err(self.wrong("files are neither all .parquet nor all .jsonl; expected files of one format"))
    }

    fn open_parquet(&self) -> Result<(ParquetSource, Vec<String>)> {
        let files = ParquetFiles::open(&self.paths)?;
        let is_list = |layout: &ColumnLayout| matches!(layout, ColumnLayout::List(_));
        let has_numbers =
            |layout: &ColumnLayout| !matches!(layout, ColumnLayout::Text | ColumnLayout::Binary);
        let named = |is_one: fn(&ColumnLayout) -> bool| {
            let columns = files.columns().iter().filter(|column| column.layout.as_ref().is_ok_and(is_one));
            columns.map(|column| column.name.clone()).collect::<Vec<_>>()
        };
        let names = self.columns.clone().unwrap_or_else(|| named(has_numbers));
        let lists = named(is_list);
        let index = ParquetIndex::make(&files, &names, &[], self.cache.as_deref(), &|_, _| true)?;
        let fields: Vec<FieldColumns> = names.iter().map(FieldColumns::single).collect();
        Ok((ParquetSource::new(files, index, &fields)?, lists))
    }

    fn open_lines(&self) -> Result<(impl FileSource, Vec<String>)> {
        let lines = JsonLines::open(&self.paths)?;
        let named = |words: &[JsonWord]| {
            let columns = lines.columns().iter().filter(|column| words.contains(&column.word));
            columns.map(|column| column.name.clone()).collect::<Vec<_>>()
        };
        let names = self.columns.clone().unwrap_or_else(|| named(&[JsonWord::Number, JsonWord::List]));
        let lists = named(&[JsonWord::List]);
        Ok((lines.source(&names, &names, &[], false, self.cache.as_deref(), &|_, _| true)?, lists))
    }

    fn build(self, source: impl FileSource, lists: Vec<String>) -> Result<MapDataset> {
        let (chunks, lengths) = (source.chunks(), source.lengths().map(<[u32]>::to_vec));
        let lists: Vec<String> = lists.into_iter().filter(|list| source.names().contains(list)).collect();
        let mut dataset = MapDataset::in_chunks(chunks, FileChunks::new(source));
        if let Some(lengths) = lengths {
            dataset = dataset.sizes(lengths).variable(lists);
        }
        if let Some(chunks) = self.chunks_open {
            dataset = dataset.chunks_open(chunks);
        }
        if let Some(bytes) = self.memory {
            dataset = dataset.memory(bytes);
        }
        dataset.build().map_err(|error| self.wrong(&error.to_string()))
    }

    fn wrong(&self, reason: &str) -> FormatError {
        let first = self.paths.first().map_or(Path::new(""), PathBuf::as_path);
        FormatError::new(FormatErrorKind::Argument, first, reason)
    }
}
