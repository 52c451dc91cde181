//! `SequenceDataset`: samples that differ in size, of any rank; padded or packed.

mod field;
mod lengths;
mod size_of;

use std::ops::Range;
use std::sync::Arc;

use self::field::{Field, check_extents, variable};
use self::lengths::{OwnLengths, Shared};
pub use self::size_of::SizeOf;
use super::collation::{CollateOptions, Collation, Description, Index, Ragged};
use super::error::{DatasetCause, LabelsCause, OffsetCause};
use super::kind::{EpochKey, Kind, all_of};
use super::tensors::common_length;
use crate::batching::error::BatchingCause;
use crate::batching::{LabelCounts, Labels as NextTokens, Rule, Sizes};
use crate::collate::{
    Boundaries, Form, Labels, Lengths, Mask, Offsets, OwnLengths as WithOwnLengths, Owners, Pack, Pad,
    Positions, SampleIndex, Segments, Stack, is_integer,
};
use crate::tensor::{Element, Sequences};
use crate::{ChunkedTensor, Result, memory};

/// Sequences of any length, and the fields that belong to each.
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
    /// The place of the first variable field; all fields have its extents.
    guide: usize,
    sizes: Sizes,
    own_sizes: bool,
    /// True if samples that are longer than their size are subsampled.
    subsamples: bool,
    /// True if batches take the elements of a sample in random order.
    shuffles: bool,
    /// The fields with separate lengths.
    own_lengths: OwnLengths,
    /// True if batches concatenate samples, whatever the rule.
    concatenates: bool,
}

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

    /// The number of samples.
    pub fn len(&self) -> usize {
        usize::try_from(self.sizes.len()).unwrap_or(usize::MAX)
    }

    /// Returns true if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names of the fields, in order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The sizes that plans sort, count and budget by.
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// The same dataset with at most `most` elements of each sample: the first ones, or random ones.
    pub(super) fn at_most(mut self, most: u32, subsamples: bool) -> Self {
        let most: Vec<u32> = self.sizes.as_slice().iter().map(|&size| size.min(most)).collect();
        self.sizes = self.sizes.replaced(most);
        self.subsamples = subsamples;
        self
    }

    /// The same dataset, with the elements of each sample in another order in each epoch.
    pub(super) fn with_shuffled_elements(self) -> Self {
        Self { shuffles: true, ..self }
    }

    /// The first variable field.
    fn guide(&self) -> Result<&Sequences> {
        match self.fields.get(self.guide) {
            Some(Field::Variable(sequences)) => Ok(sequences),
            _ => Err(DatasetCause::NotVariable.into()),
        }
    }

    /// The fields of batches in which samples are concatenated (`packs`) or padded, `described` by more fields.
    pub(super) fn collate(
        &self,
        packs: bool,
        options: &CollateOptions,
        described: impl IntoIterator<Item = (&'static str, Arc<dyn Form>)>,
    ) -> Result<Collation> {
        let fields = self.names.iter().zip(&*self.fields);
        let form = |(name, field): (&String, &Field)| {
            Ok((name.clone(), self.with_own_lengths(name, form(name, field, packs, options)?)))
        };
        let mut forms = fields.map(form).collect::<Result<Vec<_>>>()?;
        let own = forms.len();
        forms.extend(described.into_iter().map(|(name, form)| (name.to_owned(), form)));
        for (place, Shared { name, .. }) in self.own_lengths.iter().enumerate() {
            let describing: Vec<(&str, Arc<dyn Form>)> = match packs {
                true => vec![("offsets", Arc::new(Offsets))],
                false => vec![("mask", Arc::new(Mask(options.pad_side))), ("lengths", Arc::new(Lengths))],
            };
            let own = |inner| Arc::new(WithOwnLengths { inner, place }) as Arc<dyn Form>;
            forms.extend(describing.into_iter().map(|(what, form)| (format!("{name}_{what}"), own(form))));
        }
        let descriptions = self.descriptions(&forms)?;
        let variable = self.fields.iter().filter_map(|field| match field {
            Field::Variable(sequences) => Some(sequences.clone()),
            Field::Fixed(_) => None,
        });
        let guide = self.guide()?.clone();
        let index = Index::Ragged { fields: variable.collect(), dimensions: guide.varying().len(), packs };
        let (sizes, own_sizes) = (self.sizes.clone(), self.own_sizes);
        let (subsamples, shuffles) = (self.subsamples, self.shuffles);
        let ragged = Ragged { guide: Some(guide.into()), sizes, own_sizes, subsamples, shuffles };
        let own_lengths = self.own_lengths.iter().filter_map(|shared| self.sequences(shared.fields.first()?));
        let own_lengths = own_lengths.cloned().map(Into::into).collect();
        let (ragged, counted) = (Some(ragged), self.counted());
        Ok(Collation { own, ragged, descriptions, own_lengths, counted, ..Collation::new(forms, index)? })
    }

    /// The names by which elements of samples can be counted, with the place of separate lengths.
    fn counted(&self) -> Vec<(String, Option<usize>)> {
        let fields = self.names.iter().zip(&*self.fields).filter_map(variable);
        let mut counted: Vec<_> =
            fields.map(|(name, _)| (name.clone(), self.own_lengths.place(name))).collect();
        for (place, Shared { name, .. }) in self.own_lengths.iter().enumerate() {
            if !self.names.contains(name) {
                counted.push((name.clone(), Some(place)));
            }
        }
        counted
    }

    /// The masks and the lengths among the fields of batches, and the fields that they describe.
    fn descriptions(&self, forms: &[(String, Arc<dyn Form>)]) -> Result<Vec<Description>> {
        let is_held = |name: &String| forms.iter().any(|(held, _)| held == name);
        let is_shared = |name: &&String| self.sequences(name).is_some() && !self.own_lengths.holds(name);
        let shared: Vec<String> = self.names.iter().filter(is_shared).cloned().collect();
        let dimensions = self.guide()?.varying().to_vec();
        let of_all =
            [("attention_mask", Some("lengths")), ("mask", None)].map(|(mask, lengths)| Description {
                mask: mask.to_owned(),
                lengths: lengths.map(str::to_owned),
                fields: shared.clone(),
                dimensions: dimensions.clone(),
            });
        let of_each = self.own_lengths.iter().filter_map(|Shared { name, fields }| {
            Some(Description {
                mask: format!("{name}_mask"),
                lengths: Some(format!("{name}_lengths")),
                fields: fields.clone(),
                dimensions: self.sequences(fields.first()?)?.varying().to_vec(),
            })
        });
        Ok(of_all.into_iter().chain(of_each).filter(|description| is_held(&description.mask)).collect())
    }

    /// The variable field with this name.
    fn sequences(&self, name: &str) -> Option<&Sequences> {
        match &self.fields[self.names.iter().position(|other| other == name)?] {
            Field::Variable(sequences) => Some(sequences),
            Field::Fixed(_) => None,
        }
    }

    /// A form of field `name` with its separate lengths, if it has some.
    fn with_own_lengths(&self, name: &str, inner: Arc<dyn Form>) -> Arc<dyn Form> {
        match self.own_lengths.place(name) {
            Some(place) => Arc::new(WithOwnLengths { inner, place }),
            None => inner,
        }
    }

    /// The fields that models of graphs take beside indices: the number of each element's sample, and the place where each
    /// sample begins.
    fn numbers_of_nodes(&self) -> Result<[(&'static str, Arc<dyn Form>); 2]> {
        let made: [(&str, Arc<dyn Form>); 2] = [("batch", Arc::new(Owners)), ("ptr", Arc::new(Offsets))];
        match made.iter().find(|(name, _)| self.names.iter().any(|field| field == name)) {
            Some((name, _)) => Err(OffsetCause::Made { field: (*name).to_owned() }.into()),
            None => Ok(made),
        }
    }

    /// Refuses fields of indices for which nothing tells the dimension of their elements.
    fn require_dimensions(&self, options: &CollateOptions) -> Result<()> {
        for (field, _) in &options.offset_by {
            if self.sequences(field).is_some_and(Sequences::is_guessed) {
                return Err(DatasetCause::Dimension { field: field.clone() }.into());
            }
        }
        Ok(())
    }

    /// The sequences of tokens that a field holds.
    fn tokens(&self, field: &str) -> Result<Sequences> {
        let name = || field.to_owned();
        let place = self.names.iter().position(|name| name == field);
        let place = place.ok_or_else(|| LabelsCause::NoField { field: name() })?;
        match &self.fields[place] {
            Field::Variable(sequences)
                if sequences.values().shape().len() > 1 || sequences.varying() != [0] =>
            {
                Err(LabelsCause::SeveralNumbers { field: name() }.into())
            }
            Field::Variable(sequences) if is_integer(sequences.values().dtype()) => Ok(sequences.clone()),
            Field::Variable(sequences) => {
                Err(LabelsCause::NoIntegers { field: name(), found: sequences.values().dtype() }.into())
            }
            Field::Fixed(_) => Err(LabelsCause::NoSequence { field: name() }.into()),
        }
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

/// The form of one field, concatenated or padded.
fn form(name: &str, field: &Field, packs: bool, options: &CollateOptions) -> Result<Arc<dyn Form>> {
    let sequences = match field {
        Field::Fixed(rows) => return Ok(Arc::new(Stack::new(name, rows)?)),
        Field::Variable(sequences) => sequences.clone(),
    };
    if packs {
        let dimensions = sequences.varying().len();
        let pack = Pack::new(sequences);
        let pack = pack.ok_or_else(|| DatasetCause::NotPackable { field: name.to_owned(), dimensions })?;
        return Ok(Arc::new(pack));
    }
    let value = options.stored_pad_value(name, sequences.values().dtype())?;
    Ok(Arc::new(Pad { sequences, value, side: options.pad_side }))
}

impl Kind for SequenceDataset {
    fn len(&self) -> usize {
        self.len()
    }

    fn arrays(&self) -> Vec<(&str, &ChunkedTensor)> {
        self.names.iter().map(String::as_str).zip(self.fields.iter().map(Field::values)).collect()
    }

    fn sizes(&self) -> Option<Sizes> {
        Some(self.sizes.clone())
    }

    fn is_concatenated(&self) -> bool {
        self.concatenates
    }

    fn collation(&self, rule: &Rule, options: &CollateOptions, _: EpochKey) -> Result<Collation> {
        if !self.own_sizes && rule.limit(Some(&self.sizes)).is_some() {
            return Err(match self.own_lengths.iter().next() {
                Some(Shared { name, .. }) => {
                    DatasetCause::OwnLengthsCut { rule: rule.name(), name: name.clone() }.into()
                }
                None => DatasetCause::ForeignSizes { rule: rule.name() }.into(),
            });
        }
        let packs = self.concatenates || rule.packs();
        self.require_dimensions(options)?;
        let mut described: Vec<(&str, Arc<dyn Form>)> = match packs {
            true => vec![
                ("cu_seqlens", Arc::new(Boundaries)),
                ("position_ids", Arc::new(Positions { continues: rule.continues() })),
                ("segment_ids", Arc::new(Segments)),
            ],
            false => {
                vec![("attention_mask", Arc::new(Mask(options.pad_side))), ("lengths", Arc::new(Lengths))]
            }
        };
        if packs && !options.offset_by.is_empty() {
            described.extend(self.numbers_of_nodes()?);
        }
        described.push(("index", Arc::new(SampleIndex)));
        if let Some(field) = &options.labels {
            if options.slots.iter().any(|(name, _)| name == field) {
                return Err(LabelsCause::Slot { field: field.clone() }.into());
            }
            let labels = Labels { sequences: self.tokens(field)?, side: options.pad_side, packed: packs };
            described.push(("labels", self.with_own_lengths(field, Arc::new(labels))));
        }
        self.collate(packs, options, described)
    }

    fn concat(&self, others: &[&dyn Kind]) -> Result<Option<Arc<dyn Kind>>> {
        let Some(others) = all_of::<Self>(others) else { return Ok(None) };
        let each: Vec<&Self> = std::iter::once(self).chain(others).collect();
        let facts = |dataset: &Self| {
            let Self { guide, own_sizes, subsamples, shuffles, concatenates, .. } = dataset;
            (*guide, *own_sizes, *subsamples, *shuffles, *concatenates)
        };
        let is_alike = |other: &&Self| {
            (&other.names, &other.own_lengths, facts(other)) == (&self.names, &self.own_lengths, facts(self))
        };
        if !each.iter().all(is_alike) {
            return Ok(None);
        }
        let mut fields = Vec::new();
        for (place, name) in self.names.iter().enumerate() {
            let each: Vec<&Field> = each.iter().map(|dataset| &dataset.fields[place]).collect();
            let Some(field) = Field::concat(name, &each)? else { return Ok(None) };
            fields.push(field);
        }
        let sizes = Sizes::join(&each.iter().map(|dataset| dataset.sizes.clone()).collect::<Vec<_>>())?;
        Ok(Some(Arc::new(Self { fields: fields.into(), sizes, ..self.clone() })))
    }

    fn makes_labels(&self) -> bool {
        true
    }

    fn labels(&self, options: &CollateOptions) -> Option<NextTokens> {
        let field = options.labels.as_ref()?;
        let of_own = self.own_lengths.holds(field).then(|| self.sequences(field)).flatten();
        let guide = of_own.or_else(|| self.guide().ok())?;
        if self.own_sizes {
            return Some(NextTokens::Next);
        }
        let samples = 0..self.len();
        let counts = samples.map(|sample| guide.extents(sample)[0].saturating_sub(1)).collect::<Vec<_>>();
        Some(LabelCounts::new(counts).into())
    }

    fn rows(&self, samples: Range<usize>) -> Vec<Range<usize>> {
        self.fields.iter().map(|field| field.rows(samples.clone())).collect()
    }

    fn most_rows(&self, samples: usize) -> Vec<usize> {
        self.fields.iter().map(|field| field.most_rows(samples)).collect()
    }
}
