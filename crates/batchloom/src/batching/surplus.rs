//! `Surplus`: the treatment of samples that no batch has room for, because their keys are too frequent, and the choice
//! of the samples that are kept.
//!
//! Promise: the samples that are left out are the last ones of their keys in the order of the epoch, so that each
//! epoch leaves out other ones. With one key a sample, as few as possible are left out.

use serde::{Deserialize, Serialize};

use super::keys::{Keys, different};
use super::{to_index, to_place};
use crate::named::named;

/// The treatment of samples that no batch has room for, where the samples of a batch have different keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Surplus {
    /// Keys that are too frequent are an error, so that every sample is in a batch.
    #[default]
    Error,
    /// Samples that no batch has room for are left out, other ones in each epoch.
    Drop,
}

impl Surplus {
    /// The name of this choice in Python.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Drop => "drop",
        }
    }

    /// Returns true if no samples are left out.
    pub(crate) fn is_error(&self) -> bool {
        *self == Self::Error
    }
}

named!(Surplus, "surplus", {
    "error" => Error,
    "drop" => Drop,
});

/// The places of the samples that batches of `batch_size` have room for, ascending: the first samples of each key, as
/// many as there are batches. Of the numbers of full batches that can be filled so, the largest one counts; what is left
/// of as many samples and one more of each key fills no other batch, and is the last one.
pub(super) fn choose_samples(keys: &Keys, batch_size: usize, samples: &[u64], drop_last: bool) -> Vec<u32> {
    let mut walk = Walk { keys, samples, taken: vec![0; keys.count_numbers()] };
    let mut fills = |batches: usize| walk.count(batches) >= batches * batch_size;
    let most = samples.len() / batch_size;
    // Mostly no key is too frequent.
    let (mut full, mut beyond) = if fills(most) { (most, most + 1) } else { (0, most) };
    while full + 1 < beyond {
        let batches = full.midpoint(beyond);
        if fills(batches) { full = batches } else { beyond = batches }
    }
    let mut chosen = Vec::with_capacity(samples.len());
    walk.visit(if drop_last { full } else { full + 1 }, |place| chosen.push(place));
    if drop_last {
        chosen.truncate(full * batch_size);
    }
    chosen
}

/// A walk over the samples of an epoch, which takes a sample unless a key of it was taken as often as may be.
struct Walk<'a> {
    keys: &'a Keys,
    samples: &'a [u64],
    /// The number of samples of each key that were taken.
    taken: Vec<u32>,
}

impl Walk<'_> {
    /// Passes the place of each sample that is taken, at most `most` of a key.
    fn visit(&mut self, most: usize, mut take: impl FnMut(u32)) {
        let most = to_place(most);
        self.taken.fill(0);
        for (place, &sample) in self.samples.iter().enumerate() {
            let row = self.keys.of(sample);
            if row.iter().all(|&key| self.taken[to_index(key)] < most) {
                different(row).for_each(|key| self.taken[to_index(key)] += 1);
                take(to_place(place));
            }
        }
    }

    /// The number of samples that are taken, at most `most` of a key.
    fn count(&mut self, most: usize) -> usize {
        let mut count = 0;
        self.visit(most, |_| count += 1);
        count
    }
}
