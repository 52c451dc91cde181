//! `TokenDataset`: documents one after the other are a stream, and equal pieces of the stream are samples.
//!
//! The stream is never made: `stream.rs` finds the tokens of a piece in the documents as they are stored.

mod error;
mod lengths;
mod stream;

use std::ops::Range;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use lengths::PieceLengths;
use stream::{Corpus, NOTED, Stream, StreamPieces};

use super::collation::{CollateOptions, Collation, Index};
use super::kind::{Content, ContentRequest, EpochKey, Kind};
use super::selection::Selection;
use crate::batching::{FixedSize, Labels, Rule};
use crate::collate::{Form, StreamMask, TokenField, Tokens};
use crate::dataset::error::{MaskCause, SelectionCause};
use crate::named::named;
use crate::order::{Key, Order, Permutation, Purpose, Shuffle};
use crate::{ChunkedTensor, DType, Result, Tensor, memory};
use error::TokensCause;

/// The choice of the pieces of the stream that are samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TokenMode {
    /// Piece `k` of the stream is sample `k`.
    #[default]
    Chunk,
    /// The stream is divided into as many rows as the batches of all ranks have, and each batch continues the one
    /// before it, row by row: for truncated backpropagation through time.
    Continuous,
}

named!(TokenMode, "mode", {
    "chunk" => Chunk,
    "continuous" => Continuous,
});

/// The treatment of the end of the stream, where too few tokens are left for a whole piece; if rows continue from batch
/// to batch, of the end of each row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Tail {
    /// An epoch leaves it out: [`TokenCounts::tail`](crate::dataset::TokenCounts::tail) counts it.
    #[default]
    Drop,
    /// It is a whole piece, padded at its end: inputs are 0, labels -100, positions 0 and segments -1 there.
    Pad,
    /// It is a shorter piece. A batch is as long as its longest piece, and pads shorter ones as [`Tail::Pad`] does:
    /// only a batch of shorter pieces alone is shorter. If rows continue, that is the last batch of an epoch.
    Short,
}

impl Tail {
    /// Its name, as options spell it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Pad => "pad",
            Self::Short => "short",
        }
    }
}

named!(Tail, "tail", {
    "drop" => Drop,
    "pad" => Pad,
    "short" => Short,
});

/// The fields of a batch of tokens besides inputs and labels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TokenExtras {
    /// Adds `position_ids`: the place of each token in its document, counted from the start of the piece; int64.
    pub position_ids: bool,
    /// Adds `segment_ids`: the number of each token's document in the piece, from 1; int32.
    pub segment_ids: bool,
    /// Adds `resets`: true for each token that begins a document.
    pub resets: bool,
}

impl TokenExtras {
    /// Sets whether batches hold `position_ids`. Default: no.
    #[must_use]
    pub fn position_ids(self, position_ids: bool) -> Self {
        Self { position_ids, ..self }
    }

    /// Sets whether batches hold `segment_ids`. Default: no.
    #[must_use]
    pub fn segment_ids(self, segment_ids: bool) -> Self {
        Self { segment_ids, ..self }
    }

    /// Sets whether batches hold `resets`. Default: no.
    #[must_use]
    pub fn resets(self, resets: bool) -> Self {
        Self { resets, ..self }
    }
}

/// Documents of tokens, one after the other, in pieces of equal length.
///
/// ```
/// use batchloom::{Loader, Tensor, TokenDataset};
///
/// let tokens = Tensor::from_vec((0..1000_u16).collect(), &[1000])?;
/// let dataset = TokenDataset::new(tokens, 64)?;
/// assert_eq!(dataset.len(), 15); // 15 * 64 inputs, each with the token after it
/// let loader = Loader::builder(dataset).batch_size(4).build()?;
/// let batch = loader.iter().next().expect("a batch")?;
/// assert_eq!(batch.field("labels").and_then(|labels| labels.as_slice::<i64>()).map(|it| it[0]), Some(1));
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct TokenDataset {
    corpus: Corpus,
    seq_len: usize,
    mode: TokenMode,
    extras: TokenExtras,
    jitter: bool,
    tail: Tail,
    /// The documents that were selected, if some were.
    selection: Option<Selection>,
    tokens: u64,
}

impl TokenDataset {
    /// Pieces of `seq_len` tokens, of integers `[tokens]`; pieces go on from one chunk of them to the next.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if the tokens are not one dimension of integers that int64 holds.
    pub fn new(tokens: impl Into<ChunkedTensor>, seq_len: usize) -> Result<Self> {
        let tokens = tokens.into();
        let (shape, dtype) = (tokens.shape(), tokens.dtype());
        if shape.len() != 1 {
            return Err(TokensCause::Shape { shape: shape.to_vec() }.into());
        }
        use DType::{I8, I16, I32, I64, U8, U16, U32};
        if !matches!(dtype, U8 | U16 | U32 | I8 | I16 | I32 | I64) {
            return Err(TokensCause::Type { found: dtype }.into());
        }
        if seq_len == 0 {
            return Err(TokensCause::SeqLen.into());
        }
        let corpus = Corpus { tokens, documents: None, separator: None, selection: None };
        let tokens = corpus.token_count();
        let (mode, extras) = (TokenMode::default(), TokenExtras::default());
        let tail = Tail::default();
        Ok(Self { corpus, seq_len, mode, extras, jitter: false, tail, selection: None, tokens })
    }

    /// Sets the documents: document `k` is the tokens `offsets[k]..offsets[k + 1]`; int64.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if the offsets do not go from 0 to the number of tokens, or decrease.
    pub fn documents(self, offsets: &Tensor) -> Result<Self> {
        let Some(ends) = offsets.as_slice::<i64>() else {
            return Err(TokensCause::OffsetType { found: offsets.dtype() }.into());
        };
        let tokens = self.corpus.tokens.shape()[0];
        if ends.first() != Some(&0) || ends.last() != Some(&(tokens.cast_signed() as i64)) {
            return Err(match (ends.first(), ends.last()) {
                (Some(&first), Some(&last)) => TokensCause::OffsetRange { first, last, tokens },
                _ => TokensCause::NoOffsets { tokens },
            }
            .into());
        }
        if let Some(document) = ends.windows(2).position(|pair| pair[1] < pair[0]) {
            let (start, end) = (ends[document], ends[document + 1]);
            return Err(TokensCause::OffsetOrder { document, start, end }.into());
        }
        let start = offsets.layout().offset();
        let bytes = offsets.bytes().slice(start..start + size_of_val(ends));
        Ok(Self { corpus: Corpus { documents: Some(bytes), ..self.corpus }, ..self })
    }

    /// Puts a token between documents.
    #[must_use]
    pub fn separator(self, separator: i64) -> Self {
        Self { corpus: Corpus { separator: Some(separator), ..self.corpus }, ..self }
    }

    /// Sets which pieces are samples. Default: [`TokenMode::Chunk`].
    #[must_use]
    pub fn mode(self, mode: TokenMode) -> Self {
        Self { mode, ..self }
    }

    /// Sets the fields of batches besides inputs and labels. Default: no other fields.
    #[must_use]
    pub fn extras(self, extras: TokenExtras) -> Self {
        Self { extras, ..self }
    }

    /// Begins the first piece at another token in each epoch, one of the first `seq_len`, so that tokens meet others
    /// and come at other places in their pieces. An epoch leaves out what lies before it: with the tail, less than two
    /// pieces. Default: pieces are the same in every epoch.
    #[must_use]
    pub fn jitter(self, jitter: bool) -> Self {
        Self { jitter, ..self }
    }

    /// Sets the treatment of the end of the stream. With [`Tail::Pad`] and [`Tail::Short`] every token but the first of
    /// the stream is a label exactly once in an epoch. They do not go with [`jitter`](Self::jitter), which leaves
    /// tokens out. Default: [`Tail::Drop`].
    ///
    /// ```
    /// use batchloom::dataset::Tail;
    /// use batchloom::{Loader, Tensor, TokenDataset};
    ///
    /// let tokens = Tensor::from_vec((0..10_i64).collect(), &[10])?;
    /// let dataset = TokenDataset::new(tokens, 4)?.tail(Tail::Pad);
    /// let loader = Loader::builder(dataset).batch_size(3).build()?;
    /// let batch = loader.iter().next().expect("a batch")?;
    /// let labels = batch.field("labels").and_then(|labels| labels.as_slice::<i64>()).unwrap_or_default();
    /// assert_eq!(labels[8..], [9, -100, -100, -100]);
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    #[must_use]
    pub fn tail(self, tail: Tail) -> Self {
        Self { tail, ..self }
    }

    /// The number of pieces of the stream: those that have a label for every token, and the end of the stream unless it
    /// is left out.
    pub fn len(&self) -> usize {
        usize::try_from(self.steps(1)).unwrap_or(usize::MAX)
    }

    /// Returns true if the stream is too short for a piece and the token after it, or without a second token if its end
    /// is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of documents.
    pub fn document_count(&self) -> u64 {
        self.corpus.document_count()
    }

    /// The number of tokens of the stream, those between documents included.
    pub fn stream_len(&self) -> u64 {
        let between =
            if self.corpus.separator.is_some() { self.document_count().saturating_sub(1) } else { 0 };
        self.token_count() + between
    }

    /// The number of tokens of all documents.
    pub fn token_count(&self) -> u64 {
        self.tokens
    }

    /// The pieces of a stream of only these documents. Neighbours are borrowed as they lie; other documents are looked
    /// up, one by one.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there are no documents, or if documents that are no neighbours are
    /// selected of a stream that continues from batch to batch; [`Kind::Data`](crate::Kind::Data) if the selection is
    /// one of another number of documents.
    pub fn select(&self, selection: &Selection) -> Result<Self> {
        let (documents, expected) = (selection.samples(), self.document_count());
        let Some(offsets) = self.corpus.offsets() else {
            return Err(TokensCause::OneDocument.into());
        };
        if documents != expected {
            return Err(SelectionCause::Samples { found: documents, expected }.into());
        }
        let named =
            self.selection.as_ref().map_or_else(|| Ok(selection.clone()), |outer| selection.within(outer))?;
        let chosen = match &self.corpus.selection {
            Some(outer) => selection.within(outer)?,
            None => selection.clone(),
        };
        let corpus = match chosen.as_range() {
            Some(documents) => {
                let index = |document: u64| usize::try_from(document).unwrap_or(usize::MAX);
                let offsets = &offsets[index(documents.start)..=index(documents.end)];
                let (first, end) = (offsets[0], offsets[offsets.len() - 1]);
                let place = |offset: i64| usize::try_from(offset).unwrap_or(usize::MAX);
                let Some(tokens) = self.corpus.tokens.slice(place(first)..place(end)) else {
                    let tokens = self.corpus.tokens.shape()[0];
                    return Err(TokensCause::SelectionRange { first, end, tokens }.into());
                };
                memory::require_each(offsets.len(), 2 * size_of::<i64>())?;
                let offsets: Vec<i64> = offsets.iter().map(|offset| offset - first).collect();
                let len = offsets.len();
                let documents = Some(Tensor::from_vec(offsets, &[len])?.bytes().clone());
                Corpus { tokens, documents, selection: None, ..self.corpus.clone() }
            }
            None if self.is_continuous() => {
                return Err(TokensCause::ScatteredRows.into());
            }
            None => Corpus { selection: Some(chosen), ..self.corpus.clone() },
        };
        let tokens = corpus.token_count();
        Ok(Self { corpus, selection: Some(named), tokens, ..self.clone() })
    }

    /// The number of tokens of a piece.
    pub fn seq_len(&self) -> usize {
        self.seq_len
    }

    /// Returns true if each batch continues the one before it.
    pub fn is_continuous(&self) -> bool {
        self.mode == TokenMode::Continuous
    }

    /// The number of pieces in each row, if the stream has `rows` rows.
    pub(crate) fn steps(&self, rows: u64) -> u64 {
        let (targets, seq_len) = (self.targets(), self.seq_len as u64);
        match self.tail {
            Tail::Drop => targets / rows / seq_len,
            Tail::Pad | Tail::Short => targets.div_ceil(rows).div_ceil(seq_len),
        }
    }

    /// The number of tokens that have a next one, wherever the first piece begins.
    pub(crate) fn targets(&self) -> u64 {
        self.stream_len().saturating_sub(1 + self.most_offset())
    }

    /// The lengths of pieces, if the stream has `rows` rows, each with the same number of pieces.
    fn lengths(&self, rows: Option<(u64, u64)>) -> PieceLengths {
        let seq_len = self.seq_len as u64;
        let (rows, steps) = rows.unwrap_or_else(|| (1, self.steps(1)));
        PieceLengths { seq_len, rows, steps, targets: (self.tail != Tail::Drop).then(|| self.targets()) }
    }

    /// The number of tokens that are inputs, if the stream has `rows` rows.
    pub(crate) fn inputs(&self, rows: u64) -> u64 {
        match self.tail {
            Tail::Drop => self.steps(rows) * rows * self.seq_len as u64,
            Tail::Pad | Tail::Short => self.targets(),
        }
    }

    /// The number of places of pieces that hold no token, if the stream has `rows` rows.
    pub(crate) fn padding(&self, rows: u64) -> u64 {
        self.lengths(Some((rows, self.steps(rows)))).padding(self.tail == Tail::Short)
    }

    /// The last token at which the first piece may begin.
    fn most_offset(&self) -> u64 {
        if self.jitter { self.seq_len as u64 - 1 } else { 0 }
    }

    /// The token at which the first piece of an epoch begins.
    fn offset(&self, (seed, epoch): EpochKey) -> u64 {
        let key = Key::new(seed, epoch, Purpose::Jitter);
        Permutation::new(self.most_offset() + 1, &key).get(0)
    }

    /// A text that identifies a stream among streams with the same number of pieces, for the fingerprint of a plan.
    fn fingerprint(&self, rows: Option<u64>, shuffles_documents: bool) -> String {
        let bytes = self.corpus.documents.as_deref().unwrap_or_default();
        let (tokens, documents) = (self.corpus.tokens.shape()[0], xxh3_64(bytes));
        let (seq_len, separator) = (self.seq_len, self.corpus.separator);
        let jitter = if self.jitter { " jitter" } else { "" };
        let tail = match self.tail {
            Tail::Drop => String::new(),
            tail => format!(" tail {}", tail.name()),
        };
        let selected = self.selection.as_ref().map(|selection| format!(" select {}", selection.text()));
        let selected = selected.unwrap_or_default();
        format!(
            "tokens {tokens} documents {documents:x} seq_len {seq_len} separator {separator:?} rows {rows:?} shuffled \
             {shuffles_documents}{jitter}{tail}{selected}"
        )
    }

    /// The rows of a stream that continues from batch to batch, and the number of pieces of each.
    fn continuous_rows(&self, request: &ContentRequest) -> Result<Option<(u64, u64)>> {
        if !self.is_continuous() {
            return Ok(None);
        }
        let Some(rows) = request.samples_in_step else {
            return Err(TokensCause::UnequalBatches.into());
        };
        if request.shuffle != Shuffle::Nothing {
            let shuffle = request.shuffle.name();
            return Err(TokensCause::ShuffledRows { shuffle }.into());
        }
        match self.steps(rows) {
            0 => {
                let (tokens, seq_len) = (self.stream_len(), self.seq_len());
                Err(TokensCause::TooManyRows { tokens, rows, seq_len }.into())
            }
            steps => Ok(Some((rows, steps))),
        }
    }

    /// The stored token at a place of the stream of documents in stored order, or after the separator there.
    fn find_stored(&self, place: u64) -> usize {
        let index = |place: u64| usize::try_from(place).unwrap_or(usize::MAX);
        let (Some(offsets), Some(_)) = (self.corpus.offsets(), self.corpus.separator) else {
            return index(place);
        };
        let (document, _) = self.corpus.locate(place);
        let end = offsets.get(index(document) + 1).map_or(u64::MAX, |end| end.cast_unsigned());
        index((place - document).min(end))
    }
}

impl Kind for TokenDataset {
    fn len(&self) -> usize {
        self.len()
    }

    fn arrays(&self) -> Vec<(&str, &ChunkedTensor)> {
        vec![("tokens", &self.corpus.tokens)]
    }

    fn labels(&self, options: &CollateOptions) -> Option<Labels> {
        Some(self.lengths(options.rows).labels())
    }

    fn has_documents(&self) -> bool {
        true
    }

    fn changes_with_epoch(&self, options: &CollateOptions) -> bool {
        options.shuffles_documents || self.jitter
    }

    fn content(&self, request: &ContentRequest) -> Result<Option<Content>> {
        if self.jitter && self.tail != Tail::Drop {
            return Err(TokensCause::JitterAndTail { tail: self.tail.name() }.into());
        }
        if self.is_empty() {
            let (tokens, seq_len) = (self.stream_len(), self.seq_len());
            let piece = if self.tail == Tail::Drop { seq_len as u64 } else { 1 };
            let least = self.most_offset() + piece + 1;
            return Err(TokensCause::StreamTooShort { tokens, least, seq_len }.into());
        }
        let rows = self.continuous_rows(request)?;
        let text = self.fingerprint(rows.map(|(rows, _)| rows), request.shuffles_documents);
        let tail = self.counts(rows.map_or(1, |(rows, _)| rows)).tail;
        Ok(Some(Content { text, rows, tail }))
    }

    fn collation(&self, _: &Rule, options: &CollateOptions, (seed, epoch): EpochKey) -> Result<Collation> {
        let noted = usize::try_from(self.document_count()).unwrap_or(usize::MAX) / NOTED + 1;
        memory::require_each(noted, 3 * size_of::<u64>())?;
        let order = options
            .shuffles_documents
            .then(|| Order::new(self.document_count(), Some(&Key::new(seed, epoch, Purpose::Documents))));
        let pieces = StreamPieces {
            stream: Arc::new(Stream::new(self.corpus.clone(), order)),
            lengths: self.lengths(options.rows),
            offset: self.offset((seed, epoch)),
            are_shorter: self.tail == Tail::Short,
        };
        let (shorter_from, masked) = (pieces.shorter_from(), pieces.clone());
        let fields = [
            ("input_ids", TokenField::Inputs, true),
            ("labels", TokenField::Labels, true),
            ("position_ids", TokenField::Positions, self.extras.position_ids),
            ("segment_ids", TokenField::Segments, self.extras.segment_ids),
            ("resets", TokenField::Resets, self.extras.resets),
        ];
        let wanted = fields.into_iter().filter(|&(.., wanted)| wanted);
        let form = |field| Arc::new(Tokens { pieces: pieces.clone(), field }) as Arc<dyn Form>;
        let forms = wanted.map(|(name, field, _)| (name.to_owned(), form(field))).collect();
        let documents = self.extras != TokenExtras::default();
        let collation = Collation::new(forms, Index::Stream { pieces: Arc::new(pieces), documents })?;
        let collation = Collation { shorter_from, ..collation };
        let Some(mask) = &options.block_mask else { return Ok(collation) };
        if let Some(field) = mask.prefix_field() {
            return Err(MaskCause::PrefixOfStream { field: field.to_owned() }.into());
        }
        let shared = Arc::new(mask.clone());
        collation.with_mask_forms(mask, |part| {
            Arc::new(StreamMask { mask: Arc::clone(&shared), pieces: masked.clone(), part })
        })
    }

    fn sample(&self, sample: u64) -> Result<Vec<(String, Tensor)>> {
        let plain = Self { jitter: false, ..self.clone() };
        plain.collation(&FixedSize::new(1)?.into(), &CollateOptions::default(), (0, 0))?.sample(sample)
    }

    fn select(&self, selection: &Selection) -> Option<Result<Arc<dyn Kind>>> {
        Some(self.select(selection).map(|selected| Arc::new(selected) as Arc<dyn Kind>))
    }

    fn rows(&self, samples: Range<usize>) -> Vec<Range<usize>> {
        if self.corpus.selection.is_some() {
            // Documents lie anywhere.
            let all = self.corpus.tokens.shape()[0];
            return vec![if samples.is_empty() { 0..0 } else { 0..all }];
        }
        // Wherever the first piece begins.
        let start = |piece: usize| piece as u64 * self.seq_len as u64;
        let place = |piece: usize| self.find_stored(start(piece));
        let end = self
            .find_stored(start(samples.end) + self.most_offset())
            .saturating_add(1)
            .min(self.corpus.tokens.shape()[0]);
        vec![if samples.is_empty() { 0..0 } else { place(samples.start)..end }]
    }

    fn most_rows(&self, samples: usize) -> Vec<usize> {
        if self.corpus.selection.is_some() {
            return vec![self.corpus.tokens.shape()[0]];
        }
        let most = usize::try_from(self.most_offset()).unwrap_or(usize::MAX);
        vec![samples.saturating_mul(self.seq_len).saturating_add(1).saturating_add(most)]
    }
}
