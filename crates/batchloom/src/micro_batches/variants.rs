//! Several plans of the same samples, of which the best is kept.
//!
//! No way of packing is the best for all lengths: largest first fills tight caps, differencing evens out lengths that are
//! alike, best fit leaves bins for ranks to exchange. Each takes a fraction of a millisecond.

use super::bound::bound_sum;
use super::choose::{Across, Method, Shares, Wanted, Work};
use super::deal::Slot;
use super::options::SyncEvery;
use super::share::{share_by_difference, share_out};

/// Durations within this factor are alike: a plan that takes no longer than the least time, times this, is good enough.
const CLOSE_ENOUGH: f64 = 1.001;

/// The most units that other plans are made for.
const MOST_UNITS: usize = 1 << 14;

/// A plan: fewer micro-batches come first, then less time.
type Ranked = ((usize, u64), Vec<Slot>);

impl Work<'_> {
    /// The best plan of `chosen` units, in the order of units. `None` if the micro-batches that are wanted do not suffice.
    pub(super) fn find_best(
        &self,
        take: &[usize],
        chosen: &[usize],
        wanted: Wanted,
        equal: bool,
    ) -> Option<Vec<Slot>> {
        match self.across {
            Across::Free => self.find_free(chosen, wanted),
            Across::Swaps => {
                let largest = self.by_class(share_out(self.units, take, chosen, self.world, equal));
                let even = self.by_class(share_by_difference(self.units, chosen, self.world));
                let plans =
                    [(&largest, Method::Largest), (&even, Method::Largest), (&even, Method::Differencing)];
                self.keep_best(plans.map(|(shares, method)| self.plan(shares, wanted, method)))
            }
            Across::Nothing => {
                let shares = self.by_class(share_out(self.units, take, chosen, self.world, equal));
                let plans = [Method::Largest, Method::Differencing];
                self.keep_best(plans.map(|method| self.plan(&shares, wanted, method)))
            }
        }
    }

    /// The best plan where a unit may be on any rank.
    fn find_free(&self, chosen: &[usize], wanted: Wanted) -> Option<Vec<Slot>> {
        let all = self.by_class(vec![chosen.to_vec()]);
        let first = self.plan(&all, wanted, Method::Largest)?;
        let close = self.bound(&all, chosen) * CLOSE_ENOUGH;
        let is_close = |plan: &Ranked| plan.0.1 as f64 <= close;
        if chosen.len() > MOST_UNITS || is_close(&first) {
            return Some(first.1);
        }
        let as_many = Wanted { exactly: Some(first.1.len()), ..wanted };
        if self.sync == SyncEvery::MicroBatch {
            return self.keep_best([Some(first), self.plan_even_shares(chosen, as_many)]);
        }
        let tight = self.plan(&all, as_many, Method::Tightest);
        let is_last = tight.as_ref().is_some_and(|tight| is_close(tight) || are_held_up(&first, tight));
        let even = if is_last { None } else { self.plan_even_shares(chosen, as_many) };
        self.keep_best([Some(first), tight, even])
    }

    /// A plan of shares that are even by differencing, each divided by differencing.
    fn plan_even_shares(&self, chosen: &[usize], wanted: Wanted) -> Option<Ranked> {
        let even = self.by_class(share_by_difference(self.units, chosen, self.world));
        self.plan(&even, wanted, Method::Differencing)
    }

    fn plan(&self, shares: &Shares, wanted: Wanted, method: Method) -> Option<Ranked> {
        let work = Self { method, ..*self };
        let filled = work.pack(shares, wanted)?;
        // Bins of equal cost on different ranks make a slot, wherever they were filled.
        let is_any =
            work.across == Across::Free && (work.sync == SyncEvery::MicroBatch || shares.width == work.world);
        let slots = work.deal(filled, !is_any);
        Some(((slots.len(), work.duration(&slots)), slots))
    }

    /// The best of some plans; the first one among equals.
    fn keep_best<const PLANS: usize>(&self, plans: [Option<Ranked>; PLANS]) -> Option<Vec<Slot>> {
        plans.into_iter().flatten().min_by_key(|plan| plan.0).map(|plan| plan.1)
    }

    /// A duration that no plan goes below.
    fn bound(&self, shares: &Shares, chosen: &[usize]) -> f64 {
        let of = |units: &[usize]| {
            let tokens: Vec<u64> = units.iter().map(|&unit| self.units.tokens[unit]).collect();
            let costs: Vec<f64> = units.iter().map(|&unit| self.units.cost[unit] as f64).collect();
            bound_sum(&tokens, &costs, self.room.tokens, self.world)
        };
        match self.sync {
            SyncEvery::Update => {
                let even = self.units.cost_of(chosen) as f64 / self.world as f64;
                even.max(chosen.first().map_or(0.0, |&unit| self.units.cost[unit] as f64))
            }
            SyncEvery::MicroBatch => shares.by_class.iter().map(|class| of(&class.concat())).sum(),
        }
    }
}

/// Returns true if two plans, made in unlike ways, take about as long: the same samples hold up both.
fn are_held_up(one: &Ranked, other: &Ranked) -> bool {
    let (less, more) = (one.0.1.min(other.0.1), one.0.1.max(other.0.1));
    more as f64 <= less as f64 * CLOSE_ENOUGH
}
