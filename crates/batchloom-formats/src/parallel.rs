//! Work on many parts of files by several threads, with progress.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::{FormatError, FormatErrorKind, Result};

/// A function that gets the number of parts that are done, and of all; false stops the work.
pub type Progress<'a> = &'a (dyn Fn(usize, usize) -> bool + Sync);

/// Does some work for each of `count` parts, with a thread for each core; `progress` is called by this thread.
///
/// # Errors
/// The error of the first part that failed, or one that names `what` if progress stopped the work.
pub(crate) fn for_each_part<T: Send>(
    count: usize,
    what: &Path,
    progress: Progress<'_>,
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(count);
    let found: Mutex<Vec<Option<Result<T>>>> = Mutex::new((0..count).map(|_| None).collect());
    let (next, done, is_stopped) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let run = |reports: bool| {
        while !is_stopped.load(Ordering::Relaxed) {
            let part = next.fetch_add(1, Ordering::Relaxed);
            if part >= count {
                return;
            }
            let result = work(part);
            let failed = result.is_err();
            found.lock().unwrap_or_else(PoisonError::into_inner)[part] = Some(result);
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if failed || reports && !progress(done, count) {
                is_stopped.store(true, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| run(false));
        }
        run(true);
    });
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    // The first error in the order of parts.
    if let Some(Err(error)) = found.iter().flatten().find(|part| part.is_err()) {
        return Err(error.clone());
    }
    let stopped = || FormatError::new(FormatErrorKind::Io, what, "the look at it was interrupted");
    found.into_iter().map(|part| part.unwrap_or_else(|| Err(stopped()))).collect()
}
