//! Bans: samples that a run leaves without weight, and since when.
//!
//! A banned sample keeps its place in its batch, so that no other sample moves and no rank has another number of steps.
//! The list of them may change between two steps; the changes are history, as world sizes are.

use std::sync::Arc;

use super::error::StateCause;
use crate::Result;

/// The bans of a run: from the batch `batches` of epoch `epoch` on, just `samples`, in ascending order. Each is
/// (epoch, batches, samples).
pub type Ban = (u64, u64, Vec<u64>);

/// Samples to leave without weight: a list in ascending order, each sample once.
#[derive(Clone, PartialEq, Eq)]
pub struct Banned(Arc<[u64]>);

impl Banned {
    /// The samples of a list in any order.
    pub fn new(mut samples: Vec<u64>) -> Self {
        samples.sort_unstable();
        samples.dedup();
        Self(samples.into())
    }

    /// The samples, ascending.
    pub fn as_slice(&self) -> &[u64] {
        &self.0
    }
}

impl std::fmt::Debug for Banned {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Banned").field(&crate::brief::Brief(&self.0)).finish()
    }
}

/// The samples that a run leaves without weight.
#[derive(Clone, Default)]
pub(super) struct Bans {
    /// The option, or `None` if batches have no marks.
    asked: Option<Banned>,
    /// The changes so far, in order.
    changes: Arc<[Ban]>,
}

impl std::fmt::Debug for Bans {
    /// Writes how many changes there are: each lists samples.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Bans")
            .field("asked", &self.asked)
            .field("changes", &self.changes.len())
            .finish()
    }
}

impl Bans {
    /// Bans `samples` from the start of a run.
    pub(super) fn new(samples: Banned) -> Self {
        let first = Some((0, 0, samples.as_slice().to_vec())).filter(|(_, _, samples)| !samples.is_empty());
        Self { asked: Some(samples), changes: first.into_iter().collect() }
    }

    /// The same request, after the changes of another run.
    pub(super) fn with_changes(&self, changes: Vec<Ban>) -> Self {
        Self { asked: self.asked.clone(), changes: changes.into() }
    }

    /// The same bans, where those that were asked for hold from batch `batches` of epoch `epoch` on.
    pub(super) fn with_asked_from(&self, epoch: u64, batches: u64) -> Self {
        let Some(asked) = &self.asked else { return self.clone() };
        let mut changes = self.changes.to_vec();
        let last = changes.last().map(|(_, _, samples)| samples.as_slice());
        if last.unwrap_or_default() != asked.as_slice() {
            changes.retain(|&(other, before, _)| (other, before) < (epoch, batches));
            changes.push((epoch, batches, asked.as_slice().to_vec()));
        }
        Self { changes: changes.into(), ..self.clone() }
    }

    /// The changes so far, in order.
    pub(super) fn changes(&self) -> &[Ban] {
        &self.changes
    }

    /// The samples that are banned at batch `batch` of epoch `epoch`, ascending.
    pub(super) fn at(&self, epoch: u64, batch: u64) -> &[u64] {
        let later = self.changes.partition_point(|&(other, before, _)| (other, before) <= (epoch, batch));
        later.checked_sub(1).map_or(&[], |last| &self.changes[last].2)
    }

    /// Returns true if a sample was banned at some time.
    pub(super) fn are_some(&self) -> bool {
        !self.changes.is_empty()
    }

    /// The samples that were banned at some time, ascending.
    pub(super) fn all(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.changes.iter().flat_map(|(_, _, samples)| samples).copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Refuses changes that no run of so many samples makes.
    pub(super) fn check(&self, samples: u64) -> Result<()> {
        let place = |ban: &Ban| (ban.0, ban.1);
        if !self.changes.is_sorted_by(|one, other| place(one) < place(other)) {
            return Err(StateCause::DamagedBans.into());
        }
        if !self.changes.iter().all(|(_, _, samples)| samples.is_sorted_by(|one, other| one < other)) {
            return Err(StateCause::DamagedBan.into());
        }
        match self.all().last().copied().filter(|&last| last >= samples) {
            Some(sample) => Err(StateCause::DamagedBanRange { sample, samples }.into()),
            None => Ok(()),
        }
    }
}
