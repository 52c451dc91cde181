//! Samples on demand that are in chunks: several batches share a block, as they do where data is in memory.
//!
//! The first block is one batch, after which the layout of all samples is known. From then on each piece of a block finds
//! its samples in their chunks, and forms copy them from there. Batches that a block holds before one that cannot be
//! formed are handed over before the error.

use std::sync::Arc;

use super::demand::{Demand, Direct};
use super::failure::Failure;
use super::layout::{BlockLayout, Limits, Piece, RunLayout};
use crate::collate::{HeldMembers, Members, Taken};
use crate::dataset::{HeldLayout, ReadRequest, Refusal, Stop};
use crate::error::ReadError;
use crate::tensor::buffer::Region;
use crate::{Error, Plan, Result};

/// A piece of a run, and the numbers of its samples, batch by batch, unless the run lists them.
pub(super) struct PieceOfRun<'a> {
    pub(super) run: &'a RunLayout,
    pub(super) piece: &'a Piece,
    pub(super) taken: Taken<'a>,
}

impl PieceOfRun<'_> {
    /// The failure of the sample at a place of the piece.
    fn failure(&self, place: usize, error: Error) -> Failure {
        let rows = &self.piece.rows;
        let (batch, row) = (place / rows.len().max(1), place % rows.len().max(1));
        let step = self.run.step + (self.piece.batches.start + batch) as u64;
        Failure { step, member: rows.start + row, error }
    }
}

impl Demand {
    /// The layout of the batches from `step` on, about `bytes` bytes of them; `None` if samples are not in chunks, if
    /// their layout is not known yet, if a sample may be left out, which is noted with its batch, or if a mask needs a
    /// field of all samples of a row.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if a batch is larger than this machine can address.
    pub(super) fn lay_out_held(
        &self,
        plan: &Plan,
        rank: u32,
        step: u64,
        bytes: usize,
        first: Option<RunLayout>,
    ) -> Result<Option<(BlockLayout, Arc<Direct>)>> {
        let prefix = self.collate.block_mask.as_ref().and_then(|mask| mask.prefix_field());
        if self.reader.chunk_holder().is_none() || plan.has_bans() || prefix.is_some() {
            return Ok(None);
        }
        let Some(direct) = self.direct(plan)?.filter(|direct| direct.held.is_some()) else { return Ok(None) };
        let layout = BlockLayout::new(&direct.fields, plan, rank, step, bytes, Limits::IN_CHUNKS, first)?;
        Ok(layout.map(|layout| (layout, direct)))
    }

    /// Holds the samples of a piece. `None` if the iteration has stopped.
    ///
    /// # Errors
    /// The first sample that is not there, and the reason.
    fn hold(
        &self,
        direct: &Direct,
        expected: &HeldLayout,
        plan: &Plan,
        piece: &PieceOfRun<'_>,
        stop: &Stop,
    ) -> Result<Option<HeldMembers>, Failure> {
        let samples = piece.taken.samples;
        let (seed, epoch, clock) = (plan.seed(), plan.epoch(), &*self.clock);
        let request = ReadRequest { samples, seed, epoch, stop, clock };
        let Some(holder) = self.reader.chunk_holder() else { return Ok(None) };
        let held = match holder.hold_rows(&request, expected) {
            None => return Ok(None),
            Some(Ok(held)) => held,
            Some(Err((place, refusal))) => {
                let sample = samples[place];
                let error = match refusal {
                    Refusal::Failed(cause) => ReadError::Failed { sample, cause },
                    Refusal::Differs(layout) => direct.expected.layout_error(direct.first, &layout, sample),
                };
                return Err(piece.failure(place, error.into()));
            }
        };
        if let Some(sizes) = self.dataset.sizes() {
            let wrong = held.find_wrong_size(samples, &expected.variable, sizes.as_slice());
            if let Some((place, field, shape)) = wrong {
                let (sample, field) = (samples[place], direct.expected.structure.names[field].clone());
                let size = sizes.as_slice()[usize::try_from(sample).unwrap_or(usize::MAX)];
                return Err(piece.failure(place, ReadError::Size { field, sample, shape, size }.into()));
            }
        }
        Ok(Some(HeldMembers { rows: Arc::new(held), first: 0 }))
    }

    /// Fills a piece: `regions` has the memory of each field. Batches before one that cannot be formed are filled.
    ///
    /// # Errors
    /// The first batch that cannot be formed.
    pub(super) fn fill_held(
        &self,
        direct: &Direct,
        plan: &Plan,
        whole: &PieceOfRun<'_>,
        mut regions: Vec<Region>,
        stop: &Stop,
    ) -> Result<(), Failure> {
        let Some(expected) = &direct.held else { return Ok(()) };
        let failure = match self.hold(direct, expected, plan, whole, stop) {
            Ok(None) => return Ok(()),
            Ok(Some(held)) => return form_held(direct, &held, whole, &mut regions),
            Err(failure) => failure,
        };
        let batches = &whole.piece.batches;
        let formed = usize::try_from(failure.step - whole.run.step).unwrap_or(usize::MAX) - batches.start;
        if formed > 0 {
            let samples = &whole.taken.samples[..formed * whole.piece.rows.len()];
            let taken = Taken { epoch: whole.taken.epoch, ..Taken::as_stored(samples) };
            let piece =
                Piece { batches: batches.start..batches.start + formed, rows: whole.piece.rows.clone() };
            let before = PieceOfRun { run: whole.run, piece: &piece, taken };
            if let Some(held) = self.hold(direct, expected, plan, &before, stop)? {
                form_held(direct, &held, &before, &mut regions)?;
            }
        }
        Err(failure)
    }
}

/// Fills a piece with samples that are held.
fn form_held(
    direct: &Direct,
    held: &HeldMembers,
    piece: &PieceOfRun<'_>,
    regions: &mut [Region],
) -> Result<(), Failure> {
    let PieceOfRun { run, piece: Piece { rows, .. }, taken } = piece;
    let are_rows = run.members.row_frame.is_some();
    let own = run.members.are_listed().then(|| match are_rows {
        // The place of a member in its row depends on the members before it.
        true => {
            let held = HeldMembers { first: held.first.wrapping_sub(rows.start), ..held.clone() };
            Members { held: Some(held), ..Members::clone(&run.members) }
        }
        false => Members { held: Some(held.clone()), ..run.members.part(rows.clone()) },
    });
    let taken = Taken { held: Some(held), ..*taken };
    let fields = direct.fields.forms().iter().zip(&run.slots).zip(regions).enumerate();
    for (field, ((form, slot), region)) in fields {
        let formed = match &own {
            None => {
                let slots = piece.piece.slots(run, slot, region.len());
                form.gather(taken, region, slots)
            }
            Some(own) if field < direct.fields.own_fields() || form.reads_data() => {
                form.fill(own, if are_rows { rows.clone() } else { 0..own.count }, region)
            }
            Some(_) => form.fill(&run.members, rows.clone(), region),
        };
        formed.map_err(|error| piece.failure(0, error))?;
    }
    Ok(())
}
