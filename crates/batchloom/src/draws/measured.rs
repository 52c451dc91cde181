//! `Measured`: the draws of an epoch with sources that take turns by tokens, or by another measure of samples.
//!
//! The next sample is always of the source that has had least, in relation to its weight (stride scheduling:
//! Waldspurger and Weihl, 1995). So at any sample, the share of a source is right to one sample of the largest measure.
//! Sizes follow no formula, so the draws of an epoch are listed once: four bytes for each.
//!
//! The samples of an epoch are those that begin in some range of the sizes of their source, pass after pass. These
//! ranges have a formula, so that epochs in which weights do not change are not listed to know those behind them.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::{Arc, OnceLock};

use super::history::{Passage, Reached};
use super::mix::{Exhausted, Mix, find_limiting};
use super::stream::Stream;

/// The samples that are looked up at a time.
const CHUNK: usize = 1024;

/// The number of parts of one unit of the measure, as a power of two.
const PARTS: u32 = 20;

/// The draws of an epoch, once they are listed.
#[derive(Debug, Default)]
pub(super) struct Measured(OnceLock<Listed>);

/// The listed draws of an epoch.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// The samples, in order.
    pub(super) samples: Vec<u32>,
    /// The number of draws of each source in earlier epochs.
    pub(super) first: Vec<u64>,
}

impl Measured {
    /// The samples that an epoch draws, of the passes over each source.
    pub(super) fn draws_of_epoch(&self, mix: &Mix, streams: &[Stream], epoch: u64) -> &Listed {
        self.0.get_or_init(|| list_draws(mix, streams, epoch))
    }
}

fn list_draws(mix: &Mix, streams: &[Stream], epoch: u64) -> Listed {
    let Some(sizes) = mix.sizes() else { return Listed::default() };
    let total = |source: usize| -> u128 {
        (0..mix.count(source)).map(|number| u128::from(size(mix, sizes, source, number))).sum()
    };
    let mut run = Run {
        mix,
        sizes,
        totals: (0..mix.len()).map(total).collect(),
        ratios: vec![0; mix.len()].into(),
        limiting: 0,
        base: vec![0; mix.len()],
        epochs: 0,
        cursors: streams
            .iter()
            .cloned()
            .enumerate()
            .map(|(source, stream)| Cursor::new(source, stream))
            .collect(),
        ends: Vec::new(),
        first: vec![0; mix.len()],
        listed: Vec::new(),
    };
    mix.history().walk(epoch, &mut run);
    Listed { samples: run.listed, first: run.first }
}

/// The size of a sample of a source in parts of a unit, and one more, so that empty samples have distinct times.
fn size(mix: &Mix, sizes: &[u32], source: usize, number: u64) -> u64 {
    (u64::from(sizes[usize::try_from(mix.sample(source, number)).unwrap_or(usize::MAX)]) << PARTS) + 1
}

/// A run, with the listed draws of the epoch under way.
struct Run<'a> {
    mix: &'a Mix,
    sizes: &'a [u32],
    /// The sizes of all samples of each source.
    totals: Vec<u128>,
    ratios: Arc<[u32]>,
    /// The source that ends epochs of these ratios, unless all do.
    limiting: usize,
    /// The place of each source, in the sizes of its passes, at the start of the epoch `epochs` before this one. The
    /// weights have not changed since.
    base: Vec<u128>,
    epochs: u64,
    cursors: Vec<Cursor>,
    /// The place of each source at which the epoch under way ends, once some of it is listed.
    ends: Vec<u128>,
    /// The number of draws of each source before the epoch under way.
    first: Vec<u64>,
    listed: Vec<u32>,
}

impl Run<'_> {
    /// The sizes of a source in some epochs of these ratios: passes of the limiting source, scaled.
    fn in_epochs(&self, source: usize, epochs: u64) -> u128 {
        if self.ratios[source] == 0 {
            return 0;
        }
        let passes = |source: usize| u128::from(epochs).saturating_mul(self.totals[source]);
        match self.mix.exhausted() {
            Exhausted::Renormalise => passes(source),
            Exhausted::Stop | Exhausted::Repeat => {
                self.scale_sizes(source, passes(self.limiting), self.limiting)
            }
        }
    }

    /// The sizes of a source while `other` has `sizes`.
    fn scale_sizes(&self, source: usize, sizes: u128, other: usize) -> u128 {
        let (own, other) = (u128::from(self.ratios[source]), u128::from(self.ratios[other]));
        (sizes / other).saturating_mul(own).saturating_add((sizes % other * own).div_ceil(other))
    }

    /// The place of a source some epochs after this one begins.
    fn place(&self, source: usize, later: u64) -> u128 {
        self.base[source].saturating_add(self.in_epochs(source, self.epochs.saturating_add(later)))
    }

    /// The sizes of all sources before this epoch, or some epochs later, in units.
    fn amount_before(&self, later: u64) -> u128 {
        (0..self.mix.len()).fold(0, |sum: u128, source| sum.saturating_add(self.place(source, later)))
            >> PARTS
    }

    /// The place of each source at which the epoch ends.
    fn ends(&self) -> Vec<u128> {
        if self.is_at_start() {
            return (0..self.mix.len()).map(|source| self.place(source, 1)).collect();
        }
        let at = |source: usize| self.cursors[source].passed;
        let left = |source: usize| {
            self.totals[source].saturating_sub(at(source).saturating_sub(self.place(source, 0)))
        };
        let first = self.mix.exhausted() == Exhausted::Stop;
        let limiting = find_limiting(&self.ratios, left, first);
        let end = |source: usize| match self.mix.exhausted() {
            _ if self.ratios[source] == 0 => at(source),
            Exhausted::Renormalise => at(source) + left(source),
            Exhausted::Stop | Exhausted::Repeat => {
                at(source) + self.scale_sizes(source, left(limiting), limiting)
            }
        };
        (0..self.mix.len()).map(end).collect()
    }

    /// Moves all cursors to the start of the epoch.
    fn enter(&mut self) {
        self.rebase();
        for (cursor, (&begin, &total)) in self.cursors.iter_mut().zip(self.base.iter().zip(&self.totals)) {
            cursor.begin = begin;
            cursor.seek(self.mix, self.sizes, begin, total);
        }
        self.first = self.cursors.iter().map(|cursor| cursor.place).collect();
    }

    /// Counts epochs from this one on.
    fn rebase(&mut self) {
        self.base = (0..self.mix.len()).map(|source| self.place(source, 0)).collect();
        self.epochs = 0;
    }
}

impl Passage for Run<'_> {
    fn turn_to(&mut self, ratios: &Arc<[u32]>) {
        if self.is_at_start() {
            self.rebase();
        }
        self.cursors.iter_mut().for_each(|cursor| cursor.begin = cursor.passed);
        self.ratios = Arc::clone(ratios);
        self.limiting =
            find_limiting(ratios, |source| self.totals[source], self.mix.exhausted() == Exhausted::Stop);
    }

    fn amount(&self) -> u128 {
        match self.is_at_start() {
            true => self.amount_before(0),
            false => self.cursors.iter().map(|cursor| cursor.passed).sum::<u128>() >> PARTS,
        }
    }

    fn epochs_until(&self, amount: u64) -> u64 {
        let amount = u128::from(amount);
        // The last epoch that begins before the amount is reached, or as it is reached.
        let (mut low, mut high) = (0, 1);
        while self.amount_before(high) <= amount && high < 1 << 62 {
            (low, high) = (high, high * 2);
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.amount_before(middle) <= amount { low = middle } else { high = middle }
        }
        low
    }

    fn skip(&mut self, epochs: u64) {
        self.epochs = self.epochs.saturating_add(epochs);
    }

    fn go(&mut self, position: Option<u64>, amount: Option<u64>) -> Reached {
        let ends = self.ends();
        if self.is_at_start() {
            self.enter();
        }
        let mut sizes: u128 = self.cursors.iter().map(|cursor| cursor.passed).sum();
        let mut queue = BinaryHeap::new();
        for cursor in &mut self.cursors {
            let (ratio, end) = (self.ratios[cursor.source], ends[cursor.source]);
            if ratio > 0 && cursor.passed < end {
                queue.push(Reverse(Due { source: cursor.source, ratio, had: cursor.passed - cursor.begin }));
            }
        }
        let reached = loop {
            let Some(mut first) = queue.peek_mut() else { break Reached::EndOfEpoch };
            if position.is_some_and(|position| self.listed.len() as u64 >= position) {
                break Reached::Position;
            }
            if amount.is_some_and(|amount| sizes >> PARTS >= u128::from(amount)) {
                break Reached::Amount;
            }
            let cursor = &mut self.cursors[first.0.source];
            let number = cursor.number();
            let sample = self.mix.sample(cursor.source, number);
            self.listed.push(u32::try_from(sample).unwrap_or(u32::MAX));
            let size = u128::from(size(self.mix, self.sizes, cursor.source, number));
            cursor.advance(size);
            sizes += size;
            if cursor.passed < ends[cursor.source] {
                first.0.had = cursor.passed - cursor.begin;
            } else {
                std::collections::binary_heap::PeekMut::pop(first);
            }
        };
        self.ends = ends;
        reached
    }

    fn begin(&mut self) {
        self.base = std::mem::take(&mut self.ends);
        self.epochs = 0;
        self.listed.clear();
    }

    fn is_at_start(&self) -> bool {
        self.listed.is_empty()
    }
}

/// The next sample of a source.
struct Cursor {
    source: usize,
    stream: Stream,
    /// The place of the next sample in the passes of the source, and the sizes of those before it.
    place: u64,
    passed: u128,
    /// The first place with samples drawn by the present weights.
    begin: u128,
    /// The samples at the places from `first` on.
    first: u64,
    chunk: Vec<u64>,
}

impl Cursor {
    /// The first sample of the first pass.
    fn new(source: usize, stream: Stream) -> Self {
        Self { source, stream, place: 0, passed: 0, begin: 0, first: 0, chunk: Vec::new() }
    }

    /// Goes to the first sample that begins at `begin` or later, where a pass has `total`.
    fn seek(&mut self, mix: &Mix, sizes: &[u32], begin: u128, total: u128) {
        let pass = begin / total.max(1);
        self.passed = pass * total;
        self.place = u64::try_from(pass).unwrap_or(u64::MAX).saturating_mul(self.stream.samples);
        while self.passed < begin {
            let number = self.number();
            self.advance(u128::from(size(mix, sizes, self.source, number)));
        }
    }

    /// The number, in its source, of the next sample.
    fn number(&mut self) -> u64 {
        let within = self.place.wrapping_sub(self.first);
        if let Some(&number) = self.chunk.get(usize::try_from(within).unwrap_or(usize::MAX)) {
            return number;
        }
        self.chunk.resize(CHUNK, 0);
        self.first = self.place;
        self.stream.fill(self.place, 0, &mut self.chunk);
        self.chunk[0]
    }

    /// Goes on to the next sample, behind one of a size.
    fn advance(&mut self, size: u128) {
        self.passed += size;
        self.place += 1;
    }
}

/// A source that has something left, and its sizes since it has these weights.
struct Due {
    source: usize,
    ratio: u32,
    had: u128,
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        let time = |own: &Self, other: &Self| own.had.saturating_mul(u128::from(other.ratio));
        time(self, other).cmp(&time(other, self)).then(self.source.cmp(&other.source))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Due {}
