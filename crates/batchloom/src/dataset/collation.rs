//! `Collation`: the fields of every batch of a dataset with the forms that make them, and the options that they follow.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;

use super::error::{ConcatCause, DatasetCause, LabelsCause};
use super::located::Located;
use crate::batching::{Loss, Sizes};
use crate::collate::error::CollateCause;
use crate::collate::{
    BySource, Conversion, Described, DocumentMask, FieldConversion, FieldOptions, Fill, FindRows, Form,
    LossDenominator, LossWeight, Members, PadSide, Passages, Places, SampleIndex, Scalar, Slot, Slotted,
    SlottedLengths, SlottedMask, SourceNumber, Taken, Weight, is_integer,
};
use crate::tensor::{Layout, Sequences, SparseRows};
use crate::{DType, Result, Tensor, memory};

/// The field whose elements are the labels of a loss.
const LABELS: &str = "labels";

/// The options of collation.
#[derive(Debug, Clone, Default)]
pub(crate) struct CollateOptions {
    /// The side on which padding goes.
    pub(crate) pad_side: PadSide,
    /// The values that pad some fields, by name.
    pub(crate) pad_values: Vec<(String, Scalar)>,
    /// The fields that repeat the nearest step of a series where a window leaves it.
    pub(crate) pad_edges: Vec<String>,
    /// The fields of indices, by name, with the name of what they count, whose elements in samples before are added.
    pub(crate) offset_by: Vec<(String, String)>,
    /// The types and the scales of some fields, by name.
    pub(crate) fields: Vec<(String, FieldOptions)>,
    /// The numbers that pad fields of types that are not known yet, by name, or all of them.
    pub(crate) pad_numbers: Vec<(Option<String>, f64)>,
    /// The fields, by name, whose types do not hold the number that pads all fields, with both: these must not be
    /// padded.
    pub(crate) unpadded: Vec<(String, f64, DType)>,
    /// The way of samples to their slots, for some fields by name.
    pub(crate) slots: Vec<(String, Slot)>,
    /// The field with the labels, its next tokens.
    pub(crate) labels: Option<String>,
    /// The loss, if batches hold the weight of each label in it.
    pub(crate) loss: Option<Loss>,
    /// The mask of attention, if batches hold its blocks.
    pub(crate) block_mask: Option<DocumentMask>,
    /// The fields that batches do not hold, by name.
    pub(crate) left_out: Vec<String>,
    /// The rows of a stream that continue from batch to batch, and the number of pieces of each.
    pub(crate) rows: Option<(u64, u64)>,
    /// True if the documents of a stream are shuffled.
    pub(crate) shuffles_documents: bool,
}

impl CollateOptions {
    /// Returns true if values of some field may differ from the data: they are converted, scaled, or go
    /// through slots.
    pub(crate) fn changes_values(&self) -> bool {
        !self.fields.is_empty() || !self.slots.is_empty()
    }

    /// The options of a field, as they are set or to be set.
    pub(crate) fn field(&mut self, name: String) -> &mut FieldOptions {
        let place = self.fields.iter().position(|(other, _)| *other == name).unwrap_or(self.fields.len());
        if place == self.fields.len() {
            self.fields.push((name, FieldOptions::default()));
        }
        &mut self.fields[place].1
    }

    /// The bytes of the element with which a form pads a field that is stored as `dtype`: zeros where a conversion
    /// follows, which does the padding.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the option makes no sense for the field, or if the bytes of a
    /// padding value are not those of an element.
    pub(super) fn stored_pad_value(&self, name: &str, dtype: DType) -> Result<Vec<u8>> {
        let expected = dtype.size();
        if self.fields.iter().any(|(field, options)| field == name && options.changes(dtype)) {
            return Ok(vec![0; expected]);
        }
        self.pad_value(name).map_or_else(|| Ok(vec![0; expected]), |value| value.element(name, dtype))
    }

    /// The bytes of the element with which the slots of a field are padded. What a function leaves of them is converted
    /// along with what it writes.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the option makes no sense for the field, or if the bytes of a
    /// padding value are not those of an element.
    pub(super) fn slot_padding(&self, name: &str, slot: &Slot, dtype: DType) -> Result<Vec<u8>> {
        let stored = match slot {
            Slot::Function(_) => {
                let stored = Self { pad_numbers: self.pad_numbers.clone(), ..Self::default() };
                &stored.with_types(&[name.to_owned()], &[dtype])?
            }
            _ => self,
        };
        let pads = slot.pads() || matches!(slot, Slot::Function(_));
        match stored.unpadded.iter().find(|(field, ..)| pads && field == name) {
            Some((field, number, dtype)) => Err(not_held(field, *number, *dtype).into()),
            None => stored.stored_pad_value(name, dtype),
        }
    }

    /// The same options, with numbers for padding as bytes of the types that the fields of a batch have, given those of
    /// its samples.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if a type does not hold the number.
    pub(super) fn with_types(&self, names: &[String], dtypes: &[DType]) -> Result<Self> {
        let mut options = self.clone();
        for (field, number) in &self.pad_numbers {
            for (name, &dtype) in names.iter().zip(dtypes) {
                if field.as_ref().is_some_and(|field| field != name) {
                    continue;
                }
                let set = self.fields.iter().find(|(other, _)| other == name);
                let dtype = set.map_or(dtype, |(_, options)| options.target(dtype));
                let mut element = vec![0; dtype.size()];
                let held = Conversion::new(DType::F64, dtype, None)
                    .is_some_and(|to| to.convert(&number.to_ne_bytes(), &mut element, 0, 1).is_ok());
                match held {
                    true => options.pad_values.push((name.clone(), element.into())),
                    false if field.is_none() => options.unpadded.push((name.clone(), *number, dtype)),
                    false => return Err(not_held(name, *number, dtype).into()),
                }
            }
        }
        Ok(options)
    }

    /// The contents of the steps of a window that its series does not have, for a field that is stored as `dtype`.
    ///
    /// # Errors
    /// As [`stored_pad_value`](Self::stored_pad_value).
    pub(super) fn window_fill(&self, name: &str, dtype: DType) -> Result<Fill> {
        if self.pad_edges.iter().any(|field| field == name) {
            return Ok(Fill::Edge);
        }
        let value = self.stored_pad_value(name, dtype)?;
        Ok(if value.iter().all(|&byte| byte == 0) { Fill::Zeros } else { Fill::Value(value) })
    }

    pub(super) fn pad_value(&self, name: &str) -> Option<&Scalar> {
        self.pad_values.iter().find(|(field, _)| field == name).map(|(_, value)| value)
    }
}

/// The fields of every batch, and the forms that make them.
#[derive(Debug)]
pub(crate) struct Collation {
    pub(crate) names: Arc<[String]>,
    pub(crate) forms: Vec<Arc<dyn Form>>,
    /// The number of fields, from the first on, that are taken from samples; those after them describe the batch.
    pub(crate) own: usize,
    /// The facts about samples that differ in size.
    pub(crate) ragged: Option<Ragged>,
    /// The sparse rows that batches hold compressed, so that their shape depends on which samples they hold.
    pub(crate) compressed: Vec<BySource<SparseRows>>,
    /// The masks and the lengths that batches hold, and the fields that each of them describes.
    pub(crate) descriptions: Vec<Description>,
    /// A field with each of the separate lengths.
    pub(crate) own_lengths: Vec<BySource<Sequences>>,
    /// The names by which the elements of samples can be counted: of fields, and of lengths that several fields share; with
    /// the place among the separate lengths, or `None` for the lengths of samples.
    pub(crate) counted: Vec<(String, Option<usize>)>,
    /// The first of the samples that are shorter than those before them, if some are: a batch of these alone is
    /// shorter.
    pub(crate) shorter_from: Option<u64>,
    /// The places of samples in the data that forms read.
    pub(crate) located: Located,
    /// The rows of an index table.
    pub(crate) index: Index,
}

/// A mask and lengths that describe fields of a batch.
#[derive(Debug, Clone)]
pub(crate) struct Description {
    /// The name of the mask.
    pub(crate) mask: String,
    /// The name of the lengths, if batches hold lengths.
    pub(crate) lengths: Option<String>,
    /// The names of the fields that they describe.
    pub(crate) fields: Vec<String>,
    /// The dimensions in which samples of these fields vary.
    pub(crate) dimensions: Vec<usize>,
}

impl Collation {
    /// Fields by name, with the form of each.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if a name is given twice.
    pub(super) fn new(fields: Vec<(String, Arc<dyn Form>)>, index: Index) -> Result<Self> {
        let (names, forms): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
        let repeated = names.iter().enumerate().find(|(place, name)| names[..*place].contains(name));
        match repeated {
            Some((_, name)) => Err(DatasetCause::DuplicateField { field: name.clone() }.into()),
            None => {
                let (own, names) = (forms.len(), names.into());
                Ok(Self {
                    own,
                    names,
                    forms,
                    ragged: None,
                    compressed: Vec::new(),
                    descriptions: Vec::new(),
                    own_lengths: Vec::new(),
                    counted: Vec::new(),
                    shorter_from: None,
                    located: Located::default(),
                    index,
                })
            }
        }
    }
}

impl Collation {
    /// The same fields, and the marks of places: `index` if some only fill up, unless it is there, and `weight`, which
    /// is 0 at those and at the members that `skipped` names.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the data has a field of such a name.
    pub(crate) fn with_marks(self, fills_up: bool, skipped: Arc<[bool]>) -> Result<Self> {
        let (mut names, mut forms) = (self.names.to_vec(), self.forms.clone());
        let marks: [(&str, Arc<dyn Form>); 2] =
            [("index", Arc::new(SampleIndex)), ("weight", Arc::new(Weight(skipped)))];
        for (name, form) in marks.into_iter().skip(usize::from(!fills_up)) {
            match names.iter().position(|other| other == name) {
                Some(place) if place < self.own => {
                    return Err(DatasetCause::MarkField { field: name.to_owned() }.into());
                }
                Some(_) => {}
                None => {
                    names.push(name.to_owned());
                    forms.push(form);
                }
            }
        }
        Ok(Self { names: names.into(), forms, ..self })
    }

    /// The form that makes the labels: the field `labels`, of the data or made by the loader.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there is no such field, or if it does not hold integers.
    pub(crate) fn find_labels(&self, loss: Loss) -> Result<Arc<dyn Form>> {
        let loss = loss.name();
        let Some(place) = self.names.iter().position(|name| name == LABELS) else {
            return Err(LabelsCause::LossWithoutLabels { loss, known: self.names.join(", ") }.into());
        };
        let form = &self.forms[place];
        match is_integer(form.dtype()) {
            true => Ok(Arc::clone(form)),
            false => Err(LabelsCause::LossOfNoIntegers { loss, found: form.dtype() }.into()),
        }
    }

    /// The same fields, and after them the weight of each label in a loss, and the number that the loss is divided by.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if the data has a field of such a name.
    pub(crate) fn with_loss(self, weight: LossWeight) -> Result<Self> {
        let fields: [(&str, Arc<dyn Form>); 2] =
            [("loss_weight", Arc::new(weight)), ("loss_denominator", Arc::new(LossDenominator))];
        if let Some((name, _)) = fields.iter().find(|(name, _)| self.names.iter().any(|other| other == name))
        {
            return Err(LabelsCause::LossField { field: (*name).to_owned() }.into());
        }
        let added = fields.iter().map(|(name, _)| (*name).to_owned());
        let names = self.names.iter().cloned().chain(added).collect();
        let mut forms = self.forms;
        forms.extend(fields.into_iter().map(|(_, form)| form));
        Ok(Self { names, forms, ..self })
    }

    /// The same fields, but for those from place `first` on that have one of these names. No form makes them.
    pub(crate) fn without(self, names: &[String], first: usize) -> Self {
        if names.is_empty() {
            return self;
        }
        let is_kept = |place: usize| place < first || !names.contains(&self.names[place]);
        let own = (0..self.own).filter(|&place| is_kept(place)).count();
        let kept: Vec<usize> = (0..self.forms.len()).filter(|&place| is_kept(place)).collect();
        let forms = kept.iter().map(|&place| Arc::clone(&self.forms[place])).collect();
        let names = kept.iter().map(|&place| self.names[place].clone()).collect();
        Self { names, forms, own, ..self }
    }

    /// The same fields, and `index` after them: the number of each sample.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if a name is given twice.
    pub(super) fn with_index(self) -> Result<Self> {
        if self.names.iter().any(|name| name == "index") {
            return Err(DatasetCause::DuplicateField { field: "index".to_owned() }.into());
        }
        let names = self.names.iter().cloned().chain(["index".to_owned()]).collect();
        let mut forms = self.forms;
        forms.push(Arc::new(SampleIndex));
        Ok(Self { names, forms, ..self })
    }

    /// The same options, with numbers for the padding of slots as bytes of the types that fields have in batches.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the option makes no sense for the field.
    pub(crate) fn with_typed_padding(&self, options: &CollateOptions) -> Result<CollateOptions> {
        let dtype = |(name, slot): &(String, Slot)| Ok(slot.dtype(self.forms[self.place(name)?].dtype()));
        let dtypes = options.slots.iter().map(dtype).collect::<Result<Vec<_>>>()?;
        let names: Vec<String> = options.slots.iter().map(|(name, _)| name.clone()).collect();
        options.with_types(&names, &dtypes)
    }

    /// The same fields, some of them in slots.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the option makes no sense for the field, or if the bytes of a
    /// padding value are not those of an element.
    pub(crate) fn with_slots(mut self, options: &CollateOptions) -> Result<Self> {
        for (name, slot) in &options.slots {
            let place = self.place(name)?;
            let inner = Arc::clone(&self.forms[place]);
            let padding = options.slot_padding(name, slot, slot.dtype(inner.dtype()))?;
            let slotted = Arc::new(Slotted::new(name, inner, slot, padding)?);
            self.forms[place] = Arc::clone(&slotted) as Arc<dyn Form>;
            self.describe(name, &slotted, options);
        }
        Ok(self)
    }

    /// Gives the mask and the lengths of a field with slots the shape of its slots, where they describe no field
    /// without slots. Of several fields, they describe the first.
    fn describe(&mut self, name: &String, slotted: &Arc<Slotted>, options: &CollateOptions) {
        let has_slot = |field: &String| options.slots.iter().any(|(slotted, _)| slotted == field);
        let is_first = |description: &&Description| description.fields.first() == Some(name);
        let descriptions = self.descriptions.iter().filter(is_first);
        let all_slotted = descriptions.filter(|description| description.fields.iter().all(has_slot));
        let names: Vec<_> = all_slotted.cloned().collect();
        for Description { mask, lengths, dimensions, .. } in names {
            let Some(described) = Described::new(slotted, &dimensions) else { continue };
            for (name, form) in [
                (Some(mask), Arc::new(SlottedMask(described.clone())) as Arc<dyn Form>),
                (lengths, Arc::new(SlottedLengths(described)) as Arc<dyn Form>),
            ] {
                let place = name.and_then(|name| self.names.iter().position(|other| *other == name));
                if let Some(place) = place {
                    self.forms[place] = form;
                }
            }
        }
    }

    /// Refuses padding of fields that the data does not have.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the option makes no sense for the field.
    pub(crate) fn require_padded(&self, options: &CollateOptions) -> Result<()> {
        options.pad_values.iter().try_for_each(|(name, _)| self.place(name).map(drop))?;
        options.pad_edges.iter().try_for_each(|name| {
            let field = || name.clone();
            if options.slots.iter().any(|(slotted, _)| slotted == name) {
                return Err(CollateCause::PadEdgeOfSlot { field: field() }.into());
            }
            match self.forms[self.place(name)?].repeats_edge() {
                true => Ok(()),
                false => Err(CollateCause::PadEdge { field: field() }.into()),
            }
        })
    }

    /// The same fields, some of them in other types.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the option makes no sense for the field, or if the bytes of a
    /// padding value are not those of an element.
    pub(crate) fn cast(mut self, options: &CollateOptions) -> Result<Self> {
        for (name, field) in &options.fields {
            let place = self.place(name)?;
            self.forms[place] = field.cast(name, Arc::clone(&self.forms[place]), options.pad_value(name))?;
        }
        Ok(self)
    }

    /// The conversions of fields to other types.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the option makes no sense for the field.
    pub(crate) fn conversions(&self, options: &CollateOptions) -> Result<Vec<FieldConversion>> {
        let mut conversions = Vec::new();
        for (name, field) in &options.fields {
            conversions.extend(field.field_conversion(name, &*self.forms[self.place(name)?])?);
        }
        Ok(conversions)
    }

    /// Refuses samples with sizes that are not the lengths of all their fields.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if batches cannot be padded to given lengths.
    pub(crate) fn require_own_sizes(&self) -> Result<()> {
        match &self.ragged {
            _ if !self.own_lengths.is_empty() => Err(DatasetCause::PadToOwnLengths.into()),
            Some(ragged) if ragged.own_sizes => Ok(()),
            _ => Err(DatasetCause::PadToOwnSizes.into()),
        }
    }

    /// The place of a field that is taken from samples.
    pub(super) fn place(&self, name: &str) -> Result<usize> {
        let place = self.names.iter().position(|other| other == name);
        place.filter(|&place| place < self.own).ok_or_else(|| {
            let field = name.to_owned();
            match place {
                Some(_) => DatasetCause::DescribesBatch { field }.into(),
                None => DatasetCause::NoSuchField { field, known: self.names[..self.own].join(", ") }.into(),
            }
        })
    }

    /// The number of fields, from the first on, that are taken from samples.
    pub(crate) fn own_fields(&self) -> usize {
        self.own
    }

    /// The same fields, and one named `name`, the number of the dataset that each sample is of: `datasets` has it for
    /// each source.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the data has a field of that name.
    pub(super) fn with_source(self, name: &str, datasets: Vec<i64>) -> Result<Self> {
        if self.names.iter().any(|other| other == name) {
            return Err(ConcatCause::SourceField { field: name.to_owned() }.into());
        }
        let names = self.names.iter().cloned().chain([name.to_owned()]).collect();
        let mut forms = self.forms;
        forms.push(Arc::new(SourceNumber { datasets }));
        Ok(Self { names, forms, ..self })
    }

    /// The number of sources of samples.
    pub(super) fn sources(&self) -> u32 {
        let sources = self.forms.first().and_then(|form| form.sources()).map_or(1, <[_]>::len);
        u32::try_from(sources).unwrap_or(u32::MAX)
    }

    /// Refuses fields of dataset `place`, `other`, that do not fit into batches with these.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument), with the name of the first such field.
    pub(super) fn require_same(&self, other: &Self, dataset: usize) -> Result<()> {
        if self.names != other.names {
            let (names, expected) = (other.names.join(", "), self.names.join(", "));
            return Err(ConcatCause::Names { dataset, found: names, expected }.into());
        }
        let pairs = self.names.iter().zip(self.forms.iter().zip(&other.forms)).take(self.own);
        for (name, (form, theirs)) in pairs {
            if form.dtype() != theirs.dtype() {
                let (field, dtype, expected) = (name.clone(), theirs.dtype(), form.dtype());
                return Err(ConcatCause::Types { field, dataset, found: dtype, expected }.into());
            }
            let (shape, their_shape) = (form.sample(), theirs.sample());
            if shape != their_shape {
                let (field, extents, expected) = (name.clone(), shape_text(&their_shape), shape_text(&shape));
                return Err(ConcatCause::Shapes { field, dataset, found: extents, expected }.into());
            }
        }
        let facts = |collation: &Self| {
            let ragged = collation.ragged.as_ref();
            (
                collation.own,
                collation.compressed.len(),
                collation.own_lengths.len(),
                ragged.map(|ragged| (ragged.subsamples, ragged.shuffles, ragged.guide.is_some())),
            )
        };
        match facts(self) == facts(other) {
            true => Ok(()),
            false => Err(ConcatCause::Ways { dataset }.into()),
        }
    }

    /// One sample, whole, field by field.
    ///
    /// # Errors
    /// The errors of collation, and [`Kind::Memory`](crate::Kind::Memory).
    pub(super) fn sample(&self, sample: u64) -> Result<Vec<(String, Tensor)>> {
        let members = self.members_of_one(sample);
        let fields = self.names.iter().zip(&self.forms).take(self.own);
        fields.map(|(name, form)| Ok((name.clone(), form_one(&**form, &members)?))).collect()
    }

    /// The members of a batch that holds one sample of the only source, whole.
    fn members_of_one(&self, sample: u64) -> Members {
        let Some(guide) = self.ragged.as_ref().and_then(|ragged| ragged.guide.as_ref()) else {
            return Members::of_samples(Taken::as_stored(&[sample]), 0).with_entries(&self.compressed);
        };
        let guide = guide.first();
        let extents = guide.sizes_of(usize::try_from(sample).unwrap_or(usize::MAX)).collect();
        let members = Members::new(vec![sample], vec![0], extents, guide.varying().len(), u64::from);
        members.with_own(&self.own_lengths, u64::from)
    }
}

/// The error for a number that a type does not hold.
fn not_held(field: &str, number: f64, dtype: DType) -> CollateCause {
    CollateCause::PadNumber { field: field.to_owned(), value: number.to_string(), dtype }
}

/// The shape of a sample in words; `any` stands for extents that differ between samples.
fn shape_text(shape: &[Option<usize>]) -> String {
    let extents =
        shape.iter().map(|extent| extent.map_or_else(|| "any".to_owned(), |extent| extent.to_string()));
    format!("[{}]", extents.collect::<Vec<_>>().join(", "))
}

/// The field of a batch of one sample, as an array without the first dimension.
pub(super) fn form_one(form: &dyn Form, members: &Members) -> Result<Tensor> {
    let (shape, dtype) = (form.shape(members), form.dtype());
    let bytes = shape.iter().try_fold(dtype.size(), |bytes: usize, &len| bytes.checked_mul(len));
    let too_large = || CollateCause::BatchTooLarge { samples: 1, row: usize::MAX };
    let bytes = bytes.ok_or_else(too_large)?;
    let mut target = memory::reserve(bytes)?;
    target.resize(bytes, 0);
    let bands = form.bands();
    for (band, part) in target.chunks_mut((bytes / bands.max(1)).max(1)).enumerate() {
        form.fill_band(members, 0..members.count, band, part)?;
    }
    let shape = if form.is_concatenated() { &shape[..] } else { &shape[1..] };
    let layout = Layout::compact(shape, dtype.size()).ok_or_else(too_large)?;
    Tensor::new(Bytes::from(target), dtype, shape, layout.strides(), 0)
}

/// The facts about samples that differ in size.
#[derive(Debug, Clone)]
pub(crate) struct Ragged {
    /// The field with the extents of all, or `None` if samples differ in one dimension, and nothing but their
    /// sizes is known.
    pub(crate) guide: Option<BySource<Sequences>>,
    /// The sizes that a plan counts.
    pub(crate) sizes: Sizes,
    /// True if the sizes are the lengths.
    pub(crate) own_sizes: bool,
    /// True if samples that are longer than their size are subsampled.
    pub(crate) subsamples: bool,
    /// True if batches take the elements of a sample in random order.
    pub(crate) shuffles: bool,
}

/// The numbers in an index table, which give the places of samples for data that this process does not read.
#[derive(Debug)]
pub(crate) enum Index {
    /// The sample.
    Rows,
    /// The row that a window begins with, and the steps of zeros before it; then the rows that are found for it; and after
    /// the table, if `lists`, the samples.
    Windows { places: Arc<dyn Places>, finders: Vec<Arc<dyn FindRows>>, lists: bool },
    /// The place and the extents of each sample in each variable field, and whether batches are concatenations.
    Ragged { fields: Vec<Sequences>, dimensions: usize, packs: bool },
    /// The passages of each piece of a stream, and whether the documents that they are of matter.
    Stream { pieces: Arc<dyn Passages>, documents: bool },
}

impl Index {
    /// The shape of the elements that are numbered in a batch of these members: of a concatenation, all in one line; of
    /// pieces of a stream, with the label of the last token.
    pub(crate) fn space(&self, members: &Members) -> Vec<usize> {
        match self {
            Self::Rows | Self::Windows { .. } => vec![members.count],
            Self::Ragged { packs: true, .. } => vec![members.elements()],
            Self::Ragged { .. } => [&[members.count], members.union.as_slice()].concat(),
            Self::Stream { pieces, .. } => vec![members.count, pieces.batch_len(members) + 1],
        }
    }
}
