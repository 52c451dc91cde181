//! `TensorDataset`: a sample is a row, the same row of every field.

use std::ops::Range;
use std::sync::Arc;

use super::kind::{CollateOptions, Collation, EpochKey, Index, Kind};
use crate::batching::Rule;
use crate::collate::{Form, Stack};
use crate::{Error, Result, Tensor};

/// Arrays that share their first dimension. Sample `k` is row `k` of each.
///
/// The arrays are shared, never copied. Rows may be of any rank and layout; a row that is contiguous in memory is
/// copied at once, any other piece by piece.
///
/// ```
/// use batchloom::{Tensor, TensorDataset};
///
/// let x = Tensor::from_vec(vec![0.0_f32; 100 * 8], &[100, 8])?;
/// let y = Tensor::from_vec(vec![0_i64; 100], &[100])?;
/// let dataset = TensorDataset::new([("x", x), ("y", y)])?;
/// assert_eq!(dataset.len(), 100);
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct TensorDataset {
    names: Vec<String>,
    fields: Vec<Tensor>,
    samples: usize,
}

impl TensorDataset {
    /// A dataset of named fields.
    ///
    /// # Errors
    /// [`Error::NoFields`], [`Error::DuplicateField`], [`Error::ScalarField`], and [`Error::FieldLength`] if the first
    /// dimensions differ.
    pub fn new<N: Into<String>>(fields: impl IntoIterator<Item = (N, Tensor)>) -> Result<Self> {
        let (names, fields): (Vec<String>, Vec<Tensor>) =
            fields.into_iter().map(|(name, tensor)| (name.into(), tensor)).unzip();
        let samples = common_length(&names, fields.iter().map(|field| field.shape().first().copied()))?;
        Ok(Self { samples, names, fields })
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        self.samples
    }

    /// Returns true if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// The names of the fields, in order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The fields, in order.
    pub fn fields(&self) -> &[Tensor] {
        &self.fields
    }
}

impl Kind for TensorDataset {
    fn len(&self) -> usize {
        self.samples
    }

    fn arrays(&self) -> Vec<(&str, &Tensor)> {
        self.names.iter().map(String::as_str).zip(&self.fields).collect()
    }

    fn collation(&self, _: &Rule, _: &CollateOptions, _: EpochKey) -> Result<Collation> {
        let form =
            |(name, array)| Ok((String::from(name), Arc::new(Stack::new(name, array)?) as Arc<dyn Form>));
        Collation::new(self.arrays().into_iter().map(form).collect::<Result<_>>()?, Index::Rows)
    }

    fn rows(&self, samples: Range<usize>) -> Vec<Range<usize>> {
        vec![samples; self.fields.len()]
    }

    fn most_rows(&self, samples: usize) -> Vec<usize> {
        vec![samples; self.fields.len()]
    }
}

/// The number of samples that all fields have, given the length of each, or `None` for a scalar.
pub(super) fn common_length(names: &[String], lengths: impl Iterator<Item = Option<usize>>) -> Result<usize> {
    let repeated = names.iter().enumerate().find(|(place, name)| names[..*place].contains(name));
    if let Some((_, name)) = repeated {
        return Err(Error::DuplicateField { name: name.clone() });
    }
    let mut samples = None;
    for (name, found) in names.iter().zip(lengths) {
        let found = found.ok_or_else(|| Error::ScalarField { field: name.clone() })?;
        let &mut expected = samples.get_or_insert(found);
        if found != expected {
            let (field, first) = (name.clone(), names[0].clone());
            return Err(Error::FieldLength { field, found, first, expected });
        }
    }
    samples.ok_or(Error::NoFields)
}
