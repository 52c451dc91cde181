//! `Field`: one field of a [`SequenceDataset`](super::SequenceDataset), and the checks that fields fit each other.

use std::ops::Range;

use crate::Result;
use crate::dataset::error::DatasetCause;
use crate::tensor::{ChunkedTensor, Sequences};

/// One field of a dataset.
#[derive(Debug, Clone)]
pub(super) enum Field {
    /// A field with the same shape for every sample.
    Fixed(ChunkedTensor),
    /// A field with a separate shape for each sample.
    Variable(Sequences),
}

impl Field {
    /// The array that the field is taken from.
    pub(super) fn values(&self) -> &ChunkedTensor {
        match self {
            Self::Fixed(rows) => rows,
            Self::Variable(sequences) => sequences.values(),
        }
    }

    /// The samples of several fields, one field after the other; `None` if they are no single field.
    ///
    /// # Errors
    /// As [`ChunkedTensor::concat`].
    pub(super) fn concat(name: &str, each: &[&Self]) -> Result<Option<Self>> {
        let fixed = each.iter().map(|field| match field {
            Self::Fixed(rows) => Some(rows),
            Self::Variable(_) => None,
        });
        if let Some(rows) = fixed.collect::<Option<Vec<_>>>() {
            return ChunkedTensor::concat(name, rows).map(|rows| Some(Self::Fixed(rows)));
        }
        let variable = each.iter().map(|field| match field {
            Self::Fixed(_) => None,
            Self::Variable(sequences) => Some(sequences),
        });
        let Some(sequences) = variable.collect::<Option<Vec<_>>>() else { return Ok(None) };
        Ok(Sequences::concat(name, &sequences)?.map(Self::Variable))
    }

    /// The rows of the array that some samples are taken from.
    pub(super) fn rows(&self, samples: Range<usize>) -> Range<usize> {
        match self {
            Self::Fixed(_) => samples,
            Self::Variable(sequences) => sequences.rows_of(samples),
        }
    }

    /// The largest number of rows that `samples` neighbouring samples need.
    pub(super) fn most_rows(&self, samples: usize) -> usize {
        match self {
            Self::Fixed(_) => samples,
            Self::Variable(sequences) => sequences.most_rows(samples),
        }
    }
}

/// A field, if its samples differ in size.
pub(super) fn variable<'a>((name, field): (&'a String, &'a Field)) -> Option<(&'a String, &'a Sequences)> {
    match field {
        Field::Variable(sequences) => Some((name, sequences)),
        Field::Fixed(_) => None,
    }
}

/// Refuses fields that `share` the sizes of field `guide`, the first of them, and differ from it.
pub(super) fn check_extents(
    names: &[String],
    fields: &[Field],
    guide: usize,
    share: impl Fn(&String) -> bool,
    samples: usize,
) -> Result<()> {
    let Field::Variable(first) = &fields[guide] else { return Ok(()) };
    for (name, field) in names.iter().zip(fields).skip(guide + 1) {
        let Field::Variable(sequences) = field else { continue };
        if !share(name) {
            continue;
        }
        let differs = |sample: &usize| !sequences.sizes_of(*sample).eq(first.sizes_of(*sample));
        if let Some(sample) = (0..samples).find(differs) {
            return Err(DatasetCause::Ragged {
                field: name.clone(),
                sample: sample as u64,
                found: sequences.sizes_of(sample).collect(),
                first: names[guide].clone(),
                expected: first.sizes_of(sample).collect(),
            }
            .into());
        }
    }
    Ok(())
}
