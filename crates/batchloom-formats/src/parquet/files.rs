//! `ParquetFiles`: the footers of some files, which say what there is.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::statistics::Statistics;

use super::columns::{ColumnInfo, list_columns, missing, require_alike};
use crate::error::{FormatError, FormatErrorKind, Result};
use crate::file::{DataFile, OPEN_FILES};
use crate::guard::catch_panic;

/// Some Parquet files, of which the rows are those of the first, then those of the second, and so on.
///
/// Opening reads the footer of each file and no values. Clones share what was read.
#[derive(Debug, Clone)]
pub struct ParquetFiles {
    files: Arc<[ParquetFile]>,
}

/// A file, and what its footer says.
#[derive(Debug)]
pub(crate) struct ParquetFile {
    pub(crate) file: Arc<DataFile>,
    pub(crate) metadata: ParquetMetaData,
    pub(crate) columns: Vec<ColumnInfo>,
}

impl ParquetFiles {
    /// Opens files, at least one.
    ///
    /// # Errors
    /// A file cannot be read, or is no sound Parquet file; there is none.
    pub fn open<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<Self> {
        let paths: Vec<PathBuf> = paths.into_iter().map(|path| path.as_ref().to_owned()).collect();
        let stays_open = paths.len() <= OPEN_FILES;
        let files =
            paths.iter().map(|path| ParquetFile::open(path, stays_open)).collect::<Result<Arc<[_]>>>()?;
        match files.is_empty() {
            true => Err(FormatError::new(FormatErrorKind::Argument, Path::new(""), "there is no file")),
            false => Ok(Self { files }),
        }
    }

    /// The columns, in the order of the first file.
    pub fn columns(&self) -> &[ColumnInfo] {
        &self.files[0].columns
    }

    /// The number of rows of each file.
    pub fn rows(&self) -> impl Iterator<Item = u64> + '_ {
        self.files.iter().map(|file| file.metadata.file_metadata().num_rows().max(0).unsigned_abs())
    }

    /// Returns true if all values of a column are one whole number, as the footers say; false if one does not say it.
    pub fn is_always(&self, column: &str, value: i64) -> bool {
        self.files.iter().all(|file| {
            let info = file.columns.iter().find(|info| info.name == column);
            let leaf = info.map(|info| info.leaf);
            leaf.is_some_and(|leaf| {
                let groups = file.metadata.row_groups().iter().filter(|group| group.num_rows() > 0);
                groups.map(|group| group.column(leaf).statistics()).all(|statistics| match statistics {
                    Some(Statistics::Int32(found)) => [found.min_opt(), found.max_opt()]
                        .iter()
                        .all(|bound| bound.map(|&bound| i64::from(bound)) == Some(value)),
                    Some(Statistics::Int64(found)) => {
                        [found.min_opt(), found.max_opt()].iter().all(|bound| bound.copied() == Some(value))
                    }
                    _ => false,
                })
            })
        })
    }

    /// Refuses files with other columns than the first one.
    ///
    /// # Errors
    /// A file has a column more or less; the error names both files.
    pub fn require_same_columns(&self) -> Result<()> {
        let first = &self.files[0];
        for other in &self.files[1..] {
            let differs = |one: &ParquetFile, two: &ParquetFile| {
                let missing = one.columns.iter().find(|column| two.column(&column.name).is_none());
                missing.map(|column| column.name.clone())
            };
            let expected = |has: &str, name: String| {
                let reason = format!(
                    "it {has} column {name:?}, other than {}; expected the same columns, or columns=",
                    first.file.path().display()
                );
                FormatError::data(other.file.path(), reason)
            };
            if let Some(name) = differs(first, other) {
                return Err(expected("lacks", name));
            }
            if let Some(name) = differs(other, first) {
                return Err(expected("has", name));
            }
        }
        Ok(())
    }

    pub(crate) fn files(&self) -> &[ParquetFile] {
        &self.files
    }

    /// The places of some columns among those of the first file. All files have to have them, with one type.
    ///
    /// # Errors
    /// There is no such column, a type makes no tensor, or files differ.
    pub(crate) fn choose(&self, names: &[String]) -> Result<Vec<usize>> {
        let first = &self.files[0];
        let path = first.file.path();
        let find = |name: &String| {
            let place = first.columns.iter().position(|column| column.name == *name);
            let place = place.ok_or_else(|| missing(path, name, &first.columns))?;
            if self
                .files
                .iter()
                .any(|file| file.columns.iter().filter(|column| column.name == *name).count() > 1)
            {
                let reason = "there are several columns of this name; expected every name once";
                return Err(FormatError::data(path, reason).of_column(name));
            }
            match &first.columns[place].layout {
                Ok(_) => Ok(place),
                Err(reason) => {
                    let reason =
                        format!("it holds {reason}; expected numbers, lists of numbers, texts or bytes");
                    Err(FormatError::new(FormatErrorKind::Type, path, reason).of_column(name))
                }
            }
        };
        let places = names.iter().map(find).collect::<Result<_>>()?;
        for other in &self.files[1..] {
            require_alike((path, &first.columns), (other.file.path(), &other.columns), names)?;
        }
        Ok(places)
    }
}

impl ParquetFile {
    /// A column by its name: files may have their columns in any order.
    pub(crate) fn column(&self, name: &str) -> Option<&ColumnInfo> {
        self.columns.iter().find(|column| column.name == name)
    }

    fn open(path: &Path, stays_open: bool) -> Result<Self> {
        let file = Arc::new(DataFile::open(path, stays_open)?);
        let read = catch_panic(|| {
            let metadata = ParquetMetaDataReader::new().parse_and_finish(&Whole(file.clone()))?;
            let columns = list_columns(metadata.file_metadata());
            Ok::<_, parquet::errors::ParquetError>((metadata, columns))
        });
        let wrong =
            |reason: String| FormatError::data(path, format!("it is no sound Parquet file: {reason}"));
        let (metadata, columns) = read.map_err(wrong)?.map_err(|error| wrong(error.to_string()))?;
        for group in metadata.row_groups() {
            let is_alike = group.num_columns() == metadata.file_metadata().schema_descr().num_columns();
            if !is_alike || u32::try_from(group.num_rows()).is_err() {
                return Err(wrong(format!(
                    "a row group has {} rows in {} columns",
                    group.num_rows(),
                    group.num_columns()
                )));
            }
        }
        Ok(Self { file, metadata, columns })
    }
}

/// A file as the reader of footers sees it.
struct Whole(Arc<DataFile>);

impl Length for Whole {
    fn len(&self) -> u64 {
        self.0.marks().0
    }
}

impl ChunkReader for Whole {
    type T = bytes::buf::Reader<bytes::Bytes>;

    fn get_read(&self, start: u64) -> std::result::Result<Self::T, parquet::errors::ParquetError> {
        let length = usize::try_from(self.len().saturating_sub(start)).unwrap_or(usize::MAX);
        self.get_bytes(start, length).map(bytes::Buf::reader)
    }

    fn get_bytes(
        &self,
        start: u64,
        length: usize,
    ) -> std::result::Result<bytes::Bytes, parquet::errors::ParquetError> {
        self.0.read(start, length).map_err(|error| parquet::errors::ParquetError::External(Box::new(error)))
    }
}
