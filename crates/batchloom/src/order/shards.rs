//! An order that goes shard by shard: for data that is only partly at hand at any time.
//!
//! A shard is `shard_size` neighbours as stored. All samples of a shard are used, in random order, before any sample of
//! the next one, and the order of shards is random too. If the number of samples is not a multiple of `shard_size`, one
//! shard is short. As stored, it lies at a random place among the full ones, so that the borders between shards move
//! from epoch to epoch; in the order it comes last, so that every other shard begins at a multiple of `shard_size`.
//!
//! # Promise
//! The same as for [`Permutation`]. `tests/golden/shards.json` pins it.

use std::ops::Range;

use super::{Key, Permutation, Purpose};

/// The order of `[0, samples)` that goes shard by shard.
///
/// It takes about 300 bytes, whatever the number of samples and of shards. Each shard has its own permutation,
/// made when it is asked for: some 100 nanoseconds for each shard that a call touches, besides those of
/// [`Permutation`].
///
/// ```
/// use batchloom::order::Shards;
///
/// let shards = Shards::new(1_000_000_000, 1 << 20, 0, 0);
/// let mut samples = vec![0; 1 << 20];
/// shards.fill(5 << 20, &mut samples); // the sixth shard
/// let range = shards.range(5 << 20);
/// assert!(samples.iter().all(|sample| range.contains(sample)));
/// ```
#[derive(Debug, Clone)]
pub struct Shards {
    samples: u64,
    shard_size: u64,
    seed: u64,
    epoch: u64,
    /// The order of the full shards.
    full: Permutation,
    /// The number of full shards that are stored before the short one.
    before: u64,
}

/// One shard, as stored and in the order.
struct Shard {
    /// Its samples as stored.
    range: Range<u64>,
    /// The position of its first sample.
    position: u64,
    /// Its number among all shards, as stored. The number of the short one is the last.
    number: u64,
}

impl Shards {
    /// The order of `samples` samples in shards of `shard_size`, in `epoch` of the run `seed`. If `shard_size` exceeds
    /// their number, one short shard holds them all.
    ///
    /// # Panics
    /// Panics if `shard_size` is 0 or `samples` exceeds [`LIMIT`](super::LIMIT). Plans check both and return an error.
    pub fn new(samples: u64, shard_size: u64, seed: u64, epoch: u64) -> Self {
        assert!(shard_size > 0, "a shard of no samples");
        let count = samples / shard_size;
        let full = Permutation::new(count, &Key::new(seed, epoch, Purpose::Shards));
        let before = match samples % shard_size {
            0 => 0,
            _ => Permutation::new(count + 1, &Key::new(seed, epoch, Purpose::ShortShard)).get(0),
        };
        Self { samples, shard_size, seed, epoch, full, before }
    }

    /// The number of samples.
    pub fn len(&self) -> u64 {
        self.samples
    }

    /// Returns true if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// The number of samples in every shard but the short one.
    pub fn shard_size(&self) -> u64 {
        self.shard_size
    }

    /// The samples, as stored, of the shard that `position` belongs to.
    ///
    /// # Panics
    /// Panics if `position` is not below [`len`](Self::len).
    pub fn range(&self, position: u64) -> Range<u64> {
        self.shard_at(position).range
    }

    /// The sample at `position`.
    ///
    /// # Panics
    /// Panics if `position` is not below [`len`](Self::len).
    pub fn get(&self, position: u64) -> u64 {
        let shard = self.shard_at(position);
        shard.range.start + self.order_inside(&shard).get(position - shard.position)
    }

    /// Fills `out` with the samples at positions `start`, `start + 1`, and so on.
    ///
    /// # Panics
    /// Panics if a position is not below [`len`](Self::len).
    pub fn fill(&self, start: u64, out: &mut [u64]) {
        let (mut position, mut out) = (start, out);
        while !out.is_empty() {
            let shard = self.shard_at(position);
            let from = position - shard.position;
            let left = shard.len() - from;
            let (now, later) = out.split_at_mut(usize::try_from(left).unwrap_or(usize::MAX).min(out.len()));
            self.order_inside(&shard).fill(from, now);
            now.iter_mut().for_each(|sample| *sample += shard.range.start);
            (position, out) = (position + now.len() as u64, later);
        }
    }

    /// The position of `sample`: the inverse of [`get`](Self::get).
    ///
    /// # Panics
    /// Panics if `sample` is not below [`len`](Self::len).
    pub fn find(&self, sample: u64) -> u64 {
        let shard = self.shard_with(sample);
        shard.position + self.order_inside(&shard).find(sample - shard.range.start)
    }

    /// The order inside a shard.
    fn order_inside(&self, shard: &Shard) -> Permutation {
        let purpose = Purpose::Shard { number: shard.number };
        Permutation::new(shard.len(), &Key::new(self.seed, self.epoch, purpose))
    }

    fn shard_at(&self, position: u64) -> Shard {
        assert!(position < self.samples, "position {position} is not below {}", self.samples);
        match position / self.shard_size {
            place if place == self.full.len() => self.short(),
            place => self.full(place, self.full.get(place)),
        }
    }

    fn shard_with(&self, sample: u64) -> Shard {
        assert!(sample < self.samples, "sample {sample} is not below {}", self.samples);
        let short = self.short();
        if short.range.contains(&sample) {
            return short;
        }
        let skipped = if sample < short.range.start { 0 } else { short.len() };
        let number = (sample - skipped) / self.shard_size;
        self.full(self.full.find(number), number)
    }

    /// The full shard that is stored as `number` and used in place `place`.
    fn full(&self, place: u64, number: u64) -> Shard {
        let skipped = if number < self.before { 0 } else { self.short().len() };
        let start = number * self.shard_size + skipped;
        Shard { range: start..start + self.shard_size, position: place * self.shard_size, number }
    }

    /// The short shard. It is empty if all shards are full.
    fn short(&self) -> Shard {
        let start = self.before * self.shard_size;
        let range = start..start + self.samples % self.shard_size;
        Shard { range, position: self.full.len() * self.shard_size, number: self.full.len() }
    }
}

impl Shard {
    fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
}
