//! `History`: the weights of sources over a run, as they were given, changed by schedule, or replaced.
//!
//! Promise: a history and the sources decide what is drawn at any place of any epoch. Weights that replace others hold
//! from a place on, so what was drawn before it stays as it was.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Serialize};

use super::error::DrawsCause;
use super::weights::ratios;
use crate::Result;

/// The weights of the sources of a run: those that it began with, and those that replaced them later.
///
/// As plain values, this is a list of (epoch, position, weights): weights were given for that position of that epoch
/// and all that follow. They are a list of (amount, ratios): from that amount on, in samples or what else is measured,
/// sources have these ratios, as base64 of little-endian numbers of 32 bits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<WrittenWeights>", into = "Vec<WrittenWeights>")]
pub struct History(Arc<[Given]>);

/// Weights as plain values: an epoch, a position in it, and ratios from some amounts on.
pub type WrittenWeights = (u64, u64, Vec<(u64, String)>);

/// Weights that hold from a place on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Given {
    /// The epoch, and the position in it.
    place: (u64, u64),
    schedule: Schedule,
}

/// The weights of sources from some amounts on that a run has drawn. The first amount is 0.
pub(super) type Schedule = Arc<[(u64, Arc<[u32]>)]>;

/// The draws of a run, gone through from its start.
pub(super) trait Passage {
    /// Lets sources have these ratios from here on.
    fn turn_to(&mut self, ratios: &Arc<[u32]>);
    /// The amount that was drawn so far.
    fn amount(&self) -> u128;
    /// The number of whole epochs from the start of this one until `amount` is reached, with the ratios of now.
    fn epochs_until(&self, amount: u64) -> u64;
    /// Goes to the start of a later epoch, from the start of this one.
    fn skip(&mut self, epochs: u64);
    /// Goes on in this epoch, to a position or until an amount has been drawn.
    fn go(&mut self, position: Option<u64>, amount: Option<u64>) -> Reached;
    /// Begins the next epoch, at the end of this one.
    fn begin(&mut self);
    /// Returns true at the start of an epoch.
    fn is_at_start(&self) -> bool;
}

/// The reason for which a passage stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reached {
    Position,
    Amount,
    EndOfEpoch,
}

impl History {
    /// Weights that are the same throughout.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the weights make no sense.
    pub(super) fn new(weights: &[f64]) -> Result<Self> {
        let schedule = Arc::new([(0, ratios(weights)?)]);
        Ok(Self(Arc::new([Given { place: (0, 0), schedule }])))
    }

    /// The same weights, and new weights from some amounts on.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if amounts do not increase, or weights are not those of as many
    /// sources.
    pub(super) fn with_schedule(&self, changes: &[(u64, Vec<f64>)]) -> Result<Self> {
        let mut schedule: Vec<(u64, Arc<[u32]>)> = vec![(0, Arc::clone(self.first()))];
        for (amount, weights) in changes {
            if let Some((last, _)) = schedule.last().filter(|(last, _)| last >= amount) {
                return Err(DrawsCause::ScheduleOrder { amount: *amount, last: *last }.into());
            }
            let (count, sources) = (weights.len(), self.first().len());
            if count != sources {
                return Err(DrawsCause::ScheduleCount { amount: *amount, found: count, sources }.into());
            }
            schedule.push((*amount, ratios(weights)?));
        }
        Ok(Self(Arc::new([Given { place: (0, 0), schedule: schedule.into() }])))
    }

    /// The ratios that the run began with.
    fn first(&self) -> &Arc<[u32]> {
        &self.0[0].schedule[0].1
    }

    /// The weights that were given last.
    pub(super) fn last(&self) -> &Schedule {
        &self.0[self.0.len() - 1].schedule
    }

    /// All ratios that may apply.
    pub(super) fn ratios(&self) -> impl Iterator<Item = &Arc<[u32]>> {
        self.0.iter().flat_map(|given| given.schedule.iter().map(|(_, ratios)| ratios))
    }

    /// The same history until a place, and then other weights.
    pub(super) fn replace_from(&self, place: (u64, u64), schedule: &Schedule) -> Self {
        // Weights that were given for this place or a later one have not been used.
        let before = self.0.iter().filter(|given| given.place < place).cloned();
        Self(before.chain([Given { place, schedule: Arc::clone(schedule) }]).collect())
    }

    /// Takes a passage from the start of a run to the end of an epoch.
    pub(super) fn walk(&self, target: u64, passage: &mut impl Passage) {
        let mut walk = Walk { epoch: 0, target, passage };
        for (given, next) in self.0.iter().zip(self.0.iter().skip(1).map(Some).chain([None])) {
            let next = next.map(|next| next.place);
            let amount = walk.passage.amount();
            let due = given.schedule.partition_point(|&(from, _)| u128::from(from) <= amount).max(1);
            walk.passage.turn_to(&given.schedule[due - 1].1);
            let mut reached = Reached::Amount;
            for (from, ratios) in &given.schedule[due..] {
                reached = walk.to(next, Some(*from));
                if reached != Reached::Amount {
                    break;
                }
                walk.passage.turn_to(ratios);
            }
            if reached == Reached::Amount {
                reached = walk.to(next, None);
            }
            if reached == Reached::EndOfEpoch {
                return;
            }
        }
    }
}

/// A passage under way.
struct Walk<'a, P> {
    epoch: u64,
    target: u64,
    passage: &'a mut P,
}

impl<P: Passage> Walk<'_, P> {
    /// Advances to a place or an amount, whichever is first, or to the end of the target epoch.
    fn to(&mut self, place: Option<(u64, u64)>, amount: Option<u64>) -> Reached {
        loop {
            let mut in_epoch = amount;
            if self.passage.is_at_start() {
                let by_place = place.map_or(u64::MAX, |(epoch, _)| epoch.saturating_sub(self.epoch));
                let by_amount = amount.map_or(u64::MAX, |amount| self.passage.epochs_until(amount));
                let ahead = by_place.min(by_amount).min(self.target - self.epoch);
                self.passage.skip(ahead);
                self.epoch += ahead;
                // The formula decides which epoch an amount lies in: whichever epoch is the target, it is the same one.
                in_epoch = amount.filter(|_| by_amount <= ahead);
            }
            // A place behind the end of its epoch is the start of the next one.
            let position = place.filter(|&(epoch, _)| epoch <= self.epoch);
            let position = position.map(|(epoch, position)| if epoch < self.epoch { 0 } else { position });
            match self.passage.go(position, in_epoch) {
                Reached::EndOfEpoch if self.epoch < self.target => {
                    self.epoch += 1;
                    self.passage.begin();
                }
                reached => return reached,
            }
        }
    }
}

impl From<History> for Vec<WrittenWeights> {
    fn from(history: History) -> Self {
        let text = |ratios: &[u32]| {
            STANDARD_NO_PAD.encode(ratios.iter().flat_map(|ratio| ratio.to_le_bytes()).collect::<Vec<u8>>())
        };
        let written = |given: &Given| {
            let schedule = given.schedule.iter().map(|(amount, ratios)| (*amount, text(ratios)));
            (given.place.0, given.place.1, schedule.collect())
        };
        history.0.iter().map(written).collect()
    }
}

impl TryFrom<Vec<WrittenWeights>> for History {
    type Error = String;

    fn try_from(written: Vec<WrittenWeights>) -> std::result::Result<Self, String> {
        let mut changes: Vec<Given> = Vec::new();
        for (epoch, position, schedule) in written {
            let place = (epoch, position);
            if changes.last().map_or(place != (0, 0), |last| last.place >= place) {
                return Err(format!("weights of sources begin at {place:?}, out of order"));
            }
            let schedule = schedule.into_iter().map(|(amount, text)| Ok((amount, read(&text)?)));
            let schedule: Schedule = schedule.collect::<std::result::Result<_, String>>()?;
            if schedule.first().is_none_or(|&(amount, _)| amount != 0)
                || !schedule.is_sorted_by(|a, b| a.0 < b.0)
            {
                return Err(format!(
                    "amounts of weights of sources from {place:?} on do not increase from 0"
                ));
            }
            changes.push(Given { place, schedule });
        }
        let history = Self(changes.into());
        let sources = history.0.first().map(|given| given.schedule[0].1.len());
        match sources.is_some() && history.ratios().all(|ratios| Some(ratios.len()) == sources) {
            true => Ok(history),
            false => Err("weights of sources are missing, or not those of as many sources".to_owned()),
        }
    }
}

/// Ratios from their text.
fn read(text: &str) -> std::result::Result<Arc<[u32]>, String> {
    let refused =
        || format!("weights of sources are {text:?}; expected base64 of numbers of 32 bits, one above 0");
    let bytes = STANDARD_NO_PAD.decode(text).map_err(|_| refused())?;
    let (numbers, rest) = bytes.as_chunks::<4>();
    let ratios: Arc<[u32]> = numbers.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
    match rest.is_empty() && ratios.iter().any(|&ratio| ratio > 0) {
        true => Ok(ratios),
        false => Err(refused()),
    }
}
