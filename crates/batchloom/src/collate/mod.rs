//! How the bytes of samples become the bytes of batches. Knows sources and slots, neither seeds nor threads.
//!
//! A [`Form`] makes one field of a batch. It says which shape the field has for given [`Members`], where the part of each
//! sample begins, and fills the parts of some samples, so that several threads can fill one field.

mod index;
mod labels;
mod members;
mod pack;
mod pad;
mod stack;
mod tokens;
mod window;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
pub(crate) use labels::{Labels, is_integer};
pub(crate) use members::Members;
pub(crate) use pad::Pad;
pub use pad::PadSide;
pub(crate) use stack::Slots;
use stack::stack;
pub(crate) use tokens::{Tokens, What};
pub(crate) use window::Window;

use crate::DType;
use crate::dataset::{Sequences, Windows};
use crate::tensor::Rows;

/// How one field of a batch is made.
#[derive(Debug, Clone)]
pub(crate) enum Form {
    /// The row of each sample: `[samples, ..row]`.
    Stack(Source),
    /// Some steps of each window: `[samples, steps, ..row]`.
    Window(Window),
    /// Which steps of input of each window exist: `[samples, steps]`.
    WindowMask(Arc<Windows>, usize),
    /// What is said of each token of pieces of a stream: `[samples, seq_len]`.
    Tokens(Tokens),
    /// Each sample padded to the union: `[samples, ..union, ..inner]`.
    Pad(Pad),
    /// Whether an element is data: `[samples, ..union]`.
    Mask(PadSide),
    /// The extents of each sample: `[samples]`, or `[samples, dimensions]`.
    Lengths,
    /// The samples: `[samples]`.
    Index,
    /// Samples one after the other: `[elements, ..inner]`.
    Pack(Sequences),
    /// Where they begin and end, as int32: `[samples + 1]`.
    Boundaries,
    /// The same, as int64.
    Offsets,
    /// The number of each element in its sample: `[elements]`.
    Positions,
    /// The number of each element's sample in the batch: `[elements]`.
    Segments,
    /// The next element of each element: `[samples, length]`, or `[elements]`.
    Labels(Labels),
}

/// Rows of one shape.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) rows: Rows,
    pub(crate) bytes: Bytes,
    pub(crate) dtype: DType,
    /// The shape of a row.
    pub(crate) shape: Vec<usize>,
}

impl Form {
    /// The type of an element.
    pub(crate) fn dtype(&self) -> DType {
        match self {
            Self::Stack(source) => source.dtype,
            Self::Pad(pad) => pad.sequences.values().dtype(),
            Self::Pack(sequences) => sequences.values().dtype(),
            Self::Window(window) => window.span.values.dtype(),
            Self::Tokens(tokens) => tokens.dtype(),
            Self::Mask(_) | Self::WindowMask(..) => DType::Bool,
            Self::Lengths | Self::Index | Self::Offsets | Self::Positions | Self::Labels(_) => DType::I64,
            Self::Boundaries | Self::Segments => DType::I32,
        }
    }

    /// The shape of the field for these members.
    pub(crate) fn shape(&self, members: &Members) -> Vec<usize> {
        let samples = members.count;
        match self {
            Self::Stack(source) => [&[samples], source.shape.as_slice()].concat(),
            Self::Window(window) => [&[samples, window.span.len], &window.span.values.shape()[1..]].concat(),
            Self::WindowMask(_, input_len) => vec![samples, *input_len],
            Self::Tokens(tokens) => vec![samples, tokens.pieces.len()],
            Self::Pad(pad) => [&[samples], pad.shape(members).as_slice()].concat(),
            Self::Mask(_) => [&[samples], members.union.as_slice()].concat(),
            Self::Lengths if members.union.len() > 1 => vec![samples, members.union.len()],
            Self::Lengths | Self::Index => vec![samples],
            Self::Pack(sequences) => [&[members.elements()], &sequences.values().shape()[1..]].concat(),
            Self::Boundaries | Self::Offsets => vec![samples + 1],
            Self::Positions | Self::Segments => vec![members.elements()],
            Self::Labels(labels) if labels.packed => vec![members.elements()],
            Self::Labels(_) => [&[samples], members.union.as_slice()].concat(),
        }
    }

    /// Where the part of member `member` begins, in bytes; for one past the last, where the field ends.
    pub(crate) fn start(&self, members: &Members, member: usize) -> usize {
        let size = self.dtype().size();
        match self {
            Self::Pack(sequences) => members.ends[member] * sequences.rows().bytes(),
            Self::Positions | Self::Segments => members.ends[member] * size,
            Self::Labels(labels) if labels.packed => members.ends[member] * size,
            // The first boundary goes with the first sample, and each sample has the one at its end.
            Self::Boundaries | Self::Offsets => size * if member == 0 { 0 } else { member + 1 },
            _ => member * self.shape(members)[1..].iter().product::<usize>() * size,
        }
    }

    /// Fills the parts of samples that need no members, batch by batch: their numbers say all.
    pub(crate) fn gather(&self, samples: &[u64], target: &mut [u8], slots: Slots) {
        match self {
            Self::Stack(source) => stack(&source.bytes, &source.rows, samples, target, slots),
            Self::Window(window) => window.gather(samples, target, slots),
            Self::Tokens(tokens) => tokens.gather(samples, target, slots),
            Self::WindowMask(windows, input_len) => window::mask(windows, *input_len, samples, target, slots),
            _ => {}
        }
    }

    /// Fills the parts of `range` of the members.
    pub(crate) fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) {
        match self {
            Self::Stack(_) | Self::Window(_) | Self::WindowMask(..) | Self::Tokens(_) => {
                let slots = Slots { batch: range.len(), stride: target.len() };
                self.gather(&members.samples[range], target, slots);
            }
            Self::Pad(pad) => pad.fill(members, range, target),
            Self::Mask(side) => pad::mask(*side, members, range, target),
            Self::Lengths => index::lengths(members, range, target),
            Self::Index => index::samples(members, range, target),
            Self::Pack(sequences) => pack::values(sequences, members, range, target),
            Self::Boundaries => pack::boundaries(members, range, target),
            Self::Offsets => pack::offsets(members, range, target),
            Self::Positions => pack::positions(members, range, target),
            Self::Segments => pack::segments(members, range, target),
            Self::Labels(labels) => labels.fill(members, range, target),
        }
    }
}
