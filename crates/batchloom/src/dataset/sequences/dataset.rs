//! `SequenceDataset`: samples that differ in size, of any rank; padded or packed.

use std::ops::Range;
use std::sync::Arc;

use super::field::{Field, variable};
use super::lengths::{OwnLengths, Shared};
use crate::batching::{LabelCounts, Labels as NextTokens, Rule, Sizes};
use crate::collate::{
    Boundaries, Form, Labels, Lengths, Mask, Offsets, OwnLengths as WithOwnLengths, Owners, Pack, Pad,
    Positions, SampleIndex, Segments, Stack, is_integer,
};
use crate::dataset::collation::{CollateOptions, Collation, Description, Index, Ragged};
use crate::dataset::error::{DatasetCause, LabelsCause, OffsetCause};
use crate::dataset::kind::{EpochKey, Kind, all_of};
use crate::tensor::Sequences;
use crate::{ChunkedTensor, Result};

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
    pub(super) names: Vec<String>,
    pub(super) fields: Arc<[Field]>,
    /// The place of the first variable field; all fields have its extents.
    pub(super) guide: usize,
    pub(super) sizes: Sizes,
    pub(super) own_sizes: bool,
    /// True if samples that are longer than their size are subsampled.
    pub(super) subsamples: bool,
    /// True if batches take the elements of a sample in random order.
    pub(super) shuffles: bool,
    /// The fields with separate lengths.
    pub(super) own_lengths: OwnLengths,
    /// True if batches concatenate samples, whatever the rule.
    pub(super) concatenates: bool,
}

impl SequenceDataset {
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
    pub(in crate::dataset) fn at_most(mut self, most: u32, subsamples: bool) -> Self {
        let most: Vec<u32> = self.sizes.as_slice().iter().map(|&size| size.min(most)).collect();
        self.sizes = self.sizes.replaced(most);
        self.subsamples = subsamples;
        self
    }

    /// The same dataset, with the elements of each sample in another order in each epoch.
    pub(in crate::dataset) fn with_shuffled_elements(self) -> Self {
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
    pub(in crate::dataset) fn collate(
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
            let tokens = Arc::new(self.tokens(field)?);
            let labels = Labels { tokens, side: options.pad_side, packed: packs };
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
