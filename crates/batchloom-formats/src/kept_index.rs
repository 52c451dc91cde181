//! `KeptIndex`: what was found in a file, kept for the next time, and never trusted once the file has changed.
//!
//! Promises:
//!
//! - An index is used for an unchanged file alone: one with the same size, time of modification and last bytes.
//! - A damaged index is not used. Several processes may keep an index at once: each writes its own file, which
//!   takes its name when it is whole.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::file::DataFile;

/// The first bytes of a kept index: its name and its version.
const MAGIC: &[u8; 8] = b"BLOOMIX1";

/// The bytes at the end of a file that are looked at: footers lie there.
const TAIL: u64 = 1 << 16;

/// The folder beside files in which indices of them are kept, if somebody made it.
pub const BESIDE: &str = ".batchloom";

/// The places where the index of a file may be kept, and the marks of the file as it is.
#[derive(Debug)]
pub(crate) struct KeptIndex {
    /// The place beside the file, where indices are looked for.
    beside: PathBuf,
    /// The place where a new index is kept.
    own: Option<PathBuf>,
    marks: Vec<u8>,
}

impl KeptIndex {
    /// The index of a file, for what `question` asks; a new one is kept in `folder`, if that is given.
    pub(crate) fn new(folder: Option<&Path>, file: &DataFile, question: &[u8]) -> Self {
        let path = fs::canonicalize(file.path()).unwrap_or_else(|_| file.path().to_owned());
        let name = |path: &OsStr| {
            let key = [path.as_encoded_bytes(), &[0], question].concat();
            format!("{:032x}.index", xxh3_128(&key))
        };
        let parent = path.parent().unwrap_or(Path::new(""));
        let beside = parent.join(BESIDE);
        let is_beside = folder.is_some_and(|folder| folder == Path::new(BESIDE));
        let by_name = beside.join(name(path.file_name().unwrap_or_default()));
        let own = match folder {
            Some(_) if is_beside => Some(by_name.clone()),
            folder => folder.map(|folder| folder.join(name(path.as_os_str()))),
        };
        let (bytes, modified) = file.marks();
        let modified = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let start = bytes.saturating_sub(TAIL);
        let tail = file.read(start, usize::try_from(bytes - start).unwrap_or(0)).unwrap_or_default();
        let mut marks = MAGIC.to_vec();
        marks.extend_from_slice(&bytes.to_le_bytes());
        marks.extend_from_slice(&modified.map_or(0, |time| time.as_nanos()).to_le_bytes());
        marks.extend_from_slice(&xxh3_64(&tail).to_le_bytes());
        marks.extend_from_slice(&xxh3_64(question).to_le_bytes());
        Self { beside: by_name, own, marks }
    }

    /// Returns the content of the kept index, if the file has not changed since.
    pub(crate) fn load(&self) -> Option<Vec<u8>> {
        std::iter::once(&self.beside).chain(&self.own).find_map(|place| {
            let mut bytes = fs::read(place).ok()?;
            let (content, digest) = bytes.split_last_chunk::<8>()?;
            let is_sound =
                u64::from_le_bytes(*digest) == xxh3_64(content) && content.starts_with(&self.marks);
            let end = content.len();
            bytes.truncate(end);
            is_sound.then(|| bytes.split_off(self.marks.len()))
        })
    }

    /// Keeps an index. A folder that cannot be written to is no error: the index is made again the next time.
    pub(crate) fn store(&self, content: &[u8]) {
        let Some(place) = &self.own else { return };
        let mut bytes = [&self.marks, content].concat();
        bytes.extend_from_slice(&xxh3_64(&bytes).to_le_bytes());
        let part = place.with_extension(format!("{}.part", std::process::id()));
        let folder = place.parent().unwrap_or(place);
        let made = fs::create_dir_all(folder).and_then(|()| fs::write(&part, &bytes));
        if made.and_then(|()| fs::rename(&part, place)).is_err() {
            drop(fs::remove_file(&part));
        }
    }
}

/// Numbers of a kept index, one after the other.
pub(crate) struct Numbers<'a>(pub(crate) &'a [u8]);

impl Numbers<'_> {
    /// A count of things of at least `bytes` bytes each, which are there.
    pub(crate) fn count(&mut self, bytes: usize) -> Option<usize> {
        let count = usize::try_from(self.u64()?).ok()?;
        (count.checked_mul(bytes)? <= self.0.len()).then_some(count)
    }

    /// As many numbers of 32 bits as their count says.
    pub(crate) fn list(&mut self) -> Option<Vec<u32>> {
        let count = self.count(4)?;
        (0..count).map(|_| self.u32()).collect()
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }
}

/// Appends numbers of 32 bits, after their count.
pub(crate) fn append_list(bytes: &mut Vec<u8>, numbers: &[u32]) {
    bytes.extend_from_slice(&(numbers.len() as u64).to_le_bytes());
    numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
}
