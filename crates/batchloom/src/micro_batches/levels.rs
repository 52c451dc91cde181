//! Levels: the cost that the bins of one slot aim at.
//!
//! Ranks take one bin of a slot each, at the same time, so a slot lasts as long as its costliest bin. Where a few samples
//! cost more than an even share, the bins beside them can be as full without any loss, and the slots after them emptier.

use super::units::{Room, Units};

/// The level of each of `slots` slots of `world` bins, for `chosen` units.
///
/// A level is the cost of the longest unit that the slot cannot avoid, or the even share of what is left once the slots
/// before hold as much as their levels and caps allow.
pub(super) fn find_levels(
    units: &Units,
    chosen: &[usize],
    room: Room,
    world: usize,
    slots: usize,
) -> Vec<u64> {
    let mut levels = Vec::with_capacity(slots);
    let mut left = units.cost_of(chosen);
    let (mut tokens, mut at, mut carried) = (0_u64, 0, 0_u64);
    for slot in 0..slots {
        let even = left.div_ceil((world * (slots - slot)) as u64);
        let longest = chosen.get(slot * world).map_or(0, |&unit| units.cost[unit]);
        let level = even.max(longest);
        let most = room.tokens.saturating_mul(((slot + 1) * world) as u64);
        let before = carried;
        while let Some(&unit) = chosen.get(at) {
            let held = units.tokens[unit].min(room.tokens);
            if tokens + held > most {
                break;
            }
            tokens += held;
            carried += units.cost[unit];
            at += 1;
        }
        left -= level.saturating_mul(world as u64).min(carried - before).min(left);
        levels.push(level);
    }
    levels
}
