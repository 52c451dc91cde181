//! Block masks: the arrays with which attention by blocks skips the blocks that hold no pair of tokens of one document.
//!
//! Promise: the arrays are, element by element, those that torch's `create_block_mask` makes of the same mask, and it is
//! made without a look at pairs of tokens. The numbers of the other blocks follow the blocks that count, in order, as
//! there. Rows are the batch, and heads share the mask.

use std::ops::Range;
use std::sync::Arc;

use super::document_mask::{BlocksSeen, Documents, transpose};
use super::error::CollateCause;
use super::labels::widen;
use super::members::number;
use super::{DocumentMask, Form, Members, Pieces, RowSlots, RowUnit, Taken};
use crate::{DType, Result, memory};

/// One array of a block mask, as int32. `Q` and `K` are the numbers of blocks of queries and of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MaskPart {
    /// The number of blocks that queries look at pair by pair, or see whole: `[rows, 1, Q]`. Of queries that look at a
    /// block of keys, if `by_keys`: `[rows, 1, K]`.
    Counts { whole: bool, by_keys: bool },
    /// The numbers of these blocks: `[rows, 1, Q, K]`, or `[rows, 1, K, Q]`.
    Indices { whole: bool, by_keys: bool },
    /// The first key that each token sees: `[rows, tokens]`.
    First,
    /// The place after the last key that each token sees: `[rows, tokens]`.
    End,
}

impl MaskPart {
    /// The parts of a mask, each with the name of its field.
    pub(crate) fn of(mask: &DocumentMask) -> impl Iterator<Item = (&'static str, Self)> + Clone {
        let backward = mask.has_backward();
        Self::ALL.into_iter().filter(move |(_, part)| backward || !part.is_by_keys())
    }

    /// The name of the first part, which every mask has.
    pub(crate) const FIRST: &'static str = Self::ALL[0].0;

    fn is_by_keys(self) -> bool {
        matches!(self, Self::Counts { by_keys: true, .. } | Self::Indices { by_keys: true, .. })
    }

    /// All parts, each with the name of its field.
    const ALL: [(&'static str, Self); 10] = [
        ("block_mask_kv_num_blocks", Self::Counts { whole: false, by_keys: false }),
        ("block_mask_kv_indices", Self::Indices { whole: false, by_keys: false }),
        ("block_mask_full_kv_num_blocks", Self::Counts { whole: true, by_keys: false }),
        ("block_mask_full_kv_indices", Self::Indices { whole: true, by_keys: false }),
        ("block_mask_q_num_blocks", Self::Counts { whole: false, by_keys: true }),
        ("block_mask_q_indices", Self::Indices { whole: false, by_keys: true }),
        ("block_mask_full_q_num_blocks", Self::Counts { whole: true, by_keys: true }),
        ("block_mask_full_q_indices", Self::Indices { whole: true, by_keys: true }),
        ("block_mask_first", Self::First),
        ("block_mask_end", Self::End),
    ];

    /// The shape for rows of `tokens` tokens in `blocks` blocks.
    fn shape(self, rows: usize, tokens: usize, blocks: usize) -> Vec<usize> {
        match self {
            Self::Counts { .. } => vec![rows, 1, blocks],
            Self::Indices { .. } => vec![rows, 1, blocks, blocks],
            Self::First | Self::End => vec![rows, tokens],
        }
    }

    /// Writes the part of one row of `tokens` tokens.
    fn write(self, mask: &DocumentMask, documents: &Documents<'_>, tokens: usize, target: &mut [u8]) {
        let blocks = || mask.blocks_of_queries(documents, mask.blocks(tokens));
        let seen = |by_keys| if by_keys { transpose(&blocks()) } else { blocks() };
        match self {
            Self::Counts { whole, by_keys } => write_counts(&seen(by_keys), whole, target),
            Self::Indices { whole, by_keys } => write_indices(&seen(by_keys), whole, target),
            Self::First => mask.write_first(documents, target),
            Self::End => mask.write_end(documents, target),
        }
    }
}

fn write_counts(rows: &[BlocksSeen], whole: bool, target: &mut [u8]) {
    for (slot, row) in target.as_chunks_mut::<4>().0.iter_mut().zip(rows) {
        *slot = row.runs(whole).iter().map(|run| run.end - run.start).sum::<u32>().to_ne_bytes();
    }
}

/// Writes the numbers of the blocks of each row, and then the numbers of all other blocks.
fn write_indices(rows: &[BlocksSeen], whole: bool, target: &mut [u8]) {
    let numbers: Vec<u8> = (0_u32..).take(rows.len()).flat_map(u32::to_ne_bytes).collect();
    let width = numbers.len();
    if width == 0 {
        return;
    }
    for (row, mut rest) in rows.iter().zip(target.chunks_exact_mut(width)) {
        let [first, second] = row.runs(whole);
        let byte = |block: u32| number(block) * size_of::<i32>();
        let others = [0..byte(first.start), byte(first.end)..byte(second.start), byte(second.end)..width];
        let counted = [first, second].map(|run| byte(run.start)..byte(run.end));
        for run in counted.into_iter().chain(others) {
            let (part, later) = rest.split_at_mut(run.len());
            part.copy_from_slice(&numbers[run]);
            rest = later;
        }
    }
}

/// One array of the block mask of a pack: the documents are its samples.
#[derive(Debug, Clone)]
pub(crate) struct PackMask {
    pub(crate) mask: Arc<DocumentMask>,
    /// The field with the lengths of prefixes, and its name.
    pub(crate) prefix: Option<Prefix>,
    pub(crate) part: MaskPart,
}

/// The lengths of the prefixes of samples.
#[derive(Debug, Clone)]
pub(crate) struct Prefix {
    pub(crate) field: String,
    /// The form that makes the field: one integer for each sample.
    pub(crate) lengths: Arc<dyn Form>,
}

impl Form for PackMask {
    fn dtype(&self) -> DType {
        DType::I32
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        let tokens = row_tokens(members);
        self.part.shape(rows(members), tokens, self.mask.blocks(tokens))
    }

    /// The first member of a row has its part, and rows without members belong to the member before them.
    fn start(&self, members: &Members, member: usize) -> usize {
        rows_before(members, member) * self.row_bytes(members)
    }

    fn row_unit(&self) -> RowUnit {
        RowUnit::Batch
    }

    fn most_elements(&self) -> usize {
        usize::try_from(i32::MAX).unwrap_or(usize::MAX)
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let (bytes, tokens) = (self.row_bytes(members), row_tokens(members));
        let rows = rows_before(members, range.start)..rows_before(members, range.end);
        for (row, target) in rows.zip(target.chunks_exact_mut(bytes.max(1))) {
            let held = members_of(members, row);
            let prefixes = match &self.prefix {
                Some(prefix) => prefix.read(members, held.clone())?,
                None => Vec::new(),
            };
            let documents = Documents { ends: &members.ends[held.start..=held.end], prefixes: &prefixes };
            self.part.write(&self.mask, &documents, tokens, target);
        }
        Ok(())
    }
}

impl PackMask {
    /// The number of bytes of a row.
    fn row_bytes(&self, members: &Members) -> usize {
        self.shape(members)[1..].iter().product::<usize>() * size_of::<i32>()
    }
}

/// The number of rows of a batch.
fn rows(members: &Members) -> usize {
    members.row_frame.map_or(1, |frame| frame.rows)
}

/// The number of places of a row.
fn row_tokens(members: &Members) -> usize {
    members.row_frame.map_or_else(|| members.elements(), |frame| frame.tokens)
}

/// The members of a row. Rows after the last member have none, and no end.
fn members_of(members: &Members, row: usize) -> Range<usize> {
    match members.row_ends.len() {
        rows if row > 0 && row >= rows => members.count..members.count,
        _ => members.row_members(row),
    }
}

/// The number of rows before those that are written with a member: with the first one of a row, this row.
fn rows_before(members: &Members, member: usize) -> usize {
    if member >= members.count {
        return rows(members);
    }
    let row = members.row_of(member);
    row + usize::from(members.row_members(row).start < member)
}

impl Prefix {
    /// The length of the prefix of each of some members: what is left of it where a part of a sample begins.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if one is negative, with the sample; the errors of the field.
    pub(crate) fn read(&self, members: &Members, range: Range<usize>) -> Result<Vec<usize>> {
        let bytes = range.len() * self.lengths.dtype().size();
        let mut given: Vec<u8> = memory::reserve(bytes)?;
        given.resize(bytes, 0);
        self.lengths.fill(members, range.clone(), &mut given)?;
        let mut wide: Vec<u8> = memory::reserve(range.len() * size_of::<i64>())?;
        wide.resize(range.len() * size_of::<i64>(), 0);
        widen(self.lengths.dtype(), &given, &mut wide);
        let length = |(member, length): (usize, &[u8; 8])| {
            let length = i64::from_ne_bytes(*length);
            let negative = || {
                let (field, sample) = (self.field.clone(), members.samples[member]);
                CollateCause::NegativePrefix { field, sample, length }
            };
            let length = usize::try_from(length).map_err(|_| negative())?;
            Ok(length.saturating_sub(members.start(member)))
        };
        range.zip(wide.as_chunks::<8>().0).map(length).collect()
    }
}

/// One array of the block masks of pieces of a stream, one row for each piece.
#[derive(Debug, Clone)]
pub(crate) struct StreamMask<P> {
    pub(crate) mask: Arc<DocumentMask>,
    pub(crate) pieces: P,
    pub(crate) part: MaskPart,
}

impl<P: Pieces> Form for StreamMask<P> {
    fn dtype(&self) -> DType {
        DType::I32
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        let tokens = self.pieces.batch_len(members);
        self.part.shape(members.count, tokens, self.mask.blocks(tokens))
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let row = self.shape(members)[1..].iter().product::<usize>() * size_of::<i32>();
        self.write_rows(members.take(range).rows, self.pieces.batch_len(members), row, target);
        Ok(())
    }

    fn gather(&self, taken: Taken<'_>, target: &mut [u8], slots: RowSlots) -> Result<()> {
        let members = Members::of_count(slots.batch, 0);
        let row = self.shape(&members)[1..].iter().product::<usize>() * size_of::<i32>();
        let tokens = self.pieces.batch_len(&members);
        for (batch, rows) in target.chunks_mut(slots.stride.max(1)).zip(taken.rows.chunks(slots.batch.max(1)))
        {
            self.write_rows(rows, tokens, row, batch);
        }
        Ok(())
    }
}

impl<P: Pieces> StreamMask<P> {
    /// Writes rows of `bytes` bytes, the masks of pieces of `tokens` places.
    fn write_rows(&self, pieces: &[u64], tokens: usize, bytes: usize, target: &mut [u8]) {
        for (row, &piece) in target.chunks_exact_mut(bytes.max(1)).zip(pieces) {
            let ends = self.find_ends(piece, tokens);
            self.part.write(&self.mask, &Documents { ends: &ends, prefixes: &[] }, tokens, row);
        }
    }

    /// The places of a piece where a document ends, after the start of the first one.
    fn find_ends(&self, piece: u64, tokens: usize) -> Vec<usize> {
        let (mut ends, mut place) = (vec![0], 0);
        let count = self.pieces.count(piece).min(tokens);
        if count == 0 {
            return ends;
        }
        self.pieces.walk(self.pieces.start(piece), count, |passage| {
            if !passage.goes_on && place > 0 {
                ends.push(place);
            }
            place += passage.len();
        });
        ends.push(place);
        ends
    }
}
