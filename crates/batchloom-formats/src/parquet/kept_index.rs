//! `KeptIndex`: what was found in a file, kept beside other indices, and never trusted once the file has changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::pages::{ColumnPages, PagePlace};
use super::scan::ScannedGroup;
use crate::file::DataFile;

/// The first bytes of a kept index: its name and its version.
const MAGIC: &[u8; 8] = b"BLOOMIX1";

/// The bytes at the end of a file that are looked at: footers lie there.
const TAIL: u64 = 1 << 16;

/// The place where the index of a file is kept, and the marks of the file as it is.
#[derive(Debug)]
pub(crate) struct KeptIndex {
    place: Option<PathBuf>,
    marks: Vec<u8>,
}

impl KeptIndex {
    /// The index of some columns of a file, in a folder; without a folder nothing is kept.
    pub(crate) fn new(folder: Option<&Path>, file: &DataFile, columns: &[String], allows_null: bool) -> Self {
        let Some(folder) = folder else { return Self { place: None, marks: Vec::new() } };
        let path = fs::canonicalize(file.path()).unwrap_or_else(|_| file.path().to_owned());
        let mut key = path.into_os_string().into_encoded_bytes();
        for column in columns {
            key.push(0);
            key.extend_from_slice(column.as_bytes());
        }
        key.push(u8::from(allows_null));
        let (bytes, modified) = file.marks();
        let modified =
            modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map_or(0, |time| time.as_nanos());
        let start = bytes.saturating_sub(TAIL);
        let tail = file.read(start, usize::try_from(bytes - start).unwrap_or(0)).unwrap_or_default();
        let mut marks = MAGIC.to_vec();
        marks.extend_from_slice(&bytes.to_le_bytes());
        marks.extend_from_slice(&modified.to_le_bytes());
        marks.extend_from_slice(&xxh3_64(&tail).to_le_bytes());
        marks.extend_from_slice(&xxh3_64(&key).to_le_bytes());
        Self { place: Some(folder.join(format!("{:032x}.index", xxh3_128(&key)))), marks }
    }

    /// The kept index of as many row groups and columns, if it is that of the file as it is.
    pub(crate) fn load(&self, groups: usize, columns: usize) -> Option<Vec<ScannedGroup>> {
        let bytes = fs::read(self.place.as_ref()?).ok()?;
        let (content, digest) = bytes.split_last_chunk::<8>()?;
        if u64::from_le_bytes(*digest) != xxh3_64(content) {
            return None;
        }
        let mut numbers = Numbers(content.strip_prefix(&self.marks[..])?);
        let found = (0..groups).map(|_| numbers.group(columns)).collect::<Option<Vec<_>>>()?;
        numbers.0.is_empty().then_some(found)
    }

    /// Keeps an index. A folder that cannot be written to is no error: the index is made again next time.
    pub(crate) fn store(&self, groups: &[ScannedGroup]) {
        let Some(place) = &self.place else { return };
        let mut bytes = self.marks.clone();
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
            bytes.extend_from_slice(&(group.lengths.len() as u64).to_le_bytes());
            group.lengths.iter().for_each(|length| bytes.extend_from_slice(&length.to_le_bytes()));
        }
        bytes.extend_from_slice(&xxh3_64(&bytes).to_le_bytes());
        // Each process writes a file of its own, which takes its name when it is whole.
        let own = place.with_extension(format!("{}.part", std::process::id()));
        let folder = place.parent().unwrap_or(place);
        let written = fs::create_dir_all(folder)
            .and_then(|()| fs::write(&own, &bytes))
            .and_then(|()| fs::rename(&own, place));
        if written.is_err() {
            drop(fs::remove_file(&own));
        }
    }
}

/// Numbers of a kept index.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn group(&mut self, columns: usize) -> Option<ScannedGroup> {
        let pages = (0..columns).map(|_| self.column()).collect::<Option<Vec<_>>>()?;
        let count = self.count(4)?;
        let lengths = (0..count).map(|_| self.u32()).collect::<Option<Vec<_>>>()?;
        Some(ScannedGroup { pages, lengths })
    }

    fn column(&mut self) -> Option<ColumnPages> {
        let (start, bytes) = (self.u64()?, self.u32()?);
        let dictionary = (start != u64::MAX).then_some((start, bytes));
        let count = self.count(17)?;
        let page = |numbers: &mut Self| {
            Some(PagePlace {
                start: numbers.u64()?,
                bytes: numbers.u32()?,
                first_row: numbers.u32()?,
                is_within_row: numbers.take::<1>()? != [0],
            })
        };
        let pages = (0..count).map(|_| page(self)).collect::<Option<Vec<_>>>()?;
        Some(ColumnPages { dictionary, pages })
    }

    /// A count of things of at least `bytes` bytes, which are there.
    fn count(&mut self, bytes: usize) -> Option<usize> {
        let count = usize::try_from(self.u64()?).ok()?;
        (count.checked_mul(bytes)? <= self.0.len()).then_some(count)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }
}
