//! `SequenceDataset`: samples that differ in size, of any rank.
//!
//! A variable field is one array of values and where each sample lies in it: a million sequences are three arrays, not a
//! million objects. What differs between samples are their extents in some leading dimensions; the rest of the shape is
//! the same for all.

use std::sync::Arc;

use super::tensors::common_length;
use crate::batching::Sizes;
use crate::tensor::Rows;
use crate::{Error, Result, Tensor};

/// One variable field: an array of values, and the part of it that makes each sample.
#[derive(Debug, Clone)]
pub struct Sequences {
    values: Tensor,
    rows: Rows,
    /// The row of values at each place; none where that is the place itself.
    order: Option<Arc<[u64]>>,
    /// For each sample, its first place.
    starts: Arc<[u64]>,
    /// For each sample, its extents in the leading dimensions.
    extents: Arc<[u32]>,
    /// How many leading dimensions, and which of them differ between samples.
    leading: usize,
    varying: Vec<usize>,
}

impl Sequences {
    /// Sample `k` is `values[offsets[k]..offsets[k + 1]]`. Values have any shape `[total, ..]` and layout.
    ///
    /// # Errors
    /// [`Error::ScalarField`]; [`Error::Offsets`] with the first sample whose offsets descend or leave the values.
    pub fn new(name: &str, values: Tensor, offsets: &[i64]) -> Result<Self> {
        let rows = values.layout().rows(values.dtype().size());
        let rows = rows.ok_or_else(|| Error::ScalarField { field: name.to_owned() })?;
        let total = values.shape()[0];
        let mut starts = Vec::with_capacity(offsets.len().saturating_sub(1));
        let mut extents = Vec::with_capacity(offsets.len().saturating_sub(1));
        for (sample, pair) in offsets.windows(2).enumerate() {
            let wrong = |expected| Error::Offsets {
                field: name.to_owned(),
                sample: sample as u64,
                start: pair[0],
                end: pair[1],
                values: total as u64,
                expected,
            };
            let start = u64::try_from(pair[0]).map_err(|_| wrong("expected offsets of at least 0"))?;
            let length = pair[1].checked_sub(pair[0]).filter(|&length| length >= 0);
            let length = length.ok_or_else(|| wrong("expected offsets that do not decrease"))?;
            if u64::try_from(pair[1]).is_ok_and(|end| end > total as u64) {
                return Err(wrong("expected offsets within the values"));
            }
            starts.push(start);
            extents
                .push(u32::try_from(length).map_err(|_| wrong("expected fewer than 2^32 values a sample"))?);
        }
        let (starts, extents) = (starts.into(), extents.into());
        Ok(Self { values, rows, order: None, starts, extents, leading: 1, varying: vec![0] })
    }

    /// The same, where the value at each place is a row of `order`.
    pub(super) fn ordered(self, order: Option<Arc<[u64]>>) -> Self {
        Self { order, ..self }
    }

    /// Samples of any rank, one after the other in a flat array: `shapes` lists the shape of the first sample, that of
    /// the second, and so on, `rank` lengths each.
    ///
    /// # Errors
    /// [`Error::Shape`] where the shapes do not add up to the values, [`Error::NotCompact`] where these are not one
    /// compact dimension.
    pub fn with_shapes(name: &str, values: &Tensor, shapes: &[u32], rank: usize) -> Result<Self> {
        let (found, shape) = (values.layout().elements(), vec![shapes.len() / rank.max(1), rank]);
        let lengths = shapes.chunks(rank.max(1));
        let total = lengths.clone().try_fold(0_usize, |total, lengths| total.checked_add(elements(lengths)?));
        let compact = values.shape().len() == 1 && values.layout().is_compact(values.dtype().size());
        if !compact {
            return Err(Error::NotCompact { field: name.to_owned(), found: values.shape().to_vec() });
        }
        if rank == 0 || !shapes.len().is_multiple_of(rank) || total != Some(found) {
            let expected = total.unwrap_or(usize::MAX);
            return Err(Error::Shape { values: found, shape, expected });
        }
        let differs =
            |dimension: &usize| lengths.clone().any(|lengths| lengths[*dimension] != shapes[*dimension]);
        let mut varying: Vec<usize> = (0..rank).filter(differs).collect();
        if varying.is_empty() {
            varying.push(0);
        }
        let leading = varying.last().map_or(1, |last| last + 1);
        let inner: Vec<usize> =
            shapes.get(leading..rank).unwrap_or_default().iter().map(|&len| length(len)).collect();
        let row: usize = inner.iter().product();
        let starts = lengths.clone().scan(0, |start, lengths| {
            let now = *start;
            *start += elements(&lengths[..leading]).unwrap_or(0) as u64;
            Some(now)
        });
        let starts = starts.collect();
        let extents = lengths.flat_map(|lengths| &lengths[..leading]).copied().collect();
        let shape = [&[found.checked_div(row).unwrap_or(0)], inner.as_slice()].concat();
        let values = values.reshape(&shape);
        let values = values.ok_or(Error::Shape { values: found, shape, expected: usize::MAX })?;
        let rows = values.layout().rows(values.dtype().size());
        let rows = rows.ok_or_else(|| Error::ScalarField { field: name.to_owned() })?;
        Ok(Self { values, rows, order: None, starts, extents, leading, varying })
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All values: `[total, ..]`.
    pub fn values(&self) -> &Tensor {
        &self.values
    }

    /// How to walk the values.
    pub(crate) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// The row of values at each place; none where that is the place itself.
    pub(crate) fn order(&self) -> Option<&[u64]> {
        self.order.as_deref()
    }

    /// The first place of a sample.
    pub(crate) fn start(&self, sample: usize) -> usize {
        usize::try_from(self.starts[sample]).unwrap_or(usize::MAX)
    }

    /// The first place of each of some samples. One tight loop, so that the processor waits for all at once.
    pub(crate) fn starts(&self, samples: &[u64]) -> Vec<usize> {
        samples.iter().map(|&sample| self.start(usize::try_from(sample).unwrap_or(usize::MAX))).collect()
    }

    /// The extents of a sample in the leading dimensions.
    pub(crate) fn extents(&self, sample: usize) -> &[u32] {
        &self.extents[sample * self.leading..(sample + 1) * self.leading]
    }

    /// How many leading dimensions may differ between samples.
    pub(crate) fn leading(&self) -> usize {
        self.leading
    }

    /// The leading extents of all samples; none for those in which samples differ. As many as decide where a row of
    /// values lies in a sample.
    pub fn frame(&self) -> Vec<Option<u32>> {
        let same =
            |dimension| self.extents.get(dimension).copied().filter(|_| !self.varying.contains(&dimension));
        (0..self.leading).map(same).collect()
    }

    /// The dimensions in which samples differ.
    pub(crate) fn varying(&self) -> &[usize] {
        &self.varying
    }

    /// The extents of a sample in the dimensions in which samples differ.
    pub(crate) fn sizes_of(&self, sample: usize) -> impl Iterator<Item = u32> + '_ {
        self.varying.iter().map(move |&dimension| self.extents(sample)[dimension])
    }
}

/// One field of a dataset.
#[derive(Debug, Clone)]
pub(crate) enum Field {
    /// The same shape for every sample.
    Fixed(Tensor),
    /// A shape of its own for each sample.
    Variable(Sequences),
}

/// Sequences of any length, and whatever belongs to each.
///
/// Variable fields share their lengths sample by sample; fixed fields have one row for each sample.
///
/// ```
/// use batchloom::{SequenceDataset, Tensor};
/// use batchloom::dataset::Sequences;
///
/// let tokens = Tensor::from_vec((0..10_i64).collect(), &[10])?;
/// let tokens = Sequences::new("tokens", tokens, &[0, 3, 3, 10])?; // three, none, seven
/// let dataset = SequenceDataset::new().variable("tokens", tokens).build()?;
/// assert_eq!(dataset.sizes().as_slice(), [3, 0, 7]);
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SequenceDataset {
    names: Vec<String>,
    fields: Arc<[Field]>,
    /// The place of the first variable field, whose extents are those of all.
    guide: usize,
    sizes: Sizes,
    own_sizes: bool,
    /// Whether samples that are longer than their size are thinned out at random.
    subsamples: bool,
}

/// The fields of a [`SequenceDataset`] to be.
#[derive(Debug, Clone, Default)]
pub struct SequenceDatasetBuilder {
    names: Vec<String>,
    fields: Vec<Field>,
    sizes: Option<Vec<u32>>,
}

impl Field {
    /// The array that it is taken from.
    pub(crate) fn values(&self) -> &Tensor {
        match self {
            Self::Fixed(rows) => rows,
            Self::Variable(sequences) => sequences.values(),
        }
    }
}

impl SequenceDatasetBuilder {
    /// Adds a field whose samples differ in size.
    #[must_use]
    pub fn variable(mut self, name: impl Into<String>, sequences: Sequences) -> Self {
        self.names.push(name.into());
        self.fields.push(Field::Variable(sequences));
        self
    }

    /// Adds a field with one row for each sample.
    #[must_use]
    pub fn fixed(mut self, name: impl Into<String>, rows: Tensor) -> Self {
        self.names.push(name.into());
        self.fields.push(Field::Fixed(rows));
        self
    }

    /// Numbers to sort, count and budget by in place of the lengths.
    #[must_use]
    pub fn sizes(mut self, sizes: Vec<u32>) -> Self {
        self.sizes = Some(sizes);
        self
    }

    /// The dataset.
    ///
    /// # Errors
    /// [`Error::NoFields`], [`Error::NotVariable`], [`Error::DuplicateField`], [`Error::ScalarField`],
    /// [`Error::FieldLength`], [`Error::Ragged`], [`Error::SizesLength`], [`Error::SizeTooLarge`].
    pub fn build(self) -> Result<SequenceDataset> {
        let lengths = self.fields.iter().map(|field| match field {
            Field::Fixed(rows) => rows.shape().first().copied(),
            Field::Variable(sequences) => Some(sequences.len()),
        });
        let samples = common_length(&self.names, lengths)?;
        let variable = |field: &Field| matches!(field, Field::Variable(_));
        let guide = self.fields.iter().position(variable).ok_or(Error::NotVariable)?;
        check_extents(&self.names, &self.fields, guide, samples)?;
        let own_sizes = self.sizes.is_none();
        let sizes = match (self.sizes, &self.fields[guide]) {
            (Some(sizes), _) if sizes.len() != samples => {
                return Err(Error::SizesLength { found: sizes.len() as u64, samples: samples as u64 });
            }
            (Some(sizes), _) => Sizes::new(sizes),
            (None, Field::Variable(sequences)) => {
                let extents = (0..samples).flat_map(|sample| sequences.sizes_of(sample)).collect();
                Sizes::with_extents(extents, sequences.varying.len())?
            }
            (None, Field::Fixed(_)) => return Err(Error::NotVariable),
        };
        Ok(SequenceDataset {
            names: self.names,
            fields: self.fields.into(),
            guide,
            sizes,
            own_sizes,
            subsamples: false,
        })
    }
}

impl SequenceDataset {
    /// The fields of a dataset, to be added one by one.
    #[expect(clippy::new_ret_no_self, reason = "a dataset without fields is none")]
    pub fn new() -> SequenceDatasetBuilder {
        SequenceDatasetBuilder::default()
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        usize::try_from(self.sizes.len()).unwrap_or(usize::MAX)
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names of the fields, in order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// What plans sort, count and budget by.
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// The same, where no more than `most` elements are taken of a sample: the first, or some at random.
    pub(super) fn at_most(mut self, most: u32, subsamples: bool) -> Self {
        let most: Vec<u32> = self.sizes.as_slice().iter().map(|&size| size.min(most)).collect();
        self.sizes = Sizes::new(most);
        self.subsamples = subsamples;
        self
    }

    /// Whether samples that are longer than their size are thinned out at random.
    pub(crate) fn subsamples(&self) -> bool {
        self.subsamples
    }

    /// Whether the sizes are the lengths.
    pub(crate) fn own_sizes(&self) -> bool {
        self.own_sizes
    }

    /// In how many dimensions samples differ.
    pub(crate) fn dimensions(&self) -> usize {
        self.guide().map_or(1, |guide| guide.varying().len())
    }

    pub(crate) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The first variable field.
    pub(crate) fn guide(&self) -> Option<&Sequences> {
        match self.fields.get(self.guide) {
            Some(Field::Variable(sequences)) => Some(sequences),
            _ => None,
        }
    }
}

/// Refuses variable fields whose samples differ in size from those of the first one.
fn check_extents(names: &[String], fields: &[Field], guide: usize, samples: usize) -> Result<()> {
    let Field::Variable(first) = &fields[guide] else { return Ok(()) };
    for (name, field) in names.iter().zip(fields).skip(guide + 1) {
        let Field::Variable(sequences) = field else { continue };
        let differs = |sample: &usize| !sequences.sizes_of(*sample).eq(first.sizes_of(*sample));
        if let Some(sample) = (0..samples).find(differs) {
            return Err(Error::Ragged {
                field: name.clone(),
                sample: sample as u64,
                found: sequences.sizes_of(sample).collect(),
                first: names[guide].clone(),
                expected: first.sizes_of(sample).collect(),
            });
        }
    }
    Ok(())
}

/// How many elements a shape holds, where they can be numbered.
fn elements(lengths: &[u32]) -> Option<usize> {
    lengths.iter().try_fold(1_usize, |product, &len| product.checked_mul(length(len)))
}

fn length(len: u32) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
