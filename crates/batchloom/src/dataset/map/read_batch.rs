//! `ReadBatch`: the fields of a batch of samples that were read.
//!
//! Promise: all samples of a batch have the fields, types and shapes of the first, but for what sizes and slots allow;
//! a sample that has not is an error that names it.

use std::sync::Arc;

use super::error::MapCause;
use super::next_tokens::make_labels;
use super::reading::{Banned, BatchRead, OnError, ReadPart, SampleLayout, Skipped};
use super::sample_facts::SampleFacts;
use super::source::SourceError;
use crate::batching::Rule;
use crate::collate::{
    Boundaries, Form, Lengths, Mask, PadSlot, Positions, ReadField, ReadParts, SampleIndex, SampleTokens,
    Segments, Slot, SlotWriter, SourceOfSample, WholeField,
};
use crate::dataset::collated::Collated;
use crate::dataset::collation::{CollateOptions, Collation, Index};
use crate::dataset::concatenated::SOURCE;
use crate::error::ReadError;
use crate::{DType, Result};

/// The samples of one batch, read.
pub(super) struct ReadBatch {
    samples: Vec<u64>,
    /// The layout of each sample, or `None` for those that are left out.
    layouts: Vec<Option<SampleLayout>>,
    parts: ReadParts,
    skipped: Skipped,
    /// The sample that later samples are compared to, and its layout.
    first: (u64, SampleLayout),
}

impl ReadBatch {
    /// Looks at what was read, and at what failed.
    pub(super) fn new(facts: &SampleFacts, batch: BatchRead) -> Result<Self> {
        let (mut layouts, mut parts, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
        for (range, part) in batch.parts {
            for (outcome, &sample) in part.outcomes.into_iter().zip(&batch.samples[range.clone()]) {
                match (outcome, facts.on_error) {
                    (Ok(layout), _) => layouts.push(Some(layout)),
                    (Err(cause), _) if Banned::is(&cause) => layouts.push(None),
                    (Err(cause), OnError::Raise) => return Err(ReadError::Failed { sample, cause }.into()),
                    (Err(cause), OnError::Skip) => {
                        layouts.push(None);
                        skipped.push((sample, cause));
                    }
                }
            }
            parts.push((range, part.samples));
        }
        let own = || {
            batch.samples.iter().zip(&layouts).find_map(|(&sample, layout)| Some((sample, layout.clone()?)))
        };
        let Some(first) = batch.first.or_else(own) else {
            let banned = || (batch.samples.first().copied().unwrap_or(0), Banned.into());
            let (sample, cause) = skipped.into_iter().next().unwrap_or_else(banned);
            return Err(ReadError::NoneRead { sample, cause }.into());
        };
        Ok(Self { samples: batch.samples, layouts, parts: parts.into(), skipped, first })
    }

    /// The layouts of the samples that could be read, with their numbers and places.
    fn layouts(&self) -> impl Iterator<Item = (u64, &SampleLayout)> {
        self.samples
            .iter()
            .zip(&self.layouts)
            .filter_map(|(&sample, layout)| Some((sample, layout.as_ref()?)))
    }

    /// The fields of the batch.
    pub(super) fn collate(
        self,
        facts: &SampleFacts,
        rule: &Rule,
        options: &CollateOptions,
    ) -> Result<Collated> {
        let names = Arc::clone(&self.first.1.structure.names);
        self.check_structure()?;
        let slot = |name: &String| options.slots.iter().find(|(field, _)| field == name);
        let of = |(name, (dtype, _)): (&String, &(DType, _))| {
            slot(name).map_or(*dtype, |(_, slot)| slot.dtype(*dtype))
        };
        let dtypes: Vec<_> = names.iter().zip(&self.first.1.fields).map(of).collect();
        let options = options.with_types(&names, &dtypes)?;
        check_names("fields", options.slots.iter().map(|(name, _)| name), &names)?;
        check_names("columns", facts.variable.iter().flatten(), &names)?;
        check_names("pad_value", options.pad_numbers.iter().filter_map(|(name, _)| name.as_ref()), &names)?;
        let (mut variable, mut tokens) = (false, None);
        let mut fields = Vec::new();
        for (place, name) in names.iter().enumerate() {
            let field = self.field(facts, rule, &options, place, name)?;
            variable |= field.is_variable;
            let field = Arc::new(field);
            if field.is_variable && options.labels.as_ref() == Some(name) {
                tokens = Some(Arc::clone(&field) as Arc<dyn SampleTokens>);
            }
            fields.push((name.clone(), field as Arc<dyn Form>));
        }
        if rule.packs() && !variable {
            return Err(ReadError::NothingToPack { rule: rule.name(), sample: self.first.0 }.into());
        }
        let own = fields.len();
        let labels = make_labels(&options, rule, &self.first.1, tokens)?;
        let described = describing_fields(facts, rule, &options, variable, labels);
        check_own_names(&fields, &described)?;
        fields.extend(described.into_iter().map(|(name, form)| (name.to_owned(), form)));
        let collation = Collation { own, ragged: facts.ragged(), ..Collation::new(fields, Index::Rows)? };
        let marks = facts.skips().then(|| self.marks());
        Ok(Collated { collation, options, marks, skipped: self.skipped, first: Some(self.first) })
    }

    /// True for each sample that could not be read.
    fn marks(&self) -> Arc<[bool]> {
        self.layouts.iter().map(Option::is_none).collect()
    }

    /// Refuses samples with other fields than the first.
    fn check_structure(&self) -> Result<()> {
        let (first, expected) = (self.first.0, &self.first.1.structure);
        let differs = |(_, layout): &(u64, &SampleLayout)| layout.structure != *expected;
        match self.layouts().find(differs) {
            None => Ok(()),
            Some((sample, layout)) => Err(ReadError::Structure {
                sample,
                found: layout.structure.to_string(),
                first,
                expected: expected.to_string(),
            }
            .into()),
        }
    }

    /// The form of one field.
    fn field(
        &self,
        facts: &SampleFacts,
        rule: &Rule,
        options: &CollateOptions,
        place: usize,
        name: &str,
    ) -> Result<ReadField> {
        let (dtype, first) = &self.first.1.fields[place];
        let slot = options.slots.iter().find(|(field, _)| field == name).map(|(_, slot)| slot.clone());
        let is_variable = facts.is_variable(options, name, first);
        self.check_layouts(facts, place, name, is_variable, slot.as_ref())?;
        let side = options.pad_side;
        let slot = slot.unwrap_or(if is_variable {
            Slot::Pad(PadSlot { side, ..PadSlot::default() })
        } else {
            Slot::Same
        });
        let shape = match is_variable {
            // The first extent is that of the batch, which its members know.
            true => first.clone(),
            false => {
                let mut shapes: Vec<_> =
                    self.layouts().map(|(_, layout)| layout.fields[place].1.as_slice()).collect();
                if shapes.is_empty() {
                    // Every sample of the batch is left out.
                    shapes.push(first);
                }
                slot.shape(name, shapes.into_iter())?
            }
        };
        let dtype = slot.dtype(*dtype);
        let padding = options.slot_padding(name, &slot, dtype)?;
        let writer = SlotWriter { slot, shape, dtype, padding };
        let shape_of =
            |layout: &Option<SampleLayout>| layout.as_ref().map(|layout| layout.fields[place].1.clone());
        let shapes = self.layouts.iter().map(shape_of).collect();
        let concatenates = is_variable && rule.packs();
        let parts = Arc::clone(&self.parts);
        Ok(ReadField { parts, field: place, writer, concatenates, is_variable, shapes })
    }

    /// Refuses arrays with other types and shapes than in the first sample, and lengths that are not the sizes.
    fn check_layouts(
        &self,
        facts: &SampleFacts,
        place: usize,
        name: &str,
        is_variable: bool,
        slot: Option<&Slot>,
    ) -> Result<()> {
        let (first, (expected, expected_shape)) = (self.first.0, &self.first.1.fields[place]);
        let slot = slot.unwrap_or(&Slot::Same);
        for (sample, layout) in self.layouts() {
            let (dtype, shape) = &layout.fields[place];
            let array = || format!("field {name} of sample {sample}");
            slot.check_array(array, *dtype, shape)?;
            let fits = match is_variable {
                true => shape.len() == expected_shape.len() && shape[1..] == expected_shape[1..],
                false => slot.takes_both(shape, expected_shape),
            };
            if dtype != expected || !fits {
                let (field, shape) = (name.to_owned(), shape.clone());
                let expected_shape = expected_shape.clone();
                let (dtype, expected) = (*dtype, *expected);
                return Err(ReadError::Layout {
                    field,
                    sample,
                    found: dtype,
                    shape,
                    first,
                    expected,
                    expected_shape,
                }
                .into());
            }
            let sizes = facts.sizes.as_ref().filter(|_| is_variable);
            let size = sizes.map(|sizes| sizes.as_slice()[usize::try_from(sample).unwrap_or(usize::MAX)]);
            if let Some(size) = size.filter(|&size| shape[0] as u64 != u64::from(size)) {
                return Err(
                    ReadError::Size { field: name.to_owned(), sample, shape: shape.clone(), size }.into()
                );
            }
        }
        Ok(())
    }
}

/// The fields of a batch that was made as a whole. Each batch has fields of its own.
pub(super) fn collate_whole(
    facts: &SampleFacts,
    options: &CollateOptions,
    read: BatchRead,
) -> Result<Collated> {
    let sample = read.samples.first().copied().unwrap_or(0);
    let part = read.parts.into_iter().next().map(|(_, part)| part);
    let missing = || ReadError::Failed { sample, cause: SourceError::from("its batch was not made").into() };
    let ReadPart { outcomes, samples: batch, .. } = part.ok_or_else(missing)?;
    let layout = outcomes.into_iter().next().ok_or_else(missing)?;
    let layout = layout.map_err(|cause| ReadError::Failed { sample, cause })?;
    let field = |(field, (dtype, shape)): (usize, &(DType, Vec<usize>))| {
        let writer = SlotWriter::same(*dtype, shape.clone());
        let name = layout.structure.names[field].clone();
        (name, Arc::new(WholeField { batch: Arc::clone(&batch), field, writer }) as Arc<dyn Form>)
    };
    let fields = layout.fields.iter().enumerate().map(field).collect();
    let collation = Collation { ragged: facts.ragged(), ..Collation::new(fields, Index::Rows)? };
    let first = Some((sample, layout));
    Ok(Collated { collation, options: options.clone(), marks: None, skipped: Vec::new(), first })
}

/// Refuses options for fields that samples do not have.
fn check_names<'a>(
    option: &'static str,
    mut given: impl Iterator<Item = &'a String>,
    names: &[String],
) -> Result<()> {
    match given.find(|name| !names.contains(name)) {
        None => Ok(()),
        Some(name) => {
            Err(ReadError::UnknownField { option, field: name.clone(), names: names.join(", ") }.into())
        }
    }
}

/// Refuses fields of samples with the name of a field that describes them.
pub(super) fn check_own_names(
    fields: &[(String, Arc<dyn Form>)],
    described: &[(&str, Arc<dyn Form>)],
) -> Result<()> {
    let is_own = |name: &String| described.iter().any(|(own, _)| own == name);
    match fields.iter().find(|(name, _)| is_own(name)) {
        Some((field, _)) => Err(MapCause::OwnName { field: field.clone() }.into()),
        None => Ok(()),
    }
}

/// The fields that describe a batch of samples with sizes.
pub(super) fn describing_fields(
    facts: &SampleFacts,
    rule: &Rule,
    options: &CollateOptions,
    is_variable: bool,
    labels: Option<Arc<dyn Form>>,
) -> Vec<(&'static str, Arc<dyn Form>)> {
    let mut fields: Vec<(&str, Arc<dyn Form>)> = match (is_variable, rule.packs()) {
        (false, _) => Vec::new(),
        (true, true) => vec![
            ("cu_seqlens", Arc::new(Boundaries)),
            ("position_ids", Arc::new(Positions { continues: rule.continues() })),
            ("segment_ids", Arc::new(Segments)),
        ],
        (true, false) => {
            vec![("attention_mask", Arc::new(Mask(options.pad_side))), ("lengths", Arc::new(Lengths))]
        }
    };
    if facts.sizes.is_some() {
        fields.push(("index", Arc::new(SampleIndex)));
    }
    fields.extend(labels.map(|labels| ("labels", labels)));
    let source = |ends: &Arc<[u64]>| Arc::new(SourceOfSample { ends: Arc::clone(ends) }) as Arc<dyn Form>;
    fields.extend(facts.sources.as_ref().map(|ends| (SOURCE, source(ends))));
    fields
}
