//! `Measure`: the contents of a batch in numbers, and the shape on which its cost depends.

use super::epoch::Epoch;
use super::parts::Parts;
use super::pool::length;
use crate::batching::{BatchShape, Sizes, Union};

/// The contents of a batch in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Measure {
    /// Samples that begin in the batch.
    pub(super) samples: u64,
    /// Samples in the batch, and parts of samples.
    pub(super) parts: u64,
    /// Elements that are data.
    pub(super) real: u64,
    /// Elements with padding.
    pub(super) padded: u64,
    /// Elements of one padded sample.
    pub(super) length: u64,
    /// A number that identifies the shape of one padded sample.
    pub(super) shape: u64,
    /// Samples that are truncated, and the elements that this costs.
    pub(super) truncated: u64,
    pub(super) truncated_tokens: u64,
    /// Samples that begin in the batch and continue in later ones.
    pub(super) split: u64,
}

impl Measure {
    /// The same batch without some of its members; their places stay.
    pub(super) fn without(self, members: &Self) -> Self {
        Self {
            samples: self.samples - members.samples,
            real: self.real - members.real,
            truncated: self.truncated - members.truncated,
            truncated_tokens: self.truncated_tokens - members.truncated_tokens,
            split: self.split - members.split,
            ..self
        }
    }
}

impl Epoch {
    /// Counts the contents of a batch.
    pub(super) fn measure(&self, parts: &Parts) -> Measure {
        let Some(sizes) = &self.recipe.options.sizes else {
            let count = parts.samples.len() as u64;
            return Measure {
                samples: count,
                parts: count,
                real: count,
                padded: count,
                length: 1,
                ..Measure::default()
            };
        };
        let mut measure = Measure { parts: parts.samples.len() as u64, ..Measure::default() };
        let rule = &self.recipe.options.rule;
        let splits = rule.splits();
        for ((&sample, &start), &taken) in parts.samples.iter().zip(&parts.starts).zip(&parts.sizes) {
            measure.real += u64::from(taken);
            measure.samples += u64::from(start == 0 || !splits);
            if start > 0 && splits {
                continue;
            }
            let size = sizes.as_slice()[length(sample)];
            let kept = if splits { rule.count_taken(size) } else { taken };
            measure.truncated += u64::from(kept < size);
            measure.truncated_tokens += u64::from(size - kept);
            measure.split += u64::from(taken < kept);
        }
        if let Some(shape) = rule.row_shape() {
            return Measure { padded: shape.elements(), shape: shape.elements(), ..measure };
        }
        if self.recipe.packs() {
            return Measure { padded: measure.real, shape: measure.real, ..measure };
        }
        (measure.length, measure.shape) = self.padded_sample(sizes, parts);
        Measure { padded: measure.length.saturating_mul(measure.parts), ..measure }
    }

    /// The number of elements of a padded sample, and a number that identifies its shape.
    fn padded_sample(&self, sizes: &Sizes, parts: &Parts) -> (u64, u64) {
        if sizes.dimensions() == 1 {
            let length = self.recipe.rounding().up(parts.sizes.iter().copied().max().unwrap_or(0));
            return (length, length);
        }
        let multiple_of = self.recipe.options.rule.multiple_of();
        let mut union = Union::default();
        parts.samples.iter().for_each(|&sample| union.add(sizes.extents(length(sample))));
        (union.elements(multiple_of), union.name(multiple_of))
    }

    /// The shape of a batch, on which its cost depends.
    pub(super) fn batch_shape<'a>(&self, parts: &'a Parts, measure: &Measure) -> BatchShape<'a> {
        match self.recipe.packs() {
            true => BatchShape::Packed(&parts.sizes),
            false => BatchShape::Padded { samples: measure.parts, length: measure.length },
        }
    }
}
