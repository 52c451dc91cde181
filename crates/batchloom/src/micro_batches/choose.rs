//! The number of micro-batches of each class, and the units in each.

use super::bins::Bins;
use super::differencing::divide;
use super::levels::find_levels;
use super::options::SyncEvery;
use super::pack::{pack_evenly, pack_tightly};
use super::refine::{Groups, Refinement};
use super::units::{Room, Units};

/// The freedom that units have between ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Across {
    /// A unit may be on any rank.
    Free,
    /// Ranks have equal numbers of samples: units are only exchanged.
    Swaps,
    /// A rank keeps its units.
    Nothing,
}

/// The way in which bins are filled first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// From the costliest unit on, under the caps.
    Largest,
    /// By differencing, which knows no caps, where the bins of a share keep to them.
    Differencing,
    /// By best fit, as tightly as possible.
    Tightest,
}

/// The work of packing: the units, the ranks and the limits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work<'a> {
    pub(super) units: &'a Units,
    /// The class of each unit.
    pub(super) class: &'a [usize],
    pub(super) classes: usize,
    pub(super) room: Room,
    pub(super) world: usize,
    pub(super) sync: SyncEvery,
    pub(super) across: Across,
    pub(super) method: Method,
}

/// The number of micro-batches that a rank is to have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) least: usize,
    pub(super) exactly: Option<usize>,
    pub(super) multiple: usize,
}

/// The units of each class in shares: one share for all ranks together, or one for each rank.
#[derive(Debug)]
pub(super) struct Shares {
    /// By class, then by share.
    pub(super) by_class: Vec<Vec<Vec<usize>>>,
    /// The ranks of a share.
    pub(super) width: usize,
}

/// The bins of one class. With one share, any rank may take any bin; else the bins of rank 0 come first.
#[derive(Debug)]
pub(super) struct Filled {
    pub(super) bins: Bins,
    pub(super) slots: usize,
    /// The base of each slot, from which its bins are counted so that all aim at the same cost.
    pub(super) bases: Vec<u64>,
}

/// Differencing takes this many steps at most; it is left out where it would take more.
const MOST_DIFFERENCES: usize = 1 << 14;

/// The partners and exchanges that bring bins together.
const PARTNERS: usize = 4;
const EXCHANGES: usize = 4;

impl Work<'_> {
    /// Divides units, which are in shares, by class.
    pub(super) fn by_class(&self, shares: Vec<Vec<usize>>) -> Shares {
        let width = self.world / shares.len();
        if self.classes == 1 {
            return Shares { by_class: vec![shares], width };
        }
        let of = |class: usize| {
            let mine = |share: &Vec<usize>| {
                share.iter().copied().filter(|&unit| self.class[unit] == class).collect()
            };
            shares.iter().map(mine).collect()
        };
        Shares { by_class: (0..self.classes).map(of).collect(), width }
    }

    /// Fills the least number of bins, or the number that is wanted. `None` if exactly so many do not suffice.
    pub(super) fn pack(&self, shares: &Shares, wanted: Wanted) -> Option<Vec<Filled>> {
        let bound = |class: &Vec<Vec<usize>>| {
            class.iter().map(|share| self.bound_slots(share, shares.width)).max().unwrap_or(0)
        };
        let mut least: Vec<usize> = shares.by_class.iter().map(bound).collect();
        loop {
            let slots = self.distribute(shares, &least, wanted)?;
            let filled: Vec<Option<Filled>> =
                slots.iter().zip(&shares.by_class).map(|(&slots, class)| self.fill(class, slots)).collect();
            // More bins may be harder to fill by a heuristic; at one for each unit, none fails.
            match filled.iter().position(Option::is_none) {
                Some(failed) => least[failed] = slots[failed] + 1,
                None => return Some(filled.into_iter().flatten().collect()),
            }
        }
    }

    /// A number of slots that no packing can do without.
    fn bound_slots(&self, share: &[usize], width: usize) -> usize {
        let (mut tokens, mut samples, mut halves) = (0_u64, 0_u64, 0_u64);
        for &unit in share {
            tokens += self.units.tokens[unit].min(self.room.tokens);
            samples += self.units.samples[unit].min(self.room.samples);
            halves += u64::from(self.units.tokens[unit] > self.room.tokens / 2);
        }
        let bins = tokens.div_ceil(self.room.tokens).max(samples.div_ceil(self.room.samples)).max(halves);
        usize::try_from(bins).unwrap_or(usize::MAX).div_ceil(width).max(usize::from(!share.is_empty()))
    }

    /// Raises the least numbers of slots to the number that is wanted: one at a time for the class of most cost a slot,
    /// as long as it has a unit for each rank.
    fn distribute(&self, shares: &Shares, least: &[usize], wanted: Wanted) -> Option<Vec<usize>> {
        let found: usize = least.iter().sum();
        let total = match wanted.exactly {
            Some(exactly) if found > exactly => return None,
            Some(exactly) => exactly,
            None => found.max(wanted.least).next_multiple_of(wanted.multiple),
        };
        let of = |class: &[Vec<usize>]| {
            let units: usize = class.iter().map(Vec::len).sum();
            (units, class.iter().map(|share| self.units.cost_of(share)).sum::<u64>())
        };
        let classes: Vec<(usize, u64)> = shares.by_class.iter().map(|class| of(class)).collect();
        let mut slots = least.to_vec();
        if let [only] = slots.as_mut_slice() {
            *only = total;
            return Some(slots);
        }
        for _ in found..total {
            let key = |&class: &usize| {
                let (units, cost) = classes[class];
                let more = slots[class] + 1;
                (units >= more * self.world, units > 0, cost / more as u64, std::cmp::Reverse(class))
            };
            let class = (0..slots.len()).max_by_key(key)?;
            slots[class] += 1;
        }
        Some(slots)
    }

    /// Fills the slots of one class.
    fn fill(&self, shares: &[Vec<usize>], slots: usize) -> Option<Filled> {
        let width = self.world / shares.len();
        let bases = self.find_bases(shares, slots);
        let mut bins = Bins::default();
        for share in shares {
            bins.append(self.fill_share(share, &spread(&bases, width))?);
        }
        let filled = Filled { bins, slots, bases };
        Some(if shares.len() > 1 && self.method == Method::Largest { self.even_out(filled) } else { filled })
    }

    /// Returns the base of each slot.
    fn find_bases(&self, shares: &[Vec<usize>], slots: usize) -> Vec<u64> {
        let is_flat = self.method == Method::Differencing && self.sync == SyncEvery::MicroBatch;
        if is_flat || (self.sync == SyncEvery::Update && self.across != Across::Free) {
            return vec![0; slots];
        }
        let mut all: Vec<usize> = shares.concat();
        all.sort_unstable();
        let levels = find_levels(self.units, &all, self.room, self.world, slots);
        let highest = levels.iter().copied().max().unwrap_or(0);
        levels.iter().map(|level| highest - level).collect()
    }

    /// Fills the bins of a share and brings their costs together.
    fn fill_share(&self, share: &[usize], bases: &[u64]) -> Option<Bins> {
        if self.method == Method::Tightest {
            return pack_tightly(self.units, share, self.room, bases.len());
        }
        if let Some(bins) = self.fill_by_difference(share, bases.len()) {
            return Some(bins);
        }
        let is_flat = bases.iter().all(|&base| base == 0);
        let flat = || pack_evenly(self.units, share, self.room, &vec![0; bases.len()]);
        let mut bins = pack_evenly(self.units, share, self.room, bases)
            .or_else(|| pack_tightly(self.units, share, self.room, bases.len()))
            .or_else(|| if is_flat { None } else { flat() })?;
        // Ranks that wait once are brought together when they have their bins.
        if self.sync == SyncEvery::MicroBatch {
            self.refinement(true, bases.len()).refine(&mut bins, &Groups::single(bases));
        }
        Some(bins)
    }

    /// Fills bins by differencing. `None` if that is not the method, would take long, or exceeds a cap.
    fn fill_by_difference(&self, share: &[usize], bins: usize) -> Option<Bins> {
        if self.method != Method::Differencing || share.len().saturating_mul(bins) > MOST_DIFFERENCES {
            return None;
        }
        let costs: Vec<u64> = share.iter().map(|&unit| self.units.cost[unit]).collect();
        let parts = divide(&costs, bins, false);
        let members = parts.into_iter().map(|part| part.into_iter().map(|place| share[place]).collect());
        let mut bins = Bins::of(self.units, members.collect());
        bins.occupy(self.units);
        (0..bins.len()).all(|bin| bins.is_within(self.room, bin)).then_some(bins)
    }

    /// Brings the bins of different ranks together, as far as units may go from rank to rank.
    fn even_out(&self, mut filled: Filled) -> Filled {
        if self.sync == SyncEvery::MicroBatch && self.across != Across::Nothing {
            let bases: Vec<u64> = (0..self.world).flat_map(|_| filled.bases.iter().copied()).collect();
            let refinement = self.refinement(self.across == Across::Free, bases.len());
            refinement.refine(&mut filled.bins, &Groups::single(&bases));
        }
        filled
    }

    fn refinement(&self, moves: bool, bins: usize) -> Refinement<'_> {
        Refinement {
            units: self.units,
            room: self.room,
            moves,
            partners: PARTNERS,
            most: EXCHANGES * bins,
            stuck: 16,
        }
    }
}

/// The base of each bin of a share of `width` ranks: those of a slot lie together.
fn spread(bases: &[u64], width: usize) -> Vec<u64> {
    bases.iter().flat_map(|&base| std::iter::repeat_n(base, width)).collect()
}
