//! What can go wrong, as facts with values.
//!
//! One enum for the crate, a variant for each cause. A message says what was found, what was expected and what to
//! change. [`Error::kind`] sorts the causes into the few kinds that a caller treats differently; the Python package
//! makes one exception class of each.

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kinds of failure that a caller may want to tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// An argument or a combination of arguments makes no sense.
    Argument,
    /// The data cannot be batched: lengths differ, there is none, its layout leaves its memory.
    Data,
    /// An index lies outside what it indexes.
    Range,
    /// A saved state does not belong here.
    State,
    /// The machinery failed: memory, threads, a forked process.
    Runtime,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A batch has to hold something.
    #[error("batch_size is {found}; expected at least 1")]
    BatchSize {
        /// The size asked for.
        found: u64,
    },
    /// There is nothing to iterate.
    #[error(
        "the dataset has no samples; expected at least 1 (check the filter or the path that produced it)"
    )]
    NoSamples,
    /// A dataset without fields has no length.
    #[error("the dataset has no fields; expected at least one array")]
    NoFields,
    /// Two fields go by one name.
    #[error("field `{name}` is given twice; expected distinct names")]
    DuplicateField {
        /// The repeated name.
        name: String,
    },
    /// A field without a first dimension cannot be indexed by sample.
    #[error("field {field} is a scalar; expected an array whose first dimension counts the samples")]
    ScalarField {
        /// The field, by name or by place.
        field: String,
    },
    /// Every field needs one row for each sample.
    #[error(
        "field {field} has {found} rows but field {first} has {expected}; expected the same number of samples in \
         every field"
    )]
    FieldLength {
        /// The field that differs.
        field: String,
        /// Its rows.
        found: usize,
        /// The first field.
        first: String,
        /// The rows of the first field.
        expected: usize,
    },
    /// More samples than positions can be numbered.
    #[error("{found} samples are more than this version can order; expected at most {limit} (2^62)")]
    TooManySamples {
        /// The samples asked for.
        found: u64,
        /// The largest number possible.
        limit: u64,
    },
    /// A job has at least one process, and not more than can be listed.
    #[error("world_size is {found}; expected the number of processes, 1 to {limit}")]
    World {
        /// The number asked for.
        found: u32,
        /// The largest number possible.
        limit: u32,
    },
    /// A rank names one of `world_size` processes.
    #[error("rank is {rank} in a world of {world_size}; expected 0 <= rank < {world_size}")]
    Rank {
        /// The rank asked for.
        rank: u32,
        /// The number of processes.
        world_size: u32,
    },
    /// `drop_last` would drop everything.
    #[error(
        "drop_last leaves no step: {samples} samples make {batches} full batches{}, fewer than one for each of {world_size} \
         ranks; use smaller batches or drop_last=False",
        .batch_size.map(|size| format!(" of {size}")).unwrap_or_default()
    )]
    NothingLeft {
        /// Samples in the dataset.
        samples: u64,
        /// Samples in a batch, where all full batches hold as many.
        batch_size: Option<u64>,
        /// Full batches.
        batches: u64,
        /// Ranks to serve.
        world_size: u32,
    },
    /// Every sample is larger than a batch may be.
    #[error("oversize=\"drop\" leaves nothing: all {samples} samples exceed max_tokens={max_tokens}")]
    AllDropped {
        /// Samples in the dataset.
        samples: u64,
        /// The budget.
        max_tokens: u64,
    },
    /// A parameter of a rule has to be at least 1.
    #[error("{name} is 0; expected at least 1")]
    NotPositive {
        /// The parameter.
        name: &'static str,
    },
    /// A shard that would divide a batch.
    #[error(
        "shard_size is {found}; expected a multiple of the batch size, which is {batch_size}, so that no batch lies in two \
         shards: {}",
        nearest(*.found, *.batch_size)
    )]
    ShardSize {
        /// The samples in a shard asked for.
        found: u64,
        /// Samples in a batch.
        batch_size: u64,
    },
    /// Padded lengths are multiples of something larger than a batch may be.
    #[error("multiple_of is {multiple_of}, so that no padded sample fits into max_tokens={max_tokens}")]
    Multiple {
        /// What padded lengths are a multiple of.
        multiple_of: u32,
        /// The budget.
        max_tokens: u64,
    },
    /// A cost that is none.
    #[error(
        "the coefficients (fixed, per_token, per_pair) of the cost model are ({found}); expected finite numbers of at \
         least 0, not all 0"
    )]
    Cost {
        /// The coefficients.
        found: String,
    },
    /// A bin whose elements cannot be numbered by 32 bits, or whose free space takes too much memory to keep.
    #[error("max_tokens is {found}; expected at most {limit} (2^28) where samples are packed")]
    BinTooLarge {
        /// The capacity asked for.
        found: u64,
        /// The largest possible.
        limit: u32,
    },
    /// A rule that decides by size was given no sizes.
    #[error("{rule} decides by size, and the samples have none; use FixedSize, or data with sizes")]
    NoSizes {
        /// The rule.
        rule: &'static str,
    },
    /// Runs of neighbours, by a rule that sorts.
    #[error(
        "shuffle=\"runs\" keeps neighbours of one size together, as FixedSize cuts them; {rule} over samples that differ in \
         size does not"
    )]
    RunsOfSizes {
        /// The rule.
        rule: &'static str,
    },
    /// A rule for one variable dimension.
    #[error(
        "{rule} as asked for needs samples that differ in one dimension, and these differ in {dimensions}; use TokenBudget \
         without truncation, LengthBuckets or FixedSize"
    )]
    Dimensions {
        /// The rule.
        rule: &'static str,
        /// Variable dimensions of a sample.
        dimensions: usize,
    },
    /// Sizes that are the user's own do not say where to cut a sample.
    #[error("{rule} truncates or splits samples by their length; expected no sizes= of your own beside it")]
    ForeignSizes {
        /// The rule.
        rule: &'static str,
    },
    /// A sample that exceeds the budget.
    #[error(
        "sample {sample} has size {size}, which{} exceeds max_tokens={max_tokens}; raise max_tokens, or say by oversize= what \
         to do with it",
        if *.multiple_of > 1 { format!(", rounded up to a multiple of {multiple_of},") } else { String::new() }
    )]
    Oversize {
        /// The first such sample.
        sample: u64,
        /// Its size.
        size: u32,
        /// What padded lengths are a multiple of.
        multiple_of: u32,
        /// The budget.
        max_tokens: u64,
    },
    /// A pool with more samples than can be numbered.
    #[error(
        "a pool would hold {found} samples, or parts of split ones; expected at most {limit}: shuffle, use a smaller pool, \
         or larger batches"
    )]
    PoolTooLarge {
        /// Samples in the pool.
        found: u64,
        /// The largest number possible.
        limit: u64,
    },
    /// There is one size for each sample.
    #[error("there are {found} sizes for {samples} samples; expected one for each")]
    SizesLength {
        /// Sizes given.
        found: u64,
        /// Samples in the dataset.
        samples: u64,
    },
    /// A size that is no number of elements.
    #[error("sample {sample} has extents {extents:?}, whose product is not below 2^32")]
    SizeTooLarge {
        /// The sample.
        sample: u64,
        /// Its extents in the variable dimensions.
        extents: Vec<u32>,
    },
    /// Offsets that do not describe sequences.
    #[error(
        "field {field}: sample {sample} ends at {end} and starts at {start}, of {values} values; {expected}"
    )]
    Offsets {
        /// The field.
        field: String,
        /// The first sample that is wrong.
        sample: u64,
        /// Its first value.
        start: i64,
        /// The value after its last.
        end: i64,
        /// How many values there are.
        values: u64,
        /// What was expected.
        expected: &'static str,
    },
    /// Fields whose samples differ in size.
    #[error(
        "sample {sample} has extents {found:?} in field {field} but {expected:?} in field {first}; expected fields \
         whose samples are equally long"
    )]
    Ragged {
        /// The field that differs.
        field: String,
        /// The first sample that differs.
        sample: u64,
        /// Its extents there.
        found: Vec<u32>,
        /// The first variable field.
        first: String,
        /// Its extents in the first variable field.
        expected: Vec<u32>,
    },
    /// Values of any shapes, one after the other, in an array that is not flat.
    #[error(
        "field {field}: samples of any shapes lie in values of shape {found:?}; expected one compact dimension (make them \
         contiguous and flat)"
    )]
    NotCompact {
        /// The field.
        field: String,
        /// The shape of the values.
        found: Vec<usize>,
    },
    /// No field varies.
    #[error(
        "no field varies in length; expected a sequence in at least one (for rows of one shape, TensorDataset)"
    )]
    NotVariable,
    /// A field that cannot be concatenated.
    #[error("Packing concatenates along the first dimension; field {field} varies in others")]
    NotPackable {
        /// The field.
        field: String,
    },
    /// Labels that are no tokens.
    #[error("labels are the next tokens of a field; {reason}")]
    Labels {
        /// What does not fit.
        reason: String,
    },
    /// A padding value of another size than the elements it stands for.
    #[error("the padding of field {field} has {found} bytes; expected {expected}, those of one element")]
    PadValue {
        /// The field.
        field: String,
        /// Bytes given.
        found: usize,
        /// Bytes of an element.
        expected: usize,
    },
    /// Windows that make no sense.
    #[error("{reason}")]
    WindowShape {
        /// What was found and expected.
        reason: String,
    },
    /// A group with more rows than it may have.
    #[error(
        "group {group} has {rows} rows, and max_rows is {max_rows}; raise it, or let longer groups be truncated or \
         subsampled"
    )]
    GroupTooLong {
        /// The first such group, by its number.
        group: u64,
        /// Its rows.
        rows: u32,
        /// The limit.
        max_rows: u32,
    },
    /// Tokens that make no stream.
    #[error("{reason}")]
    Corpus {
        /// What was found and expected.
        reason: String,
    },
    /// A stream without a whole piece.
    #[error("the stream has {tokens} tokens; expected at least one more than seq_len, which is {seq_len}")]
    StreamTooShort {
        /// Its tokens, those between documents included.
        tokens: u64,
        /// Tokens of a piece.
        seq_len: usize,
    },
    /// Options that do not go with rows of a stream that go on.
    #[error("{reason}")]
    Continuous {
        /// What was found and expected.
        reason: String,
    },
    /// Groups stay whole.
    #[error("{reason}")]
    WholeGroups {
        /// What was found and expected.
        reason: &'static str,
    },
    /// Parts of series that are none.
    #[error("{reason}")]
    Parts {
        /// What was found and expected.
        reason: String,
    },
    /// A series without a window.
    #[error(
        "series {series} has {length} steps, and a window takes {span} (input_len + gap + horizon); use shorter windows, \
         short=\"pad\" or short=\"skip\""
    )]
    SeriesTooShort {
        /// The first such series.
        series: u64,
        /// Its steps.
        length: usize,
        /// Steps of a window.
        span: usize,
    },
    /// No series has a window.
    #[error(
        "none of {series} series has the {span} steps of a window; use shorter windows, or short=\"pad\""
    )]
    NoWindows {
        /// How many series there are.
        series: u64,
        /// Steps of a window.
        span: usize,
    },
    /// There has to be something that works.
    #[error("num_threads is 0; expected at least 1")]
    Threads,
    /// There has to be something to hand over.
    #[error("prefetch is 0; expected at least 1 block")]
    Prefetch,
    /// A step beyond the end of the plan.
    #[error("step {found} is outside the plan; expected 0 <= step < {steps}")]
    StepRange {
        /// The step asked for.
        found: u64,
        /// Steps in the plan, on this rank.
        steps: u64,
    },
    /// A sample that the dataset does not have.
    #[error("sample {found} is outside the dataset; expected 0 <= sample < {samples}")]
    SampleRange {
        /// The sample asked for.
        found: u64,
        /// Samples in the dataset.
        samples: u64,
    },
    /// The state was written by another format.
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
         number of samples, batch rule, shuffle, drop_last and uneven as when it was saved; of a stream of tokens, the same \
         documents, seq_len and separator, and as many ranks where its rows go on"
    )]
    StateFingerprint {
        /// The fingerprint in the state.
        found: String,
        /// The fingerprint of the plan that was to take it.
        expected: String,
    },
    /// The state contradicts itself.
    #[error("the state is damaged: {reason}")]
    StateDamaged {
        /// What does not fit.
        reason: String,
    },
    /// A layout that reaches outside the memory it describes.
    #[error(
        "an array of shape {shape:?} and byte strides {strides:?} at offset {offset} reaches outside its memory of \
         {bytes} bytes"
    )]
    Layout {
        /// Lengths of the dimensions.
        shape: Vec<usize>,
        /// Byte strides of the dimensions.
        strides: Vec<isize>,
        /// Byte offset of the first element.
        offset: usize,
        /// Bytes of memory.
        bytes: usize,
    },
    /// A shape that does not fit the number of values.
    #[error("{values} values do not fill the shape {shape:?}, which holds {expected}")]
    Shape {
        /// Values given.
        values: usize,
        /// Lengths of the dimensions.
        shape: Vec<usize>,
        /// Values that the shape holds.
        expected: usize,
    },
    /// A batch larger than memory can be addressed.
    #[error(
        "a batch of {samples} samples of {row} bytes is larger than this machine can address; use a smaller batch_size"
    )]
    BatchTooLarge {
        /// Samples in the batch.
        samples: u64,
        /// Bytes of one sample in the largest field.
        row: usize,
    },
    /// What is to be read is in memory that this process cannot read.
    #[error(
        "field {field} is in memory that this process cannot read; expected a loader of addresses, or a copy of it"
    )]
    Elsewhere {
        /// The field.
        field: String,
    },
    /// The operating system gave no memory.
    #[error("could not allocate a block of {bytes} bytes: {reason}")]
    Memory {
        /// Bytes asked for.
        bytes: usize,
        /// What the system said.
        reason: String,
    },
    /// The operating system gave no thread.
    #[error("could not start a worker thread: {reason}")]
    Spawn {
        /// What the system said.
        reason: String,
    },
    /// A worker met a broken invariant.
    #[error("a worker failed while forming block {block}: {message}; please report this")]
    Worker {
        /// The block that was being formed.
        block: u64,
        /// What the worker said.
        message: String,
    },
    /// The process was forked under a running iterator.
    #[error(
        "this iterator was started in process {started} and its threads do not exist in process {current}; call \
         iter(loader) again after the fork"
    )]
    Forked {
        /// The process that started the threads.
        started: u32,
        /// The process that asked for a batch.
        current: u32,
    },
}

impl Error {
    /// The kind of this failure.
    pub fn kind(&self) -> Kind {
        match self {
            Self::BatchSize { .. }
            | Self::World { .. }
            | Self::Rank { .. }
            | Self::NothingLeft { .. }
            | Self::WindowShape { .. }
            | Self::Parts { .. }
            | Self::WholeGroups { .. }
            | Self::Continuous { .. }
            | Self::AllDropped { .. }
            | Self::NotPositive { .. }
            | Self::ShardSize { .. }
            | Self::Multiple { .. }
            | Self::Cost { .. }
            | Self::BinTooLarge { .. }
            | Self::NoSizes { .. }
            | Self::RunsOfSizes { .. }
            | Self::Dimensions { .. }
            | Self::ForeignSizes { .. }
            | Self::PoolTooLarge { .. }
            | Self::NotPackable { .. }
            | Self::Labels { .. }
            | Self::PadValue { .. }
            | Self::Threads
            | Self::Prefetch
            | Self::BatchTooLarge { .. } => Kind::Argument,
            Self::NoSamples
            | Self::NoFields
            | Self::Elsewhere { .. }
            | Self::DuplicateField { .. }
            | Self::ScalarField { .. }
            | Self::FieldLength { .. }
            | Self::TooManySamples { .. }
            | Self::Oversize { .. }
            | Self::SizesLength { .. }
            | Self::SizeTooLarge { .. }
            | Self::Offsets { .. }
            | Self::Ragged { .. }
            | Self::NotCompact { .. }
            | Self::NotVariable
            | Self::SeriesTooShort { .. }
            | Self::GroupTooLong { .. }
            | Self::Corpus { .. }
            | Self::StreamTooShort { .. }
            | Self::NoWindows { .. }
            | Self::Layout { .. }
            | Self::Shape { .. } => Kind::Data,
            Self::StepRange { .. } | Self::SampleRange { .. } => Kind::Range,
            Self::StateVersion { .. } | Self::StateFingerprint { .. } | Self::StateDamaged { .. } => {
                Kind::State
            }
            Self::Memory { .. } | Self::Spawn { .. } | Self::Worker { .. } | Self::Forked { .. } => {
                Kind::Runtime
            }
        }
    }
}

/// The multiples of `step` around `number`, 0 aside.
fn nearest(number: u64, step: u64) -> String {
    let below = number - number % step;
    match (below, below.checked_add(step)) {
        (0, above) => format!("{}", above.unwrap_or(step)),
        (below, Some(above)) => format!("{below} or {above}"),
        (below, None) => format!("{below}"),
    }
}
