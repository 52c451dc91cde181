//! Shares: the samples of each rank, where groups stay on a rank or all ranks take as many samples.

use super::bins::Bins;
use super::differencing::divide;
use super::refine::{Groups, Refinement};
use super::units::{Room, Units};

/// Differencing without equal counts takes this many steps at most; it is left out where it would take more.
const MOST_DIFFERENCES: usize = 1 << 16;

/// The partners and exchanges that bring ranks together.
const PARTNERS: usize = 16;
const EXCHANGES: usize = 32;

/// Divides `chosen` units among ranks: takes (units of equal `take`) stay together, and costs are even. With `equal`,
/// each rank has as many samples; takes then have one size.
///
/// Two divisions are made, largest first and by differencing, and the more even one is the answer.
pub(super) fn share_out(
    units: &Units,
    take: &[usize],
    chosen: &[usize],
    world: usize,
    equal: bool,
) -> Vec<Vec<usize>> {
    let (takes, members) = join_takes(units, take, chosen);
    let samples: u64 = takes.samples.iter().sum();
    let limit = if equal { samples.div_ceil(world as u64) } else { u64::MAX };
    let room = Room { samples: limit, ..Room::ANY };
    let all: Vec<usize> = (0..takes.cost.len()).collect();
    let flat = vec![0; world];
    let refinement = Refinement {
        units: &takes,
        room,
        moves: !equal,
        partners: PARTNERS,
        most: EXCHANGES * world,
        stuck: 1,
    };
    let mut best: Option<Bins> = None;
    let by_cost = super::pack::pack_evenly(&takes, &all, room, &flat);
    let is_cheap = equal || all.len().saturating_mul(world) <= MOST_DIFFERENCES;
    let by_difference = is_cheap.then(|| Bins::of(&takes, divide(&takes.cost, world, equal)));
    for mut shares in [by_cost, by_difference].into_iter().flatten() {
        refinement.refine(&mut shares, &Groups::single(&flat));
        let most = |bins: &Bins| bins.cost.iter().max().copied();
        if best.as_ref().is_none_or(|best| most(&shares) < most(best)) {
            best = Some(shares);
        }
    }
    let units_of = |share: Vec<usize>| {
        let mut mine: Vec<usize> = share.iter().flat_map(|&take| members[take].iter().copied()).collect();
        mine.sort_unstable();
        mine
    };
    best.unwrap_or_else(|| Bins::new(world)).members.into_iter().map(units_of).collect()
}

/// Divides `chosen` units among ranks by differencing: as many units for each, and costs that are even.
pub(super) fn share_by_difference(units: &Units, chosen: &[usize], world: usize) -> Vec<Vec<usize>> {
    let costs: Vec<u64> = chosen.iter().map(|&unit| units.cost[unit]).collect();
    let units_of = |part: Vec<usize>| {
        let mut mine: Vec<usize> = part.into_iter().map(|place| chosen[place]).collect();
        mine.sort_unstable();
        mine
    };
    divide(&costs, world, true).into_iter().map(units_of).collect()
}

/// Takes as units, in the order of units, and the units of each.
fn join_takes(units: &Units, take: &[usize], chosen: &[usize]) -> (Units, Vec<Vec<usize>>) {
    let mut place = std::collections::HashMap::new();
    let mut joined = Units::default();
    let mut members: Vec<Vec<usize>> = Vec::new();
    for &unit in chosen {
        let at = *place.entry(take[unit]).or_insert_with(|| {
            members.push(Vec::new());
            joined.cost.push(0);
            joined.tokens.push(0);
            joined.samples.push(0);
            members.len() - 1
        });
        members[at].push(unit);
        joined.cost[at] += units.cost[unit];
        joined.tokens[at] += units.tokens[unit];
        joined.samples[at] += units.samples[unit];
    }
    let (sorted, places) = joined.sorted();
    let members = places.into_iter().map(|at| std::mem::take(&mut members[at])).collect();
    (sorted, members)
}
