//! Errors, as facts with values.
//!
//! There is one enum for the crate, with a variant for each cause. A message gives what was found, what was expected
//! and what to change, and names options in words that hold in Rust and in Python. [`Error::kind`] sorts the causes
//! into the few kinds that a caller treats differently; the Python package has an exception class for each.

mod reading;

pub use reading::{Cause, ReadError};

use crate::DType;

/// The result of fallible functions in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kinds of failure that a caller may want to tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// An argument, or a combination of arguments, is not valid.
    Argument,
    /// The data cannot be batched: it is empty, its lengths differ, or its layout leaves its memory.
    Data,
    /// An index is out of range.
    Range,
    /// A saved state does not belong to this plan, or is damaged.
    State,
    /// The machinery failed (threads, a forked process), or cannot do this now.
    Runtime,
    /// Memory could not be allocated.
    Memory,
    /// Elements are of a type that cannot be batched.
    Type,
    /// A device lacks the memory that is asked for.
    Device,
}

/// The cause of a failure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The batch size is 0.
    #[error("batch_size is {found}; expected at least 1")]
    BatchSize {
        /// The batch size asked for.
        found: u64,
    },
    /// The dataset has no samples.
    #[error(
        "the dataset has no samples; expected at least 1 (check the filter or the path that produced it)"
    )]
    NoSamples,
    /// The dataset has no fields, and so no length.
    #[error("the dataset has no fields; expected at least one array")]
    NoFields,
    /// Two fields have the same name.
    #[error("field `{name}` is given twice; expected distinct names")]
    DuplicateField {
        /// The repeated name.
        name: String,
    },
    /// A field has no first dimension, and so cannot be indexed by sample.
    #[error("field {field} is a scalar; expected an array whose first dimension counts the samples")]
    ScalarField {
        /// The name or the number of the field.
        field: String,
    },
    /// Two fields differ in their number of samples.
    #[error(
        "field {field} has {found} rows but field {first} has {expected}; expected the same number of samples in \
         every field"
    )]
    FieldLength {
        /// The field that differs from the first.
        field: String,
        /// The number of its rows.
        found: usize,
        /// The first field.
        first: String,
        /// The number of rows of the first field.
        expected: usize,
    },
    /// The dataset has more samples than positions can be numbered.
    #[error("{found} samples are more than this version can order; expected at most {limit} (2^62)")]
    TooManySamples {
        /// The number of samples asked for.
        found: u64,
        /// The largest number possible.
        limit: u64,
    },
    /// The number of processes is 0, or too large to list them.
    #[error("world_size is {found}; expected the number of processes, 1 to {limit}")]
    World {
        /// The number asked for.
        found: u32,
        /// The largest number possible.
        limit: u32,
    },
    /// The rank is not one of the `world_size` processes.
    #[error("rank is {rank} in a world of {world_size}; expected 0 <= rank < {world_size}")]
    Rank {
        /// The rank asked for.
        rank: u32,
        /// The number of processes.
        world_size: u32,
    },
    /// `drop_last` would drop every batch.
    #[error(
        "drop_last leaves no step: {samples} samples make {batches} full batches{}, fewer than one for each of \
         {world_size} ranks; use smaller batches, or turn drop_last off",
        .batch_size.map(|size| format!(" of {size}")).unwrap_or_default()
    )]
    NothingLeft {
        /// The number of samples in the dataset.
        samples: u64,
        /// The number of samples in a full batch, if all full batches hold as many.
        batch_size: Option<u64>,
        /// The number of full batches.
        batches: u64,
        /// The number of ranks.
        world_size: u32,
    },
    /// Every sample is larger than a batch may be.
    #[error(
        "oversize drops all {samples} samples, because they exceed max_tokens ({max_tokens}); raise max_tokens, or \
         set oversize to truncate"
    )]
    AllDropped {
        /// The number of samples in the dataset.
        samples: u64,
        /// The budget.
        max_tokens: u64,
    },
    /// A text spells no rule.
    #[error("the rule {text:?} cannot be read: {reason}")]
    RuleText {
        /// The text.
        text: String,
        /// The reason.
        reason: String,
    },
    /// A parameter that has to be at least 1 is 0.
    #[error("{name} is 0; expected at least 1")]
    NotPositive {
        /// The name of the parameter.
        name: &'static str,
    },
    /// The border of a shard would lie inside a batch.
    #[error(
        "shard_size is {found}; expected a multiple of the batch size, which is {batch_size}, so that no batch lies \
         in two shards: {}",
        nearest(*.found, *.batch_size)
    )]
    ShardSize {
        /// The number of samples in a shard asked for.
        found: u64,
        /// The number of samples in a batch.
        batch_size: u64,
    },
    /// Padded lengths are multiples of a number that exceeds the budget.
    #[error(
        "multiple_of is {multiple_of}, more than max_tokens ({max_tokens}), so no padded sample fits; use a smaller \
         multiple_of"
    )]
    Multiple {
        /// The number that padded lengths are a multiple of.
        multiple_of: u32,
        /// The budget.
        max_tokens: u64,
    },
    /// The coefficients of a cost model are not valid.
    #[error(
        "the coefficients (fixed, per_token, per_pair) of the cost model are ({found}); expected finite numbers of at \
         least 0, not all of them 0"
    )]
    Cost {
        /// The coefficients.
        found: String,
    },
    /// Too few shapes are measured to fit a cost model.
    #[error("there are {found} distinct shapes; expected at least 3 to fit 3 coefficients")]
    TooFewShapes {
        /// Distinct shapes measured.
        found: usize,
    },
    /// The measured shapes leave a coefficient of the cost model undetermined.
    #[error("the shapes {shapes:?} do not tell the coefficients apart; expected several lengths and sizes")]
    AlikeShapes {
        /// Samples and length of each batch measured.
        shapes: Vec<(u64, u64)>,
    },
    /// A measurement is of an empty batch, or its time is not finite and above 0.
    #[error(
        "a batch of {samples} samples of length {length} is measured at {seconds} seconds; expected at least 1 sample, \
         length 1 and a finite time above 0"
    )]
    Measurement {
        /// Samples in the batch.
        samples: u64,
        /// Their padded length.
        length: u64,
        /// The time measured, as text.
        seconds: String,
    },
    /// A bin is so large that its elements have no 32-bit numbers, or its free space takes too much memory to keep.
    #[error("max_tokens is {found}; expected at most {limit} (2^28) for Packing")]
    BinTooLarge {
        /// The capacity asked for.
        found: u64,
        /// The largest capacity possible.
        limit: u32,
    },
    /// A rule that decides by size is used without sizes.
    #[error("{rule} decides by size, and the samples have none; use FixedSize, or data with sizes")]
    NoSizes {
        /// The name of the rule.
        rule: &'static str,
    },
    /// A list of samples that is to be a batch holds none.
    #[error("batch {batch} of the lists holds no sample; expected at least one in each")]
    EmptyBatch {
        /// The first such batch.
        batch: u64,
    },
    /// The ends of lists do not divide their samples.
    #[error(
        "a list ends at {end}, where {start} was reached; expected ends that rise up to the number of samples"
    )]
    Lists {
        /// The end found.
        end: u64,
        /// The place that was reached.
        start: u64,
    },
    /// Lists are given to a rule that forms batches itself.
    #[error("lists of samples are given, but {rule} forms batches; expected the rule Listed")]
    NotListed {
        /// The name of the rule.
        rule: &'static str,
    },
    /// Runs of neighbours are to be shuffled, but sizes decide which samples share a batch.
    #[error(
        "shuffling runs needs FixedSize and samples of one size, so that neighbours share a batch; found {rule} over \
         samples that differ in size: shuffle samples instead"
    )]
    RunsOfSizes {
        /// The name of the rule.
        rule: &'static str,
    },
    /// A rule for one variable dimension is used with samples that differ in several.
    #[error(
        "{rule} with these options needs samples that differ in one dimension, and these differ in {dimensions}; use \
         TokenBudget without truncation, LengthBuckets or FixedSize"
    )]
    Dimensions {
        /// The name of the rule.
        rule: &'static str,
        /// The number of variable dimensions of a sample.
        dimensions: usize,
    },
    /// A rule that truncates or splits samples is used with sizes of the user's own, which do not tell their lengths.
    #[error("{rule} truncates or splits samples by their length; expected no sizes of your own beside it")]
    ForeignSizes {
        /// The name of the rule.
        rule: &'static str,
    },
    /// Batches cannot be padded to given lengths.
    #[error("pad_to does not go with this: {reason}")]
    PadTo {
        /// The reason, and what is expected.
        reason: String,
    },
    /// A sample is longer than all lengths that batches are padded to.
    #[error(
        "sample {sample} has {size} elements, and the largest length of pad_to is {most}; raise it, or set truncate to \
         \"left\" or \"right\""
    )]
    TooLong {
        /// The first such sample.
        sample: u64,
        /// Its size.
        size: u32,
        /// The largest length.
        most: u32,
    },
    /// A sample exceeds the budget.
    #[error(
        "sample {sample} has size {size}, which{} exceeds max_tokens ({max_tokens}); raise max_tokens, or set \
         oversize to something other than an error",
        if *.multiple_of > 1 { format!(", rounded up to a multiple of {multiple_of},") } else { String::new() }
    )]
    Oversize {
        /// The first such sample.
        sample: u64,
        /// Its size.
        size: u32,
        /// The number that padded lengths are a multiple of.
        multiple_of: u32,
        /// The budget.
        max_tokens: u64,
    },
    /// A pool would hold more samples than can be numbered.
    #[error(
        "a pool would hold {found} samples, or parts of split ones; expected at most {limit}: shuffle, or use a \
         smaller pool or larger batches"
    )]
    PoolTooLarge {
        /// The number of samples in the pool.
        found: u64,
        /// The largest number possible.
        limit: u64,
    },
    /// The number of sizes is not the number of samples.
    #[error("there are {found} sizes for {samples} samples; expected one size for each sample")]
    SizesLength {
        /// The number of sizes given.
        found: u64,
        /// The number of samples in the dataset.
        samples: u64,
    },
    /// The extents of a sample have a product that is too large for a size.
    #[error(
        "sample {sample} has extents {extents:?}, whose product is not below 2^32; expected smaller extents"
    )]
    SizeTooLarge {
        /// The sample.
        sample: u64,
        /// Its extents in the variable dimensions.
        extents: Vec<u32>,
    },
    /// Offsets do not describe sequences.
    #[error(
        "field {field}: sample {sample} ends at {end} and starts at {start}, of {values} values; {expected}"
    )]
    Offsets {
        /// The field.
        field: String,
        /// The first sample that is wrong.
        sample: u64,
        /// The offset of its first value.
        start: i64,
        /// The offset past its last value.
        end: i64,
        /// The number of values.
        values: u64,
        /// The rule that the offsets break.
        expected: &'static str,
    },
    /// Arrow lists hold a null.
    #[error("field {field}: sample {sample} {expected}")]
    ArrowNull {
        /// The field.
        field: String,
        /// The first sample that is null or holds a null.
        sample: usize,
        /// The place of the null, and the remedy.
        expected: &'static str,
    },
    /// An Arrow array does not hold lists of numbers.
    #[error("field {field} {found}; expected {expected}")]
    ArrowType {
        /// The field.
        field: String,
        /// The type found.
        found: String,
        /// The types expected.
        expected: &'static str,
    },
    /// The chunks of an Arrow array do not fit together.
    #[error("field {field}: {reason}")]
    Arrow {
        /// The field.
        field: String,
        /// The reason that Arrow gives.
        reason: String,
    },
    /// Two fields differ in the size of a sample.
    #[error(
        "sample {sample} has extents {found:?} in field {field} but {expected:?} in field {first}; expected fields \
         whose samples are equally long"
    )]
    Ragged {
        /// The field that differs.
        field: String,
        /// The first sample that differs.
        sample: u64,
        /// The extents of the sample in that field.
        found: Vec<u32>,
        /// The first variable field.
        first: String,
        /// The extents of the sample in the first variable field.
        expected: Vec<u32>,
    },
    /// Samples of any shapes are to lie one after the other in an array that is not flat.
    #[error(
        "field {field}: samples of any shapes lie in values of shape {found:?}; expected one compact dimension (make \
         the values contiguous and flat)"
    )]
    NotCompact {
        /// The field.
        field: String,
        /// The shape of the values.
        found: Vec<usize>,
    },
    /// Offsets or columns of sparse rows are no integers of the usual widths.
    #[error("field {field}: its {what} are {found}; expected int32 or int64")]
    SparseType {
        /// The field.
        field: String,
        /// The array: offsets or columns.
        what: &'static str,
        /// The type of its elements.
        found: DType,
    },
    /// A sparse row has an entry outside the matrix.
    #[error("field {field}: row {row} has an entry in column {column}; expected 0 <= column < {columns}")]
    SparseColumn {
        /// The field.
        field: String,
        /// The row.
        row: u64,
        /// The column.
        column: i64,
        /// The number of columns.
        columns: u64,
    },
    /// A sparse row holds a column twice, and its values are of a type that the engine does not add.
    #[error(
        "field {field}: row {row} holds column {column} twice, and {dtype} is not added; expected each column once, or \
         float32"
    )]
    SparseRepeat {
        /// The field.
        field: String,
        /// The row.
        row: u64,
        /// The column.
        column: i64,
        /// The type of the values.
        dtype: DType,
    },
    /// No field of a dataset of sequences varies in length.
    #[error(
        "no field varies in length; expected sequences in at least one (use TensorDataset for rows of one shape)"
    )]
    NotVariable,
    /// Fields with lengths of their own are not what a dataset needs them to be.
    #[error("own_lengths: {reason}")]
    OwnLengths {
        /// The values found and expected, in words.
        reason: String,
    },
    /// A field cannot be concatenated.
    #[error(
        "Packing concatenates along the first dimension; field {field} varies in others: use another rule"
    )]
    NotPackable {
        /// The field.
        field: String,
    },
    /// Labels are requested of a field that does not hold tokens.
    #[error("labels are the next tokens of a field; {reason}")]
    Labels {
        /// The mismatch, in words.
        reason: String,
    },
    /// A padding value differs in size from the elements of its field.
    #[error("the padding of field {field} has {found} bytes; expected {expected}, those of one element")]
    PadValue {
        /// The field.
        field: String,
        /// The number of bytes given.
        found: usize,
        /// The number of bytes of an element.
        expected: usize,
    },
    /// A field cannot be converted as it is asked for.
    #[error("field {field}: {reason}")]
    FieldOption {
        /// The field.
        field: String,
        /// The values found and expected, in words.
        reason: String,
    },
    /// A value of the data does not fit the type that its field has in batches.
    #[error(
        "field {field}{of_sample} holds {value}, which is no {to} when it is converted from {from}; expected values in its \
         range, or another dtype",
        of_sample = sample.map(|sample| format!(", sample {sample},")).unwrap_or_default()
    )]
    Unrepresentable {
        /// The field.
        field: String,
        /// The sample, if it is known.
        sample: Option<u64>,
        /// The value as it is stored.
        value: String,
        /// The type of the data.
        from: DType,
        /// The type in batches.
        to: DType,
    },
    /// The lengths that describe a window are not valid.
    #[error("{reason}")]
    WindowShape {
        /// The values found and expected, in words.
        reason: String,
    },
    /// A group has more rows than it may have.
    #[error(
        "group {group} has {rows} rows, and max_rows is {max_rows}; raise it, or set oversize to truncate or \
         subsample longer groups"
    )]
    GroupTooLong {
        /// The number of the first such group.
        group: u64,
        /// The number of its rows.
        rows: u32,
        /// The largest number allowed.
        max_rows: u32,
    },
    /// Tokens do not make a stream.
    #[error("{reason}")]
    Corpus {
        /// The values found and expected, in words.
        reason: String,
    },
    /// A stream is too short for one piece.
    #[error("the stream has {tokens} tokens; expected at least {least} with seq_len {seq_len}")]
    StreamTooShort {
        /// The number of its tokens, those between documents included.
        tokens: u64,
        /// The least number: a piece wherever it may begin, and the token after it.
        least: u64,
        /// The number of tokens of a piece.
        seq_len: usize,
    },
    /// An option does not go with a stream that continues in the same row from batch to batch.
    #[error("{reason}")]
    Continuous {
        /// The values found and expected, in words.
        reason: String,
    },
    /// An option would divide groups.
    #[error("{reason}")]
    WholeGroups {
        /// The option and its remedy, in words.
        reason: &'static str,
    },
    /// The parts of series are not valid.
    #[error("{reason}")]
    Parts {
        /// The values found and expected, in words.
        reason: String,
    },
    /// A split has no parts.
    #[error("the split has no part; expected at least one")]
    NoParts,
    /// A part takes the rest, and more parts follow it.
    #[error("part {part} takes the rest; expected only the last part to do so")]
    RestBeforeLast {
        /// The part.
        part: String,
    },
    /// A share of a split is out of range, or brings the sum above 1.
    #[error(
        "part {part} is {share}, which brings the shares to {total}; expected shares above 0 that sum to at most 1"
    )]
    PartShare {
        /// The part.
        part: String,
        /// Its share, as text.
        share: String,
        /// The sum of the shares up to this one, as text.
        total: String,
    },
    /// A part of a time split ends at a step that no series has.
    #[error(
        "part {part} is {step}; expected the step at which it ends, from 1 to {longest}, the longest series"
    )]
    PartStep {
        /// The part.
        part: String,
        /// The step at which it was to end.
        step: i64,
        /// The steps of the longest series.
        longest: usize,
    },
    /// The parts of a time split are not in order of time.
    #[error("part {part} ends before the previous part; expected parts in order of time")]
    PartOrder {
        /// The part.
        part: String,
    },
    /// A part of a split holds nothing.
    #[error("part {part} ends at {end} of {count}, where it begins; expected it to hold at least 1")]
    EmptyPart {
        /// The part.
        part: String,
        /// The end of the part: a sample, or a step of the longest series.
        end: u64,
        /// The number of samples, or of steps of the longest series.
        count: u64,
    },
    /// A part of a time split makes no dataset.
    #[error("part {part}: {error}")]
    Part {
        /// The part.
        part: String,
        /// The reason.
        error: Box<Error>,
    },
    /// A series is too short for a window whose targets are all real.
    #[error(
        "series {series} has {length} steps, too few for a window ({count} of {of} series are too short); expected at \
         least {least}, or short to be \"drop\", which leaves such series out, or \"pad\", which makes up \
         targets and marks them in a mask"
    )]
    SeriesTooShort {
        /// The number of the first such series.
        series: u64,
        /// The number of its steps, in the part if it is one.
        length: usize,
        /// The least number of steps: those of all targets, and one of input.
        least: usize,
        /// The number of series that are too short.
        count: u64,
        /// The number of all series.
        of: u64,
    },
    /// All series are too short for a window.
    #[error(
        "all {series} series make no window, which needs at least {least} steps; expected longer series, or shorter \
         windows"
    )]
    NoWindows {
        /// The number of series.
        series: u64,
        /// The least number of steps: those of all targets, and one of input.
        least: usize,
    },
    /// The number of threads is 0.
    #[error("num_threads is 0; expected at least 1")]
    Threads,
    /// A step is past the end of the plan.
    #[error("step {found} is outside the plan; expected 0 <= step < {steps}")]
    StepRange {
        /// The step asked for.
        found: u64,
        /// The number of steps in the plan, on this rank.
        steps: u64,
    },
    /// There are not as many counts of labels as samples, or pieces of samples.
    #[error(
        "label_counts holds {found} numbers; expected {expected}, one for each sample (or for each piece, if they \
             were counted for a rule that truncates or splits)"
    )]
    LabelCountsLength {
        /// The number of counts.
        found: u64,
        /// The number expected.
        expected: u64,
    },
    /// Labels were counted of whole samples, and the rule truncates or splits some.
    #[error(
        "label_counts are those of whole samples, but sample {sample} has {size} elements and {rule} takes {limit} \
             at a time; expected counts for this rule: count_labels with the rule makes them"
    )]
    LabelCountsWhole {
        /// The first sample that is truncated or split.
        sample: u64,
        /// Its size.
        size: u32,
        /// The most elements that a batch takes of it.
        limit: u32,
        /// The name of the rule.
        rule: &'static str,
    },
    /// Labels were counted in pieces of samples that the rule does not make.
    #[error("label_counts are those of pieces of {found} elements, but {rule} {}; expected counts for this rule: \
             count_labels with the rule makes them", .limit.map_or_else(
                 || "takes whole samples".to_owned(), |limit| format!("takes {limit} elements at a time")))]
    LabelCountsPiece {
        /// The number of elements of a piece.
        found: u32,
        /// The most elements that a batch takes of a sample, if it does not take all.
        limit: Option<u32>,
        /// The name of the rule.
        rule: &'static str,
    },
    /// Labels of a field cannot be counted.
    #[error("labels of {field} cannot be counted: {reason}")]
    CountLabels {
        /// The field.
        field: String,
        /// The reason, and what is expected.
        reason: String,
    },
    /// A field has the name of a mark that masked batches hold.
    #[error(
        "field `{name}` has the name of a mark: with uneven \"mask\", batches hold an `index` and a `weight` of their \
         samples; expected another name for the field, or uneven \"pad\" or \"short\""
    )]
    MarkField {
        /// The name.
        name: String,
    },
    /// The number of results is not that of the samples.
    #[error("there are {results} results for {samples} samples; expected one for each")]
    Results {
        /// The results.
        results: usize,
        /// The samples.
        samples: usize,
    },
    /// A sample has no result.
    #[error("sample {sample} has no result; expected one for each sample")]
    MissingResult {
        /// The first such sample.
        sample: u64,
    },
    /// A sample is not in the dataset.
    #[error("sample {found} is outside the dataset; expected 0 <= sample < {samples}")]
    SampleRange {
        /// The sample asked for.
        found: u64,
        /// The number of samples in the dataset.
        samples: u64,
    },
    /// No sample is selected.
    #[error("the selection holds no sample of {samples}; expected at least one")]
    EmptySelection {
        /// The number of samples in the dataset.
        samples: u64,
    },
    /// A selection is not of as many samples as there are to select from.
    #[error("the selection is one of {found} samples; expected one of {expected}, as many as there are")]
    SelectionSamples {
        /// The number of samples that the selection was made for.
        found: u64,
        /// The number of samples to select from.
        expected: u64,
    },
    /// Samples cannot be shared out by strata.
    #[error("{reason}")]
    Strata {
        /// The values found and expected, in words.
        reason: String,
    },
    /// A dataset has no such selections.
    #[error("{reason}")]
    Select {
        /// The reason, and what to do instead.
        reason: String,
    },
    /// Datasets do not fit together.
    #[error("the datasets cannot be put together: {reason}")]
    Concat {
        /// The values found and expected, in words.
        reason: String,
    },
    /// Weights make no sense.
    #[error("{reason}")]
    Weights {
        /// The values found and expected, in words.
        reason: String,
    },
    /// Sources cannot be mixed.
    #[error("{reason}")]
    Mix {
        /// The values found and expected, in words.
        reason: String,
    },
    /// Two options exclude each other.
    #[error("{option} does not go with {other}: {reason}")]
    Conflict {
        /// One option.
        option: &'static str,
        /// The other option.
        other: &'static str,
        /// The reason, and the expectation.
        reason: &'static str,
    },
    /// The state bans samples, and the plan says nothing of any.
    #[error(
        "the state bans {found} samples{}, and here no ban is given; expected a list: the same, another one, or an \
         empty one to lift the ban",
        .first.map(|first| format!(", the first of them {first}")).unwrap_or_default()
    )]
    StateBans {
        /// The number of samples that are banned.
        found: usize,
        /// The first of them.
        first: Option<u64>,
    },
    /// Keys of samples are not one for each sample.
    #[error("{grouping} has {found} keys for {expected} samples; expected one for each")]
    KeysLength {
        /// The option that takes the keys.
        grouping: &'static str,
        /// The number of keys.
        found: u64,
        /// The number of samples.
        expected: u64,
    },
    /// A key is too frequent to come once in a batch.
    #[error(
        "the key of sample {sample} is that of {count} samples, which is more than {batches} batches of {batch_size} have \
         room for, one in each, beside those as frequent; expected smaller batches, or fewer samples of a key"
    )]
    TooFrequent {
        /// The first sample of the key.
        sample: u64,
        /// The number of samples of the key.
        count: u64,
        /// The number of batches of an epoch.
        batches: u64,
        /// The number of samples in a full batch.
        batch_size: u64,
    },
    /// Batches of this kind have no places for samples without weight.
    #[error("samples are banned, which does not go with {option}: {reason}")]
    Bans {
        /// The option that decides how batches are made.
        option: &'static str,
        /// The reason, and the expectation.
        reason: &'static str,
    },
    /// The state was saved with other weights, in the middle of an epoch.
    #[error(
        "the epoch under way was drawn {found}, and samples are drawn {expected} now; expected the same until the epoch ends",
        found = drawn_with(found), expected = drawn_with(expected)
    )]
    StateWeights {
        /// The digest of the weights in the state, if it has some.
        found: Option<String>,
        /// The digest of the weights of the run, if it has some.
        expected: Option<String>,
    },
    /// The state has another format.
    #[error("the state has format version {found}; this release reads version {expected}")]
    StateVersion {
        /// The version in the state.
        found: u32,
        /// The version that can be read.
        expected: u32,
    },
    /// The state belongs to another plan.
    #[error(
        "the state belongs to another plan: its fingerprint is {found}, this plan's is {expected}; expected the same \
         number of samples, batch rule, shuffle, drop_last and uneven as when it was saved; and, for a stream of \
         tokens, the same documents, seq_len and separator, and as many ranks if its rows continue from batch to \
         batch"
    )]
    StateFingerprint {
        /// The fingerprint in the state.
        found: String,
        /// The fingerprint of this plan.
        expected: String,
    },
    /// A batch is to be formed by a plan of other data, or of other options.
    #[error(
        "the plan belongs to other data or has other options: its fingerprint is {found}, that of the loader's plans is \
         {expected}; expected a plan that the loader returned, or the rest of one"
    )]
    ForeignPlan {
        /// The fingerprint of the plan.
        found: String,
        /// The fingerprint of the loader's plans with the seed of the plan.
        expected: String,
    },
    /// The lists of an epoch are not those that a state was saved with.
    #[error(
        "the epoch that the state interrupted had other batches: the digest of their lists is {found}, that of the \
         present ones is {expected}; expected lists that depend on nothing but the epoch, so that they come again"
    )]
    StateLists {
        /// The digest in the state.
        found: String,
        /// The digest of the present lists.
        expected: String,
    },
    /// The state contradicts itself.
    #[error("the state is damaged: {reason}")]
    StateDamaged {
        /// The contradiction, in words.
        reason: String,
    },
    /// Another rank is to be served in the middle of an epoch.
    #[error(
        "{taken} of {total} batches of epoch {epoch} were handed over to rank {} of {}, and now this is rank {rank} of \
         {world_size}; set epoch {epoch} to begin it anew, or epoch {} to go on with the next one, or load the state to \
         share what is left among the ranks of now",
        served.0, served.1, epoch.wrapping_add(1)
    )]
    MidEpoch {
        /// The number of batches handed over.
        taken: u64,
        /// The number of batches that were to come.
        total: u64,
        /// The epoch.
        epoch: u64,
        /// The rank and the number of ranks that were served.
        served: (u32, u32),
        /// The rank to serve.
        rank: u32,
        /// The number of ranks to serve.
        world_size: u32,
    },
    /// A layout reaches outside the memory that it describes.
    #[error(
        "an array of shape {shape:?} and byte strides {strides:?} at offset {offset} reaches outside its memory of \
         {bytes} bytes"
    )]
    Layout {
        /// The lengths of the dimensions.
        shape: Vec<usize>,
        /// The byte strides of the dimensions.
        strides: Vec<isize>,
        /// The byte offset of the first element.
        offset: usize,
        /// The number of bytes of memory.
        bytes: usize,
    },
    /// Values are asked for as those of another type.
    #[error("the elements are {found}, and {asked} were asked for; expected to read them as {found}")]
    ElementType {
        /// The type of the elements.
        found: DType,
        /// The type asked for.
        asked: DType,
    },
    /// Values are asked for that are in memory that this process cannot read.
    #[error(
        "an array of {dtype} of shape {shape:?} is in memory that this process cannot read; expected a copy in memory \
         of this process"
    )]
    Unreadable {
        /// The type of the elements.
        dtype: DType,
        /// The lengths of the dimensions.
        shape: Vec<usize>,
    },
    /// Values are asked for in a line, and do not lie so.
    #[error(
        "an array of {dtype} of shape {shape:?} has byte strides {strides:?}; expected elements in row-major order \
         without gaps: read it row by row, or copy it"
    )]
    Gaps {
        /// The type of the elements.
        dtype: DType,
        /// The lengths of the dimensions.
        shape: Vec<usize>,
        /// The byte strides of the dimensions.
        strides: Vec<isize>,
    },
    /// Values begin at an address at which no value of their type may begin.
    #[error(
        "the elements, {dtype}, begin {past} bytes past a multiple of {expected}; expected them at a multiple: copy \
         the bytes to memory of such elements"
    )]
    Alignment {
        /// The type of the elements.
        dtype: DType,
        /// The bytes from the multiple before them.
        past: usize,
        /// The number that addresses are multiples of.
        expected: usize,
    },
    /// A byte stands for no truth value.
    #[error("byte {place} of an array of bool is {found}; expected 0 or 1, or to read the array as uint8")]
    NotBool {
        /// The place of the byte, from the first element on.
        place: usize,
        /// The byte.
        found: u8,
    },
    /// An array has another number of dimensions than is asked for.
    #[error("an array of shape {shape:?} has {} dimensions; expected {expected}", shape.len())]
    ArrayRank {
        /// The lengths of the dimensions.
        shape: Vec<usize>,
        /// The number of dimensions asked for.
        expected: usize,
    },
    /// Bytes are no file of a format, or one with what cannot be an array here.
    #[error("the bytes are no {format} file of arrays: {reason}")]
    File {
        /// The name of the format.
        format: &'static str,
        /// The part that is wrong.
        reason: String,
    },
    /// A batch has no such field.
    #[error("the batch has no field {name}; expected one of {}", known.join(", "))]
    NoField {
        /// The name asked for.
        name: String,
        /// The names of its fields.
        known: Vec<String>,
    },
    /// Bytes do not fill the shape that they are to have.
    #[error("{found} bytes do not fill the shape {shape:?} of {dtype}, which takes {expected}")]
    ByteCount {
        /// The number of bytes given.
        found: usize,
        /// The type of the elements.
        dtype: DType,
        /// The lengths of the dimensions.
        shape: Vec<usize>,
        /// The number of bytes that the shape takes.
        expected: usize,
    },
    /// An option of the loader does nothing for this kind of data.
    #[error("{option} is set, which this kind of data does not have; expected {expected}")]
    Inapplicable {
        /// The option.
        option: &'static str,
        /// The kind of data that has it.
        expected: &'static str,
    },
    /// The environment of a launcher says no rank.
    #[error(
        "the environment has {found}; expected two integers, RANK below WORLD_SIZE, or neither, or a rank and a world size \
         that are given"
    )]
    Launcher {
        /// The variables.
        found: String,
    },
    /// The text of an option names no choice.
    #[error("{option} is {found:?}; expected {expected}")]
    Choice {
        /// The option.
        option: &'static str,
        /// The text.
        found: String,
        /// The texts that name a choice.
        expected: String,
    },
    /// The number of values does not fill the shape.
    #[error("{values} values do not fill the shape {shape:?}, which holds {expected}")]
    Shape {
        /// The number of values given.
        values: usize,
        /// The lengths of the dimensions.
        shape: Vec<usize>,
        /// The number of values that the shape holds.
        expected: usize,
    },
    /// A batch is larger than this machine can address.
    #[error(
        "a batch of {samples} samples of {} is larger than this machine can address; expected fewer samples in a \
         batch, or smaller ones",
        bytes_of(*row)
    )]
    BatchTooLarge {
        /// The number of samples in the batch.
        samples: u64,
        /// The number of bytes of one sample in the largest field.
        row: usize,
    },
    /// Data is to be resident and exceeds `memory_limit`.
    #[error(
        "resident is True, and the data takes {needed} bytes of a memory_limit of {memory_limit}; set \
         resident to False, which copies blocks as they are needed, or to auto"
    )]
    ResidentLimit {
        /// The number of bytes of the data.
        needed: u64,
        /// The bytes that it may take.
        memory_limit: u64,
    },
    /// Data is to be resident and exceeds the free memory of the device.
    #[error(
        "resident is True, and the data takes {needed} bytes, but {free} are free on {device}{}; set \
         resident to False, which copies blocks as they are needed, or to auto",
        if *.shared > 0 { format!(" (and {shared} of it are there already)") } else { String::new() }
    )]
    DeviceMemory {
        /// The number of bytes of the data.
        needed: u64,
        /// The bytes that are free.
        free: u64,
        /// The bytes of the data that are there already.
        shared: u64,
        /// The device.
        device: String,
    },
    /// A `memory_limit` that would set the size of shards exceeds the free memory.
    #[error(
        "memory_limit is {memory_limit}, but {free} bytes are free on {device}; expected at most that: lower it, \
         give a shard_size, or set resident to False, which copies blocks as they are needed"
    )]
    MemoryLimit {
        /// The limit.
        memory_limit: u64,
        /// The bytes that are free.
        free: u64,
        /// The device.
        device: String,
    },
    /// Two shards exceed `memory_limit`.
    #[error(
        "a shard of {samples} samples takes {bytes} bytes, and two of them have to fit into {limit}, memory_limit; \
         expected a higher one, a smaller shard_size or smaller batches; or set resident to False"
    )]
    ShardTooLarge {
        /// Samples in the shard.
        samples: u64,
        /// The bytes that it takes.
        bytes: u64,
        /// The bytes that two of them may take.
        limit: u64,
    },
    /// The rows of two batches of views exceed the memory that they may take.
    #[error(
        "the rows of a batch of {batch_size} windows take {batch_bytes} bytes, and two batches have to fit into \
         {limit}, {}",
        match device {
            Some(device) => format!("the free memory of {device}; expected smaller batches"),
            None => "memory_limit; expected a higher limit or smaller batches".to_owned(),
        }
    )]
    BatchRows {
        /// Samples in the batch.
        batch_size: u64,
        /// The bytes of its rows.
        batch_bytes: u64,
        /// The bytes that two of them may take.
        limit: u64,
        /// The device, where its free memory is the limit.
        device: Option<String>,
    },
    /// A field is in memory that this process cannot read.
    #[error(
        "field {field} is in memory that this process cannot read; expected a loader of index tables, or a copy in \
         memory of this process"
    )]
    Elsewhere {
        /// The field.
        field: String,
    },
    /// Samples that are made on demand cannot be batched.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Memory could not be allocated.
    #[error(
        "could not allocate {bytes} bytes: {reason}; expected as much free memory: raise the limit of the process or \
         container (ulimit -v), or take smaller batches, a smaller prefetch or less data at once"
    )]
    Memory {
        /// The number of bytes asked for.
        bytes: usize,
        /// The reason that the system gave.
        reason: String,
    },
    /// A worker thread could not be started.
    #[error(
        "could not start a worker thread: {reason}; expected room for one: take a smaller num_threads, or raise the limit \
         of threads (ulimit -u) or of memory (ulimit -v)"
    )]
    Spawn {
        /// The reason that the system gave.
        reason: String,
    },
    /// An invariant was broken while a block was being filled.
    #[error("a worker failed while forming block {block}: {message}; please report this")]
    Worker {
        /// The number of the block that was being filled.
        block: u64,
        /// The failure, in words.
        message: String,
    },
    /// The process was forked while the iterator was running.
    #[error(
        "this iterator was started in process {started} and its threads do not exist in process {current}; start a \
         new iteration after the fork"
    )]
    Forked {
        /// The process that started the threads.
        started: u32,
        /// The process that asked for a batch.
        current: u32,
    },
}

impl Error {
    /// The kind of this error.
    #[expect(clippy::too_many_lines, reason = "a line for each variant")]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Part { error, .. } => error.kind(),
            Self::ArrowType { .. } | Self::SparseType { .. } | Self::ElementType { .. } => Kind::Type,
            Self::BatchSize { .. }
            | Self::World { .. }
            | Self::Rank { .. }
            | Self::NothingLeft { .. }
            | Self::WindowShape { .. }
            | Self::Parts { .. }
            | Self::NoParts
            | Self::Select { .. }
            | Self::Weights { .. }
            | Self::Mix { .. }
            | Self::Conflict { .. }
            | Self::Bans { .. }
            | Self::KeysLength { .. }
            | Self::TooFrequent { .. }
            | Self::Concat { .. }
            | Self::RestBeforeLast { .. }
            | Self::PartShare { .. }
            | Self::PartStep { .. }
            | Self::PartOrder { .. }
            | Self::WholeGroups { .. }
            | Self::Continuous { .. }
            | Self::AllDropped { .. }
            | Self::NotPositive { .. }
            | Self::RuleText { .. }
            | Self::ShardSize { .. }
            | Self::Multiple { .. }
            | Self::Cost { .. }
            | Self::TooFewShapes { .. }
            | Self::AlikeShapes { .. }
            | Self::Measurement { .. }
            | Self::BinTooLarge { .. }
            | Self::NoSizes { .. }
            | Self::EmptyBatch { .. }
            | Self::Lists { .. }
            | Self::NotListed { .. }
            | Self::RunsOfSizes { .. }
            | Self::Dimensions { .. }
            | Self::ForeignSizes { .. }
            | Self::ForeignPlan { .. }
            | Self::PoolTooLarge { .. }
            | Self::NotPackable { .. }
            | Self::OwnLengths { .. }
            | Self::Read(ReadError::UnknownField { .. })
            | Self::PadTo { .. }
            | Self::Labels { .. }
            | Self::LabelCountsLength { .. }
            | Self::LabelCountsWhole { .. }
            | Self::LabelCountsPiece { .. }
            | Self::CountLabels { .. }
            | Self::MarkField { .. }
            | Self::PadValue { .. }
            | Self::NoField { .. }
            | Self::ArrayRank { .. }
            | Self::Inapplicable { .. }
            | Self::Choice { .. }
            | Self::Launcher { .. }
            | Self::FieldOption { .. }
            | Self::Threads
            | Self::BatchTooLarge { .. }
            | Self::ResidentLimit { .. }
            | Self::ShardTooLarge { .. }
            | Self::BatchRows { device: None, .. } => Kind::Argument,
            Self::DeviceMemory { .. }
            | Self::MemoryLimit { .. }
            | Self::BatchRows { device: Some(_), .. } => Kind::Device,
            Self::NoSamples
            | Self::File { .. }
            | Self::Results { .. }
            | Self::MissingResult { .. }
            | Self::ArrowNull { .. }
            | Self::Arrow { .. }
            | Self::NoFields
            | Self::Elsewhere { .. }
            | Self::DuplicateField { .. }
            | Self::ScalarField { .. }
            | Self::FieldLength { .. }
            | Self::TooManySamples { .. }
            | Self::Oversize { .. }
            | Self::TooLong { .. }
            | Self::SizesLength { .. }
            | Self::SizeTooLarge { .. }
            | Self::Offsets { .. }
            | Self::Ragged { .. }
            | Self::NotCompact { .. }
            | Self::SparseColumn { .. }
            | Self::SparseRepeat { .. }
            | Self::NotVariable
            | Self::SeriesTooShort { .. }
            | Self::EmptyPart { .. }
            | Self::EmptySelection { .. }
            | Self::SelectionSamples { .. }
            | Self::Strata { .. }
            | Self::GroupTooLong { .. }
            | Self::Corpus { .. }
            | Self::StreamTooShort { .. }
            | Self::NoWindows { .. }
            | Self::Read(_)
            | Self::Layout { .. }
            | Self::Unreadable { .. }
            | Self::Gaps { .. }
            | Self::Alignment { .. }
            | Self::NotBool { .. }
            | Self::ByteCount { .. }
            | Self::Unrepresentable { .. }
            | Self::Shape { .. } => Kind::Data,
            Self::StepRange { .. } | Self::SampleRange { .. } => Kind::Range,
            Self::StateVersion { .. }
            | Self::StateFingerprint { .. }
            | Self::StateLists { .. }
            | Self::StateWeights { .. }
            | Self::StateBans { .. }
            | Self::StateDamaged { .. } => Kind::State,
            Self::Memory { .. } => Kind::Memory,
            Self::Spawn { .. } | Self::Worker { .. } | Self::Forked { .. } | Self::MidEpoch { .. } => {
                Kind::Runtime
            }
        }
    }
}

/// Weights as a message names them.
fn drawn_with(digest: &Option<String>) -> String {
    digest.as_ref().map_or("without weights".to_owned(), |digest| format!("by weights of digest {digest}"))
}

/// A number of bytes in words; `usize::MAX` stands for more than there are addresses.
fn bytes_of(bytes: usize) -> String {
    if bytes == usize::MAX { format!("more than {bytes} bytes") } else { format!("{bytes} bytes") }
}

/// The multiples of `step` next to `number`, without 0.
fn nearest(number: u64, step: u64) -> String {
    let below = number - number % step;
    match (below, below.checked_add(step)) {
        (0, above) => format!("{}", above.unwrap_or(step)),
        (below, Some(above)) => format!("{below} or {above}"),
        (below, None) => format!("{below}"),
    }
}
