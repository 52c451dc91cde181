//! The fields of every batch, and the members that they are made of.
//!
//! A dataset gives the forms that make its batches; a plan gives the samples of each. Here both meet. In index mode the
//! forms still describe the batches, and so how many share a block.

use std::sync::Arc;

use super::error::LoaderCause;
use crate::batching::{Loss, RowShape, Rule};
use crate::collate::{BySource, Form, LossWeight, Members, Prefix, RowFrame, Taken};
use crate::dataset::Dataset;
use crate::dataset::Located;
use crate::dataset::collated::Collated;
use crate::dataset::collation::{CollateOptions, Collation, Index, Ragged};
use crate::dataset::error::OffsetCause;
use crate::order::{Key, Permutation, Purpose, RunEpoch};
use crate::plan::Parts;
use crate::ranks::Uneven;
use crate::tensor::Sequences;
use crate::{Plan, Result};

/// The fields of every batch.
#[derive(Debug)]
pub(super) struct Fields {
    collation: Collation,
    is_marked: bool,
    /// The loss, if batches have the weight of each label in it.
    loss: Option<Loss>,
    /// The nesting of samples that are made on demand, in the words of a front end; empty otherwise.
    nesting: Arc<str>,
    /// The lengths of prefixes, if a block mask of stored samples has them.
    prefix: Option<Prefix>,
}

impl Fields {
    /// The fields of `dataset` in the epoch of `plan`.
    ///
    /// # Errors
    /// Errors that say which option or rule does not go with the kind of dataset.
    pub(super) fn new(dataset: &Dataset, plan: &Plan, options: &CollateOptions) -> Result<Self> {
        // Samples that come in passes are the same ones in every epoch.
        let epoch = if plan.draws_in_passes() { 0 } else { plan.epoch() };
        let collation = dataset.kind().collation(plan.rule(), options, (plan.seed(), epoch))?;
        if plan.options().pad_to.is_some() {
            collation.require_own_sizes()?;
        }
        if dataset.kind().reader().is_some() {
            if let Some((field, _)) = options.offset_by.first() {
                return Err(OffsetCause::OnDemand { field: field.clone() }.into());
            }
            // Fields are known, and options for them looked at, once samples are read.
            let fields = Self::with_marks(collation, plan, None)?;
            return Ok(Self { loss: options.loss, ..fields });
        }
        collation.require_padded(options)?;
        let options = collation.with_typed_padding(options)?;
        let slotted = collation.with_slots(&options)?;
        let labels = options.loss.map(|loss| slotted.find_labels(loss)).transpose()?;
        let cuts = plan.rule().limit(plan.options().sizes.as_ref()).is_some();
        if let Some((field, _)) = options.offset_by.first().filter(|_| cuts) {
            return Err(OffsetCause::Cut { field: field.clone(), rule: plan.rule().name() }.into());
        }
        let (masked, prefix) = with_mask(slotted, &options)?;
        let cast = masked.cast(&options)?;
        let fields = Self { prefix, ..Self::with_marks(cast.with_offsets(&options)?, plan, None)? };
        let fields = fields.with_loss(options.loss, labels, Arc::default())?;
        Ok(fields.in_rows(plan, &options)?.without(&options.left_out, 0))
    }

    /// The fields of a batch of read samples.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if a field has the name of a mark; and errors of options for fields.
    pub(super) fn of_batch(collated: Collated, plan: &Plan, nesting: Arc<str>) -> Result<Self> {
        let (loss, skipped) = (collated.options.loss, collated.marks.clone().unwrap_or_default());
        let labels = loss.map(|loss| collated.collation.find_labels(loss)).transpose()?;
        let (masked, _) = with_mask(collated.collation, &collated.options)?;
        let fields = Self::with_marks(masked.cast(&collated.options)?, plan, collated.marks)?;
        let fields = fields.with_loss(loss, labels, skipped)?.in_rows(plan, &collated.options)?;
        // A field of samples may have the name of one that describes other batches.
        let own = fields.own_fields();
        Ok(Self { nesting, ..fields.without(&collated.options.left_out, own) })
    }

    /// The same fields, but for those from place `first` on that have one of these names.
    fn without(self, names: &[String], first: usize) -> Self {
        Self { collation: self.collation.without(names, first), ..self }
    }

    /// The fields with the marks that batches need.
    fn with_marks(collation: Collation, plan: &Plan, skipped: Option<Arc<[bool]>>) -> Result<Self> {
        let fills_up = plan.options().uneven == Uneven::Mask || plan.options().ban.is_some();
        let collation = match (fills_up, skipped) {
            (false, None) => collation,
            (_, skipped) => collation.with_marks(fills_up, skipped.unwrap_or_default())?,
        };
        Ok(Self { collation, is_marked: fills_up, loss: None, nesting: "".into(), prefix: None })
    }

    /// The fields with the weight of each label in a loss, given the form that makes the labels. It is 0 for the members
    /// in `skipped`.
    fn with_loss(
        self,
        loss: Option<Loss>,
        labels: Option<Arc<dyn Form>>,
        skipped: Arc<[bool]>,
    ) -> Result<Self> {
        let Some((loss, labels)) = loss.zip(labels) else { return Ok(self) };
        let weight = LossWeight { labels, is_shared: loss.is_shared_in_samples(), skipped };
        let collation = self.collation.with_loss(weight)?;
        Ok(Self { collation, loss: Some(loss), ..self })
    }

    /// The same fields, in rows of one shape if the rule of the plan makes such batches.
    fn in_rows(self, plan: &Plan, options: &CollateOptions) -> Result<Self> {
        let Some(shape) = plan.rule().row_shape() else { return Ok(self) };
        Ok(Self { collation: self.collation.in_rows(frame(shape), options)?, ..self })
    }

    /// The number that the loss of the update of `step` is divided by; 0 where batches have no weights of labels.
    ///
    /// # Errors
    /// The errors of [`Plan::loss_denominator`]; [`Kind::Argument`](crate::Kind::Argument) if the plan does not know the
    /// labels of samples.
    pub(super) fn loss_denominator(&self, plan: &Plan, step: u64) -> Result<u64> {
        let Some(loss) = self.loss else { return Ok(0) };
        let unknown = || LoaderCause::LossWithoutCounts { loss: loss.name() };
        Ok(plan.loss_denominator(step, loss)?.ok_or_else(unknown)?)
    }

    /// Returns true if batches have the weight of each label in a loss.
    pub(super) fn has_loss(&self) -> bool {
        self.loss.is_some()
    }

    /// The places of samples in the data that forms read.
    pub(super) fn located(&self) -> &Located {
        &self.collation.located
    }

    /// Reads the lengths of the prefixes of all `samples` stored samples, in some nanoseconds for each.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if one is negative, with its sample.
    pub(super) fn check_prefixes(&self, samples: u64) -> Result<()> {
        const AT_ONCE: usize = 1 << 12;
        let Some(prefix) = &self.prefix else { return Ok(()) };
        for first in (0..samples).step_by(AT_ONCE) {
            let some: Vec<u64> = (first..samples).take(AT_ONCE).collect();
            let places = self.located().places(&some);
            let members = Members::of_samples(places.of(&some), 0);
            let whole = Members { starts: vec![0; some.len()], ..members };
            prefix.read(&whole, 0..some.len())?;
        }
        Ok(())
    }

    /// The names of the fields, in order.
    pub(super) fn names(&self) -> &Arc<[String]> {
        &self.collation.names
    }

    /// The nesting of samples that are made on demand.
    pub(super) fn nesting(&self) -> &Arc<str> {
        &self.nesting
    }

    /// The form of each field.
    pub(super) fn forms(&self) -> &[Arc<dyn Form>] {
        &self.collation.forms
    }

    /// Refuses samples with places that an index table does not hold, and batches of `rule` that it has no form for.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if fields of such lengths make no sense here.
    pub(super) fn require_indexed(&self, rule: &Rule) -> Result<()> {
        match (self.collation.own_lengths.is_empty(), rule.row_shape().is_some() || rule.continues()) {
            (true, false) => Ok(()),
            (false, _) => Err(LoaderCause::OwnLengthsInTable.into()),
            (true, true) => Err(LoaderCause::RowsInTable.into()),
        }
    }

    /// The number of fields, from the first on, that are taken from samples.
    pub(super) fn own_fields(&self) -> usize {
        self.collation.own_fields()
    }

    /// The rows of an index table.
    pub(super) fn index(&self) -> &Index {
        &self.collation.index
    }

    /// Returns true if batches hold marks of the places that only fill up.
    pub(super) fn is_marked(&self) -> bool {
        self.is_marked
    }

    /// Returns true if batches of one number of samples may differ in shape.
    pub(super) fn is_ragged(&self) -> bool {
        self.collation.ragged.is_some() || !self.collation.compressed.is_empty()
    }

    /// Returns true if the batch that `rank` takes at `step` is shorter than the rest, as all of its samples are.
    ///
    /// # Errors
    /// The errors of [`Plan::fill`].
    pub(super) fn is_shorter(&self, plan: &Plan, step: u64, rank: u32) -> Result<bool> {
        let Some(from) = self.collation.shorter_from else { return Ok(false) };
        let mut first = [0];
        plan.fill(step, rank, 0, &mut first)?;
        Ok(first[0] >= from && plan.indices(step, rank)?.iter().all(|sample| *sample >= from))
    }

    /// The members of the batch that `rank` takes at `step`, and their samples, whether these differ in size or not.
    ///
    /// # Errors
    /// The errors of [`Plan::parts`].
    pub(super) fn members_to_read(&self, plan: &Plan, step: u64, rank: u32) -> Result<Members> {
        let members = self.members(plan, step, rank)?;
        Ok(match self.is_ragged() {
            true => members,
            false => Members { samples: plan.indices(step, rank)?, ..members }.ban(plan.banned(step)),
        })
    }

    /// The members of the batch that `rank` takes at `step`: in full if batches may differ in shape, otherwise only
    /// their number and the number of fillers, unless a sample is banned or the batch is shorter than the rest.
    ///
    /// # Errors
    /// The errors of [`Plan::parts`].
    pub(super) fn members(&self, plan: &Plan, step: u64, rank: u32) -> Result<Members> {
        let loss_denominator = self.loss_denominator(plan, step)?;
        Ok(Members { epoch: run_epoch(plan), loss_denominator, ..self.find_members(plan, step, rank)? })
    }

    /// The members of a batch, in no epoch yet.
    fn find_members(&self, plan: &Plan, step: u64, rank: u32) -> Result<Members> {
        let fillers = number(plan.fillers(step, rank)?);
        let Some(ragged) = &self.collation.ragged else {
            if self.is_ragged() {
                let samples = plan.indices(step, rank)?;
                let places = self.collation.located.places(&samples);
                let members = Members::of_samples(places.of(&samples), fillers).ban(plan.banned(step));
                return Ok(members.with_entries(&self.collation.compressed));
            }
            if plan.holds_banned(step, rank)? || self.is_shorter(plan, step, rank)? {
                let samples = plan.indices(step, rank)?;
                let places = self.collation.located.places(&samples);
                return Ok(Members::of_samples(places.of(&samples), fillers).ban(plan.banned(step)));
            }
            return Ok(Members::of_count(number(plan.batch_len(step, rank)?), fillers));
        };
        let parts = plan.parts(step, rank)?;
        let (row_ends, continued) = (parts.row_ends.clone(), plan.find_continued(&parts));
        let places = self.collation.located.places(&parts.samples);
        let taken = places.of(&parts.samples);
        let guide = ragged.guide.as_ref().filter(|_| ragged.subsamples || ragged.shuffles);
        let picks = guide.map(|guide| picks(ragged, guide, plan, &parts, taken)).unwrap_or_default();
        let dimensions = ragged.guide.as_ref().map_or(1, |guide| guide.first().varying().len());
        let extents = match ragged.guide.as_ref().filter(|_| !ragged.own_sizes || dimensions != 1) {
            None => parts.sizes,
            Some(guide) => {
                let sizes =
                    |(place, &row): (usize, &u64)| guide.of(taken.source(place)).sizes_of(number(row));
                taken.rows.iter().enumerate().flat_map(sizes).collect()
            }
        };
        let rounded = |size: u32| plan.rounding().up(size);
        let rows = if self.collation.located.is_plain() { Vec::new() } else { taken.rows.to_vec() };
        let sources = taken.sources.to_vec();
        let members = Members::new(parts.samples, parts.starts, extents, dimensions, rounded);
        let row_frame = plan.rule().row_shape().map(frame);
        let members = Members { picks, fillers, rows, sources, row_frame, row_ends, continued, ..members }
            .ban(plan.banned(step));
        Ok(members.with_own(&self.collation.own_lengths, rounded))
    }
}

/// The same fields, with the block mask that options ask for, and the lengths of its prefixes. Of pieces of a stream, the
/// dataset has made it.
///
/// # Errors
/// [`Kind::Argument`](crate::Kind::Argument) if the field of prefixes does not hold such, or if the data has a field with
/// the name of a part.
fn with_mask(collation: Collation, options: &CollateOptions) -> Result<(Collation, Option<Prefix>)> {
    let Some(mask) = options.block_mask.as_ref().filter(|_| !collation.has_block_mask()) else {
        return Ok((collation, None));
    };
    let prefix = collation.find_prefix(mask)?;
    Ok((collation.with_block_mask(mask, prefix.as_ref())?, prefix))
}

/// The shape of batches in rows, as collation has it.
fn frame(shape: RowShape) -> RowFrame {
    let [rows, tokens, samples] =
        [shape.rows, shape.tokens, shape.samples].map(|extent| number(extent.into()));
    RowFrame { rows, tokens, samples }
}

/// The epoch of a plan, from which random numbers follow.
pub(super) fn run_epoch(plan: &Plan) -> RunEpoch {
    RunEpoch { seed: plan.seed(), epoch: plan.epoch() }
}

/// The elements that are taken of each sample of a batch. Of a sample that is subsampled they are random, in order; of a
/// sample that is shuffled they are in random order. Both are functions of seed, epoch and sample. Empty if every sample
/// gives its first elements in order.
fn picks(
    ragged: &Ragged,
    guide: &BySource<Sequences>,
    plan: &Plan,
    parts: &Parts,
    taken: Taken<'_>,
) -> Vec<u32> {
    let lengths: Vec<u32> = (0..taken.rows.len())
        .map(|place| guide.of(taken.source(place)).extents(number(taken.rows[place]))[0])
        .collect();
    let thinned =
        |sample: u64, length: u32| ragged.subsamples && length > ragged.sizes.as_slice()[number(sample)];
    if !ragged.shuffles
        && !parts.samples.iter().zip(&lengths).any(|(&sample, &length)| thinned(sample, length))
    {
        return Vec::new();
    }
    let mut picks = Vec::new();
    let members = parts.samples.iter().zip(&lengths).zip(&parts.sizes).zip(&parts.starts);
    for (((&sample, &all), &taken), &first) in members {
        let start = picks.len();
        let (first, from) = if thinned(sample, all) { (0, all) } else { (first, taken) };
        if from == 0 || (from == taken && !ragged.shuffles) {
            picks.extend(first..first + taken);
            continue;
        }
        let key = Key::new(plan.seed(), plan.epoch(), Purpose::Rows { group: sample });
        let permutation = Permutation::new(u64::from(from), &key);
        // Elements of a sample are counted in 32 bits.
        let pick = |place: u32| first + u32::try_from(permutation.get(u64::from(place))).unwrap_or(u32::MAX);
        picks.extend((0..taken).map(pick));
        if !ragged.shuffles {
            picks[start..].sort_unstable();
        }
    }
    picks
}

fn number(sample: u64) -> usize {
    usize::try_from(sample).unwrap_or(usize::MAX)
}
