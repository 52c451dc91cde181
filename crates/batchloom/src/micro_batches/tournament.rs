//! `Tournament`: the bin of the least key among those with room, without a look at all bins.
//!
//! A tree over bins knows the least key and the least tokens below each node. A search takes the side of the lesser key
//! first, and passes over what has no room or no lesser key than was found.

use super::bins::Bins;

/// The numbers that a search decides by: the cost above a base, then the number of samples, then the number of the bin.
pub(super) type Key = (u64, u64, usize);

/// A tree over bins.
pub(super) struct Tournament {
    /// For each node the least key and the least tokens below it; node 1 is the root, leaves are in the last half.
    nodes: Vec<(Key, u64)>,
    leaves: usize,
}

const NONE: (Key, u64) = ((u64::MAX, u64::MAX, usize::MAX), u64::MAX);

impl Tournament {
    /// A tree over the bins as they are.
    pub(super) fn new(bins: &Bins, key: impl Fn(&Bins, usize) -> Key) -> Self {
        let leaves = bins.len().next_power_of_two();
        let mut nodes = vec![NONE; 2 * leaves];
        for bin in 0..bins.len() {
            nodes[leaves + bin] = (key(bins, bin), bins.tokens[bin]);
        }
        let mut tree = Self { nodes, leaves };
        (1..leaves).rev().for_each(|node| tree.join(node));
        tree
    }

    /// Takes note of a bin that was filled.
    pub(super) fn update(&mut self, bin: usize, key: Key, tokens: u64) {
        let mut node = self.leaves + bin;
        self.nodes[node] = (key, tokens);
        while node > 1 {
            node /= 2;
            self.join(node);
        }
    }

    fn join(&mut self, node: usize) {
        let ((one, first), (other, second)) = (self.nodes[2 * node], self.nodes[2 * node + 1]);
        self.nodes[node] = (one.min(other), first.min(second));
    }

    /// The bin of the least key that holds at most `tokens` and that `fits` accepts.
    pub(super) fn find(&self, tokens: u64, fits: impl Fn(usize) -> bool) -> Option<usize> {
        let mut best = NONE.0;
        let (least, _) = self.nodes[1];
        // The bin of the least key has room as a rule.
        if least < best && self.nodes[self.leaves + least.2].1 <= tokens && fits(least.2) {
            return Some(least.2);
        }
        self.search(1, tokens, &fits, &mut best);
        (best < NONE.0).then_some(best.2)
    }

    fn search(&self, node: usize, tokens: u64, fits: &impl Fn(usize) -> bool, best: &mut Key) {
        let (key, least) = self.nodes[node];
        if least > tokens || key >= *best {
            return;
        }
        if node >= self.leaves {
            if fits(node - self.leaves) {
                *best = key;
            }
            return;
        }
        let (left, right) = (2 * node, 2 * node + 1);
        let (first, second) =
            if self.nodes[left].0 <= self.nodes[right].0 { (left, right) } else { (right, left) };
        self.search(first, tokens, fits, best);
        self.search(second, tokens, fits, best);
    }
}
