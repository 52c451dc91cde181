//! `Shelf`: numbers on 4096 levels, the highest level first.
//!
//! Each level has a list of numbers, and a tree of bits with 64 branches finds the next level that has some.

use super::{to_index, to_place};

/// The number of levels: the tree has two layers of 64 branches.
pub(super) const LEVELS: u32 = 4096;

/// Numbers, each on one level.
pub(super) struct Shelf {
    /// For each level, one more than its first number, or 0.
    first: Vec<u32>,
    /// The levels that have numbers, and the words of these that are not 0.
    words: [u64; 64],
    top: u64,
}

/// A place in the list of a level: the number, the one before it, and the level.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) number: u32,
    before: Option<u32>,
    level: u32,
}

impl Shelf {
    pub(super) fn new() -> Self {
        Self { first: vec![0; to_index(LEVELS)], words: [0; 64], top: 0 }
    }

    /// Puts a number first on a level. `next` holds the list that each number is part of.
    pub(super) fn put(&mut self, level: u32, number: u32, next: &mut [u32]) {
        let level = to_index(level);
        next[to_index(number)] = self.first[level];
        self.first[level] = number + 1;
        self.words[level / 64] |= 1 << (level % 64);
        self.top |= 1 << (level / 64);
    }

    /// The first number on the highest level that is at most `level`.
    pub(super) fn highest(&self, level: u32) -> Option<Entry> {
        let at = to_index(level);
        let word = self.words[at / 64] & (u64::MAX >> (63 - at % 64));
        let found = match word {
            0 => {
                let top = self.top & !(u64::MAX << (at / 64));
                let branch = 63_u32.checked_sub(top.leading_zeros())?;
                branch * 64 + 63 - self.words[to_index(branch)].leading_zeros()
            }
            word => to_place(at / 64 * 64) + 63 - word.leading_zeros(),
        };
        Some(Entry { number: self.first[to_index(found)] - 1, before: None, level: found })
    }

    /// The entry behind another one: of the same level, or of the next one that has numbers.
    pub(super) fn after(&self, entry: Entry, next: &[u32]) -> Option<Entry> {
        match next[to_index(entry.number)] {
            0 => self.highest(entry.level.checked_sub(1)?),
            number => Some(Entry { number: number - 1, before: Some(entry.number), ..entry }),
        }
    }

    /// Takes an entry out, and returns the one behind it.
    pub(super) fn take(&mut self, entry: Entry, next: &mut [u32]) -> Option<Entry> {
        let following = next[to_index(entry.number)];
        match entry.before {
            Some(before) => next[to_index(before)] = following,
            None => {
                let level = to_index(entry.level);
                self.first[level] = following;
                if following == 0 {
                    self.words[level / 64] &= !(1 << (level % 64));
                    if self.words[level / 64] == 0 {
                        self.top &= !(1 << (level / 64));
                    }
                }
            }
        }
        match following {
            0 => self.highest(entry.level.checked_sub(1)?),
            number => Some(Entry { number: number - 1, ..entry }),
        }
    }
}
