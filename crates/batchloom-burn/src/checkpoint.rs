//! The state of a loader beside the checkpoints of burn-train.
//!
//! Burn saves model, optimizer and scheduler after an epoch, and continues with the epoch after it. Its loaders do not
//! know which epoch that is: a resumed run would see the order of the first epoch again. A [`StateFile`] stands between
//! burn-train and one of its checkpointers, and writes and reads the state of the loader with each checkpoint.
//!
//! Promises: a state is written whole or not at all, and before the checkpoint that it belongs to, so that a run that
//! is killed in between has no checkpoint without a state; the state is the end of the epoch of the checkpoint,
//! although burn-train saves in another thread while the next epoch begins.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use batchloom::Loader;
use batchloom::plan::State;
use burn_train::checkpoint::{Checkpoint, Checkpointer, CheckpointerError};

/// A checkpointer of burn-train that keeps the state of a loader as well.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use batchloom::Loader;
/// use batchloom_burn::StateFile;
/// use burn::train::checkpoint::FileCheckpointer;
///
/// # fn with(loader: Arc<Loader>) {
/// let folder = "run/checkpoint";
/// let model = StateFile::new(FileCheckpointer::new(folder, "model"), loader, folder);
/// // training.with_custom_checkpointers(
/// //     model, FileCheckpointer::new(folder, "optim"), FileCheckpointer::new(folder, "scheduler"))
/// # let _ = model;
/// # }
/// ```
#[derive(Debug)]
pub struct StateFile<C> {
    checkpointer: C,
    loader: Arc<Loader>,
    folder: PathBuf,
    /// The epoch of the loader that was next when burn-train had finished no epoch. It wraps.
    first: AtomicU64,
}

impl<C> StateFile<C> {
    /// Keeps the state of `loader` with each checkpoint of `checkpointer`, as `loader-<epoch>.json` in `folder`.
    ///
    /// The loader is the one that training reads, before its first epoch: of the three checkpointers of a training, one
    /// keeps its state.
    pub fn new(checkpointer: C, loader: Arc<Loader>, folder: impl AsRef<Path>) -> Self {
        let (folder, first) = (folder.as_ref().to_owned(), AtomicU64::new(loader.upcoming().epoch()));
        Self { checkpointer, loader, folder, first }
    }

    fn path(&self, epoch: usize) -> PathBuf {
        self.folder.join(format!("loader-{epoch}.json"))
    }

    /// Writes the state after `epoch` epochs of burn-train.
    fn write(&self, epoch: usize) -> Result<(), CheckpointerError> {
        let next = self.first.load(Ordering::Relaxed).wrapping_add(epoch as u64);
        let state = serde_json::to_vec_pretty(&self.loader.plan(next).state(0)).map_err(checkpoint_error)?;
        fs::create_dir_all(&self.folder).map_err(CheckpointerError::IOError)?;
        let (path, draft) = (self.path(epoch), self.folder.join(format!("loader-{epoch}.json.tmp")));
        fs::write(&draft, state).and_then(|()| fs::rename(&draft, path)).map_err(CheckpointerError::IOError)
    }

    /// Lets the loader go on with the state after `epoch` epochs.
    fn read(&self, epoch: usize) -> Result<(), CheckpointerError> {
        let path = self.path(epoch);
        let about = |reason: &dyn std::fmt::Display| {
            let path = path.display();
            CheckpointerError::Unknown(format!(
                "the state of the loader in {path} cannot be loaded: {reason}"
            ))
        };
        let text = fs::read(&path).map_err(|error| about(&error))?;
        let state: State = serde_json::from_slice(&text).map_err(|error| about(&error))?;
        self.loader.load(&state).map_err(|error| about(&error))?;
        let next = self.loader.upcoming().epoch();
        self.first.store(next.wrapping_sub(epoch as u64), Ordering::Relaxed);
        Ok(())
    }
}

fn checkpoint_error(error: impl std::fmt::Display) -> CheckpointerError {
    CheckpointerError::Unknown(error.to_string())
}

impl<R: Checkpoint, C: Checkpointer<R>> Checkpointer<R> for StateFile<C> {
    fn save(&self, epoch: usize, record: R) -> Result<(), CheckpointerError> {
        self.write(epoch)?;
        self.checkpointer.save(epoch, record)
    }

    /// Deletes the checkpoint, then its state.
    fn delete(&self, epoch: usize) -> Result<(), CheckpointerError> {
        self.checkpointer.delete(epoch)?;
        let path = self.path(epoch);
        if path.exists() { fs::remove_file(path).map_err(CheckpointerError::IOError) } else { Ok(()) }
    }

    /// Restores the checkpoint, and lets the loader go on where it was: from the epoch after `epoch`.
    fn restore(&self, epoch: usize) -> Result<R, CheckpointerError> {
        let record = self.checkpointer.restore(epoch)?;
        self.read(epoch)?;
        Ok(record)
    }
}
