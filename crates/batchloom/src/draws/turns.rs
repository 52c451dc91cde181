//! `Turns`: the turns of sources, in proportion to their ratios at any time.
//!
//! Turn `j` of a source of ratio `w` is due at time `(j + p) / w`, and turns are taken in the order in which they are
//! due. The phase `p` is 1/2, or one between 0 and 1 for each source that an epoch draws, so that other sources meet in
//! it. Times are compared as fractions, exactly. So of any number of turns, a source has its share to about one turn,
//! and both the turn at a place and the place of a turn have closed forms.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::order::{Key, Permutation};

/// The phases that there are.
const PHASES: u32 = 1 << 20;

/// The phase of turns that are due in the middle of their time.
const MIDDLE: u32 = PHASES / 2;

/// The number of ticks of a unit of time, as a power of two. Turns of the largest ratios are further apart than a tick.
const TICKS: u32 = 33;

/// The turns of an epoch.
#[derive(Debug, Clone)]
pub(super) struct Turns {
    ratios: Arc<[u32]>,
    /// The number of turns of each source.
    counts: Arc<[u64]>,
    /// The phase of each source. Empty if all are due in the middle.
    phases: Arc<[u32]>,
}

/// A turn that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Due {
    source: u32,
    ratio: u32,
    phase: u32,
    turn: u64,
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        let (own, others) =
            (time(self.turn, self.phase, other.ratio), time(other.turn, other.phase, self.ratio));
        own.cmp(&others).then(self.source.cmp(&other.source))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Turns {
    /// `counts` turns of each source. A source of ratio 0 has no turn.
    pub(super) fn new(ratios: Arc<[u32]>, counts: Arc<[u64]>) -> Self {
        Self { ratios, counts, phases: Arc::new([]) }
    }

    /// The phases of sources in an epoch, which a key decides. Of sources of the same ratio, those that have more turns
    /// come first, so that all have had equally many turns, to one, in any range of turns.
    pub(super) fn phases(ratios: &[u32], counts: &[u64], key: &Key) -> Arc<[u32]> {
        let choices = u64::from(PHASES) - 1;
        let permutation = Permutation::new(choices, key);
        let phase = |source: u64| u32::try_from(1 + permutation.get(source % choices)).unwrap_or(MIDDLE);
        let phases: Vec<u32> = (0..ratios.len() as u64).map(phase).collect();
        let mut by_phase: Vec<usize> = (0..ratios.len()).collect();
        let mut by_count = by_phase.clone();
        by_phase.sort_by_key(|&source| (ratios[source], phases[source]));
        by_count.sort_by_key(|&source| (ratios[source], Reverse(counts[source]), phases[source]));
        let mut given = phases.clone();
        by_count.iter().zip(&by_phase).for_each(|(&source, &other)| given[source] = phases[other]);
        given.into()
    }

    /// The same turns of sources that have phases.
    pub(super) fn with_phases(self, phases: Arc<[u32]>) -> Self {
        Self { phases, ..self }
    }

    /// The first `counts` turns of each source.
    pub(super) fn cap(self, counts: Arc<[u64]>) -> Self {
        Self { counts, ..self }
    }

    fn phase(&self, source: usize) -> u32 {
        self.phases.get(source).copied().unwrap_or(MIDDLE)
    }

    /// The turns of each source until the last one of `source`, which has `turns`, is due.
    pub(super) fn until(ratios: &[u32], source: usize, turns: u64) -> Arc<[u64]> {
        // Turn j is due before time turns / ratio if (j + p) * ratio < turns * own.
        let time = |own: u32| u128::from(PHASES) * u128::from(turns) * u128::from(own);
        let end = |own: u32| due_below(time(own), u128::from(ratios[source]), MIDDLE);
        ratios.iter().map(|&own| end(own)).collect()
    }

    /// The turns of each source among the first `turns` turns of all.
    pub(super) fn first(ratios: &Arc<[u32]>, turns: u64) -> Arc<[u64]> {
        let endless = ratios.iter().map(|&ratio| if ratio > 0 { u64::MAX } else { 0 }).collect();
        Self::new(Arc::clone(ratios), endless).counts_at(turns).into()
    }

    /// The turns of a source.
    pub(super) fn of(&self, source: usize) -> u64 {
        self.counts[source]
    }

    /// The number of turns of all sources.
    pub(super) fn len(&self) -> u64 {
        self.counts.iter().fold(0, |sum: u64, &count| sum.saturating_add(count))
    }

    /// The turns of each source before a place.
    pub(super) fn counts_at(&self, place: u64) -> Vec<u64> {
        let mut counts: Vec<u64> = self.counts.iter().map(|_| 0).collect();
        if place == 0 {
            return counts;
        }
        // The last tick before which no more turns are due than there are before the place.
        let due = |ticks: u128| {
            self.each_due(ticks).fold(0, |sum: u128, count| sum + u128::from(count)) <= u128::from(place)
        };
        let (mut low, mut high) = (0_u128, 1_u128);
        while high < 1 << 95 && due(high) {
            (low, high) = (high, high * 2);
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if due(middle) { low = middle } else { high = middle }
        }
        counts.iter_mut().zip(self.each_due(low)).for_each(|(count, due)| *count = due);
        let before: u64 = counts.iter().sum();
        let mut queue = self.queue(&counts);
        for _ in before..place {
            let Some(due) = self.next(&mut queue) else { break };
            counts[index(due.source)] += 1;
        }
        counts
    }

    /// The turns of each source that are due before a time.
    fn each_due(&self, ticks: u128) -> impl Iterator<Item = u64> + '_ {
        let due = move |(source, (&ratio, &count)): (usize, (&u32, &u64))| {
            // (j + p) / ratio < ticks / 2^TICKS
            let due = due_below(
                ticks.saturating_mul(u128::from(ratio)),
                (1 << TICKS) / u128::from(PHASES),
                self.phase(source),
            );
            due.min(count)
        };
        self.ratios.iter().zip(self.counts.iter()).enumerate().map(due)
    }

    /// The next turn of each source that has some left.
    fn queue(&self, taken: &[u64]) -> BinaryHeap<Reverse<Due>> {
        let due = |(source, (&turn, (&ratio, &count)))| {
            let phase = self.phase(index(source));
            (ratio > 0 && turn < count).then_some(Reverse(Due { source, ratio, phase, turn }))
        };
        (0..).zip(taken.iter().zip(self.ratios.iter().zip(self.counts.iter()))).filter_map(due).collect()
    }

    /// Takes the turn that is due first.
    fn next(&self, queue: &mut BinaryHeap<Reverse<Due>>) -> Option<Due> {
        let mut first = queue.peek_mut()?;
        let due = first.0;
        if due.turn + 1 < self.of(index(due.source)) {
            first.0.turn += 1;
        } else {
            std::collections::binary_heap::PeekMut::pop(first);
        }
        Some(due)
    }

    /// The turns from a place on, as sources and the numbers of their turns.
    pub(super) fn from(&self, place: u64) -> impl Iterator<Item = (usize, u64)> + '_ {
        let mut queue = self.queue(&self.counts_at(place));
        std::iter::from_fn(move || self.next(&mut queue)).map(|due| (index(due.source), due.turn))
    }

    /// The place of a turn of a source.
    pub(super) fn place(&self, source: usize, turn: u64) -> u64 {
        let ratio = u128::from(self.ratios[source]);
        let before = |(other, (&own, &count)): (usize, (&u32, &u64))| {
            let (time, phase) = (time(turn, self.phase(source), own), self.phase(other));
            // Of turns that are due at the same time, that of the first source comes first.
            let due =
                if other < source { due_up_to(time, ratio, phase) } else { due_below(time, ratio, phase) };
            due.min(count)
        };
        self.ratios.iter().zip(self.counts.iter()).enumerate().map(before).sum()
    }
}

/// The time at which a turn of a source is due, multiplied by its own ratio and by `ratio`, in phases.
fn time(turn: u64, phase: u32, ratio: u32) -> u128 {
    (u128::from(PHASES) * u128::from(turn) + u128::from(phase)) * u128::from(ratio)
}

/// The number of turns, from 0 on, of a source of this phase that are due before time `number / divisor`, in phases.
fn due_below(number: u128, divisor: u128, phase: u32) -> u64 {
    due_before(number.div_ceil(divisor), phase)
}

/// The number of turns that are due at that time or before.
fn due_up_to(number: u128, divisor: u128, phase: u32) -> u64 {
    due_before(number / divisor + 1, phase)
}

/// The number of turns that are due before a whole number of phases.
fn due_before(end: u128, phase: u32) -> u64 {
    let due = end.saturating_sub(u128::from(phase)).div_ceil(u128::from(PHASES));
    u64::try_from(due).unwrap_or(u64::MAX)
}

fn index(source: u32) -> usize {
    usize::try_from(source).unwrap_or(usize::MAX)
}
