//! `DocumentMask`: the tokens of a row that see each other, and the blocks of attention that hold such pairs.
//!
//! Promise: a token sees one run of tokens of its document, itself among them, and along a row neither the starts nor
//! the ends of these runs decrease. So the blocks of keys that a block of queries needs are one run, from the start of
//! its first query to the end of its last one, and those that it sees whole are one run in there. Both are known without
//! a look at any pair of tokens. Places after the last document see nothing, and nothing sees them.

use std::ops::Range;

use super::error::CollateCause;
use crate::Result;
use crate::named::named;

/// The number of tokens of a block, unless a caller wants another.
const BLOCK_SIZE: u32 = 128;

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

/// Which tokens of a row see each other: those of one document, in the way that a [`MaskKind`] says.
///
/// Batches hold the blocks of such a mask as attention by blocks takes them:
/// [`LoaderBuilder::block_mask`](crate::loader::LoaderBuilder::block_mask).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DocumentMask {
    kind: MaskKind,
    window: Option<u32>,
    prefix: Option<String>,
    block_size: u32,
}

impl DocumentMask {
    /// Sees what `kind` says, in blocks of 128 tokens.
    pub fn new(kind: MaskKind) -> Self {
        Self { kind, window: None, prefix: None, block_size: BLOCK_SIZE }
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

    /// The number of blocks of so many tokens.
    pub(super) fn blocks(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.tokens_of_block())
    }

    fn tokens_of_block(&self) -> usize {
        super::members::number(self.block_size)
    }

    /// The tokens that the token at `place` sees.
    fn seen(&self, place: usize, document: &Document) -> Range<usize> {
        let Document { start, end, prefix_end } = *document;
        if place < prefix_end {
            return start..prefix_end;
        }
        let window = self.window.map_or(usize::MAX, super::members::number);
        let first = place.saturating_sub(window).max(start);
        match self.kind {
            MaskKind::Causal => first..place + 1,
            MaskKind::Full => first..place.saturating_add(window).saturating_add(1).min(end),
        }
    }

    /// Visits what each token of the documents of a row sees, in order.
    pub(super) fn visit_seen(&self, documents: &Documents<'_>, mut each: impl FnMut(Range<usize>)) {
        for document in documents.iter() {
            for place in document.start..document.end {
                each(self.seen(place, &document));
            }
        }
    }

    /// The blocks of keys that each block of queries needs, in a row of `blocks` blocks.
    pub(super) fn blocks_of_queries(&self, documents: &Documents<'_>, blocks: usize) -> Vec<BlocksSeen> {
        let (size, used) = (self.tokens_of_block(), documents.used());
        let mut rest = documents.iter().filter(|document| document.start < document.end).peekable();
        let mut document_of = |place: usize| {
            while rest.peek().is_some_and(|document| document.end <= place) {
                rest.next();
            }
            rest.peek().copied().unwrap_or_default()
        };
        let mut row = |block: usize| {
            let (first, end) = (block * size, (block + 1) * size);
            if first >= used {
                return BlocksSeen::default();
            }
            let seen_first = self.seen(first, &document_of(first));
            let last = end.min(used) - 1;
            let seen_last = self.seen(last, &document_of(last));
            let some = seen_first.start / size..seen_last.end.div_ceil(size);
            let whole = if end <= used { (seen_last.start.div_ceil(size), seen_first.end / size) } else { (0, 0) };
            BlocksSeen::new(some, whole)
        };
        (0..blocks).map(&mut row).collect()
    }
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
    start: usize,
    end: usize,
    /// The place where its prefix ends.
    prefix_end: usize,
}

impl Documents<'_> {
    fn iter(&self) -> impl Iterator<Item = Document> + '_ {
        let base = self.ends.first().copied().unwrap_or(0);
        self.ends.windows(2).enumerate().map(move |(number, ends)| {
            let (start, end) = (ends[0] - base, ends[1] - base);
            let prefix = self.prefixes.get(number).copied().unwrap_or(0);
            Document { start, end, prefix_end: start + prefix.min(end - start) }
        })
    }

    /// The number of places that documents take.
    fn used(&self) -> usize {
        self.ends.last().map_or(0, |end| end - self.ends[0])
    }
}

/// The blocks that one block needs, and those of them of which every pair of tokens sees each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct BlocksSeen {
    some: Range<usize>,
    whole: Range<usize>,
}

impl BlocksSeen {
    /// Whole blocks from the first to the second number, none if that is no larger, among `some`.
    fn new(some: Range<usize>, (first, end): (usize, usize)) -> Self {
        let whole = if first < end { first..end } else { some.end..some.end };
        Self { some, whole }
    }

    /// The blocks to look at pair by pair, or those that are seen whole: two runs in order.
    pub(super) fn runs(&self, whole: bool) -> [Range<usize>; 2] {
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
    needed.zip(whole).map(|(some, whole)| BlocksSeen::new(some, (whole.start, whole.end))).collect()
}

/// The rows with a run that holds each place. Those rows are neighbours, as neither starts nor ends of runs decrease.
fn invert(
    rows: &[BlocksSeen],
    run: impl Fn(&BlocksSeen) -> &Range<usize>,
) -> impl Iterator<Item = Range<usize>> {
    let runs = rows.iter().map(run).cloned().enumerate().filter(|(_, run)| !run.is_empty());
    let runs: Vec<(usize, Range<usize>)> = runs.collect();
    let (mut first, mut end) = (0, 0);
    (0..rows.len()).map(move |place| {
        while runs.get(first).is_some_and(|(_, run)| run.end <= place) {
            first += 1;
        }
        while runs.get(end).is_some_and(|(_, run)| run.start <= place) {
            end += 1;
        }
        if first < end { runs[first].0..runs[end - 1].0 + 1 } else { 0..0 }
    })
}
