//! Moves and swaps of units between the costliest group of bins and the cheapest ones.
//!
//! A group is a bin, where ranks wait at every micro-batch, or all bins of a rank, where they wait once. A step takes the
//! costliest group and finds the move or the swap that brings it and a cheap group closest together; members are sorted
//! by cost, so the best partner of a unit is found by a binary search.

use super::bins::Bins;
use super::lists::Lists;
use super::units::{Room, Units};

/// The way in which groups are brought together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refinement<'a> {
    pub(super) units: &'a Units,
    pub(super) room: Room,
    /// False where each group keeps its number of units.
    pub(super) moves: bool,
    /// The cheapest groups that are tried.
    pub(super) partners: usize,
    /// The most exchanges.
    pub(super) most: usize,
    /// The groups that may turn out to be as cheap as they get.
    pub(super) stuck: usize,
}

/// The bins in groups.
#[derive(Debug)]
pub(super) struct Groups<'a> {
    /// The bins of each group.
    pub(super) bins: Lists,
    /// The base of each group, from which its cost is counted.
    pub(super) bases: &'a [u64],
    /// The kind of each bin: units go from bins to bins of the same kind. None where all are alike.
    pub(super) kinds: Option<&'a [usize]>,
}

impl<'a> Groups<'a> {
    /// Each bin as a group.
    pub(super) fn single(bases: &'a [u64]) -> Self {
        Self { bins: Lists::alone(bases.len()), bases, kinds: None }
    }

    fn are_alike(&self, bin: usize, other: usize) -> bool {
        self.kinds.is_none_or(|kinds| kinds[bin] == kinds[other])
    }
}

/// A unit and its bin.
type Held = (usize, usize);

/// An exchange: what the costliest group gives, and the bin, and the unit if any, that it is exchanged for.
#[derive(Debug, Clone, Copy)]
struct Exchange {
    gain: u64,
    low: usize,
    given: Held,
    to: usize,
    taken: Option<usize>,
}

/// The partners in a sorted list that are looked at on each side of the best one.
const NEIGHBOURS: usize = 2;

/// The least gain of an exchange, and the distance from the mean at which a group is left alone: halvings of the cost.
const LEAST_GAIN_BITS: u32 = 12;
const CLOSE_BITS: u32 = 11;

impl Refinement<'_> {
    /// Brings the costs of groups together.
    pub(super) fn refine(&self, bins: &mut Bins, groups: &Groups<'_>) {
        let mut state = State::new(self.units, bins, groups);
        // Bases add up to more than costs do.
        let sum: u128 = state.cost.iter().map(|&cost| u128::from(cost)).sum();
        let mean = u64::try_from(sum / (state.cost.len() as u128).max(1)).unwrap_or(u64::MAX);
        let enough = mean.saturating_add(mean >> CLOSE_BITS);
        let (mut left, mut stuck) = (self.most, 0);
        while left > 0 && stuck < self.stuck && state.order.len() > 1 {
            if state.order.last().is_some_and(|&group| state.cost[group] <= enough) {
                break;
            }
            left -= 1;
            match self.find(&state, bins, groups) {
                Some(exchange) => state.apply(self.units, bins, exchange),
                // Nothing makes this group cheaper; others below it may still become so.
                None => {
                    state.order.pop();
                    stuck += 1;
                }
            }
        }
    }

    /// The exchange of the costliest group that gains most.
    fn find(&self, state: &State, bins: &Bins, groups: &Groups<'_>) -> Option<Exchange> {
        let high = *state.order.last()?;
        let mut least = state.cost[high] >> LEAST_GAIN_BITS;
        let mut best = None;
        for &low in state.order.iter().take(self.partners.min(state.order.len() - 1)) {
            let gap = state.cost[high] - state.cost[low];
            if gap / 2 <= least {
                break;
            }
            for &given in &state.held[high] {
                for find in [Self::find_move, Self::find_swap] {
                    if let Some(exchange) = find(self, state, bins, groups, (given, low, gap, least)) {
                        (least, best) = (exchange.gain, Some(exchange));
                    }
                }
            }
        }
        best
    }

    /// A move of a unit that gains more than `least`.
    fn find_move(
        &self,
        _state: &State,
        bins: &Bins,
        groups: &Groups<'_>,
        (given, low, gap, least): (Held, usize, u64, u64),
    ) -> Option<Exchange> {
        let (unit, from) = given;
        let cost = self.units.cost[unit];
        if !self.moves || cost >= gap || cost.min(gap - cost) <= least || bins.members[from].len() < 2 {
            return None;
        }
        let fits = |bin: usize| {
            groups.are_alike(bin, from)
                && self.room.holds(
                    bins.tokens[bin] + self.units.tokens[unit],
                    bins.samples[bin] + self.units.samples[unit],
                )
        };
        let to = groups.bins.of(low).iter().copied().find(|&bin| fits(bin))?;
        Some(Exchange { gain: cost.min(gap - cost), low, given, to, taken: None })
    }

    /// A swap of a unit with a cheaper one that gains more than `least`.
    fn find_swap(
        &self,
        state: &State,
        bins: &Bins,
        groups: &Groups<'_>,
        (given, low, gap, least): (Held, usize, u64, u64),
    ) -> Option<Exchange> {
        let (unit, from) = given;
        let cost = self.units.cost[unit];
        if cost <= least {
            return None;
        }
        let wanted = cost.saturating_sub(gap / 2);
        let held = &state.held[low];
        let at = held.partition_point(|&(other, _)| self.units.cost[other] > wanted);
        let near = at.saturating_sub(NEIGHBOURS)..(at + NEIGHBOURS).min(held.len());
        let exchange = |&(other, to): &Held| {
            let given_more = cost.checked_sub(self.units.cost[other])?;
            let gain = given_more.min(gap.checked_sub(given_more)?);
            let fits = gain > least
                && groups.are_alike(to, from)
                && bins.fits_instead(self.units, self.room, to, other, unit)
                && bins.fits_instead(self.units, self.room, from, unit, other);
            fits.then_some(Exchange { gain, low, given, to, taken: Some(other) })
        };
        held[near].iter().filter_map(exchange).max_by_key(|exchange| exchange.gain)
    }
}

/// The groups as they are now.
#[derive(Debug)]
struct State {
    cost: Vec<u64>,
    /// The units of each group with their bins, the costliest first.
    held: Vec<Vec<Held>>,
    /// The groups that may still change, the cheapest first.
    order: Vec<usize>,
}

impl State {
    fn new(units: &Units, bins: &Bins, groups: &Groups<'_>) -> Self {
        let held = |group: &[usize]| {
            let with_bin = |&bin: &usize| bins.members[bin].iter().map(move |&unit| (unit, bin));
            let mut held: Vec<Held> = group.iter().flat_map(with_bin).collect();
            held.sort_unstable();
            held
        };
        let held: Vec<_> = groups.bins.iter().map(held).collect();
        let of = |held: &Vec<Held>| held.iter().map(|&(unit, _)| units.cost[unit]).sum::<u64>();
        let cost: Vec<u64> = held.iter().zip(groups.bases).map(|(held, base)| base + of(held)).collect();
        let mut order: Vec<usize> = (0..cost.len()).collect();
        order.sort_unstable_by_key(|&group| (cost[group], group));
        Self { cost, held, order }
    }

    fn apply(&mut self, units: &Units, bins: &mut Bins, exchange: Exchange) {
        let Exchange { low, given: (unit, from), to, taken, .. } = exchange;
        let Some(high) = self.order.pop() else { return };
        self.order.retain(|&group| group != low);
        bins.take(units, from, unit);
        bins.put(units, to, unit);
        self.hand_over(units, (high, low), (unit, from), to);
        if let Some(other) = taken {
            bins.take(units, to, other);
            bins.put(units, from, other);
            self.hand_over(units, (low, high), (other, to), from);
        }
        for group in [high, low] {
            let key = (self.cost[group], group);
            let place = self.order.partition_point(|&other| (self.cost[other], other) < key);
            self.order.insert(place, group);
        }
    }

    /// Puts a unit from one group to another.
    fn hand_over(&mut self, units: &Units, (from, to): (usize, usize), held: Held, bin: usize) {
        if let Ok(at) = self.held[from].binary_search(&held) {
            self.held[from].remove(at);
        }
        let place = self.held[to].partition_point(|&other| other < (held.0, bin));
        self.held[to].insert(place, (held.0, bin));
        self.cost[from] -= units.cost[held.0];
        self.cost[to] += units.cost[held.0];
    }
}
