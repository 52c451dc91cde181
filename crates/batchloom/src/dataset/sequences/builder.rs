//! The builder of a [`SequenceDataset`]: its fields one by one, and the checks that they fit each other.

use std::sync::Arc;

use super::dataset::SequenceDataset;
use super::field::{Field, check_extents, variable};
use super::lengths::{OwnLengths, Shared};
use super::size_of::SizeOf;
use crate::batching::Sizes;
use crate::batching::error::BatchingCause;
use crate::dataset::error::DatasetCause;
use crate::dataset::tensors::common_length;
use crate::tensor::{Element, Sequences};
use crate::{ChunkedTensor, Result, memory};

/// Sizes that are given with a name: numbers, or the lengths of a field.
#[derive(Clone)]
enum Named {
    Sizes(Vec<u32>),
    Lengths(String),
}

/// The fields of a [`SequenceDataset`].
#[derive(Clone, Default)]
pub struct SequenceDatasetBuilder {
    names: Vec<String>,
    fields: Vec<Field>,
    sizes: Option<Vec<u32>>,
    named_sizes: Vec<(String, Named)>,
    own_lengths: OwnLengths,
    size_of: SizeOf,
    concatenates: bool,
}

crate::brief::debug_in_brief!(SequenceDatasetBuilder, [names, fields, own_lengths, size_of], [sizes]);

impl SequenceDatasetBuilder {
    /// Adds a field of samples that differ in size.
    #[must_use]
    pub fn variable(mut self, name: impl Into<String>, sequences: Sequences) -> Self {
        self.names.push(name.into());
        self.fields.push(Field::Variable(sequences));
        self
    }

    /// Adds a field with slices as samples, or anything that lends one. They are copied, one after the other.
    ///
    /// ```
    /// use batchloom::SequenceDataset;
    ///
    /// let documents = vec![vec![5_i32, 6], vec![7]];
    /// let dataset = SequenceDataset::new().slices("ids", &documents)?.build()?;
    /// assert_eq!(dataset.sizes().as_slice(), [2, 1]);
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Sequences::of`].
    pub fn slices<T: Element, S: AsRef<[T]>>(
        self,
        name: impl Into<String>,
        samples: impl IntoIterator<Item = S>,
    ) -> Result<Self> {
        let name = name.into();
        let sequences = Sequences::of(&name, samples)?;
        Ok(self.variable(name, sequences))
    }

    /// Adds a field with one row for each sample.
    #[must_use]
    pub fn fixed(mut self, name: impl Into<String>, rows: impl Into<ChunkedTensor>) -> Self {
        self.names.push(name.into());
        self.fields.push(Field::Fixed(rows.into()));
        self
    }

    /// Replaces the lengths by other numbers to sort, count and budget by.
    #[must_use]
    pub fn sizes(mut self, sizes: Vec<u32>) -> Self {
        self.sizes = Some(sizes);
        self
    }

    /// Adds sizes with a name, for [`Budgets`](crate::batching::Budgets): the patches of images beside tokens. The lengths
    /// of a variable field have the name of the field, without this.
    #[must_use]
    pub fn named_sizes(mut self, name: impl Into<String>, sizes: Vec<u32>) -> Self {
        self.named_sizes.push((name.into(), Named::Sizes(sizes)));
        self
    }

    /// Gives the lengths of a variable field another name, for [`Budgets`](crate::batching::Budgets).
    #[must_use]
    pub fn named_lengths(mut self, name: impl Into<String>, field: impl Into<String>) -> Self {
        self.named_sizes.push((name.into(), Named::Lengths(field.into())));
        self
    }

    /// Gives some variable fields separate lengths: the targets of translation differ in length from the
    /// sources. Padded batches hold a mask and the lengths of each, named for it: `target_mask` and `target_lengths`.
    /// Concatenated ones hold the place where each sample begins, and the number of elements, int64: `target_offsets`.
    ///
    /// ```
    /// use batchloom::dataset::Sequences;
    /// use batchloom::{Loader, SequenceDataset, Tensor};
    ///
    /// let tokens = |count: i64| Tensor::from_vec((0..count).collect(), &[usize::try_from(count).unwrap_or(0)]);
    /// let dataset = SequenceDataset::new()
    ///     .variable("source", Sequences::new("source", tokens(5)?, &[0, 2, 5])?)
    ///     .variable("target", Sequences::new("target", tokens(9)?, &[0, 8, 9])?)
    ///     .own_lengths(["target"])
    ///     .build()?;
    /// assert_eq!(dataset.sizes().as_slice(), [8, 3]);
    /// let batch = Loader::builder(dataset).batch_size(2).build()?.iter().next().expect("a batch")?;
    /// assert_eq!(batch.field("source").map(Tensor::shape), Some(&[2, 3][..]));
    /// assert_eq!(batch.field("target_mask").map(Tensor::shape), Some(&[2, 8][..]));
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    #[must_use]
    pub fn own_lengths<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.own_lengths = OwnLengths::of_each(names.into_iter().map(Into::into));
        self
    }

    /// Gives some variable fields lengths that they share with each other and with no other field, and these lengths a name:
    /// the edges of a graph have ends and features, and their number is not the number of nodes. Batches hold one mask, or
    /// one list of offsets, of that name.
    ///
    /// ```
    /// use batchloom::dataset::Sequences;
    /// use batchloom::{Loader, SequenceDataset, Tensor};
    ///
    /// // A triangle, and two nodes with an edge.
    /// let ends = Tensor::from_vec(vec![0_i64, 1, 2, 1, 2, 0, 0, 1], &[8])?;
    /// let dataset = SequenceDataset::new()
    ///     .slices("x", [vec![1.0_f32, 2.0, 3.0], vec![4.0, 5.0]])?
    ///     .variable("edge_index", Sequences::along("edge_index", &ends, &[2, 3, 2, 1], 2, 1)?)
    ///     .slices("weight", [vec![0.1_f32, 0.2, 0.3], vec![0.4]])?
    ///     .shared_lengths("edges", ["edge_index", "weight"])
    ///     .concatenated()
    ///     .build()?;
    /// let loader = Loader::builder(dataset).batch_size(2).offset_by("edge_index", "x").build()?;
    /// let batch = loader.iter().next().expect("a batch")?;
    /// assert_eq!(batch.field("edge_index").map(Tensor::shape), Some(&[2, 4][..]));
    /// assert_eq!(batch.view::<i64>("edge_index")?, [0, 1, 2, 3, 1, 2, 0, 4]);
    /// assert_eq!(batch.view::<i64>("edges_offsets")?, [0, 3, 4]);
    /// assert_eq!(batch.view::<i64>("batch")?, [0, 0, 0, 1, 1]);
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    #[must_use]
    pub fn shared_lengths<N: Into<String>>(
        mut self,
        name: impl Into<String>,
        fields: impl IntoIterator<Item = N>,
    ) -> Self {
        self.own_lengths.push(name.into(), fields.into_iter().map(Into::into).collect());
        self
    }

    /// Concatenates samples in batches of every rule, as [`Packing`](crate::batching::Packing) does. Default: other rules
    /// pad.
    #[must_use]
    pub fn concatenated(self) -> Self {
        Self { concatenates: true, ..self }
    }

    /// Sets the size of a sample if fields have separate lengths. Default: [`SizeOf::Max`].
    #[must_use]
    pub fn size_of(self, size_of: SizeOf) -> Self {
        Self { size_of, ..self }
    }

    /// The sizes of samples if fields have separate lengths.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if a size is not below 2^32, or that of no field.
    fn sizes_of_own(&self, guide: usize, samples: usize) -> Result<Vec<u32>> {
        let fields: Vec<(&String, &Sequences)> =
            self.names.iter().zip(&self.fields).filter_map(variable).collect();
        let counted: Vec<&Sequences> = match &self.size_of {
            SizeOf::Field(wanted) => {
                let known = fields.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
                let none = || DatasetCause::SizeOf { found: wanted.clone(), known };
                vec![self.own_lengths.find_counted(wanted, &self.names, &self.fields).ok_or_else(none)?]
            }
            // Fields that share their lengths count once.
            SizeOf::Max | SizeOf::Sum => fields
                .iter()
                .filter(|(name, _)| {
                    let is_first = |shared: &Shared| shared.fields.first() == Some(*name);
                    **name == self.names[guide] || self.own_lengths.iter().any(is_first)
                })
                .map(|(_, sequences)| *sequences)
                .collect(),
        };
        let size = |sample: usize| {
            let sizes =
                counted.iter().map(|sequences| sequences.sizes_of(sample).map(u64::from).product::<u64>());
            let size: u64 = if self.size_of == SizeOf::Sum { sizes.sum() } else { sizes.max().unwrap_or(0) };
            u32::try_from(size).map_err(|_| DatasetCause::OwnSize { sample: sample as u64, size }.into())
        };
        (0..samples).map(size).collect()
    }

    /// The sizes with their names: of variable fields, and those that were given.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if a name is given twice; [`Kind::Data`](crate::Kind::Data) if there is
    /// not one size for each sample or a length is not below 2^32.
    fn name_sizes(&self, mut sizes: Sizes, guide: usize, own_sizes: bool) -> Result<Sizes> {
        let mut found: Vec<(Option<usize>, Arc<[u32]>)> = Vec::new();
        for (place, (name, field)) in self.names.iter().zip(&self.fields).enumerate() {
            let Field::Variable(sequences) = field else { continue };
            let lengths = self.own_lengths.place(name);
            let is_shared = place == guide || lengths.is_none();
            if is_shared && own_sizes {
                sizes = sizes.named(name)?;
                continue;
            }
            let known = found.iter().position(|(of, _)| *of == lengths);
            if known.is_none() {
                found.push((lengths, lengths_of(sequences)?));
            }
            let (_, lengths) = &found[known.unwrap_or(found.len() - 1)];
            sizes = sizes.with_lengths(name, Arc::clone(lengths))?;
        }
        for Shared { name, fields } in self.own_lengths.iter() {
            if let Some(field) = fields.first().filter(|_| !self.names.contains(name)) {
                sizes = sizes.with_alias(name, field)?;
            }
        }
        self.named_sizes.iter().try_fold(sizes, |sizes, (name, given)| match given {
            Named::Sizes(given) => sizes.with(name, given.as_slice()),
            Named::Lengths(field) => sizes.with_alias(name, field),
        })
    }

    /// Builds the dataset.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if fields of own lengths are not those of the data;
    /// [`Kind::Data`](crate::Kind::Data) if there are no fields or none varies in length, if a name is given twice, if
    /// an array is a scalar, if fields differ in their number of samples or in the lengths of one, or if there is not
    /// one size for each sample; [`Kind::Memory`](crate::Kind::Memory).
    pub fn build(mut self) -> Result<SequenceDataset> {
        let lengths = self.fields.iter().map(|field| match field {
            Field::Fixed(rows) => rows.shape().first().copied(),
            Field::Variable(sequences) => Some(sequences.len()),
        });
        let samples = common_length(&self.names, lengths)?;
        let own = &self.own_lengths;
        let shares =
            |(name, field): (&String, &Field)| matches!(field, Field::Variable(_)) && !own.holds(name);
        let fields = || self.names.iter().zip(&self.fields);
        let guide = fields().position(shares).ok_or_else(|| {
            let varies =
                |(name, field): (&String, &Field)| matches!(field, Field::Variable(_)).then(|| name.clone());
            match fields().filter_map(varies).collect::<Vec<_>>() {
                none if none.is_empty() => DatasetCause::NotVariable,
                fields => DatasetCause::OwnLengthsOnly { fields },
            }
        })?;
        own.check(&self.names, &self.fields, samples)?;
        check_extents(&self.names, &self.fields, guide, |name| !own.holds(name), samples)?;
        // Extents of each varying dimension, and sizes, both twice until they are shared.
        let varying = match &self.fields[guide] {
            Field::Variable(sequences) => sequences.varying().len(),
            Field::Fixed(_) => 0,
        };
        memory::require_each(samples, 2 * (varying + 1) * size_of::<u32>())?;
        let given = match own.is_empty() || self.sizes.is_some() {
            true => self.sizes.take(),
            false => Some(self.sizes_of_own(guide, samples)?),
        };
        let own_sizes = given.is_none();
        let sizes = match (given, &self.fields[guide]) {
            (Some(sizes), _) if sizes.len() != samples => {
                return Err(BatchingCause::SizesLength {
                    found: sizes.len() as u64,
                    samples: samples as u64,
                }
                .into());
            }
            (Some(sizes), _) => Sizes::new(sizes),
            (None, Field::Variable(sequences)) => {
                let extents = (0..samples).flat_map(|sample| sequences.sizes_of(sample)).collect();
                Sizes::with_extents(extents, sequences.varying().len())?
            }
            (None, Field::Fixed(_)) => return Err(DatasetCause::NotVariable.into()),
        };
        let sizes = self.name_sizes(sizes, guide, own_sizes)?;
        Ok(SequenceDataset {
            names: self.names,
            fields: self.fields.into(),
            guide,
            sizes,
            own_sizes,
            subsamples: false,
            shuffles: false,
            own_lengths: self.own_lengths,
            concatenates: self.concatenates,
        })
    }
}

impl SequenceDataset {
    /// The builder of a dataset, to which fields are added one by one.
    #[expect(clippy::new_ret_no_self, reason = "a dataset without fields is none")]
    pub fn new() -> SequenceDatasetBuilder {
        SequenceDatasetBuilder::default()
    }
}

/// The number of elements of each sample.
fn lengths_of(sequences: &Sequences) -> Result<Arc<[u32]>> {
    let length = |sample: usize| {
        let size = sequences.sizes_of(sample).map(u64::from).fold(1, u64::saturating_mul);
        u32::try_from(size).map_err(|_| DatasetCause::OwnSize { sample: sample as u64, size }.into())
    };
    (0..sequences.len()).map(length).collect()
}
