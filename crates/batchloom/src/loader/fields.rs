//! What a batch holds: its fields, by name and form, and the members that they are made of.
//!
//! Where blocks are addresses the forms still say what batches will be like, and so how many share a block.

use std::sync::Arc;

use crate::batching::Rule;
use crate::collate::{Form, Labels, Members, Pad, PadSide, Source, Tokens, What, Window, is_integer};
use crate::dataset::{
    Dataset, Field, GroupDataset, Pieces, SequenceDataset, Sequences, Span, TokenDataset, TokenExtras,
    WindowDataset,
};
use crate::order::{Key, Order, Permutation, Purpose};
use crate::plan::Parts;
use crate::{Error, Plan, Result, Tensor, TensorDataset};

/// The fields of every batch.
#[derive(Debug)]
pub(super) struct Fields {
    pub(super) names: Arc<[String]>,
    pub(super) forms: Vec<Form>,
    /// Where samples have sizes: what makes members of the parts that a plan names.
    pub(super) ragged: Option<Ragged>,
    /// Where samples are pieces of a stream: of what.
    stream: Option<Streamed>,
}

/// How pieces of a stream are taken.
#[derive(Debug, Clone)]
struct Streamed {
    dataset: TokenDataset,
    pieces: Pieces,
    /// Whether documents are shuffled anew for each epoch.
    shuffles: bool,
}

/// What fields have to know besides the dataset and the rule.
#[derive(Debug, Clone, Default)]
pub(super) struct Options {
    pub(super) padding: Padding,
    /// Of a stream whose rows go on: how many, and how many pieces each has.
    pub(super) rows: Option<(u64, u64)>,
    /// Whether the documents of a stream are shuffled.
    pub(super) shuffles_documents: bool,
    /// Whether blocks are addresses.
    pub(super) index_table: bool,
}

/// How samples are padded.
#[derive(Debug, Clone, Default)]
pub(super) struct Padding {
    pub(super) side: PadSide,
    /// The bytes of one element of padding, for some of the fields by name.
    pub(super) values: Vec<(String, Vec<u8>)>,
    /// The field whose next tokens are labels.
    pub(super) labels: Option<String>,
}

/// Samples that differ in size.
#[derive(Debug)]
pub(super) struct Ragged {
    dataset: SequenceDataset,
    multiple_of: u32,
    /// Whether batches are concatenations.
    packs: bool,
}

impl Fields {
    /// The fields of `dataset` in batches that `rule` makes.
    ///
    /// # Errors
    /// [`Error::Elsewhere`] where samples are to be read and are elsewhere, and what the kind of dataset does not allow.
    pub(super) fn new(dataset: &Dataset, rule: &Rule, options: &Options) -> Result<Self> {
        let arrays = dataset.arrays();
        let elsewhere = arrays.iter().find(|(_, array)| array.is_elsewhere() && !options.index_table);
        if let Some((name, _)) = elsewhere {
            return Err(Error::Elsewhere { field: (*name).to_owned() });
        }
        Ok(match dataset {
            Dataset::Tensors(dataset) => Self::stacked(dataset),
            Dataset::Sequences(dataset) => Self::ragged(dataset, rule, &options.padding)?,
            Dataset::Windows(dataset) => Self::windowed(dataset),
            Dataset::Groups(dataset) => Self::grouped(dataset, rule, &options.padding)?,
            Dataset::Tokens(dataset) => Self::streamed(Streamed {
                dataset: dataset.clone(),
                pieces: Pieces { stream: Arc::new(dataset.stream(None)), rows: options.rows },
                shuffles: options.shuffles_documents,
            }),
        })
    }

    /// The fields of pieces of a stream.
    fn streamed(streamed: Streamed) -> Self {
        let (pieces, extras) = (&streamed.pieces, streamed.dataset.extra());
        let fields = [
            ("input_ids", What::Inputs, true),
            ("labels", What::Labels, true),
            ("position_ids", What::Positions, extras.position_ids),
            ("segment_ids", What::Segments, extras.segment_ids),
            ("resets", What::Resets, extras.resets),
        ];
        let fields = fields.into_iter().filter(|&(.., wanted)| wanted);
        let form = |(name, what, _): (&str, What, bool)| {
            (name.to_owned(), Form::Tokens(Tokens { pieces: pieces.clone(), what }))
        };
        let (names, forms) = fields.map(form).unzip();
        Self { stream: Some(streamed), ..Self::plain(names, forms) }
    }

    /// The fields in the epoch of `plan`.
    pub(super) fn at(this: &Arc<Self>, plan: &Plan) -> Arc<Self> {
        let Some(streamed) = this.stream.as_ref().filter(|streamed| streamed.shuffles) else {
            return Arc::clone(this);
        };
        let Streamed { dataset, pieces, .. } = streamed;
        let key = Key::new(plan.seed(), plan.epoch(), Purpose::Documents);
        let order = Order::new(dataset.document_count(), Some(&key));
        let pieces = Pieces { stream: Arc::new(dataset.stream(Some(order))), rows: pieces.rows };
        Arc::new(Self::streamed(Streamed { pieces, ..streamed.clone() }))
    }

    fn plain(names: Vec<String>, forms: Vec<Form>) -> Self {
        Self { names: names.into(), forms, ragged: None, stream: None }
    }

    fn stacked(dataset: &TensorDataset) -> Self {
        let forms = dataset.fields().iter().zip(dataset.rows()).map(|(field, rows)| {
            let shape = field.shape()[1..].to_vec();
            Form::Stack(Source { rows, bytes: field.bytes().clone(), dtype: field.dtype(), shape })
        });
        Self::plain(dataset.names().to_vec(), forms.collect())
    }

    fn windowed(dataset: &WindowDataset) -> Self {
        let windows = dataset.windows();
        let window = |span: &Span| Form::Window(Window { windows: Arc::clone(windows), span: span.clone() });
        let mut forms: Vec<Form> = dataset.spans().iter().map(window).collect();
        let mut names = dataset.names().to_vec();
        if dataset.masks() {
            forms.push(Form::WindowMask(Arc::clone(windows), dataset.shape().input_len));
            names.push("mask".to_owned());
        }
        Self::plain(names, forms)
    }

    fn ragged(dataset: &SequenceDataset, rule: &Rule, padding: &Padding) -> Result<Self> {
        if !dataset.own_sizes() && rule.limit().is_some() {
            return Err(Error::ForeignSizes { rule: rule.name() });
        }
        let (mut names, mut forms) = (dataset.names().to_vec(), forms(dataset, rule.packs(), padding)?);
        let mut add = |name: &str, form| {
            names.push(name.to_owned());
            forms.push(form);
        };
        match rule.packs() {
            true => {
                add("cu_seqlens", Form::Boundaries);
                add("position_ids", Form::Positions);
                add("segment_ids", Form::Segments);
            }
            false => {
                add("attention_mask", Form::Mask(padding.side));
                add("lengths", Form::Lengths);
            }
        }
        add("index", Form::Index);
        if let Some(field) = &padding.labels {
            let sequences = tokens(dataset, field)?;
            add("labels", Form::Labels(Labels { sequences, side: padding.side, packed: rule.packs() }));
        }
        let (packs, multiple_of) = (rule.packs(), rule.multiple_of());
        Self::checked(names, forms, Ragged { dataset: dataset.clone(), multiple_of, packs })
    }

    fn grouped(dataset: &GroupDataset, rule: &Rule, padding: &Padding) -> Result<Self> {
        let (packs, sequences) = (dataset.is_concatenated(), dataset.sequences());
        if rule.splits() {
            let reason =
                "oversize is \"split\", which would divide groups; expected \"error\" or \"truncate\"";
            return Err(Error::WholeGroups { reason });
        }
        if rule.packs() && !packs {
            let reason =
                "Packing makes batches without padding; expected layout \"concatenated\", or another rule";
            return Err(Error::WholeGroups { reason });
        }
        let (mut names, mut forms) = (sequences.names().to_vec(), forms(sequences, packs, padding)?);
        let extra = match packs {
            true => dataset.has_offsets().then_some(("offsets", Form::Offsets)),
            false => Some(("mask", Form::Mask(padding.side))),
        };
        if let Some((name, form)) = extra {
            names.push(name.to_owned());
            forms.push(form);
        }
        let multiple_of = rule.multiple_of();
        Self::checked(names, forms, Ragged { dataset: sequences.clone(), multiple_of, packs })
    }

    fn checked(names: Vec<String>, forms: Vec<Form>, ragged: Ragged) -> Result<Self> {
        let repeated = names.iter().enumerate().find(|(place, name)| names[..*place].contains(name));
        match repeated {
            Some((_, name)) => Err(Error::DuplicateField { name: name.clone() }),
            None => Ok(Self { ragged: Some(ragged), ..Self::plain(names, forms) }),
        }
    }

    /// The pieces that samples are, of a stream.
    pub(super) fn pieces(&self) -> Option<&Pieces> {
        self.stream.as_ref().map(|streamed| &streamed.pieces)
    }

    /// Whether batches are concatenations.
    pub(super) fn concatenates(&self) -> bool {
        self.ragged.as_ref().is_some_and(|ragged| ragged.packs)
    }

    /// Whether batches have boundaries, which are 32-bit numbers.
    pub(super) fn has_boundaries(&self) -> bool {
        self.forms.iter().any(|form| matches!(form, Form::Boundaries))
    }

    /// The shape of the elements that are addressed in a batch of these members: of a concatenation, all in one line; of
    /// pieces of a stream, with the label of the last token.
    pub(super) fn space(&self, members: &Members) -> Vec<usize> {
        match (&self.ragged, &self.stream) {
            (Some(Ragged { packs: true, .. }), _) => vec![members.elements()],
            (Some(_), _) => [&[members.count], members.union.as_slice()].concat(),
            (None, Some(streamed)) => vec![members.count, streamed.pieces.len() + 1],
            (None, None) => vec![members.count],
        }
    }

    /// The members of the batch that `rank` takes at `step`: in full where samples differ in size, else how many.
    pub(super) fn members(&self, plan: &Plan, step: u64, rank: u32) -> Result<Members> {
        let Some(Ragged { dataset, multiple_of, .. }) = &self.ragged else {
            let samples = plan.batch_len(step, rank)?;
            return Ok(Members::uniform(usize::try_from(samples).unwrap_or(usize::MAX)));
        };
        let parts = plan.parts(step, rank)?;
        let picks = if dataset.subsamples() { picks(dataset, plan, &parts) } else { Vec::new() };
        let dimensions = dataset.dimensions();
        let extents = match dataset.own_sizes() && dimensions == 1 {
            true => parts.sizes,
            false => {
                let guide = dataset.guide().into_iter();
                let sample = |&sample: &u64| usize::try_from(sample).unwrap_or(usize::MAX);
                let all = guide
                    .flat_map(|guide| parts.samples.iter().flat_map(move |it| guide.sizes_of(sample(it))));
                all.collect()
            }
        };
        let members = Members::new(parts.samples, parts.starts, extents, dimensions, *multiple_of);
        Ok(Members { picks, ..members })
    }
}

/// Which elements are taken of each sample of a batch, in order: at random where it has more than are taken, as a
/// function of seed, epoch and sample. Empty where all have as many.
fn picks(dataset: &SequenceDataset, plan: &Plan, parts: &Parts) -> Vec<u32> {
    let Some(guide) = dataset.guide() else { return Vec::new() };
    let number = |sample: u64| usize::try_from(sample).unwrap_or(usize::MAX);
    let stored = |sample: u64| guide.extents(number(sample))[0];
    let thinned = |sample: u64| stored(sample) > dataset.sizes().as_slice()[number(sample)];
    let mut samples = parts.samples.iter().zip(&parts.sizes);
    if !samples.clone().any(|(&sample, _)| thinned(sample)) {
        return Vec::new();
    }
    let mut picks = Vec::new();
    for (&sample, &taken) in &mut samples {
        let (start, all) = (picks.len(), stored(sample));
        if !thinned(sample) {
            picks.extend(0..taken);
            continue;
        }
        let key = Key::new(plan.seed(), plan.epoch(), Purpose::Rows { group: sample });
        let permutation = Permutation::new(u64::from(all), &key);
        // Elements of a sample are counted in 32 bits.
        let pick = |place: u32| u32::try_from(permutation.get(u64::from(place))).unwrap_or(u32::MAX);
        picks.extend((0..taken).map(pick));
        picks[start..].sort_unstable();
    }
    picks
}

/// The forms of a dataset's fields, concatenated or padded.
fn forms(dataset: &SequenceDataset, packs: bool, padding: &Padding) -> Result<Vec<Form>> {
    let form = |(name, field): (&String, &Field)| {
        Ok(match field {
            Field::Fixed(rows) => Form::Stack(source(name, rows)?),
            Field::Variable(sequences) if packs => Form::Pack(packable(name, sequences)?),
            Field::Variable(sequences) => Form::Pad(pad(name, sequences, padding)?),
        })
    };
    dataset.names().iter().zip(dataset.fields()).map(form).collect()
}

fn source(name: &str, rows: &Tensor) -> Result<Source> {
    let walk = rows.layout().rows(rows.dtype().size());
    let walk = walk.ok_or_else(|| Error::ScalarField { field: name.to_owned() })?;
    Ok(Source {
        rows: walk,
        bytes: rows.bytes().clone(),
        dtype: rows.dtype(),
        shape: rows.shape()[1..].to_vec(),
    })
}

fn packable(name: &str, sequences: &Sequences) -> Result<Sequences> {
    match sequences.varying() {
        [0] => Ok(sequences.clone()),
        _ => Err(Error::NotPackable { field: name.to_owned() }),
    }
}

fn pad(name: &str, sequences: &Sequences, padding: &Padding) -> Result<Pad> {
    let expected = sequences.values().dtype().size();
    let given = padding.values.iter().find(|(field, _)| field == name);
    let value = given.map_or_else(|| vec![0; expected], |(_, value)| value.clone());
    match value.len() {
        found if found == expected => Ok(Pad { sequences: sequences.clone(), value, side: padding.side }),
        found => Err(Error::PadValue { field: name.to_owned(), found, expected }),
    }
}

/// The sequences of tokens that a field holds.
fn tokens(dataset: &SequenceDataset, field: &str) -> Result<Sequences> {
    let refused = |reason: String| Error::Labels { reason };
    let place = dataset.names().iter().position(|name| name == field);
    let place = place.ok_or_else(|| refused(format!("there is no field {field}")))?;
    match &dataset.fields()[place] {
        Field::Variable(sequences) if sequences.values().shape().len() > 1 || sequences.varying() != [0] => {
            Err(refused(format!("field {field} holds more than one number a place")))
        }
        Field::Variable(sequences) if is_integer(sequences.values().dtype()) => Ok(sequences.clone()),
        Field::Variable(sequences) => {
            Err(refused(format!("field {field} holds {}, not integers", sequences.values().dtype())))
        }
        Field::Fixed(_) => Err(refused(format!("field {field} does not vary in length"))),
    }
}
