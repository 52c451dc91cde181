//! `tokens`: pieces of a stream as int64, and where documents lie in them.

use std::ops::Range;

use super::Slots;
use super::index::write;
use super::stack::prefetch_rows;
use crate::DType;
use crate::dataset::{Passage, Pieces};
use crate::tensor::Rows;

/// One field of a piece.
#[derive(Debug, Clone)]
pub(crate) struct Tokens {
    pub(crate) pieces: Pieces,
    pub(crate) what: What,
}

/// What the field says of each token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// Which it is.
    Inputs,
    /// Which the next one is.
    Labels,
    /// Its place in its document, from where the piece begins.
    Positions,
    /// Which document of the piece it is of.
    Segments,
    /// Whether a document begins with it.
    Resets,
}

impl Tokens {
    pub(super) fn dtype(&self) -> DType {
        match self.what {
            What::Inputs | What::Labels | What::Positions => DType::I64,
            What::Segments => DType::I32,
            What::Resets => DType::Bool,
        }
    }

    /// Fills the pieces `samples`, batch by batch.
    pub(super) fn gather(&self, samples: &[u64], target: &mut [u8], slots: Slots) {
        let slot = self.pieces.len() * self.dtype().size();
        let mut ahead = samples.iter().skip(1);
        for (batch, wanted) in target.chunks_mut(slots.stride).zip(samples.chunks(slots.batch)) {
            for (slot, &sample) in batch.chunks_exact_mut(slot).zip(wanted) {
                if let Some(&next) = ahead.next() {
                    self.prefetch(next);
                }
                self.fill(self.pieces.start(sample), slot);
            }
        }
    }

    fn fill(&self, start: u64, slot: &mut [u8]) {
        match self.what {
            What::Inputs => self.values(start, slot),
            What::Labels => self.values(start + 1, slot),
            What::Positions => {
                let mut from = 0;
                self.passages(start, slot, |passage, part| {
                    from = if passage.goes_on { from } else { 0 };
                    write(from..from + passage.len().cast_signed() as i64, part);
                    from += passage.len().cast_signed() as i64;
                });
            }
            What::Segments => {
                let mut segment = -1_i32;
                self.passages(start, slot, |passage, part| {
                    segment += i32::from(!passage.goes_on);
                    part.as_chunks_mut::<4>().0.fill(segment.to_ne_bytes());
                });
            }
            What::Resets => self.passages(start, slot, |passage, part| {
                part.fill(0);
                part[0] = u8::from(passage.begins);
            }),
        }
    }

    /// The tokens from `start` on.
    fn values(&self, start: u64, slot: &mut [u8]) {
        let stream = &self.pieces.stream;
        if let Some(stored) = stream.stored(start, self.pieces.len()) {
            return self.copy(stored, slot);
        }
        self.passages(start, slot, |passage, part| match passage.tokens {
            Some(tokens) => self.copy(tokens, part),
            None => part.copy_from_slice(&stream.separator().to_ne_bytes()),
        });
    }

    fn passages(&self, start: u64, slot: &mut [u8], mut each: impl FnMut(Passage, &mut [u8])) {
        let (size, mut rest) = (self.dtype().size(), slot);
        self.pieces.stream.walk(start, self.pieces.len(), |passage| {
            let (part, later) = std::mem::take(&mut rest).split_at_mut(passage.len() * size);
            each(passage, part);
            rest = later;
        });
    }

    /// Copies stored tokens, each as int64.
    fn copy(&self, stored: Range<usize>, target: &mut [u8]) {
        let (tokens, rows) = (self.pieces.stream.tokens(), self.pieces.stream.rows());
        let source = tokens.bytes().as_ref();
        match tokens.dtype() {
            DType::U8 => widen(source, rows, stored, target, |bytes| u8::from_ne_bytes(bytes).into()),
            DType::U16 => widen(source, rows, stored, target, |bytes| u16::from_ne_bytes(bytes).into()),
            DType::U32 => widen(source, rows, stored, target, |bytes| u32::from_ne_bytes(bytes).into()),
            DType::I8 => widen(source, rows, stored, target, |bytes| i8::from_ne_bytes(bytes).into()),
            DType::I16 => widen(source, rows, stored, target, |bytes| i16::from_ne_bytes(bytes).into()),
            DType::I32 => widen(source, rows, stored, target, |bytes| i32::from_ne_bytes(bytes).into()),
            _ => widen(source, rows, stored, target, i64::from_ne_bytes),
        }
    }

    fn prefetch(&self, sample: u64) {
        let (stream, start) = (&self.pieces.stream, self.pieces.start(sample));
        if let Some(stored) = stream.stored(start, self.pieces.len()) {
            let rows = stream.rows();
            prefetch_rows(stream.tokens().bytes(), rows, stored.start, stored.len() * rows.bytes());
        }
    }
}

/// Writes the elements `stored` of `N` bytes as int64.
#[inline(always)]
fn widen<const N: usize>(
    source: &[u8],
    rows: &Rows,
    stored: Range<usize>,
    target: &mut [u8],
    read: impl Fn([u8; N]) -> i64,
) {
    let slots = target.as_chunks_mut::<8>().0;
    if rows.stride == N.cast_signed() {
        let start = rows.offset + stored.start * N;
        let elements = source[start..start + stored.len() * N].as_chunks::<N>().0;
        slots.iter_mut().zip(elements).for_each(|(slot, element)| *slot = read(*element).to_ne_bytes());
        return;
    }
    for (slot, row) in slots.iter_mut().zip(stored) {
        let start = rows.offset.wrapping_add_signed(rows.stride * row.cast_signed());
        let element = source[start..start + N].as_chunks::<N>().0[0];
        *slot = read(element).to_ne_bytes();
    }
}
