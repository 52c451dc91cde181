//! `DataFile`: a file that is read at any place, by several threads, and has to stay as it was when it was opened.

use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bytes::Bytes;

use crate::error::{FormatError, Result};

/// The most files that are kept open.
pub(crate) const OPEN_FILES: usize = 256;

/// A file on disk: its path, and the marks by which a change is noticed.
///
/// With many files, each is opened for a read and closed again, since processes may hold some hundreds at a time. One that
/// was replaced is refused then; a file that is kept open is read on.
#[derive(Debug)]
pub(crate) struct DataFile {
    path: PathBuf,
    /// The file, if it is kept open.
    open: Option<File>,
    bytes: u64,
    modified: Option<SystemTime>,
}

impl DataFile {
    pub(crate) fn open(path: &Path, stays_open: bool) -> Result<Self> {
        let failed = |error| FormatError::io(path, &error);
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(FormatError::io(path, &io::Error::from(io::ErrorKind::IsADirectory)));
        }
        let (bytes, modified) = marks(&metadata);
        Ok(Self { path: path.to_owned(), open: stays_open.then_some(file), bytes, modified })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The number of bytes, and when the file was last modified, when it was opened.
    pub(crate) fn marks(&self) -> (u64, Option<SystemTime>) {
        (self.bytes, self.modified)
    }

    /// Reads `bytes` bytes from `start` on.
    ///
    /// # Errors
    /// The file ends before, cannot be read, or was changed since it was opened.
    pub(crate) fn read(&self, start: u64, bytes: usize) -> Result<Bytes> {
        self.require_within(start, bytes)?;
        let mut buffer = vec![0; bytes];
        self.read_into(start, &mut buffer)?;
        Ok(buffer.into())
    }

    /// Fills a buffer from `start` on.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn read_into(&self, start: u64, buffer: &mut [u8]) -> Result<()> {
        self.require_within(start, buffer.len())?;
        let mut read = |file: &File| {
            read_exact_at(file, buffer, start)?;
            Ok(marks(&file.metadata()?))
        };
        let found = match &self.open {
            Some(file) => read(file),
            None => File::open(&self.path).and_then(|file| read(&file)),
        };
        match found {
            Ok(found) if found == self.marks() => Ok(()),
            Ok((bytes, _)) if bytes != self.bytes => Err(self.changed(&format!("it has {bytes} bytes"))),
            Ok(_) => Err(self.changed("it was modified")),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.changed("it ends before its end"))
            }
            Err(error) => Err(FormatError::io(&self.path, &error)),
        }
    }

    /// Refuses a range that leaves the file, before memory for it is asked for.
    pub(crate) fn require_within(&self, start: u64, bytes: usize) -> Result<()> {
        match start.checked_add(bytes as u64) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(FormatError::data(
                &self.path,
                format!("{bytes} bytes from {start} on leave its {} bytes: it is damaged or cut", self.bytes),
            )),
        }
    }

    fn changed(&self, how: &str) -> FormatError {
        let reason = format!("{how}; expected the {} bytes that it had when it was opened", self.bytes);
        FormatError::data(&self.path, reason)
    }
}

fn marks(metadata: &Metadata) -> (u64, Option<SystemTime>) {
    (metadata.len(), metadata.modified().ok())
}

#[cfg(unix)]
fn read_exact_at(file: &File, buffer: &mut [u8], start: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, start)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut buffer: &mut [u8], mut start: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, buffer, start)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => (buffer, start) = (&mut buffer[read..], start + read as u64),
        }
    }
    Ok(())
}
