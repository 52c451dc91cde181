//! Causes of errors about the way that a field goes into batches.

use crate::DType;
use crate::error::causes;

causes! {
    /// The causes of errors about fields of batches, which datasets and loaders raise too.
    enum CollateCause {
        /// A batch is larger than this machine can address. `row` is the bytes of a sample in the largest field.
        #[error(
            "a batch of {samples} samples of {} is larger than this machine can address; expected fewer samples in a \
             batch, or smaller ones",
            bytes_of(*row)
        )]
        BatchTooLarge { samples: u64, row: usize } is Argument,

        #[error("block_mask: block_size is 0; expected at least 1 token")]
        MaskBlock is Argument of "block_mask",
        #[error(
            "block_mask: prefix is {field:?}, and kind is \"full\", where all tokens of a document see each other; \
             expected kind \"causal\", or no prefix"
        )]
        PrefixOfFull { field: String } is Argument of "block_mask",
        #[error(
            "field {field}, the prefix of block_mask, is {length} in sample {sample}; expected the length of its prefix, \
             at least 0"
        )]
        NegativePrefix { field: String, sample: u64, length: i64 } is Data of "block_mask",

        #[error("samples of chunks are copied that are not held; please report this")]
        NotHeld is Runtime,

        #[error("field {field}: padding is {value}, which {dtype} does not hold; expected a value of this type")]
        PadNumber { field: String, value: String, dtype: DType } is Argument of "pad_value",
        #[error("the padding of field {field} has {found} bytes; expected {expected}, the bytes of one element")]
        PadValue { field: String, found: usize, expected: usize } is Argument of "pad_value",
        #[error(
            "field {field}: padding is \"edge\", the nearest step of a series, and the field is not cut from series; \
             expected a number"
        )]
        PadEdge { field: String } is Argument of "pad_value",
        #[error(
            "field {field}: padding is \"edge\", and its slot is padded with a number; expected a number, or no slot"
        )]
        PadEdgeOfSlot { field: String } is Argument of "pad_value",

        #[error(
            "field {field}: its samples are concatenated, and slots are for samples of their own; leave its slot out"
        )]
        SlotOfConcatenated { field: String } is Argument of "slot",
        #[error("field {field}: its samples differ in shape, so they do not stack; expected another slot")]
        SlotOfShapes { field: String } is Argument of "slot",
        #[error(
            "field {field}: its samples differ in dimension {dimension}, which the slot leaves as it is; expected an \
             extent for it too"
        )]
        SlotExtent { field: String, dimension: usize } is Argument of "slot",
        #[error("field {field}: images are resized to {height} x {width} pixels; expected at least 1 x 1")]
        ResizePixels { field: String, height: usize, width: usize } is Argument of "slot",
        #[error(
            "field {field}: batchloom is built without its feature image; expected it for images that are resized"
        )]
        ResizeFeature { field: String } is Argument of "slot",

        #[error(
            "field {field}: scaled values are no {to}; expected dtype float16, bfloat16, float32 or float64"
        )]
        ScaledType { field: String, to: DType } is Argument of "dtype",
        #[error(
            "field {field}: {from} is not converted to {to}; expected booleans, integers and floats of at least 16 \
             bits"
        )]
        NotConverted { field: String, from: DType, to: DType } is Argument of "dtype",
        #[error("field {field}: {given}; expected finite numbers, and no std of 0")]
        Scale { field: String, given: String } is Argument,
        #[error("field {field}: {means} means and {stds} deviations are given; expected the same number of both")]
        MeansAndStds { field: String, means: usize, stds: usize } is Argument of "std",
        #[error(
            "field {field}: {count} means or deviations may be of the first or of the last dimension of a sample, \
             {extents}; say which"
        )]
        EitherDimension { field: String, count: usize, extents: String } is Argument of "channels",
        #[error(
            "field {field}: {count} means or deviations are given, and samples are {extents}; expected one, or the \
             number that the first or the last dimension has"
        )]
        ChannelCount { field: String, count: usize, extents: String } is Argument of "mean",

        #[error(
            "field {field}{} holds the index {value}, and {offset} elements are before it in the batch; {dtype} does not \
             hold the sum: expected fewer elements in a batch, or dtype \"int64\"",
            .sample.map(|sample| format!(", sample {sample},")).unwrap_or_default()
        )]
        OffsetTooLarge {
            field: String,
            sample: Option<u64>,
            value: String,
            offset: u64,
            dtype: DType,
        } is Data of "dtype",
        #[error(
            "field {field}{} holds {value}, which is no {to} when it is converted from {from}; expected values in its \
             range, or another dtype",
            .sample.map(|sample| format!(", sample {sample},")).unwrap_or_default()
        )]
        Unrepresentable {
            field: String,
            sample: Option<u64>,
            value: String,
            from: DType,
            to: DType,
        } is Data of "dtype",
    }
}

/// A number of bytes in words; `usize::MAX` stands for more than there are addresses.
fn bytes_of(bytes: usize) -> String {
    if bytes == usize::MAX { format!("more than {bytes} bytes") } else { format!("{bytes} bytes") }
}
