//! `ParquetIndex`: where the pages of some columns lie, and the length of each list, found by one look at the files.
//!
//! Promises:
//!
//! - An index is made once for a file as it is. It is kept in a folder, by the path of the file and the columns, and made
//!   again where the file has other bytes, another time of modification or another footer, or the kept index is damaged.
//! - Several processes may make one index: each writes a file of its own, which takes its name when it is whole.
//! - Lengths take four bytes a row.

use std::path::Path;

use parquet::basic::Compression;

use super::columns::{ColumnInfo, ColumnLayout};
use super::fields::Null;
use super::files::{ParquetFile, ParquetFiles};
use super::pages::{ColumnPages, PagePlace};
use super::scan::{AllowedNulls, ScannedGroup, scan_column};
use crate::error::{FormatError, FormatErrorKind, Result};
use crate::guard::catch_panic;
use crate::kept_index::{KeptIndex, Numbers, append_list};
use crate::parallel::{Progress, for_each_part};

/// The pages of some columns of some files, and the lengths of their lists.
#[derive(Debug)]
pub struct ParquetIndex {
    /// The places of the columns among those of the files.
    pub(crate) columns: Vec<usize>,
    pub(crate) groups: Vec<GroupIndex>,
    /// The length of the lists of each row; `None` if no column has lists.
    lengths: Option<Vec<u32>>,
}

/// A row group.
#[derive(Debug, Clone)]
pub(crate) struct GroupIndex {
    pub(crate) file: usize,
    pub(crate) group: usize,
    /// The rows of all groups before it.
    pub(crate) first_row: u64,
    pub(crate) rows: u32,
    /// The pages of each column.
    pub(crate) pages: Vec<ColumnPages>,
}

impl ParquetIndex {
    /// Finds the pages of some columns, by name, with a thread for each core; in `cache`, if that is a folder, the index of
    /// each file is kept.
    ///
    /// `progress` gets the number of row groups that were looked at, and of all that will be; if it returns false, the
    /// index is not made.
    ///
    /// # Errors
    /// A column is missing, differs between files or makes no tensor; a row is null, unless `nulls` has something for it in the place of its
    /// column; lists of one row differ in length; a file is damaged or was changed.
    pub fn make(
        files: &ParquetFiles,
        names: &[String],
        nulls: &[Option<Null>],
        cache: Option<&Path>,
        progress: Progress<'_>,
    ) -> Result<Self> {
        let columns = files.choose(names)?;
        let allowed = nulls.iter().map(AllowedNulls::of).chain(std::iter::repeat(AllowedNulls::default()));
        let chosen: Vec<Chosen<'_>> = names.iter().map(String::as_str).zip(allowed).collect();
        for file in files.files() {
            require_values(file, &chosen)?;
        }
        let question = format!(
            "parquet\0{}\0{:?}",
            names.join("\0"),
            chosen.iter().map(|column| column.1).collect::<Vec<_>>()
        );
        let kept: Vec<_> =
            files.files().iter().map(|file| KeptIndex::new(cache, &file.file, question.as_bytes())).collect();
        let mut scanned: Vec<Vec<ScannedGroup>> = files
            .files()
            .iter()
            .zip(&kept)
            .map(|(file, kept)| {
                let groups = file.metadata.num_row_groups();
                kept.load().and_then(|bytes| decode(&bytes, groups, chosen.len())).unwrap_or_default()
            })
            .collect();
        let missing: Vec<(usize, usize)> = (0..files.files().len())
            .filter(|&file| scanned[file].is_empty())
            .flat_map(|file| {
                (0..files.files()[file].metadata.num_row_groups()).map(move |group| (file, group))
            })
            .collect();
        let found = scan_all(files, &chosen, &missing, progress)?;
        for ((file, _), group) in missing.iter().zip(found) {
            scanned[*file].push(group);
        }
        for file in missing.chunk_by(|one, other| one.0 == other.0).map(|run| run[0].0) {
            kept[file].store(&encode(&scanned[file]));
        }
        let has_lists = columns.iter().any(|&place| is_list(&files.columns()[place]));
        Ok(Self::join(files, columns, scanned, has_lists))
    }

    fn join(
        files: &ParquetFiles,
        columns: Vec<usize>,
        scanned: Vec<Vec<ScannedGroup>>,
        has_lists: bool,
    ) -> Self {
        let (mut groups, mut lengths, mut first_row) = (Vec::new(), Vec::new(), 0);
        for (file, scanned) in scanned.into_iter().enumerate() {
            for (group, found) in scanned.into_iter().enumerate() {
                let rows = files.files()[file].metadata.row_group(group).num_rows();
                let rows = u32::try_from(rows).unwrap_or(0);
                lengths.extend_from_slice(&found.lengths);
                groups.push(GroupIndex { file, group, first_row, rows, pages: found.pages });
                first_row += u64::from(rows);
            }
        }
        Self { columns, groups, lengths: has_lists.then_some(lengths) }
    }

    /// The number of rows.
    pub fn rows(&self) -> u64 {
        self.groups.last().map_or(0, |group| group.first_row + u64::from(group.rows))
    }

    /// The rows of all files before one.
    pub(crate) fn first_row_of(&self, file: usize) -> u64 {
        self.groups.iter().find(|group| group.file == file).map_or(0, |group| group.first_row)
    }

    /// The length of the lists of each row; `None` if no column has lists of any length.
    pub fn lengths(&self) -> Option<&[u32]> {
        self.lengths.as_deref()
    }
}

/// The name of a column, and the nulls that it may have.
type Chosen<'a> = (&'a str, AllowedNulls);

fn is_list(column: &ColumnInfo) -> bool {
    matches!(column.layout, Ok(ColumnLayout::List(_)))
}

/// Refuses columns that another reader has to read, and columns without lists that have nulls, by the footer.
fn require_values(file: &ParquetFile, chosen: &[Chosen<'_>]) -> Result<()> {
    let mut first_row = 0;
    for group in file.metadata.row_groups() {
        for &(name, allowed) in chosen {
            let Some(column) = file.column(name) else { continue };
            let compression = group.column(column.leaf).compression();
            if matches!(compression, Compression::BROTLI(_) | Compression::LZO) {
                let reason = format!("it is compressed by {compression}, which is not read here");
                let error = FormatError::new(FormatErrorKind::Unsupported, file.file.path(), reason);
                return Err(error.of_column(&column.name));
            }
            let statistics = group.column(column.leaf).statistics();
            let nulls = statistics.and_then(|statistics| statistics.null_count_opt()).unwrap_or(0);
            if nulls > 0 && !allowed.elements && !is_list(column) {
                let last = first_row + group.num_rows() - 1;
                let reason = format!(
                    "{nulls} of the rows {first_row} to {last} are null; expected a value in each, or nulls= with a value for it"
                );
                return Err(FormatError::data(file.file.path(), reason).of_column(&column.name));
            }
        }
        first_row += group.num_rows();
    }
    Ok(())
}

/// Looks at some row groups, each given by its file and its number there.
fn scan_all(
    files: &ParquetFiles,
    chosen: &[Chosen<'_>],
    groups: &[(usize, usize)],
    progress: Progress<'_>,
) -> Result<Vec<ScannedGroup>> {
    for_each_part(groups.len(), files.files()[0].file.path(), progress, |part| {
        let (file, group) = groups[part];
        let file = &files.files()[file];
        catch_panic(|| scan_group(file, group, chosen))
            .unwrap_or_else(|reason| Err(FormatError::data(file.file.path(), reason)))
    })
}

/// Appends the pages and lengths of row groups to a kept index.
fn encode(groups: &[ScannedGroup]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for group in groups {
        for column in &group.pages {
            let (start, length) = column.dictionary.unwrap_or((u64::MAX, 0));
            bytes.extend_from_slice(&start.to_le_bytes());
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(&(column.pages.len() as u64).to_le_bytes());
            for page in &column.pages {
                bytes.extend_from_slice(&page.start.to_le_bytes());
                bytes.extend_from_slice(&page.bytes.to_le_bytes());
                bytes.extend_from_slice(&page.first_row.to_le_bytes());
                bytes.push(u8::from(page.is_within_row));
            }
        }
        append_list(&mut bytes, &group.lengths);
    }
    bytes
}

/// The row groups of a kept index, if it has as many groups and columns.
fn decode(bytes: &[u8], groups: usize, columns: usize) -> Option<Vec<ScannedGroup>> {
    let mut numbers = Numbers(bytes);
    let column = |numbers: &mut Numbers<'_>| {
        let (start, bytes) = (numbers.u64()?, numbers.u32()?);
        let dictionary = (start != u64::MAX).then_some((start, bytes));
        let count = numbers.count(PAGE_BYTES)?;
        let page = |_| {
            let (start, bytes, first_row) = (numbers.u64()?, numbers.u32()?, numbers.u32()?);
            Some(PagePlace { start, bytes, first_row, is_within_row: numbers.byte()? != 0 })
        };
        let pages = (0..count).map(page).collect::<Option<Vec<_>>>()?;
        Some(ColumnPages { dictionary, pages })
    };
    let mut group = || {
        let pages = (0..columns).map(|_| column(&mut numbers)).collect::<Option<Vec<_>>>()?;
        Some(ScannedGroup { pages, lengths: numbers.list()? })
    };
    let found = (0..groups).map(|_| group()).collect::<Option<Vec<_>>>()?;
    numbers.0.is_empty().then_some(found)
}

/// The bytes of a page in a kept index.
const PAGE_BYTES: usize = 17;

fn scan_group(file: &ParquetFile, group: usize, chosen: &[Chosen<'_>]) -> Result<ScannedGroup> {
    let metadata = file.metadata.row_group(group);
    let first_row: i64 = file.metadata.row_groups()[..group].iter().map(|group| group.num_rows()).sum();
    let mut lists: Option<(&str, Vec<u32>)> = None;
    let mut pages = Vec::with_capacity(chosen.len());
    for &(name, allowed) in chosen {
        // All files were compared by name.
        let missing = || FormatError::data(file.file.path(), "it is missing").of_column(name);
        let column = file.column(name).ok_or_else(missing)?;
        let mut lengths = Vec::new();
        let extent = match column.layout {
            Ok(ColumnLayout::Fixed(_, extent)) if column.is_list => Some(extent),
            _ => None,
        };
        let found = scan_column(&file.file, metadata, column.leaf, extent, allowed, first_row, &mut lengths);
        pages.push(found.map_err(|error| error.of_column(&column.name))?);
        if let Ok(ColumnLayout::Fixed(_, extent)) = column.layout
            && let Some(row) = lengths.iter().position(|&length| length as usize != extent)
        {
            let reason = format!(
                "row {} has {} elements; expected {extent}, as the type of the column says",
                first_row + i64::try_from(row).unwrap_or(0),
                lengths[row]
            );
            return Err(FormatError::data(file.file.path(), reason).of_column(&column.name));
        }
        if !is_list(column) {
            continue;
        }
        match &lists {
            None => lists = Some((&column.name, lengths)),
            Some((first, expected)) => {
                if let Some(row) = (0..lengths.len()).find(|&row| lengths[row] != expected[row]) {
                    let reason = format!(
                        "row {} has {} elements, and {} in column {first}; expected lists of one length, or columns= without one of them",
                        first_row + i64::try_from(row).unwrap_or(0),
                        lengths[row],
                        expected[row]
                    );
                    return Err(FormatError::data(file.file.path(), reason).of_column(&column.name));
                }
            }
        }
    }
    Ok(ScannedGroup { pages, lengths: lists.map(|lists| lists.1).unwrap_or_default() })
}
