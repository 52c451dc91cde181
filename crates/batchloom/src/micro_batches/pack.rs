//! Filling bins under the caps: evenly by cost, or as tightly as possible.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::bins::Bins;
use super::tournament::{Key, Tournament};
use super::units::{Room, Units};

/// Fills bins with `chosen` units, the costliest first, each into the bin of least cost above its base that has room.
///
/// Bases let bins aim at different costs. `None` if a unit has room nowhere. No bin stays empty while another has two.
pub(super) fn pack_evenly(units: &Units, chosen: &[usize], room: Room, bases: &[u64]) -> Option<Bins> {
    let mut bins = Bins::new(bases.len());
    let free = chosen.partition_point(|&unit| units.cost[unit] > 0);
    let key = |bins: &Bins, bin: usize| (bases[bin] + bins.cost[bin], bins.samples[bin], bin);
    fill(units, &chosen[..free], room, &mut bins, key)?;
    finish(units, &chosen[free..], room, bins)
}

/// Fills bins with `chosen` units, the longest first, each into the fullest bin that has room.
///
/// `None` if more than `most` bins are needed. No bin stays empty while another has two.
pub(super) fn pack_tightly(units: &Units, chosen: &[usize], room: Room, most: usize) -> Option<Bins> {
    let free = chosen.partition_point(|&unit| units.cost[unit] > 0);
    let mut bins = fill_tightly(units, &chosen[..free], room);
    if bins.len() > most {
        return None;
    }
    while bins.len() < most {
        bins.add_empty();
    }
    finish(units, &chosen[free..], room, bins)
}

/// Best fit in descending order of tokens.
fn fill_tightly(units: &Units, chosen: &[usize], room: Room) -> Bins {
    let mut longest = chosen.to_vec();
    longest.sort_by_key(|&unit| Reverse(units.tokens[unit]));
    let mut bins = Bins::default();
    let mut rooms: BTreeSet<(u64, usize)> = BTreeSet::new();
    for unit in longest {
        let fitting = rooms.range((units.tokens[unit], 0)..);
        let found = fitting.map(|&(_, bin)| bin).find(|&bin| bins.fits(units, room, bin, unit));
        let bin = found.unwrap_or_else(|| bins.add_empty());
        if found.is_some() {
            rooms.remove(&(room.tokens - bins.tokens[bin], bin));
        }
        bins.put(units, bin, unit);
        if room.holds(bins.tokens[bin], bins.samples[bin] + 1) {
            rooms.insert((room.tokens - bins.tokens[bin], bin));
        }
    }
    bins
}

/// Gives units that cost nothing to the bins with the fewest samples, and leaves no bin empty that need not be.
fn finish(units: &Units, free: &[usize], room: Room, mut bins: Bins) -> Option<Bins> {
    fill(units, free, room, &mut bins, |bins, bin| (bins.samples[bin], 0, bin))?;
    bins.occupy(units);
    Some(bins)
}

/// Gives each unit to the bin of the least key that has room.
fn fill(
    units: &Units,
    chosen: &[usize],
    room: Room,
    bins: &mut Bins,
    key: impl Fn(&Bins, usize) -> Key,
) -> Option<()> {
    if chosen.is_empty() {
        return Some(());
    }
    let mut tree = Tournament::new(bins, &key);
    for &unit in chosen {
        // An empty bin takes a unit that is larger than any.
        let most = room.tokens.saturating_sub(units.tokens[unit]);
        let bin = tree.find(most, |bin| bins.fits(units, room, bin, unit))?;
        bins.put(units, bin, unit);
        tree.update(bin, key(bins, bin), bins.tokens[bin]);
    }
    Some(())
}
