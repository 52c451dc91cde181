//! Prefetching of rows: the number of lines, and the number of rows ahead, that suit a row and this processor.
//!
//! A random gather waits for memory. The processor follows a row by itself once it has seen a few of its lines, but not
//! to the next row, and not across pages. Prefetching too much is worse than none at all: the hints wait for room, and
//! the copy behind them.

use std::sync::LazyLock;

use crate::tensor::ChunkedTensor;
use crate::tensor::buffer::prefetch;

/// The number of bytes of a cache line.
const LINE: usize = 64;

/// The number of bytes above which a row is long.
const LONG: usize = 2048;

/// The prefetching of rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prefetch {
    /// The number of bytes at the start of a row that are asked for.
    pub(super) bytes: usize,
    /// The number of rows between the row that is copied and the row that is prefetched.
    pub(super) ahead: usize,
}

/// The prefetching of long rows. With rows of 4 KB, four lines two rows ahead took 67.5 ms where 16 lines eight rows
/// ahead took 76.4 on an Intel Ice Lake of two cores; on an AMD EPYC 9005 of two, 17.9 where they took 16.7.
static LONG_ROWS: LazyLock<Prefetch> = LazyLock::new(|| match is_intel() {
    true => Prefetch { bytes: 4 * LINE, ahead: 2 },
    false => Prefetch::WIDE,
});

impl Prefetch {
    /// The distance for narrow rows, which wait for one line each.
    pub(super) const NARROW_AHEAD: usize = 24;

    /// The prefetching of rows that are wide, not long.
    const WIDE: Self = Self { bytes: 16 * LINE, ahead: 8 };

    /// The prefetching of rows of `bytes` bytes.
    pub(super) fn of_rows(bytes: usize) -> Self {
        if bytes > LONG { *LONG_ROWS } else { Self::WIDE }
    }
}

/// Returns true on a processor by Intel.
fn is_intel() -> bool {
    #[cfg(target_arch = "x86_64")]
    return raw_cpuid::CpuId::new().get_vendor_info().is_some_and(|vendor| vendor.as_str() == "GenuineIntel");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Prefetches `bytes` bytes from row `row` on, as far as that is of use.
#[inline(always)]
pub(super) fn prefetch_rows(array: &ChunkedTensor, row: usize, bytes: usize) {
    let place = array.find(row);
    prefetch_row(place.source, place.rows.start(place.row), bytes, Prefetch::of_rows(bytes).bytes);
}

/// Prefetches the first `asked` bytes of a row, and its last one: the page that it runs into.
#[inline(always)]
pub(super) fn prefetch_row(source: &[u8], start: usize, bytes: usize, asked: usize) {
    for line in (0..bytes.min(asked)).step_by(LINE) {
        prefetch(source, start.wrapping_add(line));
    }
    if bytes > 8 {
        prefetch(source, start.wrapping_add(bytes - 1));
    }
}
