//! An order that mixes the samples of some chunks at a time: for data that is read chunk by chunk.
//!
//! Chunks are permuted: place `p` of the order has chunk `P(p)`. A window of `open` chunks slides over the places. The
//! samples of a chunk are permuted and cut into `open` slices of equal size (to one), and slice `j` of place `p` goes
//! to slot `p + j - (open - 1)`; slots before the first and after the last are part of these. A slot mixes its slices.
//! So slot `t` holds samples of the places `t..t + open` and no others: the first slot opens a whole window, each later
//! one closes one chunk and opens another, and the last one takes all samples that are left. If there are no more chunks
//! than may be open, a single slot mixes all samples.
//!
//! This is the mixing of a shuffle buffer that chunks run through, in closed form: where a sample goes depends on its
//! chunk and the key alone, so the order has random access in both directions. The idea is that of a convolutional
//! interleaver (Ramsey, "Realization of Optimum Interleavers", 1970), which delays the parts of a block by different
//! times, with permutations for what it leaves in order.
//!
//! # Promise
//! Every sample has one position, whatever the sizes of chunks. [`get`](ChunkWindow::get) and
//! [`find`](ChunkWindow::find) take O(open + log chunks), and the order 16 bytes a chunk, 8 of them for the borders,
//! which all epochs share. Where positions are read one after the other, the samples of one slot are kept as well. The
//! same key, borders and window give the same order in every release: `tests/golden/chunk_window.json` pins it.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::chunks::{Chunks, index};
use super::{Key, Permutation, Purpose, RunEpoch};

/// The number of chunks that are open at a time where it is not given.
pub(crate) const CHUNKS_OPEN: u64 = 16;

/// The part of a slot from which on [`ChunkWindow::fill`] lists the whole slot: an eighth.
const LISTED_PART: u64 = 8;

/// The most samples that are listed, 8 bytes for each, and the most in orders of chunks that are kept, 4 bytes for each.
const MOST_LISTED: u64 = 1 << 21;

/// The samples of a slice from which on it is permuted as fast by itself as with its chunk.
const LONG_SLICE: u64 = 256;

/// The order of the samples of chunks, in which some chunks are open at a time.
///
/// ```
/// use batchloom::order::{Chunks, ChunkWindow};
///
/// let window = ChunkWindow::new(Chunks::new([1000; 50]), 8, 0, 0);
/// let sample = window.get(30_000);
/// assert_eq!(window.find(sample), 30_000);
///
/// let slot = window.slot_of(30_000);
/// assert_eq!(window.chunks_of(slot).len(), 8);
/// assert!(window.chunks_of(slot).contains(&(sample / 1000)));
/// ```
#[derive(Clone)]
pub struct ChunkWindow {
    chunks: Chunks,
    /// The number of chunks that are open at a time, at least 1.
    open: u64,
    shuffled: Option<Shuffled>,
    /// The position at which each slot begins, and the number of positions.
    starts: Arc<[u64]>,
    listed: Arc<Mutex<Listed>>,
}

crate::brief::debug_in_brief!(ChunkWindow, [chunks, open], [starts]);

/// The samples of the slot that was listed last.
struct Listed {
    slot: u64,
    samples: Arc<[u64]>,
    /// Orders of chunks that later slots hold samples of, by their places.
    orders: Vec<ChunkOrder>,
    /// The position after those that were read last.
    next: u64,
}

impl Default for Listed {
    fn default() -> Self {
        Self { slot: u64::MAX, samples: Arc::default(), orders: Vec::new(), next: u64::MAX }
    }
}

/// The order of the samples of the chunk at a place, before they are cut into slices.
struct ChunkOrder {
    place: u64,
    rows: Box<[u32]>,
}

/// The random part of an order.
#[derive(Debug, Clone)]
struct Shuffled {
    run: RunEpoch,
    /// The chunk at each place.
    places: Permutation,
}

/// The samples of one chunk in one slot.
struct Slice {
    place: u64,
    chunk: u64,
    /// The places of the samples in the order of the chunk.
    rows: Range<u64>,
}

impl ChunkWindow {
    /// The order in which `open` chunks are open at a time, in `epoch` of the run `seed`. This takes
    /// O(chunks * open).
    ///
    /// # Panics
    /// Panics if `open` is 0 or there are more samples than [`LIMIT`](super::LIMIT). Plans check both and return an
    /// error.
    pub fn new(chunks: Chunks, open: u64, seed: u64, epoch: u64) -> Self {
        assert!(open > 0, "no chunk is open");
        let open = open.min(chunks.len()).max(1);
        let places = Permutation::new(chunks.len(), &Key::new(seed, epoch, Purpose::Chunks));
        let starts = find_starts(&chunks, &places, open);
        let shuffled = Some(Shuffled { run: RunEpoch { seed, epoch }, places });
        Self { chunks, open, shuffled, starts, listed: Arc::default() }
    }

    /// The order as stored: each chunk is a slot.
    pub fn stored(chunks: Chunks) -> Self {
        let starts = [0].into_iter().chain((0..chunks.len()).map(|chunk| chunks.range(chunk).end));
        Self { starts: starts.collect(), open: 1, shuffled: None, listed: Arc::default(), chunks }
    }

    /// The number of samples.
    pub fn len(&self) -> u64 {
        self.chunks.samples()
    }

    /// Returns true if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The chunks, as stored.
    pub fn chunks(&self) -> &Chunks {
        &self.chunks
    }

    /// The number of chunks that are open at a time: the number asked for, unless there are fewer chunks.
    pub fn open(&self) -> u64 {
        self.open
    }

    /// The number of slots.
    pub fn slots(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    /// The positions of `slot`.
    ///
    /// # Panics
    /// Panics if there is no such slot.
    pub fn positions(&self, slot: u64) -> Range<u64> {
        self.starts[index(slot)]..self.starts[index(slot) + 1]
    }

    /// The most slots that any `positions` consecutive positions lie in. One pass over the slots.
    pub(crate) fn most_slots(&self, positions: u64) -> u64 {
        let (mut most, mut first) = (1, 0);
        for last in 0..self.slots() {
            // From the last position of the first slot to the first position of the last one.
            let reach = self.positions(last).start.saturating_add(1);
            while first < last && self.positions(first).end.saturating_add(positions) <= reach {
                first += 1;
            }
            most = most.max(last - first + 1);
        }
        most
    }

    /// The slot that holds `position`.
    ///
    /// # Panics
    /// Panics if `position` is not below [`len`](Self::len).
    pub fn slot_of(&self, position: u64) -> u64 {
        assert!(position < self.len(), "position {position} is not below {}", self.len());
        self.starts.partition_point(|&start| start <= position) as u64 - 1
    }

    /// The chunks that `slot` holds samples of, in the order in which they are opened.
    ///
    /// # Panics
    /// Panics if there is no such slot.
    pub fn chunks_of(&self, slot: u64) -> Vec<u64> {
        self.chunks_of_slots(slot..slot + 1)
    }

    /// The chunks that some consecutive slots hold samples of, in the order in which they are opened.
    ///
    /// # Panics
    /// Panics if one of the slots does not exist.
    pub fn chunks_of_slots(&self, slots: Range<u64>) -> Vec<u64> {
        if slots.is_empty() {
            return Vec::new();
        }
        assert!(slots.end <= self.slots(), "slot {} is not below {}", slots.end - 1, self.slots());
        let places = slots.start..(slots.end + self.open - 1).min(self.chunks.len());
        let chunks = places.clone().zip(self.chunks_at(places));
        chunks.filter(|&(place, chunk)| self.holds(place, chunk, &slots)).map(|(_, chunk)| chunk).collect()
    }

    /// The chunks that `slots` open, in this order, each with the last slot that holds a sample of it; all chunks that are
    /// open in them, but for those that slots before hold the last sample of, if the slots do not `follow` slots that
    /// were looked at.
    ///
    /// # Panics
    /// Panics if one of the slots does not exist.
    pub(crate) fn chunks_opened_by(&self, slots: Range<u64>, follow: bool) -> Vec<(u64, u64)> {
        assert!(slots.end <= self.slots(), "slot {} is not below {}", slots.end, self.slots());
        let first = if follow && slots.start > 0 { slots.start + self.open - 1 } else { slots.start };
        let places = first..(slots.end + self.open - 1).min(self.chunks.len()).max(first);
        if slots.is_empty() {
            return Vec::new();
        }
        // A small chunk may have its first sample in a later slot than the one that opens it.
        let (last, from) = (self.slots() - 1, slots.start..self.slots());
        let chunks = places.clone().zip(self.chunks_at(places));
        let held = chunks.filter(|&(place, chunk)| self.holds(place, chunk, &from));
        held.map(|(place, chunk)| (chunk, place.min(last))).collect()
    }

    /// Returns true if some of `slots` hold a sample of the chunk at `place`.
    fn holds(&self, place: u64, chunk: u64, slots: &Range<u64>) -> bool {
        let first = slots.start.max(place.saturating_sub(self.open - 1));
        let last = (slots.end - 1).min(place);
        first <= last && self.rows(place, chunk, first).start < self.rows(place, chunk, last).end
    }

    /// The sample at `position`.
    ///
    /// # Panics
    /// Panics if `position` is not below [`len`](Self::len).
    pub fn get(&self, position: u64) -> u64 {
        let slot = self.slot_of(position);
        let Some(shuffled) = &self.shuffled else { return position };
        let positions = self.positions(slot);
        let mut left = shuffled.order_in_slot(slot, &positions).get(position - positions.start);
        for slice in self.slices(slot) {
            let len = slice.rows.end - slice.rows.start;
            if left < len {
                let range = self.chunks.range(slice.chunk);
                return range.start
                    + shuffled.order_in_chunk(slice.chunk, &range).get(slice.rows.start + left);
            }
            left -= len;
        }
        unreachable!("the slices of slot {slot} hold fewer samples than its positions");
    }

    /// Fills `out` with the samples at positions `start`, `start + 1`, and so on.
    ///
    /// # Panics
    /// Panics if a position is not below [`len`](Self::len).
    pub fn fill(&self, start: u64, out: &mut [u64]) {
        let Some(shuffled) = &self.shuffled else {
            assert!(start + out.len() as u64 <= self.len(), "positions from {start} leave {}", self.len());
            out.iter_mut().zip(start..).for_each(|(sample, position)| *sample = position);
            return;
        };
        let (mut position, mut out) = (start, out);
        while !out.is_empty() {
            let slot = self.slot_of(position);
            let positions = self.positions(slot);
            let (now, later) = out.split_at_mut(index(positions.end - position).min(out.len()));
            shuffled.order_in_slot(slot, &positions).fill(position - positions.start, now);
            let end = position + now.len() as u64;
            match self.list(shuffled, slot, position..end) {
                Some(samples) => now.iter_mut().for_each(|place| *place = samples[index(*place)]),
                None => self.look_up(shuffled, slot, now),
            }
            (position, out) = (end, later);
        }
    }

    /// The position of `sample`: the inverse of [`get`](Self::get).
    ///
    /// # Panics
    /// Panics if `sample` is not below [`len`](Self::len).
    pub fn find(&self, sample: u64) -> u64 {
        let chunk = self.chunks.chunk_of(sample);
        let Some(shuffled) = &self.shuffled else { return sample };
        let (place, range) = (shuffled.places.find(chunk), self.chunks.range(chunk));
        let row = shuffled.order_in_chunk(chunk, &range).find(sample - range.start);
        let slot = self.slot_with(place, slice_of(range.end - range.start, self.open, row));
        let before = self.slices(slot).take_while(|slice| slice.chunk != chunk);
        let before: u64 = before.map(|slice| slice.rows.end - slice.rows.start).sum();
        let in_slot = before + row - self.rows(place, chunk, slot).start;
        let positions = self.positions(slot);
        positions.start + shuffled.order_in_slot(slot, &positions).find(in_slot)
    }

    /// The samples of `slot`, slice by slice, if it was listed last, or if that pays for the positions `read`: they are
    /// a good part of it, or follow those that were read before. `None` otherwise.
    fn list(&self, shuffled: &Shuffled, slot: u64, read: Range<u64>) -> Option<Arc<[u64]>> {
        let positions = self.positions(slot);
        let len = positions.end - positions.start;
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let follows = std::mem::replace(&mut listed.next, read.end) == read.start;
        if listed.slot != slot {
            let pays = follows || read.end - read.start >= len / LISTED_PART;
            if !pays || len > MOST_LISTED {
                return None;
            }
            let known = std::mem::take(&mut listed.orders);
            (listed.samples, listed.orders) = self.samples_of(shuffled, slot, known, follows);
            listed.slot = slot;
        }
        Some(Arc::clone(&listed.samples))
    }

    /// The samples of `slot`, slice by slice, and the orders of chunks to keep for the slots after it: those that are
    /// `known`, and, if slots are read one after the other, of chunks in short slices with half of their samples or more still
    /// to be read. Such a chunk is then permuted once, not once a slot.
    fn samples_of(
        &self,
        shuffled: &Shuffled,
        slot: u64,
        known: Vec<ChunkOrder>,
        follows: bool,
    ) -> (Arc<[u64]>, Vec<ChunkOrder>) {
        let positions = self.positions(slot);
        let mut samples = vec![0; index(positions.end - positions.start)];
        let mut left = samples.as_mut_slice();
        let mut rows_kept: u64 = known.iter().map(|order| order.rows.len() as u64).sum();
        let is_open = |order: &ChunkOrder| (slot..slot + self.open).contains(&order.place);
        let (mut known, mut kept) = (known.into_iter().filter(is_open).peekable(), Vec::new());
        for slice in self.slices(slot) {
            let (now, later) = left.split_at_mut(index(slice.rows.end - slice.rows.start));
            left = later;
            let range = self.chunks.range(slice.chunk);
            let (size, order) = (range.end - range.start, || shuffled.order_in_chunk(slice.chunk, &range));
            // Chunks without a sample in this slot.
            while let Some(order) = known.next_if(|order| order.place < slice.place) {
                kept.push(order);
            }
            let is_short = size / self.open < LONG_SLICE;
            let pays = follows && is_short && slice.rows.start <= size / 2 && slice.rows.end < size;
            let whole = known.next_if(|order| order.place == slice.place).or_else(|| {
                (pays && rows_kept + size <= MOST_LISTED).then(|| {
                    rows_kept += size;
                    ChunkOrder { place: slice.place, rows: list_rows(&order()) }
                })
            });
            match whole {
                Some(order) => {
                    let rows = &order.rows[index(slice.rows.start)..index(slice.rows.end)];
                    now.iter_mut()
                        .zip(rows)
                        .for_each(|(sample, row)| *sample = range.start + u64::from(*row));
                    kept.push(order);
                }
                None => {
                    order().fill(slice.rows.start, now);
                    now.iter_mut().for_each(|sample| *sample += range.start);
                }
            }
        }
        kept.extend(known);
        (samples.into(), kept)
    }

    /// Replaces places among the slices of `slot` by samples, one by one.
    fn look_up(&self, shuffled: &Shuffled, slot: u64, places: &mut [u64]) {
        let (mut ends, mut end) = (Vec::new(), 0);
        let mut slices = Vec::new();
        for slice in self.slices(slot) {
            let range = self.chunks.range(slice.chunk);
            // What is added to a place in the slot to have the place in the order of the chunk.
            let shift = slice.rows.start.wrapping_sub(end);
            end += slice.rows.end - slice.rows.start;
            ends.push(end);
            slices.push((shift, range.start, shuffled.order_in_chunk(slice.chunk, &range)));
        }
        for place in places {
            let (shift, start, order) = &slices[ends.partition_point(|end| *end <= *place)];
            *place = start + order.get(place.wrapping_add(*shift));
        }
    }

    /// The slices of a slot that hold samples, place by place.
    fn slices(&self, slot: u64) -> impl Iterator<Item = Slice> + '_ {
        let places = slot..slot + self.open.min(self.chunks.len());
        let chunks = places.clone().zip(self.chunks_at(places));
        let slices =
            chunks.map(move |(place, chunk)| Slice { place, chunk, rows: self.rows(place, chunk, slot) });
        slices.filter(|slice| !slice.rows.is_empty())
    }

    /// The chunks at some places.
    fn chunks_at(&self, places: Range<u64>) -> Vec<u64> {
        let Some(shuffled) = &self.shuffled else { return places.collect() };
        let mut chunks = vec![0; index(places.end - places.start)];
        shuffled.places.fill(places.start, &mut chunks);
        chunks
    }

    /// The samples of `chunk`, which is at `place`, in `slot`, as places in the order of the chunk.
    fn rows(&self, place: u64, chunk: u64, slot: u64) -> Range<u64> {
        let range = self.chunks.range(chunk);
        let size = range.end - range.start;
        let slice = slot + self.open - 1 - place;
        let first = if slot == 0 { 0 } else { slice };
        let end = if slot + 1 == self.slots() { self.open } else { slice + 1 };
        rows_before(size, self.open, first)..rows_before(size, self.open, end)
    }

    /// The slot of a slice of the chunk at `place`.
    fn slot_with(&self, place: u64, slice: u64) -> u64 {
        (place + slice).saturating_sub(self.open - 1).min(self.slots() - 1)
    }
}

impl Shuffled {
    /// The order of the samples of a chunk, before they are cut into slices.
    fn order_in_chunk(&self, chunk: u64, range: &Range<u64>) -> Permutation {
        let purpose = Purpose::Chunk { number: chunk };
        Permutation::new(range.end - range.start, &Key::new(self.run.seed, self.run.epoch, purpose))
    }

    /// The order of the samples of a slot.
    fn order_in_slot(&self, slot: u64, positions: &Range<u64>) -> Permutation {
        let purpose = Purpose::ChunkSlot { number: slot };
        Permutation::new(positions.end - positions.start, &Key::new(self.run.seed, self.run.epoch, purpose))
    }
}

/// The rows of a chunk, which has less than 2^32, in their order.
fn list_rows(order: &Permutation) -> Box<[u32]> {
    let mut rows = vec![0; index(order.len())];
    order.fill(0, &mut rows);
    rows.into_iter().map(|row| u32::try_from(row).unwrap_or(u32::MAX)).collect()
}

/// The number of samples of a chunk of `size` in its first `slices` slices of `open`: `size * slices / open`, whose
/// product could exceed 64 bits.
fn rows_before(size: u64, open: u64, slices: u64) -> u64 {
    size / open * slices + size % open * slices / open
}

/// The slice of a chunk of `size` that holds `row` of its order: the last one that begins at it or before.
fn slice_of(size: u64, open: u64, row: u64) -> u64 {
    let slices = (u128::from(row + 1) * u128::from(open)).div_ceil(u128::from(size));
    u64::try_from(slices).unwrap_or(u64::MAX) - 1
}

/// The position at which each slot begins, and the number of positions.
fn find_starts(chunks: &Chunks, places: &Permutation, open: u64) -> Arc<[u64]> {
    let mut order = vec![0; index(chunks.len())];
    places.fill(0, &mut order);
    let last = index(chunks.len().saturating_sub(open));
    let mut starts = vec![0; last + 2];
    let ends = &mut starts[1..];
    for (place, chunk) in order.into_iter().enumerate() {
        let range = chunks.range(chunk);
        let (each, rest) = ((range.end - range.start) / open, (range.end - range.start) % open);
        let mut carry = 0;
        // Slice by slice, `each` samples, and one more where the rests add up to one.
        for slice in 0..index(open) {
            carry += rest;
            let more = u64::from(carry >= open);
            carry -= more * open;
            ends[(place + slice).saturating_sub(index(open) - 1).min(last)] += each + more;
        }
    }
    let mut sum = 0;
    starts.iter_mut().for_each(|start| {
        sum += *start;
        *start = sum;
    });
    starts.into()
}
