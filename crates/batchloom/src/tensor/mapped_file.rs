//! `MappedFile`: the file whose map an array lies in, so that rows are read without bringing pages of the map into memory.
//!
//! Promise: a read that fails is an error with the place in the file; it is never a batch of other bytes.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use super::error::TensorCause;
use crate::Result;

/// A file, and the place in it of the first byte of an array's memory. Cloning shares the file, which stays open.
#[derive(Debug, Clone)]
pub(crate) struct MappedFile {
    file: Arc<File>,
    path: Arc<PathBuf>,
    start: u64,
}

impl MappedFile {
    /// The file at `path`, open as `file`; byte 0 of the memory is its byte `start`.
    pub(super) fn new(file: Arc<File>, path: PathBuf, start: u64) -> Self {
        Self { file, path: Arc::new(path), start }
    }

    /// Reads the bytes of the memory from byte `at` on.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if the file ends before, or cannot be read.
    pub(crate) fn read(&self, at: usize, target: &mut [u8]) -> Result<()> {
        let place = self.start.saturating_add(at as u64);
        self.read_at(place, target).map_err(|error| {
            let (path, reason) = (self.path.display().to_string(), error.to_string());
            TensorCause::MappedFile { path, place, bytes: target.len(), reason }.into()
        })
    }

    #[cfg(unix)]
    fn read_at(&self, place: u64, target: &mut [u8]) -> std::io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&*self.file, target, place)
    }

    // Threads would share one position in the file. So arrays are given no file: see `Tensor::with_file`.
    #[cfg(not(unix))]
    fn read_at(&self, _: u64, _: &mut [u8]) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}
