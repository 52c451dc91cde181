//! `FolderLock`: a folder that one process at a time writes.
//!
//! Promises: a second process is refused, with the number of the first; a process that ends in any way leaves the folder
//! free. Where a file system has no locks, nothing is refused.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The name of the file that is locked. It is gone when the work is done.
const NAME: &str = ".lock";

/// A folder that this process alone writes, until this is dropped.
#[derive(Debug)]
pub(super) struct FolderLock {
    path: PathBuf,
    /// The system gives the lock up with the file.
    _file: File,
}

impl FolderLock {
    /// Takes a folder, or refuses it.
    pub(super) fn take(folder: &Path) -> Result<Self> {
        let path = folder.join(NAME);
        let named = || path.display().to_string();
        loop {
            let opened = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
            let mut file = opened.with_context(named)?;
            if let Err(TryLockError::WouldBlock) = file.try_lock() {
                let process = fs::read_to_string(&path).unwrap_or_default();
                let by = match process.trim() {
                    "" => "another process".to_owned(),
                    process => format!("process {process}"),
                };
                bail!(
                    "{by} is converting into {}; expected one conversion in a folder at a time: wait for it, or \
                     another --out",
                    folder.display()
                );
            }
            // The process before may have removed the file between the opening and the lock.
            if is_at(&file, &path) {
                file.set_len(0).and_then(|()| file.write_all(std::process::id().to_string().as_bytes()))?;
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // While the lock is held: nobody else has it.
        drop(fs::remove_file(&self.path));
    }
}

/// Returns true if a path leads to a file.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;

    let marks = |found: fs::Metadata| (found.dev(), found.ino());
    fs::metadata(path).map(marks).ok() == file.metadata().map(marks).ok()
}

#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}
