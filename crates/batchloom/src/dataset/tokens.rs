//! `TokenDataset`: documents one after the other are a stream, and equal pieces of the stream are samples.
//!
//! The stream is never made: where a document lies in it follows from the offsets of the documents and, where these are
//! shuffled, from the places of every sixteenth of them. So an epoch costs one pass over the documents, and half a byte
//! for each.

use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

use crate::order::Order;
use crate::tensor::Rows;
use crate::{DType, Error, Result, Tensor};

/// Of how many documents one is noted.
const NOTED: usize = 16;

/// Which pieces of the stream are samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum TokenMode {
    /// Piece `k` of the stream is sample `k`.
    #[default]
    Chunk,
    /// The stream is cut in as many rows as all ranks' batches have, and each batch goes on where the one before it
    /// ended, row by row: for truncated backpropagation through time.
    Continuous,
}

impl FromStr for TokenMode {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        match name {
            "chunk" => Ok(Self::Chunk),
            "continuous" => Ok(Self::Continuous),
            _ => Err(format!("mode is {name:?}; expected \"chunk\" or \"continuous\"")),
        }
    }
}

/// What a batch of tokens holds besides inputs and labels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct TokenExtras {
    /// `position_ids`: the place of each token in its document, from where the piece begins; int64.
    pub position_ids: bool,
    /// `segment_ids`: which document of the piece each token is of, from 0; int32.
    pub segment_ids: bool,
    /// `resets`: whether a document begins with this token.
    pub resets: bool,
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
/// let batch = loader.iter()?.next().expect("a batch")?;
/// assert_eq!(batch.field("labels").and_then(|labels| labels.as_slice::<i64>()).map(|it| it[0]), Some(1));
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct TokenDataset {
    tokens: Tensor,
    rows: Rows,
    /// Where each document begins, and the last one ends, as the bytes of int64. None where all tokens are one document.
    documents: Option<Bytes>,
    seq_len: usize,
    separator: Option<i64>,
    mode: TokenMode,
    extras: TokenExtras,
}

impl TokenDataset {
    /// Pieces of `seq_len` tokens, of integers `[tokens]`.
    ///
    /// # Errors
    /// [`Error::Corpus`] where the tokens are not one dimension of integers that int64 holds.
    pub fn new(tokens: Tensor, seq_len: usize) -> Result<Self> {
        let refused = |reason: String| Err(Error::Corpus { reason });
        let (shape, dtype) = (tokens.shape(), tokens.dtype());
        if shape.len() != 1 {
            return refused(format!("tokens have shape {shape:?}; expected one dimension"));
        }
        use DType::{I8, I16, I32, I64, U8, U16, U32};
        if !matches!(dtype, U8 | U16 | U32 | I8 | I16 | I32 | I64) {
            return refused(format!("tokens are {dtype}; expected integers that int64 holds"));
        }
        if seq_len == 0 {
            return refused("seq_len is 0; expected at least 1 token".to_owned());
        }
        let rows = tokens.layout().rows(dtype.size());
        let rows = rows.ok_or_else(|| Error::ScalarField { field: "tokens".to_owned() })?;
        let (documents, separator) = (None, None);
        let (mode, extras) = (TokenMode::default(), TokenExtras::default());
        Ok(Self { tokens, rows, documents, seq_len, separator, mode, extras })
    }

    /// The documents: document `k` is the tokens `offsets[k]..offsets[k + 1]`; int64.
    ///
    /// # Errors
    /// [`Error::Corpus`] where the offsets do not go from 0 to the number of tokens, or decrease.
    pub fn documents(self, offsets: &Tensor) -> Result<Self> {
        let refused = |reason: String| Err(Error::Corpus { reason });
        let Some(ends) = offsets.as_slice::<i64>() else {
            return refused(format!("documents are {}; expected offsets, compact int64", offsets.dtype()));
        };
        let tokens = self.tokens.shape()[0];
        if ends.first() != Some(&0) || ends.last() != Some(&(tokens.cast_signed() as i64)) {
            let found = ends.first().zip(ends.last());
            let found = found
                .map_or_else(|| "are none".to_owned(), |(first, last)| format!("go from {first} to {last}"));
            return refused(format!("offsets of documents {found}; expected from 0 to {tokens}, the tokens"));
        }
        if let Some(document) = ends.windows(2).position(|pair| pair[1] < pair[0]) {
            let (start, end) = (ends[document], ends[document + 1]);
            return refused(format!(
                "document {document} goes from token {start} to {end}; expected offsets that do not decrease"
            ));
        }
        let start = offsets.layout().offset();
        let bytes = offsets.bytes().slice(start..start + size_of_val(ends));
        Ok(Self { documents: Some(bytes), ..self })
    }

    /// A token that is put between documents.
    #[must_use]
    pub fn separator(self, separator: i64) -> Self {
        Self { separator: Some(separator), ..self }
    }

    /// Which pieces are samples. Default: [`TokenMode::Chunk`].
    #[must_use]
    pub fn mode(self, mode: TokenMode) -> Self {
        Self { mode, ..self }
    }

    /// What batches hold besides inputs and labels. Default: nothing.
    #[must_use]
    pub fn extras(self, extras: TokenExtras) -> Self {
        Self { extras, ..self }
    }

    /// The number of pieces of the stream that have a label for every token.
    pub fn len(&self) -> usize {
        usize::try_from(self.stream_len().saturating_sub(1) / self.seq_len as u64).unwrap_or(usize::MAX)
    }

    /// Whether the stream is too short for a piece and the token after it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of documents.
    pub fn document_count(&self) -> u64 {
        self.offsets().map_or(1, |offsets| offsets.len() as u64 - 1)
    }

    /// Tokens of the stream, those between documents included.
    pub fn stream_len(&self) -> u64 {
        let between = if self.separator.is_some() { self.document_count().saturating_sub(1) } else { 0 };
        self.tokens.shape()[0] as u64 + between
    }

    /// Tokens of a piece.
    pub fn seq_len(&self) -> usize {
        self.seq_len
    }

    /// Whether each batch goes on where the one before it ended.
    pub fn is_continuous(&self) -> bool {
        self.mode == TokenMode::Continuous
    }

    pub(crate) fn tokens(&self) -> &Tensor {
        &self.tokens
    }

    pub(crate) fn extra(&self) -> TokenExtras {
        self.extras
    }

    /// Pieces of each of so many rows of the stream.
    pub(crate) fn steps(&self, rows: u64) -> u64 {
        self.stream_len().saturating_sub(1) / rows / self.seq_len as u64
    }

    fn offsets(&self) -> Option<&[i64]> {
        self.documents.as_ref().and_then(|bytes| bytemuck::try_cast_slice(bytes).ok())
    }

    /// A name for what an epoch is made of, for the fingerprint of a plan.
    pub(crate) fn content(&self, rows: Option<u64>, shuffles_documents: bool) -> String {
        let bytes = self.documents.as_deref().unwrap_or_default();
        let (tokens, documents) = (self.tokens.shape()[0], xxh3_64(bytes));
        let (seq_len, separator) = (self.seq_len, self.separator);
        format!(
            "tokens {tokens} documents {documents:x} seq_len {seq_len} separator {separator:?} rows {rows:?} shuffled \
             {shuffles_documents}"
        )
    }

    /// The stream of the documents in this order.
    pub(crate) fn stream(&self, order: Option<Order>) -> Stream {
        let order = order.filter(|_| self.documents.is_some());
        let mut stream = Stream { dataset: self.clone(), order: None, noted: Vec::new() };
        let Some(order) = order else { return stream };
        let (mut start, mut batch) = (0, vec![0; 1024]);
        for first in (0..order.len()).step_by(batch.len()) {
            let count = usize::try_from(order.len() - first).unwrap_or(usize::MAX).min(batch.len());
            order.fill(first, &mut batch[..count]);
            for (place, &document) in (first..).zip(&batch[..count]) {
                if place % NOTED as u64 == 0 {
                    stream.noted.push(start);
                }
                start += stream.taken(&stream.document(document));
            }
        }
        stream.order = Some(order);
        stream
    }
}

/// The documents of one epoch, one after the other.
#[derive(Debug)]
pub(crate) struct Stream {
    dataset: TokenDataset,
    /// In which order; none where as stored.
    order: Option<Order>,
    /// Where every sixteenth document begins.
    noted: Vec<u64>,
}

/// Consecutive tokens of one document, or the token after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Passage {
    /// The tokens; none for a separator.
    pub(crate) tokens: Option<Range<usize>>,
    /// Whether a document begins with the first of them.
    pub(crate) begins: bool,
    /// Whether it goes on with the document of the passage before it.
    pub(crate) goes_on: bool,
}

impl Passage {
    /// How many tokens.
    pub(crate) fn len(&self) -> usize {
        self.tokens.as_ref().map_or(1, ExactSizeIterator::len)
    }
}

impl Stream {
    pub(crate) fn tokens(&self) -> &Tensor {
        &self.dataset.tokens
    }

    pub(crate) fn rows(&self) -> &Rows {
        &self.dataset.rows
    }

    pub(crate) fn separator(&self) -> i64 {
        self.dataset.separator.unwrap_or(0)
    }

    /// The tokens `start..start + len` of the stream where they lie one after the other as stored; none where they do
    /// not.
    pub(crate) fn stored(&self, start: u64, len: usize) -> Option<Range<usize>> {
        let start = usize::try_from(start).ok()?;
        (self.order.is_none() && self.dataset.separator.is_none()).then(|| start..start + len)
    }

    /// The passages that make up the tokens `start..start + len` of the stream.
    pub(crate) fn walk(&self, start: u64, len: usize, mut each: impl FnMut(Passage)) {
        let (mut documents, begin) = self.locate(start);
        let mut skipped = usize::try_from(start - begin).unwrap_or(usize::MAX);
        let mut left = len;
        while left > 0 {
            let tokens = documents.current();
            let mut goes_on = false;
            if skipped < tokens.len() {
                let from = tokens.start + skipped;
                let taken = from..tokens.end.min(from + left);
                left -= taken.len();
                each(Passage { tokens: Some(taken), begins: skipped == 0, goes_on });
                goes_on = true;
            }
            if left > 0 && self.dataset.separator.is_some() {
                left -= 1;
                each(Passage { tokens: None, begins: tokens.is_empty(), goes_on });
            }
            skipped = 0;
            documents.advance();
        }
    }

    /// The documents from the one on that holds a token of the stream, and where that one begins.
    fn locate(&self, token: u64) -> (Documents<'_>, u64) {
        if self.order.is_none() {
            let (place, begin) = self.locate_stored(token);
            return (Documents::new(self, place), begin);
        }
        let noted = self.noted.partition_point(|&begin| begin <= token) - 1;
        let (mut documents, mut begin) = (Documents::new(self, (noted * NOTED) as u64), self.noted[noted]);
        loop {
            let taken = self.taken(&documents.current());
            if token < begin + taken {
                return (documents, begin);
            }
            begin += taken;
            documents.advance();
        }
    }

    /// The place of the document that holds a token, where documents are as stored, and where it begins.
    fn locate_stored(&self, token: u64) -> (u64, u64) {
        let offsets = self.dataset.offsets().unwrap_or(&[]);
        let between = u64::from(self.dataset.separator.is_some());
        let begin = |place: usize| {
            let offset = offsets.get(place).map_or(0, |offset| offset.cast_unsigned());
            offset + between * place as u64
        };
        let (mut low, mut high) = (0, offsets.len().saturating_sub(1).max(1));
        while high - low > 1 {
            let middle = low.midpoint(high);
            if begin(middle) <= token { low = middle } else { high = middle }
        }
        (low as u64, begin(low))
    }

    /// The tokens of a document.
    fn document(&self, document: u64) -> Range<usize> {
        let number = |offset: i64| usize::try_from(offset).unwrap_or(usize::MAX);
        match (self.dataset.offsets(), usize::try_from(document)) {
            (Some(offsets), Ok(document)) => number(offsets[document])..number(offsets[document + 1]),
            _ => 0..self.dataset.tokens.shape()[0],
        }
    }

    /// Tokens of the stream that a document takes, with what comes after it.
    fn taken(&self, tokens: &Range<usize>) -> u64 {
        tokens.len() as u64 + u64::from(self.dataset.separator.is_some())
    }
}

/// Documents one after the other, looked up some at a time: the processor waits for all of them at once.
struct Documents<'a> {
    stream: &'a Stream,
    /// The place of the first that is looked up, and how many places that one is behind.
    first: u64,
    behind: usize,
    found: [Range<usize>; NOTED],
}

impl<'a> Documents<'a> {
    /// Those from a place on.
    fn new(stream: &'a Stream, place: u64) -> Self {
        let mut documents = Self { stream, first: place, behind: 0, found: Default::default() };
        documents.look_up();
        documents
    }

    #[inline]
    fn look_up(&mut self) {
        let count = self.stream.dataset.document_count().saturating_sub(self.first).min(NOTED as u64);
        let mut numbers = [0; NOTED];
        let numbers = &mut numbers[..usize::try_from(count).unwrap_or(0)];
        match &self.stream.order {
            Some(order) => order.fill(self.first, numbers),
            None => numbers.iter_mut().zip(self.first..).for_each(|(number, place)| *number = place),
        }
        self.found.iter_mut().zip(numbers).for_each(|(found, number)| *found = self.stream.document(*number));
    }

    /// The tokens of the document at this place; past the last one, any.
    fn current(&self) -> Range<usize> {
        self.found[self.behind].clone()
    }

    fn advance(&mut self) {
        self.behind += 1;
        if self.behind == self.found.len() {
            (self.first, self.behind) = (self.first + NOTED as u64, 0);
            self.look_up();
        }
    }
}

/// Where pieces begin in a stream.
#[derive(Debug, Clone)]
pub(crate) struct Pieces {
    pub(crate) stream: Arc<Stream>,
    /// Rows of the stream, and how many pieces each has; none where piece `k` is simply the `k`th.
    pub(crate) rows: Option<(u64, u64)>,
}

impl Pieces {
    /// Tokens of a piece.
    pub(crate) fn len(&self) -> usize {
        self.stream.dataset.seq_len
    }

    /// The passages that make up a piece and the label of its last token; where nobody asks which documents they are of,
    /// one for all tokens that lie one after the other.
    pub(crate) fn passages(&self, sample: u64, documents: bool, mut each: impl FnMut(Passage)) {
        let (start, len) = (self.start(sample), self.len() + 1);
        match self.stream.stored(start, len).filter(|_| !documents) {
            Some(stored) => each(Passage { tokens: Some(stored), begins: false, goes_on: false }),
            None => self.stream.walk(start, len, each),
        }
    }

    /// Where a piece begins.
    pub(crate) fn start(&self, sample: u64) -> u64 {
        let piece = match self.rows {
            Some((rows, steps)) => sample % rows * steps + sample / rows,
            None => sample,
        };
        piece * self.len() as u64
    }
}
