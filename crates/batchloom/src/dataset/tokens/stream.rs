//! `Stream`: documents one after the other, in any order, without a copy of any.
//!
//! The place of a document follows from the offsets of the documents and, if these are shuffled, from the places of
//! every sixteenth of them. So an epoch costs one pass over the documents, and half a byte for each.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::lengths::PieceLengths;
use crate::collate::{Members, Passage, PassageOf, Passages, Pieces};
use crate::dataset::Selection;
use crate::order::Order;
use crate::tensor::ChunkedTensor;

/// The number of documents from one noted place to the next.
pub(super) const NOTED: usize = 16;

/// Documents as they are stored, one after the other.
#[derive(Clone)]
pub(super) struct Corpus {
    pub(super) tokens: ChunkedTensor,
    /// The offsets of the documents and the end of the last one, as the bytes of int64, or `None` for one document.
    pub(super) documents: Option<Bytes>,
    /// The token between documents.
    pub(super) separator: Option<i64>,
    /// The documents that were selected of these, if some were that are no neighbours.
    pub(super) selection: Option<Selection>,
}

crate::brief::debug_in_brief!(Corpus, [tokens, separator, selection], [documents]);

impl Corpus {
    /// The number of documents.
    pub(super) fn document_count(&self) -> u64 {
        let all = || self.offsets().map_or(1, |offsets| offsets.len() as u64 - 1);
        self.selection.as_ref().map_or_else(all, Selection::len)
    }

    /// The number of tokens of all documents. O(documents) if some were selected.
    pub(super) fn token_count(&self) -> u64 {
        let all = self.tokens.shape()[0] as u64;
        let taken = |_: &Selection| (0..self.document_count()).map(|it| self.document(it).len() as u64).sum();
        self.selection.as_ref().map_or(all, taken)
    }

    /// The offsets of the documents, and the end of the last one.
    pub(super) fn offsets(&self) -> Option<&[i64]> {
        self.documents.as_ref().and_then(|bytes| bytemuck::try_cast_slice(bytes).ok())
    }

    /// The document that holds a token of the stream in stored order, and the token with which it begins.
    pub(super) fn locate(&self, token: u64) -> (u64, u64) {
        let offsets = self.offsets().unwrap_or(&[]);
        let between = u64::from(self.separator.is_some());
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
        let document = self.selection.as_ref().map_or(document, |selection| selection.get(document));
        match (self.offsets(), usize::try_from(document)) {
            (Some(offsets), Ok(document)) => number(offsets[document])..number(offsets[document + 1]),
            _ => 0..self.tokens.shape()[0],
        }
    }
}

/// The documents of one epoch, one after the other.
#[derive(Debug)]
pub(super) struct Stream {
    corpus: Corpus,
    /// The order of the documents, or `None` for stored order.
    order: Option<Order>,
    /// The place in the stream of every sixteenth document.
    noted: Vec<u64>,
}

impl Stream {
    /// The documents of `corpus` in this order; `None` for the order in which they are stored.
    pub(super) fn new(corpus: Corpus, order: Option<Order>) -> Self {
        // Documents that do not lie one after the other are found as those of a random order are.
        let stored = corpus.selection.as_ref().map(|_| Order::new(corpus.document_count(), None));
        let order = order.or(stored).filter(|_| corpus.documents.is_some());
        let mut stream = Self { corpus, order: None, noted: Vec::new() };
        let Some(order) = order else { return stream };
        let (mut start, mut batch) = (0, vec![0; 1024]);
        for first in (0..order.len()).step_by(batch.len()) {
            let count = usize::try_from(order.len() - first).unwrap_or(usize::MAX).min(batch.len());
            order.fill(first, &mut batch[..count]);
            for (place, &document) in (first..).zip(&batch[..count]) {
                if place % NOTED as u64 == 0 {
                    stream.noted.push(start);
                }
                start += stream.count_taken(&stream.corpus.document(document));
            }
        }
        stream.order = Some(order);
        stream
    }

    /// The tokens `start..start + len` of the stream, or `None` if they do not lie one after the other as stored.
    fn find_stored(&self, start: u64, len: usize) -> Option<Range<usize>> {
        let start = usize::try_from(start).ok()?;
        (self.order.is_none() && self.corpus.separator.is_none()).then(|| start..start + len)
    }

    /// Calls `each` with the passages that make up the tokens `start..start + len` of the stream.
    fn walk(&self, start: u64, len: usize, mut each: impl FnMut(Passage)) {
        if len == 0 {
            return;
        }
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
                each(Passage { of: PassageOf::Stored(taken), begins: skipped == 0, goes_on });
                goes_on = true;
            }
            if left > 0 && self.corpus.separator.is_some() {
                left -= 1;
                each(Passage { of: PassageOf::Separator, begins: tokens.is_empty(), goes_on });
            }
            skipped = 0;
            documents.advance();
        }
    }

    /// The documents from the one on that holds a token of the stream, and the place in the stream at which that one
    /// begins.
    fn locate(&self, token: u64) -> (Documents<'_>, u64) {
        if self.order.is_none() {
            let (place, begin) = self.corpus.locate(token);
            return (Documents::new(self, place), begin);
        }
        let noted = self.noted.partition_point(|&begin| begin <= token) - 1;
        let (mut documents, mut begin) = (Documents::new(self, (noted * NOTED) as u64), self.noted[noted]);
        loop {
            let taken = self.count_taken(&documents.current());
            if token < begin + taken {
                return (documents, begin);
            }
            begin += taken;
            documents.advance();
        }
    }

    /// The number of tokens of the stream that a document takes, with the separator after it.
    fn count_taken(&self, tokens: &Range<usize>) -> u64 {
        tokens.len() as u64 + u64::from(self.corpus.separator.is_some())
    }
}

/// Documents one after the other, looked up several at a time, so that the processor waits for all of them at once.
struct Documents<'a> {
    stream: &'a Stream,
    /// The place of the first document that is looked up, and the distance from it to the current one.
    first: u64,
    behind: usize,
    /// The tokens of the documents that are looked up.
    tokens: [Range<usize>; NOTED],
}

impl<'a> Documents<'a> {
    /// The documents from a place on.
    fn new(stream: &'a Stream, place: u64) -> Self {
        let mut documents = Self { stream, first: place, behind: 0, tokens: Default::default() };
        documents.look_up();
        documents
    }

    #[inline]
    fn look_up(&mut self) {
        let count = self.stream.corpus.document_count().saturating_sub(self.first).min(NOTED as u64);
        let mut numbers = [0; NOTED];
        let numbers = &mut numbers[..usize::try_from(count).unwrap_or(0)];
        match &self.stream.order {
            Some(order) => order.fill(self.first, numbers),
            None => numbers.iter_mut().zip(self.first..).for_each(|(number, place)| *number = place),
        }
        self.tokens
            .iter_mut()
            .zip(numbers)
            .for_each(|(tokens, number)| *tokens = self.stream.corpus.document(*number));
    }

    /// The tokens of the current document. Past the last document, the range has no meaning.
    fn current(&self) -> Range<usize> {
        self.tokens[self.behind].clone()
    }

    fn advance(&mut self) {
        self.behind += 1;
        if self.behind == self.tokens.len() {
            (self.first, self.behind) = (self.first + NOTED as u64, 0);
            self.look_up();
        }
    }
}

/// Pieces of a stream.
#[derive(Debug, Clone)]
pub(super) struct StreamPieces {
    pub(super) stream: Arc<Stream>,
    pub(super) lengths: PieceLengths,
    /// The token at which the first piece begins.
    pub(super) offset: u64,
    /// True if batches of shorter pieces alone are shorter.
    pub(super) are_shorter: bool,
}

impl StreamPieces {
    /// The first of the pieces that make shorter batches, if some do.
    pub(super) fn shorter_from(&self) -> Option<u64> {
        self.lengths.shorter_from().filter(|_| self.are_shorter)
    }
}

impl Passages for StreamPieces {
    fn batch_len(&self, members: &Members) -> usize {
        Pieces::batch_len(self, members)
    }

    fn passages(&self, sample: u64, len: usize, documents: bool, each: &mut dyn FnMut(Passage)) {
        let (start, count) = (self.start(sample), self.count(sample));
        let real = if count == 0 { 0 } else { count + 1 };
        match self.stream.find_stored(start, real).filter(|_| !documents) {
            Some(stored) if real > 0 => {
                each(Passage { of: PassageOf::Stored(stored), begins: false, goes_on: false });
            }
            _ => self.stream.walk(start, real, &mut *each),
        }
        if real < len + 1 {
            each(Passage { of: PassageOf::Padding(len + 1 - real), begins: false, goes_on: true });
        }
    }
}

impl Pieces for StreamPieces {
    fn batch_len(&self, members: &Members) -> usize {
        let is_shorter = |from: &u64| members.are_listed() && members.samples.iter().all(|it| it >= from);
        let len = self.shorter_from().filter(is_shorter).map(|_| self.lengths.last());
        usize::try_from(len.unwrap_or(self.lengths.seq_len)).unwrap_or(usize::MAX)
    }

    fn start(&self, sample: u64) -> u64 {
        self.offset + self.lengths.start(sample)
    }

    fn count(&self, sample: u64) -> usize {
        usize::try_from(self.lengths.count(sample)).unwrap_or(usize::MAX)
    }

    fn tokens(&self) -> &ChunkedTensor {
        &self.stream.corpus.tokens
    }

    fn separator(&self) -> i64 {
        self.stream.corpus.separator.unwrap_or(0)
    }

    fn find_stored(&self, start: u64, len: usize) -> Option<Range<usize>> {
        self.stream.find_stored(start, len)
    }

    fn walk(&self, start: u64, len: usize, each: impl FnMut(Passage)) {
        self.stream.walk(start, len, each);
    }
}
