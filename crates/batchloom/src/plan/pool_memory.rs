//! The memory that pools of an epoch take while their batches are made, and what follows: the threads that count them,
//! and whether they are kept.

use super::epoch::Epoch;
use super::pool::length;
use crate::batching::{Grouping, Sizes};
use crate::cores::cores;
use crate::{Result, memory};

/// The most bytes that a sample takes while the batches of its pool are made, beside its extents.
const CUT_BYTES: usize = 64;

/// The bytes that a sample takes beside these while packs of equal squares are made, and those that it takes while the
/// batches of a window of pools are put together.
const EVEN_BYTES: usize = 64;
const WINDOW_BYTES: usize = 48;

/// The bytes that a part of a sample takes beside these while rows are put together.
const ROW_BYTES: usize = 64;

/// The bytes that a sample takes beside these, and beside its sizes by each budget, while bins have several limits.
const BUDGET_BYTES: usize = 32;

/// The bytes that a pool takes while pools are counted.
const POOL_BYTES: usize = 32;

/// The most threads that count pools, and the fewest samples for each of them.
const MOST_THREADS: usize = 8;
const SAMPLES_PER_THREAD: u64 = 1 << 15;

/// The most samples of an epoch whose pools are kept from counting them on, and the bytes that a sample takes there.
const MOST_KEPT: u64 = 1 << 16;
const KEPT_BYTES: usize = 40;

impl Epoch {
    /// Checks that there is memory for the batches of a pool.
    ///
    /// # Errors
    /// [`Kind::Memory`](crate::Kind::Memory).
    pub(super) fn require_memory(&self) -> Result<()> {
        if self.recipe.uniform().is_some() {
            return Ok(());
        }
        let kept = self.count_kept();
        let in_pool = self.count_pool_samples();
        let pools = kept.div_ceil(in_pool.max(1));
        let all_parts = length(kept.saturating_add(self.count_further_parts()));
        let kept_bytes = if self.keeps_pools() { all_parts.saturating_mul(KEPT_BYTES) } else { 0 };
        let bytes = self.bytes_of_pool().saturating_add(length(pools).saturating_mul(POOL_BYTES));
        memory::require(bytes.saturating_add(kept_bytes))
    }

    /// The most samples in a pool of the rule.
    fn count_pool_samples(&self) -> u64 {
        let most = if self.recipe.pools_end_with_chunks() { 2 } else { 1 };
        self.recipe.in_pool.saturating_mul(most).min(self.count_kept())
    }

    /// The most parts of samples beyond one for each sample, if samples are split.
    fn count_further_parts(&self) -> u64 {
        match (self.recipe.sizes_for_rule(), self.recipe.limit()) {
            (Some(sizes), Some(most)) if self.recipe.options.rule.splits() => {
                sizes.total() / u64::from(most.max(1))
            }
            _ => 0,
        }
    }

    /// The most bytes that the batches of a pool of the epoch take while they are made.
    fn bytes_of_pool(&self) -> usize {
        let (kept, in_pool) = (self.count_kept(), self.count_pool_samples());
        let in_window = if self.pools_in_window > 1 { self.in_pool().min(kept) } else { 0 };
        let dimensions = self.recipe.sizes_for_rule().map_or(0, Sizes::dimensions);
        let parts = self.count_further_parts();
        let even = if self.recipe.options.balance { EVEN_BYTES } else { 0 };
        let is_in_rows =
            self.recipe.options.rule.continues() || self.recipe.options.rule.row_shape().is_some();
        let even = even + if is_in_rows { ROW_BYTES } else { 0 };
        let budgeted =
            self.recipe.budgeted.as_ref().map_or(0, |budgeted| BUDGET_BYTES + 3 * budgeted.sample_bytes());
        let grouped = self.recipe.grouping.as_ref().map_or(0, Grouping::further_bytes);
        let each = CUT_BYTES + even + budgeted + grouped + dimensions * size_of::<u32>();
        let bytes = length(in_pool.saturating_add(parts)).saturating_mul(each);
        let window = length(if in_window > 0 { in_window.saturating_add(parts) } else { 0 });
        bytes.saturating_add(window.saturating_mul(WINDOW_BYTES))
    }

    /// Returns true if all pools are kept once they have been counted.
    pub(super) fn keeps_pools(&self) -> bool {
        self.count_kept() <= MOST_KEPT
    }

    /// The number of threads that look at the pools: at most the cores, and one where memory or work is short.
    pub(super) fn count_survey_threads(&self) -> usize {
        let samples = length(self.count_kept() / SAMPLES_PER_THREAD);
        let most = cores().min(samples).min(length(self.pools())).min(MOST_THREADS);
        let has_memory =
            |threads: usize| memory::require(self.bytes_of_pool().saturating_mul(threads)).is_ok();
        if most > 1 && has_memory(most) { most } else { 1 }
    }
}
