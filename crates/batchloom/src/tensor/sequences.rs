//! `Sequences`: an array of arrays that differ in size, of any rank.
//!
//! It is one array of values and the place of each sample in it: a million sequences are three arrays, not a million
//! objects. Samples differ in some leading dimensions; the rest of the shape is the same for all.

use std::ops::Range;
use std::sync::Arc;

use super::error::TensorCause;
use super::{ChunkedTensor, Element, Tensor};
use crate::{Error, Result, memory};

/// The most bytes that a sample takes while its start and its extent are found, which are there twice until they are
/// shared.
const SAMPLE_BYTES: usize = 24;

/// One variable field: an array of values, and the part of it that makes each sample.
#[derive(Clone)]
pub struct Sequences {
    values: ChunkedTensor,
    /// The row of values at each place, or `None` if row `k` is at place `k`.
    order: Option<Arc<[u64]>>,
    /// The first place of each sample.
    starts: Arc<[u64]>,
    /// The extents of each sample in the leading dimensions.
    extents: Arc<[u32]>,
    /// The number of leading dimensions, and which of them differ between samples.
    leading: usize,
    varying: Vec<usize>,
    /// True if samples have several dimensions and all one shape, so that nothing tells which of them varies.
    is_guessed: bool,
}

crate::brief::debug_in_brief!(Sequences, [values, leading, varying], [order, starts, extents]);

impl Sequences {
    /// Samples; sample `k` is `values[offsets[k]..offsets[k + 1]]`. Values have any shape `[total, ..]` and
    /// layout, and may lie in several chunks, at any place of a sample.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if the values are a scalar, and with the first sample whose offsets descend or
    /// leave the values; [`Kind::Memory`](crate::Kind::Memory).
    pub fn new(name: &str, values: impl Into<ChunkedTensor>, offsets: &[i64]) -> Result<Self> {
        let values = values.into();
        let total = values.shape().first().copied();
        let total = total.ok_or_else(|| TensorCause::ScalarField { field: name.to_owned() })?;
        memory::require_each(offsets.len(), SAMPLE_BYTES)?;
        let mut starts = Vec::with_capacity(offsets.len().saturating_sub(1));
        let mut extents = Vec::with_capacity(offsets.len().saturating_sub(1));
        for (sample, pair) in offsets.windows(2).enumerate() {
            let wrong = |expected| TensorCause::Offsets {
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
                return Err(wrong("expected offsets within the values").into());
            }
            starts.push(start);
            extents
                .push(u32::try_from(length).map_err(|_| wrong("expected fewer than 2^32 values a sample"))?);
        }
        let (starts, extents) = (starts.into(), extents.into());
        Ok(Self { values, order: None, starts, extents, leading: 1, varying: vec![0], is_guessed: false })
    }

    /// Samples that are slices, or anything that lends one, copied one after the other.
    ///
    /// ```
    /// use batchloom::dataset::Sequences;
    ///
    /// let ids = Sequences::of("ids", [vec![1_i64, 2, 3], vec![], vec![4]])?;
    /// assert_eq!((ids.len(), ids.values().as_slice::<i64>()), (3, Some(&[1, 2, 3, 4][..])));
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data), with the name of the field, for a sample of 2^32 values or more;
    /// [`Kind::Memory`](crate::Kind::Memory).
    pub fn of<T: Element, S: AsRef<[T]>>(name: &str, samples: impl IntoIterator<Item = S>) -> Result<Self> {
        let (mut values, mut offsets) = (Vec::new(), vec![0]);
        for sample in samples {
            memory::append(&mut values, sample.as_ref())?;
            memory::grow(&mut offsets, 1)?;
            // A vector has no more elements than the signed numbers count.
            offsets.push(values.len().cast_signed() as i64);
        }
        Self::new(name, values, &offsets)
    }

    /// The samples of several fields, one field after the other; `None` if samples of one differ in other dimensions than
    /// samples of another, or if only some are in an order of their own.
    ///
    /// # Errors
    /// As [`ChunkedTensor::concat`].
    pub(crate) fn concat(name: &str, each: &[&Self]) -> Result<Option<Self>> {
        let Some((first, others)) = each.split_first() else { return Ok(None) };
        let is_alike = |other: &&Self| {
            (other.leading, &other.varying, other.order.is_some())
                == (first.leading, &first.varying, first.order.is_some())
                && other.frame() == first.frame()
        };
        if !others.iter().all(is_alike) {
            return Ok(None);
        }
        let samples = each.iter().map(|sequences| sequences.len()).sum::<usize>();
        let places = each.iter().filter_map(|sequences| sequences.order.as_ref()).map(|order| order.len());
        memory::require_each(samples, SAMPLE_BYTES)?;
        memory::require_each(places.sum::<usize>(), 2 * size_of::<u64>())?;
        let values = ChunkedTensor::concat(name, each.iter().map(|sequences| &sequences.values))?;
        let (mut starts, mut extents) = (Vec::with_capacity(samples), Vec::new());
        let (mut order, mut rows, mut before) = (Vec::new(), 0, 0);
        for sequences in each {
            starts.extend(sequences.starts.iter().map(|start| start + before));
            extents.extend_from_slice(&sequences.extents);
            order.extend(sequences.order.iter().flat_map(|order| order.iter()).map(|row| row + rows));
            rows += sequences.values.shape()[0] as u64;
            before = sequences.order.as_ref().map_or(rows, |_| order.len() as u64);
        }
        let (starts, extents) = (starts.into(), extents.into());
        let order = first.order.as_ref().map(|_| order.into());
        let is_guessed = each.iter().all(|sequences| sequences.is_guessed);
        let (leading, varying) = (first.leading, first.varying.clone());
        Ok(Some(Self { values, order, starts, extents, leading, varying, is_guessed }))
    }

    /// The same samples, if the value at each place is a row of `order`.
    pub(crate) fn with_order(self, order: Option<Arc<[u64]>>) -> Self {
        Self { order, ..self }
    }

    /// The same samples, if their first dimension was taken for the one that varies without a sign of it.
    #[doc(hidden)]
    #[must_use]
    pub fn guessed(self, is_guessed: bool) -> Self {
        Self { is_guessed, ..self }
    }

    /// Returns true if samples have several dimensions and all one shape, so that nothing tells which of them varies.
    pub(crate) fn is_guessed(&self) -> bool {
        self.is_guessed
    }

    /// Samples of any rank, one after the other in a flat array. `shapes` lists the shape of the first sample, of
    /// the second, and so on, `rank` lengths each. Samples vary in the dimensions in which some differ, or in the first
    /// if all have one shape.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if the shapes do not add up to the values, or if these are not one compact
    /// dimension; [`Kind::Memory`](crate::Kind::Memory).
    pub fn with_shapes(name: &str, values: &Tensor, shapes: &[u32], rank: usize) -> Result<Self> {
        Self::of_shapes(name, values, shapes, rank, None)
    }

    /// Samples as [`with_shapes`](Self::with_shapes) takes them, that vary in one dimension, even if all of them happen to
    /// have one shape: batches that concatenate samples do so along this dimension.
    ///
    /// ```
    /// use batchloom::Tensor;
    /// use batchloom::dataset::Sequences;
    ///
    /// // Two graphs of two edges each: sources, then targets.
    /// let edges = Tensor::from_vec(vec![0_i64, 1, 1, 0, 0, 2, 2, 1], &[8])?;
    /// let edges = Sequences::along("edge_index", &edges, &[2, 2, 2, 2], 2, 1)?;
    /// assert_eq!(edges.frame(), [Some(2), None]);
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`with_shapes`](Self::with_shapes); and [`Kind::Data`](crate::Kind::Data) if there is no such dimension, or if
    /// samples differ in another one.
    pub fn along(name: &str, values: &Tensor, shapes: &[u32], rank: usize, dimension: usize) -> Result<Self> {
        Self::of_shapes(name, values, shapes, rank, Some(dimension))
    }

    fn of_shapes(
        name: &str,
        values: &Tensor,
        shapes: &[u32],
        rank: usize,
        dimension: Option<usize>,
    ) -> Result<Self> {
        let (count, shape) = (values.layout().elements(), vec![shapes.len() / rank.max(1), rank]);
        let lengths = shapes.chunks(rank.max(1));
        let total = lengths.clone().try_fold(0_usize, |total, lengths| total.checked_add(elements(lengths)?));
        let compact = values.shape().len() == 1 && values.layout().is_compact(values.dtype().size());
        if !compact {
            return Err(
                TensorCause::NotCompact { field: name.to_owned(), found: values.shape().to_vec() }.into()
            );
        }
        if rank == 0 || !shapes.len().is_multiple_of(rank) || total != Some(count) {
            let expected = total.unwrap_or(usize::MAX);
            return Err(TensorCause::Shape { values: count, shape, expected }.into());
        }
        memory::require_each(shapes.len(), SAMPLE_BYTES)?;
        let differs =
            |dimension: &usize| lengths.clone().any(|lengths| lengths[*dimension] != shapes[*dimension]);
        let mut varying: Vec<usize> = (0..rank).filter(differs).collect();
        if let Some(dimension) = dimension {
            if dimension >= rank {
                return Err(TensorCause::NoDimension { field: name.to_owned(), dimension, rank }.into());
            }
            if let Some(other) = varying.iter().copied().find(|&other| other != dimension) {
                let field = name.to_owned();
                return Err(TensorCause::OtherDimension { field, dimension, other }.into());
            }
        }
        let is_guessed = varying.is_empty() && dimension.is_none() && rank > 1;
        if varying.is_empty() {
            varying.push(dimension.unwrap_or(0));
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
        let shape = [&[count.checked_div(row).unwrap_or(0)], inner.as_slice()].concat();
        let values = values.reshape(&shape);
        let values = values.ok_or(TensorCause::Shape { values: count, shape, expected: usize::MAX })?;
        Ok(Self { values: values.into(), order: None, starts, extents, leading, varying, is_guessed })
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Returns true if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All values: `[total, ..]`.
    pub fn values(&self) -> &ChunkedTensor {
        &self.values
    }

    /// The row of values at each place, or `None` if row `k` is at place `k`.
    pub(crate) fn order(&self) -> Option<&[u64]> {
        self.order.as_deref()
    }

    /// The first place of a sample.
    pub(crate) fn start(&self, sample: usize) -> usize {
        usize::try_from(self.starts[sample]).unwrap_or(usize::MAX)
    }

    /// The first place of each of some samples. This is one tight loop, so that the processor waits for all of them at
    /// once.
    pub(crate) fn starts(&self, samples: &[u64]) -> Vec<usize> {
        samples.iter().map(|&sample| self.start(usize::try_from(sample).unwrap_or(usize::MAX))).collect()
    }

    /// The rows of values that neighbouring samples take: the smallest range that holds all of them.
    pub(crate) fn rows_of(&self, samples: Range<usize>) -> Range<usize> {
        let places = self.places_of(samples);
        match &self.order {
            None => places,
            Some(order) => {
                let rows = order.get(places).unwrap_or(&[]).iter().copied();
                let row = |row| usize::try_from(row).unwrap_or(usize::MAX);
                rows.clone().min().map_or(0, row)..rows.max().map_or(0, |last| row(last).saturating_add(1))
            }
        }
    }

    /// The largest number of rows of values that `samples` neighbouring samples take: all rows, if those of samples lie
    /// anywhere.
    pub(crate) fn most_rows(&self, samples: usize) -> usize {
        if self.order.is_some() {
            return self.values.shape()[0];
        }
        let samples = samples.min(self.len());
        let rows = |start| self.places_of(start..start + samples).len();
        (0..=self.len() - samples).map(rows).max().unwrap_or(0)
    }

    /// The places of neighbouring samples, which lie one after the other.
    fn places_of(&self, samples: Range<usize>) -> Range<usize> {
        if samples.is_empty() {
            return 0..0;
        }
        let last = samples.end - 1;
        let taken = elements(self.extents(last)).unwrap_or(usize::MAX);
        self.start(samples.start)..self.start(last).saturating_add(taken)
    }

    /// The extents of a sample in the leading dimensions.
    pub(crate) fn extents(&self, sample: usize) -> &[u32] {
        &self.extents[sample * self.leading..(sample + 1) * self.leading]
    }

    /// The number of leading dimensions, which may differ between samples.
    pub(crate) fn leading(&self) -> usize {
        self.leading
    }

    /// The leading extents that all samples share, `None` for those in which they differ. Trailing dimensions that do
    /// not decide where a row of values lies in a sample are left out.
    pub fn frame(&self) -> Vec<Option<u32>> {
        let same =
            |dimension| self.extents.get(dimension).copied().filter(|_| !self.varying.contains(&dimension));
        (0..self.leading).map(same).collect()
    }

    /// The dimensions in which samples vary.
    #[doc(hidden)]
    pub fn varying(&self) -> &[usize] {
        &self.varying
    }

    /// The extents of a sample in the dimensions in which samples differ.
    pub(crate) fn sizes_of(&self, sample: usize) -> impl Iterator<Item = u32> + '_ {
        self.varying.iter().map(move |&dimension| self.extents(sample)[dimension])
    }
}

impl<T: Element> TryFrom<&[Vec<T>]> for Sequences {
    type Error = Error;

    /// A sample for each vector, as [`of`](Self::of) copies them.
    fn try_from(samples: &[Vec<T>]) -> Result<Self> {
        Self::of(UNNAMED, samples)
    }
}

impl<T: Element> TryFrom<&[&[T]]> for Sequences {
    type Error = Error;

    /// A sample for each slice, as [`of`](Self::of) copies them.
    fn try_from(samples: &[&[T]]) -> Result<Self> {
        Self::of(UNNAMED, samples)
    }
}

impl<T: Element> TryFrom<Vec<Vec<T>>> for Sequences {
    type Error = Error;

    /// A sample for each vector, as [`of`](Self::of) copies them.
    fn try_from(samples: Vec<Vec<T>>) -> Result<Self> {
        Self::of(UNNAMED, samples)
    }
}

/// The name of sequences in errors where none was given.
const UNNAMED: &str = "sequences";

/// The number of elements of a shape, or `None` if it overflows.
fn elements(lengths: &[u32]) -> Option<usize> {
    lengths.iter().try_fold(1_usize, |product, &len| product.checked_mul(length(len)))
}

fn length(len: u32) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
