//! Batches of samples with several keys each: no two samples of a batch share a key.
//!
//! To decide whether such batches exist is to color a graph, which is NP-hard. So samples are placed one after the
//! other, the samples with the most conflicts first, each into the batch with most room that it shares no key with. If
//! there is no such batch, a sample of another batch makes room: it moves to the open batch.
//!
//! Promise: where [`Conflicts::fit`], every sample is placed, and all batches but the last are full. A sample that finds
//! no batch shares a key with every open batch, and shares keys with at most `most` batches. All other batches are
//! full. At most `around` of their samples share a key with an open batch: if they have more samples, one can move.
//!
//! Otherwise the work for a sample is limited, and a sample that finds no batch is left out. Batches that are not full
//! then give their samples to other batches, and samples that find none are left out too.
//!
//! This takes O(n log n) where keys are rare, 28 bytes for each key of a sample, and 48 bytes for a batch.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::keys::{Keys, count_by_key, different};
use super::{PoolBatches, to_index, to_place};

/// The most batches with room that are looked at before a sample makes room.
const MOST_OPEN: usize = 64;

/// The most looks at batches and samples that may make room for one, and for all samples together a multiple of their
/// number, where it is not sure that room can be made.
const MOST_LOOKS: usize = 1024;
const LOOKS_PER_SAMPLE: usize = 16;

/// The conflicts of samples that share keys.
#[derive(Debug)]
pub(super) struct Conflicts {
    /// The most samples that one sample shares keys with, each counted for every key that it shares.
    pub(super) most: u64,
    /// The sample that does, the first one of several.
    pub(super) sample: u64,
    /// The most samples that share keys with the samples of a batch that is not full.
    around: u64,
}

impl Conflicts {
    /// Counts the conflicts of samples with these keys. `counts` are the samples of each key.
    pub(super) fn count<'a>(
        rows: impl Iterator<Item = &'a [u32]>,
        mut counts: Vec<u64>,
        batch_size: u64,
    ) -> Self {
        let (mut most, mut sample, mut columns) = (0, 0, 0);
        for (number, row) in (0..).zip(rows) {
            let own = count_conflicts(row, &counts);
            (most, sample) = if own > most { (own, number) } else { (most, sample) };
            columns = row.len();
        }
        // No two samples of a batch have the same key.
        let in_batch = usize::try_from(batch_size.saturating_sub(1)).unwrap_or(usize::MAX);
        let in_batch = in_batch.saturating_mul(columns).min(counts.len());
        if in_batch > 0 && in_batch < counts.len() {
            counts.select_nth_unstable_by_key(in_batch - 1, |&count| Reverse(count));
        }
        let around = counts[..in_batch].iter().map(|count| count.saturating_sub(1)).sum();
        Self { most, sample, around }
    }

    /// Returns true if `batches` full batches, and one that is not full, are sure to take all samples.
    pub(super) fn fit(&self, batch_size: u64, batches: u64) -> bool {
        self.most == 0 || self.around < batches.saturating_sub(self.most).saturating_mul(batch_size)
    }
}

/// The number of other samples that share a key with this one, each counted for every key that it shares.
fn count_conflicts(row: &[u32], counts: &[u64]) -> u64 {
    different(row).map(|key| counts[to_index(key)].saturating_sub(1)).sum()
}

/// Batches of samples that share no key, all of `batch_size` but the last.
pub(super) fn share_no_key(keys: &Keys, batch_size: usize, samples: &[u64]) -> PoolBatches {
    let rows: Vec<u32> = samples.iter().flat_map(|&sample| keys.of(sample)).copied().collect();
    let rows = Rows { keys: &rows, columns: keys.columns() };
    let counts = count_by_key(rows.iter());
    let mut order: Vec<(Reverse<u64>, u32)> =
        rows.iter().zip(0..).map(|(row, place)| (Reverse(count_conflicts(row, &counts)), place)).collect();
    order.sort_unstable();
    let mut batches = Batches::new(rows, &counts, batch_size, samples.len());
    let conflicts = Conflicts::count(rows.iter(), counts, batch_size as u64);
    batches.is_sure = conflicts.fit(batch_size as u64, (samples.len() / batch_size) as u64);
    let left_out = order.iter().filter(|&&(_, place)| !batches.place(place)).count();
    if left_out > 0 {
        batches.fill_up(batch_size);
    }
    batches.list(batch_size)
}

/// The keys of the samples, by their places in the epoch.
#[derive(Clone, Copy)]
struct Rows<'a> {
    keys: &'a [u32],
    columns: usize,
}

impl<'a> Rows<'a> {
    fn iter(self) -> std::slice::ChunksExact<'a, u32> {
        self.keys.chunks_exact(self.columns)
    }

    fn of(self, place: u32) -> &'a [u32] {
        let start = to_index(place) * self.columns;
        &self.keys[start..start + self.columns]
    }
}

/// Batches that are being filled.
struct Batches<'a> {
    rows: Rows<'a>,
    /// The places in each batch.
    members: Vec<Vec<u32>>,
    /// The number of samples that each batch has room for.
    room: Vec<usize>,
    /// The batches with room, most of it first. An entry with another number than `room` is an old one.
    open: BinaryHeap<(usize, Reverse<usize>)>,
    holders: Holders,
    /// True if every sample is sure to be placed.
    is_sure: bool,
    /// The number of looks that are left for samples that are not sure to be placed.
    looks: usize,
}

impl<'a> Batches<'a> {
    fn new(rows: Rows<'a>, counts: &[u64], batch_size: usize, samples: usize) -> Self {
        let count = samples.div_ceil(batch_size);
        let room: Vec<usize> = (0..count).map(|batch| batch_size.min(samples - batch * batch_size)).collect();
        let open = room.iter().zip(0..).map(|(&room, batch)| (room, Reverse(batch))).collect();
        let members = room.iter().map(|&room| Vec::with_capacity(room)).collect();
        let looks = samples.saturating_mul(LOOKS_PER_SAMPLE);
        Self { rows, members, room, open, holders: Holders::new(counts), is_sure: true, looks }
    }

    /// Puts a sample into the batch with most room that it shares no key with, and returns true; or returns false if
    /// no batch takes it.
    fn place(&mut self, place: u32) -> bool {
        let mut passed = Vec::new();
        let found = loop {
            match self.open.pop() {
                Some((room, Reverse(batch))) if self.room[batch] != room => {}
                Some((_, Reverse(batch))) if self.fits(place, batch) => break Some(batch),
                Some(entry) => passed.push(entry),
                None => break None,
            }
            if passed.len() == MOST_OPEN {
                break None;
            }
        };
        self.open.extend(passed);
        match found {
            Some(batch) => {
                self.put(place, batch);
                true
            }
            None => self.make_room(place),
        }
    }

    /// Puts a sample in the place of another one, which moves to the open batch, and returns true; or returns
    /// false if no sample can move.
    fn make_room(&mut self, place: u32) -> bool {
        let Some(open) = self.find_open() else { return false };
        // Another batch first for each sample, so that no batch gives all of its samples.
        let (count, first) = (self.members.len(), to_index(place) % self.members.len());
        let most = if self.is_sure { usize::MAX } else { self.looks.min(MOST_LOOKS) };
        let mut looks = 0;
        for batch in (first..count).chain(0..first) {
            if looks >= most {
                break;
            }
            looks += 1;
            if !self.fits(place, batch) {
                continue;
            }
            if self.room[batch] > 0 {
                self.put(place, batch);
                return true;
            }
            let candidates = self.members[batch].iter().take(most - looks);
            let found = candidates.clone().position(|&other| self.fits(other, open));
            looks += found.unwrap_or(candidates.len());
            if let Some(index) = found {
                let other = self.take(batch, index);
                self.put(other, open);
                self.put(place, batch);
                return true;
            }
        }
        self.looks = self.looks.saturating_sub(looks);
        false
    }

    /// The batch with most room.
    fn find_open(&mut self) -> Option<usize> {
        while let Some(&(room, Reverse(batch))) = self.open.peek() {
            if self.room[batch] == room {
                return Some(batch);
            }
            self.open.pop();
        }
        None
    }

    /// Returns true if a sample shares no key with the samples of a batch.
    fn fits(&self, place: u32, batch: usize) -> bool {
        !self.rows.of(place).iter().any(|&key| self.holds(batch, key))
    }

    /// Returns true if a sample of a batch has a key. The shorter list is searched: the batches of the key, or the
    /// samples of the batch.
    fn holds(&self, batch: usize, key: u32) -> bool {
        let (holders, members) = (self.holders.of(key), &self.members[batch]);
        match holders.len() <= members.len().saturating_mul(self.rows.columns) {
            true => holders.contains(&to_place(batch)),
            false => members.iter().any(|&member| self.rows.of(member).contains(&key)),
        }
    }

    fn put(&mut self, place: u32, batch: usize) {
        self.members[batch].push(place);
        different(self.rows.of(place)).for_each(|key| self.holders.add(key, batch));
        self.room[batch] -= 1;
        if self.room[batch] > 0 {
            self.open.push((self.room[batch], Reverse(batch)));
        }
    }

    /// Takes the sample at `index` out of a batch, which has room for another one then.
    fn take(&mut self, batch: usize, index: usize) -> u32 {
        let place = self.members[batch].swap_remove(index);
        different(self.rows.of(place)).for_each(|key| self.holders.remove(key, batch));
        self.room[batch] += 1;
        place
    }

    /// Fills batches up with the samples of the emptiest ones, until all are full but one.
    fn fill_up(&mut self, batch_size: usize) {
        for (room, members) in self.room.iter_mut().zip(&self.members) {
            *room = batch_size - members.len();
        }
        let mut emptiest: Vec<usize> = (0..self.room.len()).filter(|&batch| self.room[batch] > 0).collect();
        emptiest.sort_by_key(|&batch| Reverse(self.room[batch]));
        self.open = emptiest.iter().map(|&batch| (self.room[batch], Reverse(batch))).collect();
        for batch in emptiest {
            if self.room[batch] == 0 {
                continue;
            }
            let len = self.members[batch].len();
            let mut places: Vec<u32> = (0..len).rev().map(|index| self.take(batch, index)).collect();
            self.room[batch] = 0;
            places.retain(|&place| !self.place(place));
            if self.find_open().is_none() {
                self.room[batch] = places.len();
                places.into_iter().for_each(|place| self.put(place, batch));
                return;
            }
        }
    }

    /// The batches, the full ones first, each in the order of the epoch.
    fn list(mut self, batch_size: usize) -> PoolBatches {
        self.members.sort_by_key(|members| members.len() < batch_size);
        let mut batches = PoolBatches::default();
        for mut members in self.members.into_iter().filter(|members| !members.is_empty()) {
            members.sort_unstable();
            batches.places.extend(members);
            batches.ends.push(to_place(batches.places.len()));
        }
        batches
    }
}

/// The batches that hold each key.
struct Holders {
    /// The batches of each key: `len` of them, from its start on, with room for as many as the key has samples.
    batches: Vec<u32>,
    starts: Vec<usize>,
    len: Vec<u32>,
}

impl Holders {
    /// No batches, and room for as many of each key as it has samples.
    fn new(counts: &[u64]) -> Self {
        let mut end = 0;
        let starts: Vec<usize> = counts
            .iter()
            .map(|&count| {
                let start = end;
                end += usize::try_from(count).unwrap_or(usize::MAX);
                start
            })
            .collect();
        Self { batches: vec![0; end], starts, len: vec![0; counts.len()] }
    }

    fn of(&self, key: u32) -> &[u32] {
        let (start, len) = (self.starts[to_index(key)], to_index(self.len[to_index(key)]));
        &self.batches[start..start + len]
    }

    fn add(&mut self, key: u32, batch: usize) {
        let (start, len) = (self.starts[to_index(key)], &mut self.len[to_index(key)]);
        self.batches[start + to_index(*len)] = to_place(batch);
        *len += 1;
    }

    fn remove(&mut self, key: u32, batch: usize) {
        let place = self.of(key).iter().position(|&other| other == to_place(batch));
        let (start, len) = (self.starts[to_index(key)], &mut self.len[to_index(key)]);
        if let Some(place) = place {
            *len -= 1;
            self.batches.swap(start + place, start + to_index(*len));
        }
    }
}
