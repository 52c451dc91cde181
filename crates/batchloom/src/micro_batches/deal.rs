//! Bins to ranks: the bins that each rank takes, and their order as its micro-batches.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::bins::Bins;
use super::choose::{Across, Filled, Method, Work};
use super::differencing::divide;
use super::lists::Lists;
use super::options::SyncEvery;
use super::refine::{Groups, Refinement};
use super::units::Units;

/// The micro-batches of all ranks at one index.
#[derive(Debug)]
pub(super) struct Slot {
    /// Their class.
    pub(super) class: usize,
    /// The units of each rank.
    pub(super) ranks: Vec<Vec<usize>>,
}

impl Slot {
    /// The cost of its costliest micro-batch.
    pub(super) fn cost(&self, units: &Units) -> u64 {
        self.ranks.iter().map(|held| units.cost_of(held)).max().unwrap_or(0)
    }
}

/// The partners and exchanges that bring ranks together.
const PARTNERS: usize = 16;
const EXCHANGES: usize = 32;

/// All bins with their classes, and the bins of each rank.
struct Dealt {
    bins: Bins,
    class: Vec<usize>,
    ranks: Vec<Vec<usize>>,
}

impl Work<'_> {
    /// Gives the bins of all classes to ranks; `owned` if they were filled rank by rank.
    pub(super) fn deal(&self, filled: Vec<Filled>, owned: bool) -> Vec<Slot> {
        match (self.sync, owned) {
            (SyncEvery::MicroBatch, false) => self.deal_side_by_side(filled),
            (SyncEvery::MicroBatch, true) => self.stand_by_rank(own(filled, self.world)),
            (SyncEvery::Update, false) => {
                let dealt = self.deal_evenly(filled);
                self.stand_by_rank(self.even_ranks_out(dealt))
            }
            (SyncEvery::Update, true) if self.across == Across::Nothing => {
                self.stand_by_rank(own(filled, self.world))
            }
            (SyncEvery::Update, true) => self.stand_by_rank(self.even_ranks_out(own(filled, self.world))),
        }
    }

    /// The time that all micro-batches take: the sum of the costliest at each index, or the costliest rank.
    pub(super) fn duration(&self, slots: &[Slot]) -> u64 {
        match self.sync {
            SyncEvery::MicroBatch => slots.iter().map(|slot| slot.cost(self.units)).sum(),
            SyncEvery::Update => {
                let of = |rank: usize| slots.iter().map(|slot| self.units.cost_of(&slot.ranks[rank])).sum();
                (0..self.world).map(of).max().unwrap_or(0)
            }
        }
    }

    /// Bins of similar cost make a slot; in each, the costliest bin is for the rank with the least cost so far.
    fn deal_side_by_side(&self, filled: Vec<Filled>) -> Vec<Slot> {
        let mut slots = Vec::new();
        let mut load = vec![0_u64; self.world];
        for (class, mut filled) in filled.into_iter().enumerate() {
            for bins in by_cost(&filled.bins).chunks(self.world) {
                let mut ranks: Vec<usize> = (0..self.world).collect();
                ranks.sort_by_key(|&rank| load[rank]);
                let mut slot = vec![Vec::new(); self.world];
                for (&rank, &bin) in ranks.iter().zip(bins) {
                    load[rank] += filled.bins.cost[bin];
                    slot[rank] = std::mem::take(&mut filled.bins.members[bin]);
                }
                slots.push(Slot { class, ranks: slot });
            }
        }
        slots
    }

    /// Bins from the costliest to the cheapest, each to the rank with the least cost that lacks bins of the class.
    fn deal_evenly(&self, filled: Vec<Filled>) -> Dealt {
        let mut dealt =
            Dealt { bins: Bins::default(), class: Vec::new(), ranks: vec![Vec::new(); self.world] };
        let mut load = vec![0_u64; self.world];
        for (class, filled) in filled.into_iter().enumerate() {
            let first = dealt.bins.len();
            if self.method == Method::Tightest && self.classes == 1 {
                for (rank, bins) in divide(&filled.bins.cost, self.world, true).into_iter().enumerate() {
                    dealt.ranks[rank] = bins;
                }
                dealt.class = vec![class; filled.bins.len()];
                dealt.bins = filled.bins;
                return dealt;
            }
            let mut heap: BinaryHeap<_> = (0..self.world).map(|rank| Reverse((load[rank], rank))).collect();
            let mut lacking = vec![filled.slots; self.world];
            for bin in by_cost(&filled.bins) {
                let Some(Reverse((_, rank))) = heap.pop() else { break };
                load[rank] += filled.bins.cost[bin];
                dealt.ranks[rank].push(first + bin);
                lacking[rank] -= 1;
                if lacking[rank] > 0 {
                    heap.push(Reverse((load[rank], rank)));
                }
            }
            dealt.class.extend(std::iter::repeat_n(class, filled.bins.len()));
            dealt.bins.append(filled.bins);
        }
        dealt
    }

    /// Moves and swaps units between ranks.
    fn even_ranks_out(&self, mut dealt: Dealt) -> Dealt {
        let moves = self.across == Across::Free;
        let (units, room) = (self.units, self.room);
        let refinement =
            Refinement { units, room, moves, partners: PARTNERS, most: EXCHANGES * self.world, stuck: 1 };
        let mut bins = Lists::default();
        dealt.ranks.iter().for_each(|rank| bins.push(rank));
        let groups = Groups { bins, bases: &vec![0; self.world], kinds: Some(&dealt.class) };
        refinement.refine(&mut dealt.bins, &groups);
        dealt
    }

    /// The bins of each rank as its micro-batches, class by class from the costliest to the cheapest.
    fn stand_by_rank(&self, mut dealt: Dealt) -> Vec<Slot> {
        let mut slots: Vec<Slot> = Vec::new();
        for (rank, mut bins) in dealt.ranks.into_iter().enumerate() {
            bins.sort_by_key(|&bin| (dealt.class[bin], Reverse(dealt.bins.cost[bin]), bin));
            for (at, bin) in bins.into_iter().enumerate() {
                if slots.len() == at {
                    slots.push(Slot { class: dealt.class[bin], ranks: vec![Vec::new(); self.world] });
                }
                slots[at].ranks[rank] = std::mem::take(&mut dealt.bins.members[bin]);
            }
        }
        slots
    }
}

/// Gives each rank the bins that were filled for it, where rank 0 has the first ones of each class.
fn own(filled: Vec<Filled>, world: usize) -> Dealt {
    let mut dealt = Dealt { bins: Bins::default(), class: Vec::new(), ranks: vec![Vec::new(); world] };
    for (class, filled) in filled.into_iter().enumerate() {
        let first = dealt.bins.len();
        for (rank, bins) in dealt.ranks.iter_mut().enumerate() {
            bins.extend((0..filled.slots).map(|slot| first + rank * filled.slots + slot));
        }
        dealt.class.extend(std::iter::repeat_n(class, filled.bins.len()));
        dealt.bins.append(filled.bins);
    }
    dealt
}

/// The bins from the costliest to the cheapest.
fn by_cost(bins: &Bins) -> Vec<usize> {
    let mut order: Vec<usize> = (0..bins.len()).collect();
    order.sort_by_key(|&bin| (Reverse(bins.cost[bin]), bin));
    order
}
