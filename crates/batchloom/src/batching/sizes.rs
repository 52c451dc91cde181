//! The sizes of samples: rules sort, count and budget by them.

use std::ops::Range;
use std::sync::Arc;

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::error::BatchingCause;
use super::named_sizes::NamedSizes;
use super::pool_budgets::PoolBudgets;
use crate::{Result, memory};

/// The sizes of all samples, shared. Each is below 2^32; their sum may exceed it.
///
/// A sample with several variable dimensions (an image of any height and width) has an extent in each, and their
/// product is its size. Such samples are padded to the union of their extents.
///
/// A sample may have further sizes with names, for [`Budgets`](super::Budgets): see [`with`](Self::with).
#[derive(Clone)]
pub struct Sizes {
    sizes: Arc<[u32]>,
    /// The number of variable dimensions and the extents of each sample, if there are several dimensions.
    extents: Option<(usize, Arc<[u32]>)>,
    /// The sizes with names.
    named: Vec<NamedSizes>,
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
        Self { sizes, extents: None, named: Vec::new(), total, digest }
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

    /// The same sizes, under a name too. [`Budgets`](super::Budgets) count by names, and every rule sorts by these sizes.
    ///
    /// ```
    /// use batchloom::Plan;
    /// use batchloom::batching::{Budgets, Packing, Sizes};
    ///
    /// let sizes = Sizes::new(vec![5, 90, 40]).named("text")?.with("images", vec![0, 2, 3])?;
    /// let rule = Packing::within(Budgets::new([("text", 100), ("images", 4)])?)?;
    /// let plan = Plan::builder(3).sizes(sizes).rule(rule).build()?;
    /// assert_eq!(plan.steps(), 2);
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if other sizes have the name.
    pub fn named(self, name: impl Into<String>) -> Result<Self> {
        self.add(name.into(), None, true)
    }

    /// The same sizes, and further sizes under a name: patches beside tokens, bonds beside atoms. A budget counts their
    /// sum, which nothing pads.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if there is not one for each sample; [`Kind::Argument`](crate::Kind::Argument)
    /// if other sizes have the name.
    pub fn with(self, name: impl Into<String>, sizes: impl Into<Arc<[u32]>>) -> Result<Self> {
        self.add(name.into(), Some(sizes.into()), false)
    }

    /// The same as [`with`](Self::with), for the lengths of a field, which batches pad.
    ///
    /// # Errors
    /// As for [`with`](Self::with).
    pub fn with_lengths(self, name: impl Into<String>, sizes: impl Into<Arc<[u32]>>) -> Result<Self> {
        self.add(name.into(), Some(sizes.into()), true)
    }

    /// The same sizes, where sizes with the name `of` have another name too.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there are no sizes named `of`, or if other sizes have the name.
    pub(crate) fn with_alias(self, name: &str, of: &str) -> Result<Self> {
        match self.find(of).cloned() {
            Some(named) => self.add(name.to_owned(), named.values, named.is_padded),
            None => {
                let known = self.names().map(|name| format!("{name:?}")).collect();
                Err(BatchingCause::NoSizesOfField { name: name.to_owned(), of: of.to_owned(), known }.into())
            }
        }
    }

    /// Adds sizes with a name.
    fn add(mut self, name: String, values: Option<Arc<[u32]>>, is_padded: bool) -> Result<Self> {
        if self.find(&name).is_some() {
            return Err(BatchingCause::SizesTwice { name }.into());
        }
        let (found, samples) = (values.as_ref().map_or(self.len(), |values| values.len() as u64), self.len());
        if found != samples {
            return Err(BatchingCause::NamedSizesLength { name, found, samples }.into());
        }
        self.named.push(NamedSizes { name: name.into(), values, is_padded });
        Ok(self)
    }

    /// The same samples with other sizes to sort by; sizes with names stay, and names of the former stand for these.
    pub(crate) fn replaced(&self, sizes: Vec<u32>) -> Self {
        Self { named: self.named.clone(), ..Self::new(sizes) }
    }

    /// The sizes with names, in their order: the name, the sizes unless these are those that rules sort by, and whether
    /// batches pad what they count.
    #[doc(hidden)]
    pub fn columns(&self) -> impl Iterator<Item = (&str, Option<&[u32]>, bool)> {
        self.named.iter().map(|named| (&*named.name, named.values.as_deref(), named.is_padded))
    }

    /// The names of sizes.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.iter().map(|named| &*named.name)
    }

    /// The sizes under a name, if there are some.
    pub fn of(&self, name: &str) -> Option<&[u32]> {
        self.find(name).map(|named| named.values(&self.sizes))
    }

    /// Returns true if a name stands for the sizes that rules sort by.
    pub fn is_primary(&self, name: &str) -> bool {
        self.find(name).is_some_and(|named| named.values.is_none())
    }

    /// The sizes with a name.
    pub(super) fn find(&self, name: &str) -> Option<&NamedSizes> {
        self.named.iter().find(|named| &*named.name == name)
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
        let named = self.named.iter().map(|named| named.gather(numbers.clone())).collect();
        let all = Self { named, ..all };
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
        let named: Vec<_> = each.iter().map(|sizes| (sizes.as_slice(), &sizes.named[..])).collect();
        let all = Self { named: NamedSizes::join(&named), ..all };
        let extents = || each.iter().flat_map(Self::to_extents).collect();
        Ok(if dimensions == 1 { all } else { all.add_extents(extents(), dimensions) })
    }

    /// The most bytes that a sample takes while a list of sizes grows and until it is shared.
    fn sample_bytes(&self) -> usize {
        let dimensions = if self.extents.is_some() { self.dimensions() } else { 0 };
        4 * size_of::<u32>() * (1 + dimensions + self.named.len())
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
    /// The sizes of each sample by each budget, if a rule has several.
    pub(crate) budgets: Option<PoolBudgets<'a>>,
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
