//! The kinds of errors.

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
