//! The fields of every batch, and the members that they are made of.
//!
//! A dataset gives the forms that make its batches; a plan gives the samples of each. Here both meet. In index mode the
//! forms still describe the batches, and so tell how many share a block.

use std::sync::Arc;

use crate::collate::{Form, Members};
use crate::dataset::Dataset;
use crate::dataset::kind::{CollateOptions, Collation, Index, Ragged};
use crate::order::{Key, Permutation, Purpose};
use crate::plan::Parts;
use crate::ranks::Uneven;
use crate::tensor::Sequences;
use crate::{Plan, Result};

/// The fields of every batch.
#[derive(Debug)]
pub(super) struct Fields {
    collation: Collation,
    is_marked: bool,
}

impl Fields {
    /// The fields of `dataset` in the epoch of `plan`.
    ///
    /// # Errors
    /// Errors that say which option or rule does not go with the kind of dataset.
    pub(super) fn new(dataset: &Dataset, plan: &Plan, options: &CollateOptions) -> Result<Self> {
        let collation = dataset.kind().collation(plan.rule(), options, (plan.seed(), plan.epoch()))?;
        let collation = collation.cast(options)?;
        Ok(match plan.uneven() {
            Uneven::Mask => Self { collation: collation.marked()?, is_marked: true },
            Uneven::Pad | Uneven::Short => Self { collation, is_marked: false },
        })
    }

    /// The names of the fields, in order.
    pub(super) fn names(&self) -> &Arc<[String]> {
        &self.collation.names
    }

    /// The form of each field.
    pub(super) fn forms(&self) -> &[Arc<dyn Form>] {
        &self.collation.forms
    }

    /// The rows of an index table.
    pub(super) fn index(&self) -> &Index {
        &self.collation.index
    }

    /// Returns true if batches hold marks of the places that only fill up.
    pub(super) fn is_marked(&self) -> bool {
        self.is_marked
    }

    /// Returns true if samples differ in size.
    pub(super) fn is_ragged(&self) -> bool {
        self.collation.ragged.is_some()
    }

    /// The members of the batch that `rank` takes at `step`: in full if samples differ in size, otherwise only their
    /// number and that of the fillers.
    ///
    /// # Errors
    /// Those of [`Plan::parts`].
    pub(super) fn members(&self, plan: &Plan, step: u64, rank: u32) -> Result<Members> {
        let fillers = number(plan.fillers(step, rank)?);
        let Some(ragged) = &self.collation.ragged else {
            return Ok(Members::uniform(number(plan.batch_len(step, rank)?), fillers));
        };
        let parts = plan.parts(step, rank)?;
        let picks = if ragged.subsamples { picks(ragged, plan, &parts) } else { Vec::new() };
        let dimensions = ragged.guide.varying().len();
        let extents = match ragged.own_sizes && dimensions == 1 {
            true => parts.sizes,
            false => parts.samples.iter().flat_map(|&sample| ragged.guide.sizes_of(number(sample))).collect(),
        };
        let members = Members::new(parts.samples, parts.starts, extents, dimensions, ragged.multiple_of);
        Ok(Members { picks, fillers, ..members })
    }
}

/// The elements that are taken of each sample of a batch, in order. They are random if the sample has more than are
/// taken: a function of seed, epoch and sample. Empty if no sample has more.
fn picks(ragged: &Ragged, plan: &Plan, parts: &Parts) -> Vec<u32> {
    let stored = |sample: u64| length(&ragged.guide, sample);
    let thinned = |sample: u64| stored(sample) > ragged.sizes.as_slice()[number(sample)];
    let mut samples = parts.samples.iter().zip(&parts.sizes);
    if !samples.clone().any(|(&sample, _)| thinned(sample)) {
        return Vec::new();
    }
    let mut picks = Vec::new();
    for (&sample, &taken) in &mut samples {
        let (start, all) = (picks.len(), stored(sample));
        if !thinned(sample) {
            picks.extend(0..taken);
            continue;
        }
        let key = Key::new(plan.seed(), plan.epoch(), Purpose::Rows { group: sample });
        let permutation = Permutation::new(u64::from(all), &key);
        // Elements of a sample are counted in 32 bits.
        let pick = |place: u32| u32::try_from(permutation.get(u64::from(place))).unwrap_or(u32::MAX);
        picks.extend((0..taken).map(pick));
        picks[start..].sort_unstable();
    }
    picks
}

/// The stored length of a sample.
fn length(guide: &Sequences, sample: u64) -> u32 {
    guide.extents(number(sample))[0]
}

fn number(sample: u64) -> usize {
    usize::try_from(sample).unwrap_or(usize::MAX)
}
