//! `SequenceDataset`: samples that differ in size, of any rank; padded or packed.

mod field;

use std::ops::Range;
use std::sync::Arc;

use self::field::{Field, check_extents, check_own, variable};
use super::collation::{CollateOptions, Collation, Description, Index, Ragged};
use super::error::{DatasetCause, LabelsCause};
use super::kind::{EpochKey, Kind, all_of};
use super::tensors::common_length;
use crate::batching::error::BatchingCause;
use crate::batching::{LabelCounts, Labels as NextTokens, Rule, Sizes};
use crate::collate::{
    Boundaries, Form, Labels, Lengths, Mask, OwnLengths, Pack, Pad, Positions, SampleIndex, Segments, Stack,
    is_integer,
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
    /// The names of the fields with separate lengths.
    own_lengths: Vec<String>,
}

/// The size of a sample if fields have separate lengths: what rules sort, count and budget by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SizeOf {
    /// The largest of its fields: no field of a batch exceeds a budget, padding included.
    #[default]
    Max,
    /// All of its fields together: a budget bounds the longest such sum, times the number of samples.
    Sum,
    /// One field, by its name.
    Field(String),
}

impl From<&str> for SizeOf {
    /// The size that `"max"`, `"sum"` or the name of a field stands for.
    fn from(name: &str) -> Self {
        match name {
            "max" => Self::Max,
            "sum" => Self::Sum,
            field => Self::Field(field.to_owned()),
        }
    }
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
    own_lengths: Vec<String>,
    size_of: SizeOf,
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
    /// sources. Batches hold a mask and the lengths of each, named for it: `target_mask` and `target_lengths`.
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
        self.own_lengths = names.into_iter().map(Into::into).collect();
        self
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
                let field = fields.iter().find(|(name, _)| *name == wanted);
                let known = fields.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
                let none = || DatasetCause::SizeOf { found: wanted.clone(), known };
                vec![field.ok_or_else(none)?.1]
            }
            // Fields that share their lengths count once.
            SizeOf::Max | SizeOf::Sum => fields
                .iter()
                .filter(|(name, _)| **name == self.names[guide] || self.own_lengths.contains(name))
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
        let mut shared: Option<Arc<[u32]>> = None;
        for (place, (name, field)) in self.names.iter().zip(&self.fields).enumerate() {
            let Field::Variable(sequences) = field else { continue };
            let is_shared = place == guide || !self.own_lengths.contains(name);
            if is_shared && own_sizes {
                sizes = sizes.named(name)?;
                continue;
            }
            let lengths = match shared.clone().filter(|_| is_shared) {
                Some(lengths) => lengths,
                None => lengths_of(sequences)?,
            };
            if is_shared {
                shared = Some(Arc::clone(&lengths));
            }
            sizes = sizes.with_lengths(name, lengths)?;
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
            |(name, field): (&String, &Field)| matches!(field, Field::Variable(_)) && !own.contains(name);
        let fields = || self.names.iter().zip(&self.fields);
        let guide = fields().position(shares).ok_or_else(|| {
            let varies =
                |(name, field): (&String, &Field)| matches!(field, Field::Variable(_)).then(|| name.clone());
            match fields().filter_map(varies).collect::<Vec<_>>() {
                none if none.is_empty() => DatasetCause::NotVariable,
                fields => DatasetCause::OwnLengthsOnly { fields },
            }
        })?;
        check_own(&self.names, &self.fields, own)?;
        check_extents(&self.names, &self.fields, guide, own, samples)?;
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
        for name in &self.own_lengths {
            let describing: [(&str, Arc<dyn Form>); 2] =
                [("mask", Arc::new(Mask(options.pad_side))), ("lengths", Arc::new(Lengths))];
            forms.extend(
                describing.map(|(what, form)| (format!("{name}_{what}"), self.with_own_lengths(name, form))),
            );
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
        let own_lengths = self.own_lengths.iter().filter_map(|name| self.sequences(name)).cloned();
        let own_lengths = own_lengths.map(Into::into).collect();
        let ragged = Some(ragged);
        Ok(Collation { own, ragged, descriptions, own_lengths, ..Collation::new(forms, index)? })
    }

    /// The masks and the lengths among the fields of batches, and the fields that they describe.
    fn descriptions(&self, forms: &[(String, Arc<dyn Form>)]) -> Result<Vec<Description>> {
        let is_held = |name: &String| forms.iter().any(|(held, _)| held == name);
        let is_shared = |name: &&String| self.sequences(name).is_some() && !self.own_lengths.contains(name);
        let shared: Vec<String> = self.names.iter().filter(is_shared).cloned().collect();
        let dimensions = self.guide()?.varying().to_vec();
        let of_all =
            [("attention_mask", Some("lengths")), ("mask", None)].map(|(mask, lengths)| Description {
                mask: mask.to_owned(),
                lengths: lengths.map(str::to_owned),
                fields: shared.clone(),
                dimensions: dimensions.clone(),
            });
        let of_each = self.own_lengths.iter().filter_map(|name| {
            Some(Description {
                mask: format!("{name}_mask"),
                lengths: Some(format!("{name}_lengths")),
                fields: vec![name.clone()],
                dimensions: self.sequences(name)?.varying().to_vec(),
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
        match self.own_lengths.iter().position(|own| own == name) {
            Some(place) => Arc::new(OwnLengths { inner, place }),
            None => inner,
        }
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
        return match sequences.varying() {
            [0] => Ok(Arc::new(Pack(sequences))),
            _ => Err(DatasetCause::NotPackable { field: name.to_owned() }.into()),
        };
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

    fn collation(&self, rule: &Rule, options: &CollateOptions, _: EpochKey) -> Result<Collation> {
        if !self.own_sizes && rule.limit(Some(&self.sizes)).is_some() {
            return Err(DatasetCause::ForeignSizes { rule: rule.name() }.into());
        }
        let packs = rule.packs();
        if let (true, Some(name)) = (packs, self.own_lengths.first()) {
            return Err(DatasetCause::OwnLengthsPacked { field: name.clone() }.into());
        }
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
        let facts = |dataset: &Self| (dataset.guide, dataset.own_sizes, dataset.subsamples, dataset.shuffles);
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
        let of_own = self.own_lengths.contains(field).then(|| self.sequences(field)).flatten();
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
