//! Bins of limited capacity, filled by best fit.
//!
//! Each sample is put into the fullest bin that still has room for it. Bins are found by their free space in a tree of
//! bits, 64 branches a level; equal samples that fit the same bin go there at once. O(n) for n samples and a capacity
//! that fits three or four levels.

use super::{to_index, to_place};

/// Bins that are being filled.
pub(super) struct Bins {
    /// The bin of each sample, in the order in which they came.
    pub(super) of: Vec<u32>,
    /// For each bin: its free space, the samples that it holds, and the next bin with as much free space.
    free: Vec<u32>,
    held: Vec<u32>,
    next: Vec<u32>,
    room: Room,
    /// The elements that a bin holds, and the samples.
    capacity: u32,
    most: u32,
}

impl Bins {
    /// Puts samples into bins, one after the other.
    pub(super) fn fill(sizes: &[u32], capacity: u32, most: u32) -> Self {
        let total: u64 = sizes.iter().map(|&size| u64::from(size)).sum();
        // If everything fits one bin, its capacity is what there is: no free space is larger than what is left to
        // place.
        let capacity = u32::try_from(total).map_or(capacity, |total| capacity.min(total));
        let mut bins = Self::begun(Vec::new(), Vec::new(), capacity, most);
        bins.put(sizes);
        bins
    }

    /// Bins that hold some samples already: the free space of each, and the number of its samples.
    pub(super) fn begun(free: Vec<u32>, held: Vec<u32>, capacity: u32, most: u32) -> Self {
        let next = vec![0; free.len()];
        let mut bins = Self { of: Vec::new(), free, held, next, room: Room::new(capacity), capacity, most };
        (0..bins.free.len()).for_each(|bin| bins.offer(bin, 0));
        bins
    }

    /// Puts samples into bins, one after the other.
    pub(super) fn put(&mut self, sizes: &[u32]) {
        let smallest = sizes.iter().copied().min().unwrap_or(0);
        let mut rest = sizes;
        self.of.reserve(sizes.len());
        while let Some(&size) = rest.first() {
            let bin = match self.room.best(size) {
                Some(free) => self.room.take(free, &self.next),
                None => self.open(),
            };
            let fits = self.free[bin].checked_div(size).unwrap_or(u32::MAX).min(self.most - self.held[bin]);
            let equal = rest.iter().take(to_index(fits)).take_while(|&&other| other == size).count();
            self.of.resize(self.of.len() + equal, to_place(bin));
            self.free[bin] -= size * to_place(equal);
            self.held[bin] += to_place(equal);
            self.offer(bin, smallest);
            rest = &rest[equal..];
        }
    }

    /// The number of bins that hold a sample.
    pub(super) fn count_used(&self) -> usize {
        self.held.iter().filter(|&&held| held > 0).count()
    }

    fn open(&mut self) -> usize {
        self.free.push(self.capacity);
        self.held.push(0);
        self.next.push(0);
        self.free.len() - 1
    }

    /// Lets a bin be found by its free space, if it takes another sample and one of `smallest` elements fits.
    fn offer(&mut self, bin: usize, smallest: u32) {
        if self.held[bin] < self.most && self.free[bin] >= smallest {
            self.room.put(self.free[bin], bin, &mut self.next);
        }
    }
}

/// The bins that have room, by their free space.
struct Room {
    /// For each amount of free space, one more than the first bin that has it, or 0 if there is no such bin.
    first: Vec<u32>,
    /// The amounts that some bin has, as a tree: bit `k` of a level is set if word `k` of the level below is not 0.
    levels: Vec<Vec<u64>>,
}

impl Room {
    fn new(capacity: u32) -> Self {
        let mut levels = Vec::new();
        let mut bits = to_index(capacity) + 1;
        while levels.is_empty() || bits > 1 {
            bits = bits.div_ceil(64);
            levels.push(vec![0; bits]);
        }
        Self { first: vec![0; to_index(capacity) + 1], levels }
    }

    /// The least free space of a bin that takes `size`.
    fn best(&self, size: u32) -> Option<usize> {
        let mut bit = to_index(size);
        for (level, words) in self.levels.iter().enumerate() {
            let word = words.get(bit / 64)? & (u64::MAX << (bit % 64));
            if word != 0 {
                return Some(self.descend(level, bit / 64 * 64 + count_trailing_zeros(word)));
            }
            bit = bit / 64 + 1;
        }
        None
    }

    /// The lowest amount under `bit` of `level`.
    fn descend(&self, level: usize, bit: usize) -> usize {
        self.levels[..level].iter().rev().fold(bit, |bit, words| bit * 64 + count_trailing_zeros(words[bit]))
    }

    /// Takes out a bin with this much free space.
    fn take(&mut self, free: usize, next: &[u32]) -> usize {
        let bin = to_index(self.first[free] - 1);
        self.first[free] = next[bin];
        if self.first[free] == 0 {
            self.clear(free);
        }
        bin
    }

    /// Puts in a bin with this much free space.
    fn put(&mut self, free: u32, bin: usize, next: &mut [u32]) {
        let mut bit = to_index(free);
        next[bin] = self.first[bit];
        self.first[bit] = to_place(bin) + 1;
        for words in &mut self.levels {
            words[bit / 64] |= 1 << (bit % 64);
            bit /= 64;
        }
    }

    fn clear(&mut self, free: usize) {
        let mut bit = free;
        for words in &mut self.levels {
            words[bit / 64] &= !(1 << (bit % 64));
            if words[bit / 64] != 0 {
                break;
            }
            bit /= 64;
        }
    }
}

fn count_trailing_zeros(word: u64) -> usize {
    to_index(word.trailing_zeros())
}
