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
    #[error("world is {found}; expected the number of processes, 1 to {limit}")]
    World {
        /// The number asked for.
        found: u32,
        /// The largest number possible.
        limit: u32,
    },
    /// A rank names one of `world` processes.
    #[error("rank is {rank} in a world of {world}; expected 0 <= rank < {world}")]
    Rank {
        /// The rank asked for.
        rank: u32,
        /// The number of processes.
        world: u32,
    },
    /// `drop_last` would drop everything.
    #[error(
        "drop_last leaves no step: {samples} samples make {batches} full batches of {batch_size}, fewer than one for \
         each of {world} ranks; use a smaller batch_size or drop_last=False"
    )]
    NothingLeft {
        /// Samples in the dataset.
        samples: u64,
        /// Samples in a batch.
        batch_size: u64,
        /// Full batches.
        batches: u64,
        /// Ranks to serve.
        world: u32,
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
         number of samples, batch rule, shuffle, drop_last and uneven as when it was saved"
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
            | Self::Threads
            | Self::Prefetch
            | Self::BatchTooLarge { .. } => Kind::Argument,
            Self::NoSamples
            | Self::NoFields
            | Self::DuplicateField { .. }
            | Self::ScalarField { .. }
            | Self::FieldLength { .. }
            | Self::TooManySamples { .. }
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
