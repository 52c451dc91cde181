//! Causes of errors about arrays.

use crate::DType;
use crate::error::causes;

causes! {
    /// The causes of errors about arrays, which whoever takes arrays raises too.
    enum TensorCause {
        #[error("field {field} is a scalar; expected an array whose first dimension counts the samples")]
        ScalarField { field: String } is Data,
        #[error(
            "field {field} has {found} rows but field {first} has {expected}; expected the same number of samples in \
             every field"
        )]
        FieldLength { field: String, found: usize, first: String, expected: usize } is Data,
        #[error("field {field} has no chunk; expected at least one array")]
        NoChunk { field: String } is Data,
        #[error("field {field}: chunk {chunk} holds {found}, and chunk 0 {expected}; expected one type: convert them")]
        ChunkType { field: String, chunk: usize, found: DType, expected: DType } is Type,
        #[error(
            "field {field}: the rows of chunk {chunk} have shape {found:?}, those of chunk 0 {expected:?}; expected one \
             shape"
        )]
        ChunkShape { field: String, chunk: usize, found: Vec<usize>, expected: Vec<usize> } is Data,
        #[error("field {field} has {found} values but {expected} columns; expected a column for each value")]
        SparseValues { field: String, found: usize, expected: usize } is Data,
        /// Offsets do not describe sequences: the first sample whose offsets are wrong, and the rule that they break.
        #[error("field {field}: sample {sample} ends at {end} and starts at {start}, of {values} values; {expected}")]
        Offsets {
            field: String,
            sample: u64,
            start: i64,
            end: i64,
            values: u64,
            expected: &'static str,
        } is Data,
        /// Samples of any shapes lie one after the other.
        #[error(
            "field {field}: samples of any shapes lie in values of shape {found:?}; expected one compact dimension \
             (make the values contiguous and flat)"
        )]
        NotCompact { field: String, found: Vec<usize> } is Data,
        #[error(
            "field {field}: its samples have {rank} dimensions, and vary in dimension {dimension}; expected a dimension \
             from 0 to {}",
            .rank.saturating_sub(1)
        )]
        NoDimension { field: String, dimension: usize, rank: usize } is Data of "dim",
        #[error(
            "field {field}: its samples are to vary in dimension {dimension}, and differ in dimension {other}; expected \
             samples that differ in dimension {dimension} alone"
        )]
        OtherDimension { field: String, dimension: usize, other: usize } is Data of "dim",
        #[error("field {field}: its {what} are {found}; expected int32 or int64")]
        SparseType { field: String, what: &'static str, found: DType } is Type,
        #[error("field {field}: row {row} has an entry in column {column}; expected 0 <= column < {columns}")]
        SparseColumn { field: String, row: u64, column: i64, columns: u64 } is Data,
        /// The engine does not add values of every type.
        #[error(
            "field {field}: row {row} holds column {column} twice, and {dtype} is not added; expected each column \
             once, or float32"
        )]
        SparseRepeat { field: String, row: u64, column: i64, dtype: DType } is Data,
        #[error(
            "field {field} is in memory that this process cannot read; expected a loader of index tables, or a copy in \
             memory of this process"
        )]
        Elsewhere { field: String } is Data,
        #[error(
            "an array of shape {shape:?} and byte strides {strides:?} at offset {offset} reaches outside its memory of \
             {bytes} bytes"
        )]
        Layout { shape: Vec<usize>, strides: Vec<isize>, offset: usize, bytes: usize } is Data,
        #[error(
            "{bytes} bytes at byte {place} of {path} cannot be read: {reason}; expected the file as it was when it was \
             mapped"
        )]
        MappedFile { path: String, place: u64, bytes: usize, reason: String } is Data,
        #[error("the elements are {found}, and {asked} were asked for; expected to read them as {found}")]
        ElementType { found: DType, asked: DType } is Type,
        #[error(
            "an array of {dtype} of shape {shape:?} is in memory that this process cannot read; expected a copy in \
             memory of this process"
        )]
        Unreadable { dtype: DType, shape: Vec<usize> } is Data,
        #[error(
            "an array of {dtype} of shape {shape:?} has byte strides {strides:?}; expected elements in row-major order \
             without gaps: read it row by row, or copy it"
        )]
        Gaps { dtype: DType, shape: Vec<usize>, strides: Vec<isize> } is Data,
        #[error(
            "the elements, {dtype}, begin {past} bytes past a multiple of {expected}; expected them at a multiple: \
             copy the bytes to memory of such elements"
        )]
        Alignment { dtype: DType, past: usize, expected: usize } is Data,
        #[error("byte {place} of an array of bool is {found}; expected 0 or 1, or to read the array as uint8")]
        NotBool { place: usize, found: u8 } is Data,
        #[error("{found} bytes do not fill the shape {shape:?} of {dtype}, which takes {expected}")]
        ByteCount { found: usize, dtype: DType, shape: Vec<usize>, expected: usize } is Data,
        #[error("{values} values do not fill the shape {shape:?}, which holds {expected}")]
        Shape { values: usize, shape: Vec<usize>, expected: usize } is Data,
    }
}

#[cfg(feature = "ndarray")]
causes! {
    /// The causes of errors about arrays of `ndarray`.
    enum ArrayCause {
        #[error("an array of shape {shape:?} has {} dimensions; expected {expected}", shape.len())]
        ArrayRank { shape: Vec<usize>, expected: usize } is Argument,
    }
}

#[cfg(any(feature = "npy", feature = "safetensors"))]
causes! {
    /// The causes of errors about files of arrays.
    enum FileCause {
        /// Bytes are no file of a format, or one with what cannot be an array here: the part that is wrong.
        #[error("the bytes are no {format} file of arrays: {reason}")]
        File { format: &'static str, reason: String } is Data,
    }
}
