//! `Wheel`: all things over and over, so that the things of a group differ.
//!
//! A wheel draws things pass after pass: each pass has every thing once. The draws are cut into groups of equal number,
//! and a group that lies in two passes could hold a thing twice. So things lie around a circle. The group between two
//! passes takes the last things of the circle, then its first ones, and those differ while the circle has a group of
//! things. The whole groups of a pass take the things between these two ends in an order of their own. After
//! `group / gcd(things, group)` passes, groups and passes end together, and the things of the circle are shuffled.
//!
//! Promises, for draws from 0 on:
//!
//! - Each run of `things` draws, from a multiple of `things` on, has every thing once.
//! - Each run of `group` draws, from a multiple of `group` on, has each thing `group / things` times, rounded down or up.

use crate::order::{Key, Order, Purpose};

/// An endless sequence of things.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wheel {
    /// The number of things, at least 1.
    pub(super) things: u64,
    /// The number of draws in a group, at least 1.
    pub(super) group: u64,
    pub(super) seed: u64,
    /// The number of the wheel among all wheels of a seed.
    pub(super) number: u64,
    /// False if the circle is in stored order, and so is every pass.
    pub(super) shuffled: bool,
}

/// One pass of a wheel.
#[derive(Debug)]
pub(super) struct Pass {
    circle: Order,
    /// The number of things that the first group takes, if it began in the pass before.
    head: u64,
    /// The order of the things of whole groups.
    middle: Order,
}

impl Wheel {
    /// The pass of a number.
    pub(super) fn pass(&self, pass: u128) -> Pass {
        let (things, group) = (u128::from(self.things), u128::from(self.group));
        let passes = group / greatest_divisor(things, group);
        // The places where the pass begins and ends among those of its circle.
        let start = pass % passes * things;
        let (head, tail) = (start.next_multiple_of(group) - start, (start + things) % group);
        let is_cut = passes > 1 && group < things;
        let middle = if is_cut { low(things - head - tail) } else { 0 };
        let key = |number, purpose| Key::new(self.seed, low(number), purpose);
        let circle = key(pass / passes, Purpose::Circle { number: self.number });
        let within = key(pass, Purpose::Pass { number: self.number });
        Pass {
            circle: Order::new(self.things, self.shuffled.then_some(&circle)),
            head: low(head),
            middle: Order::new(middle, (self.shuffled && middle > 0).then_some(&within)),
        }
    }
}

impl Pass {
    /// The thing at a place.
    pub(super) fn get(&self, place: u64) -> u64 {
        let inside = place.checked_sub(self.head).filter(|&inside| inside < self.middle.len());
        self.circle.get(inside.map_or(place, |inside| self.head + self.middle.get(inside)))
    }

    /// The place of a thing: the inverse of [`get`](Self::get).
    pub(super) fn find(&self, thing: u64) -> u64 {
        let place = self.circle.find(thing);
        let inside = place.checked_sub(self.head).filter(|&inside| inside < self.middle.len());
        inside.map_or(place, |inside| self.head + self.middle.find(inside))
    }
}

fn greatest_divisor(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}

/// The low half of a number. Passes of epochs with a number near the largest may lie past 2^64, and then have the keys
/// of earlier ones.
fn low(number: u128) -> u64 {
    u64::try_from(number & u128::from(u64::MAX)).unwrap_or(0)
}
