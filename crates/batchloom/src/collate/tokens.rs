//! `tokens`: pieces of a stream as int64, and the documents in them.

use std::fmt::Debug;
use std::ops::Range;

use super::index::write;
use super::labels::IGNORED;
use super::prefetch::prefetch_rows;
use super::read_rows::take_rows;
use super::{Form, Members, RowSlots, Taken};
use crate::tensor::{ChunkedTensor, Place};
use crate::{DType, Result};

/// The bytes of stored tokens that are read from a file at a time: they stay in the nearest cache.
const READ: usize = 8 << 10;

/// Equal pieces of a stream of tokens. The last pieces may end early.
pub(crate) trait Pieces: Debug + Send + Sync {
    /// The number of places that a batch of these members has for each piece.
    fn batch_len(&self, members: &Members) -> usize;

    /// The token of the stream with which piece `sample` begins.
    fn start(&self, sample: u64) -> u64;

    /// The number of tokens of piece `sample`. Places after them are padding.
    fn count(&self, sample: u64) -> usize;

    /// The stored tokens.
    fn tokens(&self) -> &ChunkedTensor;

    /// The token between documents.
    fn separator(&self) -> i64;

    /// The tokens `start..start + len` of the stream as they are stored, if they are stored one after the other.
    fn find_stored(&self, start: u64, len: usize) -> Option<Range<usize>>;

    /// Visits the passages that make up the tokens `start..start + len` of the stream.
    fn walk(&self, start: u64, len: usize, each: impl FnMut(Passage));
}

/// Finds the passages of each piece of a stream.
pub(crate) trait Passages: Debug + Send + Sync {
    /// The number of places that a batch of these members has for each piece.
    fn batch_len(&self, members: &Members) -> usize;

    /// Visits the passages that make up a piece of `len` places and the label of its last token; unless `documents`
    /// matter, one for all tokens that lie one after the other.
    fn passages(&self, sample: u64, len: usize, documents: bool, each: &mut dyn FnMut(Passage));
}

/// The tokens of a passage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PassageOf {
    /// Stored tokens.
    Stored(Range<usize>),
    /// The token between documents.
    Separator,
    /// As many places after the end of a piece.
    Padding(usize),
}

/// Consecutive tokens of one document, the separator after it, or padding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Passage {
    pub(crate) of: PassageOf,
    /// True if a document begins with the first of them.
    pub(crate) begins: bool,
    /// True if the passage continues the document of the passage before it.
    pub(crate) goes_on: bool,
}

impl Passage {
    /// The number of tokens.
    pub(crate) fn len(&self) -> usize {
        match &self.of {
            PassageOf::Stored(tokens) => tokens.len(),
            PassageOf::Separator => 1,
            PassageOf::Padding(places) => *places,
        }
    }
}

/// One field of a piece: `[samples, seq_len]`.
#[derive(Debug, Clone)]
pub(crate) struct Tokens<P> {
    pub(crate) pieces: P,
    pub(crate) field: TokenField,
}

/// A fact about each token of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenField {
    /// The token.
    Inputs,
    /// The next token, or [`IGNORED`] where a piece only fills up.
    Labels,
    /// Its place in its document, counted from the start of the piece.
    Positions,
    /// The number of its document in the piece, from 1; padding has 0.
    Segments,
    /// True if it begins a document.
    Resets,
}

impl<P: Pieces> Form for Tokens<P> {
    fn dtype(&self) -> DType {
        match self.field {
            TokenField::Inputs | TokenField::Labels | TokenField::Positions => DType::I64,
            TokenField::Segments => DType::I32,
            TokenField::Resets => DType::Bool,
        }
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        vec![members.count, self.pieces.batch_len(members)]
    }

    fn is_data(&self) -> bool {
        self.field == TokenField::Inputs
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let slots = RowSlots {
            batch: range.len(),
            stride: target.len(),
            fillers: members.fillers_in(&range),
            loss_denominator: members.loss_denominator,
        };
        let slot = self.pieces.batch_len(members) * self.dtype().size();
        self.gather_slots(members.take(range.clone()), target, slots, slot)?;
        let ignored =
            range.clone().filter(|&member| self.field == TokenField::Labels && members.is_banned(member));
        for place in ignored.map(|member| (member - range.start) * slot) {
            write(std::iter::repeat(IGNORED), &mut target[place..place + slot]);
        }
        Ok(())
    }

    fn gather(&self, taken: Taken<'_>, target: &mut [u8], slots: RowSlots) -> Result<()> {
        let slot = self.pieces.batch_len(&Members::default()) * self.dtype().size();
        self.gather_slots(taken, target, slots, slot)
    }
}

impl<P: Pieces> Tokens<P> {
    /// Fills slots of `slot` bytes each.
    fn gather_slots(&self, taken: Taken<'_>, target: &mut [u8], slots: RowSlots, slot: usize) -> Result<()> {
        let mut ahead = taken.rows.iter().skip(1);
        for (batch, wanted) in target.chunks_mut(slots.stride).zip(taken.rows.chunks(slots.batch)) {
            let counted = wanted.len() - slots.fillers.min(wanted.len());
            for (row, (slot, &sample)) in batch.chunks_exact_mut(slot).zip(wanted).enumerate() {
                if let Some(&next) = ahead.next() {
                    self.prefetch(next);
                }
                match self.field {
                    TokenField::Labels if row >= counted => write(std::iter::repeat(IGNORED), slot),
                    _ => self.write(sample, slot)?,
                }
            }
        }
        Ok(())
    }

    /// Writes the tokens of a piece, and padding after them.
    fn write(&self, sample: u64, slot: &mut [u8]) -> Result<()> {
        let real = (self.pieces.count(sample) * self.dtype().size()).min(slot.len());
        let (slot, padding) = slot.split_at_mut(real);
        if !slot.is_empty() {
            self.write_tokens(self.pieces.start(sample), slot)?;
        }
        match self.field {
            TokenField::Labels => write(std::iter::repeat(IGNORED), padding),
            TokenField::Inputs | TokenField::Positions | TokenField::Segments | TokenField::Resets => {
                padding.fill(0);
            }
        }
        Ok(())
    }

    fn write_tokens(&self, start: u64, slot: &mut [u8]) -> Result<()> {
        match self.field {
            TokenField::Inputs => return self.values(start, slot),
            TokenField::Labels => return self.values(start + 1, slot),
            TokenField::Positions => {
                let mut from = 0;
                self.passages(start, slot, |passage, part| {
                    from = if passage.goes_on { from } else { 0 };
                    write(from..from + passage.len().cast_signed() as i64, part);
                    from += passage.len().cast_signed() as i64;
                });
            }
            TokenField::Segments => {
                let mut segment = 0_i32;
                self.passages(start, slot, |passage, part| {
                    segment += i32::from(!passage.goes_on);
                    part.as_chunks_mut::<4>().0.fill(segment.to_ne_bytes());
                });
            }
            TokenField::Resets => self.passages(start, slot, |passage, part| {
                part.fill(0);
                part[0] = u8::from(passage.begins);
            }),
        }
        Ok(())
    }

    /// Writes the tokens from `start` on.
    fn values(&self, start: u64, slot: &mut [u8]) -> Result<()> {
        if let Some(stored) = self.pieces.find_stored(start, slot.len() / self.dtype().size()) {
            return self.copy(stored, slot);
        }
        let mut copied = Ok(());
        self.passages(start, slot, |passage, part| match passage.of {
            PassageOf::Stored(tokens) if copied.is_ok() => copied = self.copy(tokens, part),
            PassageOf::Stored(_) => {}
            PassageOf::Separator => part.copy_from_slice(&self.pieces.separator().to_ne_bytes()),
            PassageOf::Padding(_) => part.fill(0),
        });
        copied
    }

    fn passages(&self, start: u64, slot: &mut [u8], mut each: impl FnMut(Passage, &mut [u8])) {
        let (size, mut rest) = (self.dtype().size(), slot);
        self.pieces.walk(start, rest.len() / size, |passage| {
            let (part, later) = std::mem::take(&mut rest).split_at_mut(passage.len() * size);
            each(passage, part);
            rest = later;
        });
    }

    /// Copies stored tokens, each as int64.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if tokens are read from a file, and it cannot be read.
    fn copy(&self, stored: Range<usize>, target: &mut [u8]) -> Result<()> {
        let tokens = self.pieces.tokens();
        match tokens.dtype() {
            DType::U8 => widen(tokens, &stored, target, |bytes| u8::from_ne_bytes(bytes).into()),
            DType::U16 => widen(tokens, &stored, target, |bytes| u16::from_ne_bytes(bytes).into()),
            DType::U32 => widen(tokens, &stored, target, |bytes| u32::from_ne_bytes(bytes).into()),
            DType::I8 => widen(tokens, &stored, target, |bytes| i8::from_ne_bytes(bytes).into()),
            DType::I16 => widen(tokens, &stored, target, |bytes| i16::from_ne_bytes(bytes).into()),
            DType::I32 => widen(tokens, &stored, target, |bytes| i32::from_ne_bytes(bytes).into()),
            _ => widen(tokens, &stored, target, i64::from_ne_bytes),
        }
    }

    fn prefetch(&self, sample: u64) {
        let start = self.pieces.start(sample);
        if let Some(stored) = self.pieces.find_stored(start, self.pieces.count(sample)) {
            let tokens = self.pieces.tokens();
            prefetch_rows(tokens, stored.start, stored.len() * tokens.row_bytes());
        }
    }
}

/// Writes the elements `stored` of `N` bytes as int64.
///
/// # Errors
/// [`Kind::Data`](crate::Kind::Data) if tokens are read from a file, and it cannot be read.
#[inline(always)]
fn widen<const N: usize>(
    tokens: &ChunkedTensor,
    stored: &Range<usize>,
    target: &mut [u8],
    read: impl Fn([u8; N]) -> i64,
) -> Result<()> {
    let mut slots = target.as_chunks_mut::<8>().0;
    let widen = |source: &[u8], slots: &mut [[u8; 8]]| {
        let elements = source.as_chunks::<N>().0;
        slots.iter_mut().zip(elements).for_each(|(slot, element)| *slot = read(*element).to_ne_bytes());
    };
    if tokens.is_read() {
        let mut buffer = [0; READ];
        for first in stored.clone().step_by(READ / N) {
            let count = (stored.end - first).min(READ / N);
            let (part, later) = slots.split_at_mut(count);
            slots = later;
            let bytes = &mut buffer[..count * N];
            take_rows(tokens, first, count, bytes)?;
            widen(bytes, part);
        }
        return Ok(());
    }
    tokens.visit(stored.start, stored.len(), |Place { source, rows, row, .. }, count| {
        let (part, later) = std::mem::take(&mut slots).split_at_mut(count);
        slots = later;
        let start = rows.start(row);
        if rows.stride == N.cast_signed() {
            return widen(&source[start..start + count * N], part);
        }
        for (slot, row) in part.iter_mut().zip(row..) {
            let start = rows.start(row);
            let element = source[start..start + N].as_chunks::<N>().0[0];
            *slot = read(element).to_ne_bytes();
        }
    });
    Ok(())
}
