//! Pools that end where a batch is full, for rules that continue in a later batch what one has no room for.
//!
//! Promise: every pool but the last of a shard makes full batches alone. A border may lie inside of a sample: its first
//! elements are in one pool, and the rest is in the next. Borders follow from the sizes in the order of the epoch, up to
//! the border itself, so what changes later in the order moves none.

use std::ops::Range;

use crate::batching::{PoolBatches, PoolSizes, Rule};

/// The place at which a pool begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Border {
    /// The first sample, as a position in the epoch.
    pub(super) position: u64,
    /// The first element of this sample: those before it are in an earlier pool.
    pub(super) start: u32,
}

impl From<u64> for Border {
    fn from(position: u64) -> Self {
        Self { position, start: 0 }
    }
}

/// The measures of pools of full batches.
#[derive(Debug, Clone, Copy)]
pub(super) struct FullPools {
    /// The number of samples after which a pool ends with the next full batch.
    pub(super) in_pool: u64,
    /// The number of elements of a full batch.
    pub(super) batch: u64,
    /// The number of samples in a shard, in which a pool lies.
    pub(super) in_shard: u64,
}

impl FullPools {
    /// The borders of pools of samples of `sizes`, in order: the start of each pool.
    pub(super) fn borders(self, sizes: impl Iterator<Item = u32>) -> Vec<Border> {
        let mut borders = vec![Border::default()];
        // The elements since the last batch ended, and the samples since the pool began.
        let (mut elements, mut samples) = (0_u64, 0_u64);
        let mut sizes = (0..).zip(sizes).peekable();
        while let Some((position, size)) = sizes.next() {
            let left = self.batch - elements;
            (elements, samples) = ((elements + u64::from(size)) % self.batch, samples + 1);
            let is_last = sizes.peek().is_none();
            if samples >= self.in_pool && left <= u64::from(size) && !is_last {
                let start = u32::try_from(left).unwrap_or(u32::MAX);
                let is_whole = start == size;
                borders.push(if is_whole { Border::from(position + 1) } else { Border { position, start } });
                (elements, samples) = (u64::from(size - start) % self.batch, u64::from(!is_whole));
            }
            if (position + 1).is_multiple_of(self.in_shard) && !is_last {
                let border = Border::from(position + 1);
                if borders.last() != Some(&border) {
                    borders.push(border);
                }
                (elements, samples) = (0, 0);
            }
        }
        borders
    }
}

/// The part of an epoch that a pool takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    /// The samples, as positions in the epoch.
    pub(super) positions: Range<u64>,
    /// The first element of the first sample.
    pub(super) start: u32,
    /// The number of elements of the last sample before the next pool, if it goes on there.
    pub(super) end: Option<u32>,
}

impl Span {
    /// The part from a border to the next one, if there is one, and to `end` otherwise.
    pub(super) fn between(border: Border, next: Option<Border>, end: u64) -> Self {
        let last = next.map_or(end, |next| next.position + u64::from(next.start > 0)).min(end);
        let cut = next.filter(|next| next.start > 0 && next.position < end).map(|next| next.start);
        Self { positions: border.position..last.max(border.position), start: border.start, end: cut }
    }

    /// Leaves of these sizes what the part has of each sample; `rule` says what it takes of a sample.
    fn trim(&self, rule: &Rule, sizes: &mut [u32]) {
        if let (Some(end), Some(last)) = (self.end, sizes.last_mut()) {
            *last = end;
        }
        if let (1.., Some(first)) = (self.start, sizes.first_mut()) {
            *first = rule.count_taken(*first) - self.start;
        }
    }

    /// The batches that a rule makes of the samples of this part, which have `pool.sizes`. Pools of `pools` in it are cut
    /// one by one.
    pub(super) fn cut(&self, rule: &Rule, pool: PoolSizes<'_>, pools: Option<FullPools>) -> PoolBatches {
        let mut sizes = pool.sizes.to_vec();
        self.trim(rule, &mut sizes);
        let whole = || vec![Border::default()];
        let borders =
            pools.map_or_else(whole, |pools| pools.borders(sizes.iter().map(|&size| rule.count_taken(size))));
        let mut batches = PoolBatches::default();
        for (place, &border) in borders.iter().enumerate() {
            let part = Self::between(border, borders.get(place + 1).copied(), sizes.len() as u64);
            let index = |position: u64| usize::try_from(position).unwrap_or(usize::MAX);
            let mut own = sizes[index(part.positions.start)..index(part.positions.end)].to_vec();
            part.trim(rule, &mut own);
            let mut cut = rule.cut(PoolSizes { sizes: &own, ..pool });
            cut.shift_first(part.start);
            batches.append_pool(cut, u32::try_from(part.positions.start).unwrap_or(u32::MAX));
        }
        batches.shift_first(self.start);
        batches
    }
}
