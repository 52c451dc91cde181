//! Causes of errors about tokens, their documents, and streams of them.

use crate::DType;
use crate::error::causes;

causes! {
    /// The causes of errors about streams of tokens.
    enum TokensCause {
        #[error("tokens have shape {shape:?}; expected one dimension")]
        Shape { shape: Vec<usize> } is Data,
        #[error("tokens are {found}; expected integers that int64 holds")]
        Type { found: DType } is Data,
        #[error("seq_len is 0; expected at least 1 token")]
        SeqLen is Data of "seq_len",
        #[error("documents are {found}; expected offsets in a compact array of int64")]
        OffsetType { found: DType } is Data of "documents",
        #[error("offsets of documents are empty; expected from 0 to {tokens}, the number of tokens")]
        NoOffsets { tokens: usize } is Data of "documents",
        #[error("offsets of documents go from {first} to {last}; expected from 0 to {tokens}, the number of tokens")]
        OffsetRange { first: i64, last: i64, tokens: usize } is Data of "documents",
        #[error("document {document} goes from token {start} to {end}; expected offsets that do not decrease")]
        OffsetOrder { document: usize, start: i64, end: i64 } is Data of "documents",
        #[error(
            "jitter leaves out tokens at the beginning of the stream, and tail is {tail:?}, which leaves out none; \
             expected one of them"
        )]
        JitterAndTail { tail: &'static str } is Data of "tail",
        /// The least number of tokens is a piece, wherever it may begin, and the token after it.
        #[error("the stream has {tokens} tokens; expected at least {least} with seq_len {seq_len}")]
        StreamTooShort { tokens: u64, least: u64, seq_len: usize } is Data of "seq_len",

        #[error("the stream is one document, and documents are selected; expected offsets of documents")]
        OneDocument is Argument of "documents",
        #[error("documents {first} to {end} do not lie in the {tokens} tokens; expected offsets within the tokens")]
        SelectionRange { first: i64, end: i64, tokens: usize } is Argument of "documents",
        #[error(
            "documents are selected that are no neighbours, and each batch continues the one before it; expected \
             neighbours, as a split without a seed gives"
        )]
        ScatteredRows is Argument,

        #[error("a stream that continues from batch to batch needs batches of equal size; use FixedSize")]
        UnequalBatches is Argument of "rule",
        #[error(
            "shuffle is {shuffle:?}, but the stream continues from batch to batch; expected to shuffle documents or \
             nothing"
        )]
        ShuffledRows { shuffle: &'static str } is Argument of "shuffle",
        #[error(
            "the stream has {tokens} tokens, too few for {rows} rows of {seq_len} and a label; use fewer or shorter \
             rows"
        )]
        TooManyRows { tokens: u64, rows: u64, seq_len: usize } is Argument of "batch_size",
    }
}
