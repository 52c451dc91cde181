//! `TensorDataset`: a sample is a row, the same row of every field.

use std::ops::Range;
use std::sync::Arc;

use super::collation::{CollateOptions, Collation, Index};
use super::error::DatasetCause;
use super::kind::{EpochKey, Kind, all_of};
use crate::batching::Rule;
use crate::collate::{CrowIndices, Densify, EntryField, EntryPart, Form, Stack};
use crate::tensor::error::TensorCause;
use crate::tensor::{ChunkedTensor, Element, SparseLayout, SparseRows};
use crate::{Result, Tensor};

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
    fields: Vec<TensorField>,
    /// The arrays of the fields, by name: one for each dense field, two for each sparse one.
    arrays: Vec<(String, ChunkedTensor)>,
    samples: usize,
}

/// One field of a [`TensorDataset`].
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a dataset has a few fields")]
#[non_exhaustive]
pub enum TensorField {
    /// An array whose first dimension counts the samples.
    Dense(ChunkedTensor),
    /// Rows with some columns stored.
    Sparse(SparseRows),
}

impl From<Tensor> for TensorField {
    fn from(array: Tensor) -> Self {
        Self::Dense(array.into())
    }
}

impl From<ChunkedTensor> for TensorField {
    fn from(array: ChunkedTensor) -> Self {
        Self::Dense(array)
    }
}

impl<T: Element> From<Vec<T>> for TensorField {
    /// An array of one value for each sample, without a copy.
    fn from(values: Vec<T>) -> Self {
        Self::Dense(values.into())
    }
}

impl From<SparseRows> for TensorField {
    fn from(rows: SparseRows) -> Self {
        Self::Sparse(rows)
    }
}

impl TensorField {
    /// The number of samples; `None` for a scalar.
    fn len(&self) -> Option<usize> {
        match self {
            Self::Dense(array) => array.shape().first().copied(),
            Self::Sparse(rows) => Some(rows.len()),
        }
    }

    /// The arrays that samples are taken from, by the name of a field of batches.
    fn arrays(&self, name: &str) -> Vec<(String, ChunkedTensor)> {
        match self {
            Self::Dense(array) => vec![(name.to_owned(), array.clone())],
            Self::Sparse(rows) => vec![
                (format!("{name}.col_indices"), rows.columns().clone().into()),
                (format!("{name}.values"), rows.values().clone().into()),
            ],
        }
    }

    /// The rows of each array that the samples `samples` are taken from.
    fn rows(&self, samples: &Range<usize>) -> Vec<Range<usize>> {
        match self {
            Self::Dense(_) => vec![samples.clone()],
            Self::Sparse(_) if samples.is_empty() => vec![0..0; 2],
            Self::Sparse(rows) => {
                vec![rows.entries(samples.start).start..rows.entries(samples.end - 1).end; 2]
            }
        }
    }

    /// The most rows of each array that any `samples` neighbouring samples need.
    fn most_rows(&self, samples: usize) -> Vec<usize> {
        match self {
            Self::Dense(_) => vec![samples],
            Self::Sparse(rows) => vec![rows.most_entries(samples); 2],
        }
    }

    /// The fields of batches, and their forms. Compressed rows are noted, and forms know their place among them.
    fn forms(&self, name: &str, compressed: &mut Vec<SparseRows>) -> Result<Vec<(String, Arc<dyn Form>)>> {
        Ok(match self {
            Self::Dense(array) => vec![(name.to_owned(), Arc::new(Stack::new(name, array)?))],
            Self::Sparse(rows) if rows.batch_layout() == SparseLayout::Dense => {
                vec![(name.to_owned(), Arc::new(Densify(rows.clone())))]
            }
            Self::Sparse(rows) => {
                let place = compressed.len();
                compressed.push(rows.clone());
                let entries =
                    |part| -> Arc<dyn Form> { Arc::new(EntryField { rows: rows.clone(), place, part }) };
                vec![
                    (format!("{name}.crow_indices"), Arc::new(CrowIndices { rows: rows.clone(), place })),
                    (format!("{name}.col_indices"), entries(EntryPart::Column)),
                    (format!("{name}.values"), entries(EntryPart::Value)),
                ]
            }
        })
    }
}

impl TensorDataset {
    /// A dataset of named fields, dense or sparse. Batches hold a sparse field of layout [`SparseLayout::Csr`] as three
    /// fields: its name followed by `.crow_indices`, `.col_indices` and `.values`.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if there are no fields, if a name is given twice, if an array is a scalar, or
    /// if the first dimensions differ.
    pub fn new<N: Into<String>, F: Into<TensorField>>(
        fields: impl IntoIterator<Item = (N, F)>,
    ) -> Result<Self> {
        let (names, fields): (Vec<String>, Vec<TensorField>) =
            fields.into_iter().map(|(name, field)| (name.into(), field.into())).unzip();
        let samples = common_length(&names, fields.iter().map(TensorField::len))?;
        let arrays = names.iter().zip(&fields).flat_map(|(name, field)| field.arrays(name)).collect();
        Ok(Self { samples, names, fields, arrays })
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
    pub fn fields(&self) -> &[TensorField] {
        &self.fields
    }
}

impl Kind for TensorDataset {
    fn len(&self) -> usize {
        self.samples
    }

    fn arrays(&self) -> Vec<(&str, &ChunkedTensor)> {
        self.arrays.iter().map(|(name, array)| (name.as_str(), array)).collect()
    }

    fn view(&self, samples: Range<u64>) -> Option<Vec<(&str, Tensor)>> {
        let rows = usize::try_from(samples.start).ok()?..usize::try_from(samples.end).ok()?;
        let view = |(name, field): (_, &TensorField)| match field {
            TensorField::Dense(array) => Some((name, array.as_tensor()?.slice(rows.clone())?)),
            TensorField::Sparse(_) => None,
        };
        self.names.iter().map(String::as_str).zip(&self.fields).map(view).collect()
    }

    fn collation(&self, _: &Rule, _: &CollateOptions, _: EpochKey) -> Result<Collation> {
        let (mut forms, mut compressed) = (Vec::new(), Vec::new());
        for (name, field) in self.names.iter().zip(&self.fields) {
            forms.extend(field.forms(name, &mut compressed)?);
        }
        let compressed = compressed.into_iter().map(Into::into).collect();
        Ok(Collation { compressed, ..Collation::new(forms, Index::Rows)? })
    }

    fn concat(&self, others: &[&dyn Kind]) -> Result<Option<Arc<dyn Kind>>> {
        let Some(others) = all_of::<Self>(others) else { return Ok(None) };
        let each = || std::iter::once(self).chain(others.iter().copied());
        if each().any(|other| other.names != self.names) {
            return Ok(None);
        }
        let mut fields = Vec::new();
        for (place, name) in self.names.iter().enumerate() {
            let dense = |dataset: &Self| match &dataset.fields[place] {
                TensorField::Dense(array) => Some(array.clone()),
                TensorField::Sparse(_) => None,
            };
            let Some(arrays) = each().map(dense).collect::<Option<Vec<_>>>() else { return Ok(None) };
            fields.push((name.clone(), ChunkedTensor::concat(name, &arrays)?));
        }
        Ok(Some(Arc::new(Self::new(fields)?)))
    }

    fn rows(&self, samples: Range<usize>) -> Vec<Range<usize>> {
        self.fields.iter().flat_map(|field| field.rows(&samples)).collect()
    }

    fn most_rows(&self, samples: usize) -> Vec<usize> {
        self.fields.iter().flat_map(|field| field.most_rows(samples)).collect()
    }
}

/// The number of samples that all fields have, given the length of each, or `None` for a scalar.
pub(super) fn common_length(names: &[String], lengths: impl Iterator<Item = Option<usize>>) -> Result<usize> {
    let repeated = names.iter().enumerate().find(|(place, name)| names[..*place].contains(name));
    if let Some((_, name)) = repeated {
        return Err(DatasetCause::DuplicateField { field: name.clone() }.into());
    }
    let mut samples = None;
    for (name, length) in names.iter().zip(lengths) {
        let length = length.ok_or_else(|| TensorCause::ScalarField { field: name.clone() })?;
        let &mut expected = samples.get_or_insert(length);
        if length != expected {
            let (field, first) = (name.clone(), names[0].clone());
            return Err(TensorCause::FieldLength { field, found: length, first, expected }.into());
        }
    }
    samples.ok_or_else(|| DatasetCause::NoFields.into())
}
