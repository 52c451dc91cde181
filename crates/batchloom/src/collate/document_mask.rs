//! `DocumentMask`: the tokens of a row that see each other, and the blocks of attention that hold such pairs.
//!
//! Promise: a token sees one run of tokens of its document, itself among them, and along a row neither the starts nor
//! the ends of these runs decrease. So the blocks of keys that a block of queries needs are one run, from the start of
//! its first query to the end of its last one, and those that it sees whole are one run in there. Both are known without
//! a look at any pair of tokens. Places after the last document see nothing, and nothing sees them.

use std::ops::Range;

use super::error::CollateCause;
use super::members::number;
use crate::Result;
use crate::named::named;

/// The number of tokens of a block, unless a caller wants another.
const BLOCK_SIZE: u32 = 128;

/// More tokens than a row has: with two such numbers, sums still fit 32 bits.
const MOST_TOKENS: u32 = i32::MAX.cast_unsigned() / 2;

/// The tokens of its document that a token sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MaskKind {
    /// Itself and the tokens before it.
    #[default]
    Causal,
    /// All of them.
    Full,
}

named!(MaskKind, "kind", {
    "causal" => Causal,
    "full" => Full,
});

/// The tokens of a row that see each other: tokens of one document, in the way of a [`MaskKind`].
///
/// Batches hold the blocks of such a mask as attention by blocks takes them:
/// [`LoaderBuilder::block_mask`](crate::loader::LoaderBuilder::block_mask).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DocumentMask {
    kind: MaskKind,
    window: Option<u32>,
    prefix: Option<String>,
    block_size: u32,
    backward: bool,
}

impl DocumentMask {
    /// The mask of a kind, in blocks of 128 tokens.
    pub fn new(kind: MaskKind) -> Self {
        Self { kind, window: None, prefix: None, block_size: BLOCK_SIZE, backward: true }
    }

    /// Sets how far a token sees: at most `window` tokens before it, and after it where the kind is
    /// [`MaskKind::Full`], and itself. Default: to the ends of its document.
    #[must_use]
    pub fn window(self, window: impl Into<Option<u32>>) -> Self {
        Self { window: window.into(), ..self }
    }

    /// Names a field with the length of the prefix of each sample, one integer: tokens of a prefix see all of it.
    /// Default: no prefix.
    #[must_use]
    pub fn prefix(self, field: impl Into<Option<String>>) -> Self {
        Self { prefix: field.into(), ..self }
    }

    /// Sets the number of queries, and of keys, of a block. Default: 128.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if it is 0.
    pub fn block_size(self, block_size: u32) -> Result<Self> {
        match block_size {
            0 => Err(CollateCause::MaskBlock.into()),
            _ => Ok(Self { block_size, ..self }),
        }
    }

    /// Sets whether batches hold the blocks by keys too, which gradients need. Default: yes.
    #[must_use]
    pub fn backward(self, backward: bool) -> Self {
        Self { backward, ..self }
    }

    /// Returns true if batches hold the blocks by keys too.
    pub(super) fn has_backward(&self) -> bool {
        self.backward
    }

    /// The name of the field with the lengths of prefixes.
    pub(crate) fn prefix_field(&self) -> Option<&str> {
        self.prefix.as_deref()
    }

    /// Refuses options that exclude each other.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if all tokens see each other, and a prefix is named.
    pub(crate) fn check(&self) -> Result<()> {
        match (&self.prefix, self.kind) {
            (Some(field), MaskKind::Full) => Err(CollateCause::PrefixOfFull { field: field.clone() }.into()),
            _ => Ok(()),
        }
    }

    /// The number of blocks in a row of `tokens` tokens.
    pub(super) fn blocks(&self, tokens: usize) -> usize {
        tokens.div_ceil(number(self.block_size))
    }

    /// The largest distance that a token sees: by default a number of tokens that no row has.
    fn window_tokens(&self) -> u32 {
        self.window.map_or(MOST_TOKENS, |window| window.min(MOST_TOKENS))
    }

    /// The places that the token at `place` sees.
    fn seen(&self, place: u32, document: &Document) -> Range<u32> {
        let Document { start, end, prefix_end } = *document;
        if place < prefix_end {
            return start..prefix_end;
        }
        let first = place.saturating_sub(self.window_tokens()).max(start);
        match self.kind {
            MaskKind::Causal => first..place + 1,
            MaskKind::Full => first..(place + self.window_tokens() + 1).min(end),
        }
    }

    /// Writes the first place that each token of the documents of a row sees, and 0 at places after them.
    pub(super) fn write_first(&self, documents: &Documents<'_>, target: &mut [u8]) {
        let window = self.window_tokens();
        write_places(documents, target, |document, prefix, rest| {
            prefix.fill(document.start.to_ne_bytes());
            let own = document.start + short(prefix.len());
            for (slot, place) in rest.iter_mut().zip(own..) {
                *slot = place.saturating_sub(window).max(document.start).to_ne_bytes();
            }
        });
    }

    /// Writes the place after the last one that each token of the documents of a row sees, and 0 after them.
    pub(super) fn write_end(&self, documents: &Documents<'_>, target: &mut [u8]) {
        let beyond = match self.kind {
            MaskKind::Causal => 1,
            MaskKind::Full => self.window_tokens() + 1,
        };
        write_places(documents, target, |document, prefix, rest| {
            prefix.fill(document.prefix_end.to_ne_bytes());
            let own = document.start + short(prefix.len());
            for (slot, place) in rest.iter_mut().zip(own..) {
                *slot = (place + beyond).min(document.end).to_ne_bytes();
            }
        });
    }

    /// The blocks of keys that each block of queries needs, in a row of `blocks` blocks.
    pub(super) fn blocks_of_queries(&self, documents: &Documents<'_>, blocks: usize) -> Vec<BlocksSeen> {
        let (size, used) = (self.block_size, documents.used());
        let mut rest = documents.iter().filter(|document| document.start < document.end).peekable();
        let mut document_of = |place: u32| {
            while rest.peek().is_some_and(|document| document.end <= place) {
                rest.next();
            }
            rest.peek().copied().unwrap_or_default()
        };
        let mut rows = vec![BlocksSeen::default(); blocks];
        for (row, first) in rows.iter_mut().zip((0..used).step_by(number(size))) {
            let (seen_first, end) = (self.seen(first, &document_of(first)), first.saturating_add(size));
            let last = end.min(used) - 1;
            let seen_last = self.seen(last, &document_of(last));
            let some = seen_first.start / size..seen_last.end.div_ceil(size);
            let is_whole = end <= used;
            let whole = if is_whole { seen_last.start.div_ceil(size)..seen_first.end / size } else { 0..0 };
            *row = BlocksSeen::new(some, whole);
        }
        rows
    }
}

/// Visits the places of each document of a row in `target`: the places of its prefix, and the rest. Fills places after
/// the last document with 0.
fn write_places(
    documents: &Documents<'_>,
    target: &mut [u8],
    mut each: impl FnMut(&Document, &mut [[u8; 4]], &mut [[u8; 4]]),
) {
    let mut slots = target.as_chunks_mut::<4>().0;
    for document in documents.iter() {
        let (own, later) = slots.split_at_mut(number(document.end - document.start));
        let (prefix, rest) = own.split_at_mut(number(document.prefix_end - document.start));
        each(&document, prefix, rest);
        slots = later;
    }
    slots.fill([0; 4]);
}

/// The documents of one row, which lie one after the other from its start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Documents<'a> {
    /// The place where the first one starts in what `ends` counts, and where each of them ends.
    pub(super) ends: &'a [usize],
    /// The length of the prefix of each. Empty if none has one.
    pub(super) prefixes: &'a [usize],
}

/// One document: its places in a row.
#[derive(Debug, Clone, Copy, Default)]
struct Document {
    start: u32,
    end: u32,
    /// The place where its prefix ends.
    prefix_end: u32,
}

impl Documents<'_> {
    fn iter(&self) -> impl Iterator<Item = Document> + '_ {
        let base = self.ends.first().copied().unwrap_or(0);
        self.ends.windows(2).enumerate().map(move |(place, ends)| {
            let (start, end) = (short(ends[0] - base), short(ends[1] - base));
            let prefix = self.prefixes.get(place).map_or(0, |&prefix| short(prefix));
            Document { start, end, prefix_end: start + prefix.min(end - start) }
        })
    }

    /// The number of places that documents take.
    fn used(&self) -> u32 {
        self.ends.last().map_or(0, |end| short(end - self.ends[0]))
    }
}

/// A number of tokens. A row has fewer than 2^31.
fn short(tokens: usize) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX).min(MOST_TOKENS)
}

/// The blocks that one block needs, and the whole ones among them: every pair of their tokens sees each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct BlocksSeen {
    some: Range<u32>,
    whole: Range<u32>,
}

impl BlocksSeen {
    /// Blocks that are needed, and those in `whole` as whole ones, if it holds any.
    fn new(some: Range<u32>, whole: Range<u32>) -> Self {
        let whole = if whole.is_empty() { some.end..some.end } else { whole };
        Self { some, whole }
    }

    /// The blocks to look at pair by pair, or those that are seen whole: two runs in order.
    pub(super) fn runs(&self, whole: bool) -> [Range<u32>; 2] {
        match whole {
            true => [self.whole.clone(), self.whole.end..self.whole.end],
            false => [self.some.start..self.whole.start, self.whole.end..self.some.end],
        }
    }
}

/// The blocks of queries that need each block of keys, given the blocks of keys that each block of queries needs.
pub(super) fn transpose(rows: &[BlocksSeen]) -> Vec<BlocksSeen> {
    let needed = invert(rows, |row| &row.some);
    let whole = invert(rows, |row| &row.whole);
    needed.zip(whole).map(|(some, whole)| BlocksSeen::new(some, whole)).collect()
}

/// The rows with a run that holds each place. Those rows are neighbours, as neither starts nor ends of runs decrease.
fn invert(rows: &[BlocksSeen], run: impl Fn(&BlocksSeen) -> &Range<u32>) -> impl Iterator<Item = Range<u32>> {
    let runs = (0..).zip(rows.iter().map(run).cloned()).filter(|(_, run)| !run.is_empty());
    let runs: Vec<(u32, Range<u32>)> = runs.collect();
    let (mut first, mut end) = (0, 0);
    (0..short(rows.len())).map(move |place| {
        while runs.get(first).is_some_and(|(_, run)| run.end <= place) {
            first += 1;
        }
        while runs.get(end).is_some_and(|(_, run)| run.start <= place) {
            end += 1;
        }
        if first < end { runs[first].0..runs[end - 1].0 + 1 } else { 0..0 }
    })
}
