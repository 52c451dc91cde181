//! The sizes of samples: rules sort, count and budget by them.

use std::ops::Range;
use std::sync::Arc;

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::error::BatchingCause;
use crate::{Result, memory};

/// The sizes of all samples, shared. Each is below 2^32; their sum may exceed it.
///
/// A sample with several variable dimensions (an image of any height and width) has an extent in each, and their
/// product is its size. Such samples are padded to the union of their extents.
#[derive(Clone)]
pub struct Sizes {
    sizes: Arc<[u32]>,
    /// The number of variable dimensions and the extents of each sample, if there are several dimensions.
    extents: Option<(usize, Arc<[u32]>)>,
    total: u64,
    digest: u128,
}

crate::brief::debug_in_brief!(Sizes, [total], [sizes, extents]);

impl Sizes {
    /// The sizes of samples with one variable dimension. This takes one pass over them.
    pub fn new(sizes: impl Into<Arc<[u32]>>) -> Self {
        let sizes = sizes.into();
        let total = sizes.iter().map(|&size| u64::from(size)).sum();
        let digest = xxh3_128(bytemuck::cast_slice(&sizes));
        Self { sizes, extents: None, total, digest }
    }

    /// The sizes of samples with `dimensions` variable dimensions: the extents of the first sample, the extents of the
    /// second, and so on.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if a product of extents is not below 2^32, or if the number of extents is not
    /// a multiple of `dimensions`; [`Kind::Memory`](crate::Kind::Memory).
    pub fn with_extents(extents: Vec<u32>, dimensions: usize) -> Result<Self> {
        if dimensions == 0 || !extents.len().is_multiple_of(dimensions) {
            return Err(BatchingCause::Extents { extents: extents.len(), dimensions }.into());
        }
        if dimensions == 1 {
            return Ok(Self::new(extents));
        }
        memory::require_each(extents.len(), 4 * size_of::<u32>())?;
        let product = |(sample, extents): (usize, &[u32])| {
            let size = extents.iter().try_fold(1_u32, |size, &extent| size.checked_mul(extent));
            size.ok_or_else(|| BatchingCause::SizeTooLarge {
                sample: sample as u64,
                extents: extents.to_vec(),
            })
        };
        let sizes: Vec<u32> = extents
            .chunks(dimensions)
            .enumerate()
            .map(product)
            .collect::<std::result::Result<_, BatchingCause>>()?;
        Ok(Self::new(sizes).add_extents(extents, dimensions))
    }

    /// The number of samples.
    pub fn len(&self) -> u64 {
        self.sizes.len() as u64
    }

    /// Returns true if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// The size of each sample.
    pub fn as_slice(&self) -> &[u32] {
        &self.sizes
    }

    /// The sum of all sizes.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The number of dimensions in which samples differ.
    pub fn dimensions(&self) -> usize {
        self.extents.as_ref().map_or(1, |(dimensions, _)| *dimensions)
    }

    /// The first sample with more than `most` elements.
    pub(super) fn find_above(&self, most: u64) -> Option<usize> {
        self.sizes.iter().position(|&size| u64::from(size) > most)
    }

    /// The extents of all samples in the variable dimensions, one sample after the other.
    pub fn to_extents(&self) -> Vec<u32> {
        self.extents.as_ref().map_or(&self.sizes, |(_, extents)| extents).to_vec()
    }

    /// The extents of `sample` in the variable dimensions.
    ///
    /// # Panics
    /// Panics if there is no such sample.
    pub(crate) fn extents(&self, sample: usize) -> &[u32] {
        match &self.extents {
            None => &self.sizes[sample..=sample],
            Some((dimensions, extents)) => &extents[sample * dimensions..(sample + 1) * dimensions],
        }
    }

    /// The number of variable dimensions and the extents of a run of samples, if there are several dimensions.
    pub(crate) fn extents_of(&self, samples: Range<usize>) -> Option<(usize, &[u32])> {
        let (dimensions, extents) = self.extents.as_ref()?;
        Some((*dimensions, &extents[samples.start * dimensions..samples.end * dimensions]))
    }

    /// The same as [`extents_of`](Self::extents_of), for any samples.
    pub(crate) fn gather_extents(&self, samples: &[u64]) -> Option<(usize, Vec<u32>)> {
        let (dimensions, _) = self.extents.as_ref()?;
        let index = |&sample: &u64| usize::try_from(sample).unwrap_or(usize::MAX);
        Some((*dimensions, samples.iter().flat_map(|sample| self.extents(index(sample))).copied().collect()))
    }

    /// The sizes of the samples at `numbers`.
    ///
    /// # Errors
    /// [`Kind::Memory`](crate::Kind::Memory).
    pub(crate) fn gather(&self, numbers: impl ExactSizeIterator<Item = u64> + Clone) -> Result<Self> {
        memory::require_each(numbers.len(), self.sample_bytes())?;
        let index = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let all = Self::new(numbers.clone().map(|number| self.sizes[index(number)]).collect::<Vec<_>>());
        let Some((dimensions, _)) = &self.extents else { return Ok(all) };
        let extents: Vec<u32> = numbers.flat_map(|number| self.extents(index(number))).copied().collect();
        Ok(all.add_extents(extents, *dimensions))
    }

    /// The sizes of the samples of several datasets, one after the other.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if samples differ in more dimensions in one than in another;
    /// [`Kind::Memory`](crate::Kind::Memory).
    pub(crate) fn join(each: &[Self]) -> Result<Self> {
        let dimensions = each.first().map_or(1, Self::dimensions);
        if let Some(place) = each.iter().position(|sizes| sizes.dimensions() != dimensions) {
            let (others, expected) = (each[place].dimensions(), dimensions);
            return Err(BatchingCause::JoinedDimensions { dataset: place, found: others, expected }.into());
        }
        let samples = each.iter().map(|sizes| sizes.sizes.len()).fold(0, usize::saturating_add);
        memory::require_each(samples, each.first().map_or(0, Self::sample_bytes))?;
        let all = Self::new(each.iter().flat_map(|sizes| sizes.as_slice()).copied().collect::<Vec<_>>());
        let extents = || each.iter().flat_map(Self::to_extents).collect();
        Ok(if dimensions == 1 { all } else { all.add_extents(extents(), dimensions) })
    }

    /// The most bytes that a sample takes while a list of sizes grows and until it is shared.
    fn sample_bytes(&self) -> usize {
        let dimensions = if self.extents.is_some() { self.dimensions() } else { 0 };
        4 * size_of::<u32>() * (1 + dimensions)
    }

    /// The same sizes, of samples with these extents.
    fn add_extents(mut self, extents: Vec<u32>, dimensions: usize) -> Self {
        self.digest ^= xxh3_128(bytemuck::cast_slice(&extents)).rotate_left(64);
        self.extents = Some((dimensions, extents.into()));
        self
    }

    /// A hash of all sizes, which a plan depends on.
    pub(crate) fn digest(&self) -> String {
        format!("{:032x}", self.digest)
    }
}

/// The sizes of the samples of one pool, in the order of the epoch.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PoolSizes<'a> {
    /// The size of each sample.
    pub(crate) sizes: &'a [u32],
    /// The number of variable dimensions and the extents of each sample, if there are several dimensions.
    pub(crate) extents: Option<(usize, &'a [u32])>,
    /// The number of samples that are shuffled together, these among them, or `None` in stored order.
    pub(crate) together: Option<u64>,
    /// Batches of as many elements are to cost the same, whatever the price of a pair of elements.
    pub(crate) even: bool,
    /// The last batch is left out if it is not full, where rests are continued.
    pub(crate) drop_last: bool,
}

/// The shape that several samples are padded to: the largest extent in each variable dimension.
#[derive(Debug, Clone, Default)]
pub(crate) struct Union(Vec<u32>);

impl Union {
    /// Enlarges the shape to hold a sample of `extents`.
    pub(crate) fn add(&mut self, extents: &[u32]) {
        self.0.resize(extents.len(), 0);
        self.0.iter_mut().zip(extents).for_each(|(most, &extent)| *most = extent.max(*most));
    }

    /// The number of elements of one padded sample, each extent rounded up to a multiple.
    pub(crate) fn elements(&self, multiple_of: u32) -> u64 {
        self.0.iter().fold(1, |product: u64, &extent| product.saturating_mul(round_up(extent, multiple_of)))
    }

    /// A number that identifies the shape of padded samples.
    pub(crate) fn name(&self, multiple_of: u32) -> u64 {
        let lengths: Vec<u64> = self.0.iter().map(|&extent| round_up(extent, multiple_of)).collect();
        xxh3_64(bytemuck::cast_slice(&lengths))
    }
}

/// `size` rounded up to a multiple.
pub(crate) fn round_up(size: u32, multiple_of: u32) -> u64 {
    u64::from(size).next_multiple_of(u64::from(multiple_of))
}
