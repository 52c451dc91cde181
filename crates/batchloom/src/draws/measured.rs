//! `Measured`: the draws of an epoch whose sources take turns by tokens, or by another measure of samples.
//!
//! The next sample is always of the source that has had least, in relation to its weight (stride scheduling: Waldspurger
//! and Weihl, 1995). So at any sample, the share of a source is right to one sample of the largest measure. Sizes follow
//! no formula, so the draws of an epoch are listed once: four bytes for each.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::OnceLock;

use super::mix::{Exhausted, Mix};
use super::stream::Stream;

/// The samples that are looked up at a time.
const CHUNK: usize = 1024;

/// The draws of an epoch, once they are listed.
#[derive(Debug, Default)]
pub(super) struct Measured(OnceLock<Vec<u32>>);

impl Measured {
    /// The samples that an epoch draws, in order.
    pub(super) fn listed(&self, mix: &Mix, seed: u64, epoch: u64, shuffled: bool) -> &[u32] {
        self.0.get_or_init(|| listed(mix, seed, epoch, shuffled))
    }
}

fn listed(mix: &Mix, seed: u64, epoch: u64, shuffled: bool) -> Vec<u32> {
    let Some(sizes) = mix.sizes() else { return Vec::new() };
    let sources = 0..mix.ratios().len();
    let total = |source: usize| -> u128 {
        (0..mix.count(source)).map(|number| u128::from(size(mix, sizes, source, number))).sum()
    };
    let totals: Vec<u128> = sources.clone().map(total).collect();
    let limiting = match mix.exhausted() {
        Exhausted::Stop => Some(mix.limiting(|source| totals[source], true)),
        Exhausted::Repeat => Some(mix.limiting(|source| totals[source], false)),
        Exhausted::Renormalise => None,
    };
    let mut queue: BinaryHeap<Reverse<Cursor>> = BinaryHeap::new();
    for source in sources.filter(|&source| mix.ratios()[source] > 0) {
        let stream = mix.stream(source, seed, shuffled);
        let pass = |pass: u64| u128::from(pass) * totals[source];
        let (begin, end) = match limiting {
            None => (pass(epoch), pass(epoch.saturating_add(1))),
            Some(limiting) => {
                // An epoch is as much of this source as its ratio says: passes of the limiting one, scaled.
                let scaled = |epoch: u64| {
                    let passed = u128::from(epoch) * totals[limiting];
                    let (own, other) = (u128::from(mix.ratios()[source]), u128::from(mix.ratios()[limiting]));
                    (passed / other * own).saturating_add((passed % other * own).div_ceil(other))
                };
                (scaled(epoch), scaled(epoch.saturating_add(1)))
            }
        };
        let mut cursor = Cursor::new(source, mix.ratios()[source], stream, begin, end, totals[source]);
        if cursor.seek(mix, sizes, begin) {
            queue.push(Reverse(cursor));
        }
    }
    let mut found = Vec::new();
    while let Some(mut first) = queue.peek_mut() {
        let cursor = &mut first.0;
        let sample = mix.sample(cursor.source, cursor.number());
        found.push(u32::try_from(sample).unwrap_or(u32::MAX));
        if !cursor.advance(mix, sizes) {
            std::collections::binary_heap::PeekMut::pop(first);
        }
    }
    found
}

/// The size of a sample of a source, in millionths, and one more, so that empty samples have times of their own.
fn size(mix: &Mix, sizes: &[u32], source: usize, number: u64) -> u64 {
    (u64::from(sizes[usize::try_from(mix.sample(source, number)).unwrap_or(usize::MAX)]) << 20) + 1
}

/// The next sample of a source.
struct Cursor {
    source: usize,
    ratio: u32,
    stream: Stream,
    /// The place of the next sample in the passes of the source, and the sizes of those before it.
    place: u64,
    passed: u128,
    /// The sizes of samples before the epoch, and before its end.
    begin: u128,
    end: u128,
    /// The samples at the places from `first` on.
    first: u64,
    chunk: Vec<u64>,
}

impl Cursor {
    /// The first sample of the pass in which an epoch begins.
    fn new(source: usize, ratio: u32, stream: Stream, begin: u128, end: u128, total: u128) -> Self {
        let pass = begin / total.max(1);
        let passed = pass * total;
        let place = u64::try_from(pass).unwrap_or(u64::MAX).saturating_mul(stream.samples);
        Self { source, ratio, stream, place, passed, begin, end, first: 0, chunk: Vec::new() }
    }

    /// The number, in its source, of the next sample.
    fn number(&mut self) -> u64 {
        let within = self.place.wrapping_sub(self.first);
        if let Some(&number) = self.chunk.get(usize::try_from(within).unwrap_or(usize::MAX)) {
            return number;
        }
        self.chunk.resize(CHUNK, 0);
        self.first = self.place;
        self.stream.fill(self.place, &mut self.chunk);
        self.chunk[0]
    }

    /// Goes on to the next sample. False if the epoch has no more of this source.
    fn advance(&mut self, mix: &Mix, sizes: &[u32]) -> bool {
        let number = self.number();
        self.passed += u128::from(size(mix, sizes, self.source, number));
        self.place += 1;
        self.passed < self.end
    }

    /// Goes on to the first sample that begins at `begin` or later. False if the epoch has none.
    fn seek(&mut self, mix: &Mix, sizes: &[u32], begin: u128) -> bool {
        while self.passed < begin {
            self.advance(mix, sizes);
        }
        self.passed < self.end
    }

    /// The sizes of the samples that came in this epoch.
    fn had(&self) -> u128 {
        self.passed - self.begin
    }
}

impl Ord for Cursor {
    fn cmp(&self, other: &Self) -> Ordering {
        let time = |own: &Self, other: &Self| own.had().saturating_mul(u128::from(other.ratio));
        time(self, other).cmp(&time(other, self)).then(self.source.cmp(&other.source))
    }
}

impl PartialOrd for Cursor {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Cursor {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Cursor {}
