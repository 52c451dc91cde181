//! The cores that this process may use.

use std::num::NonZero;
use std::sync::OnceLock;
use std::thread;

/// The number of cores, counted once: the count reads files of the system, which takes longer than all else that makes
/// a loader of rows.
pub(crate) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get))
}
