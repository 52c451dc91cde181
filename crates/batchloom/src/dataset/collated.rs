//! `Collated`: the fields of a batch of samples that are made on demand, once they are read or before.

use std::sync::Arc;

use super::collation::{CollateOptions, Collation};
use super::map::reading::{SampleLayout, Skipped};

/// The fields of a batch that was read.
#[derive(Debug)]
pub(crate) struct Collated {
    pub(crate) collation: Collation,
    /// The options, with what depends on the types of samples.
    pub(crate) options: CollateOptions,
    /// True for each member that is left out, if batches mark these.
    pub(crate) marks: Option<Arc<[bool]>>,
    pub(crate) skipped: Skipped,
    /// The sample that later samples are compared to, and its layout.
    pub(crate) first: Option<(u64, SampleLayout)>,
}

/// The fields of batches that are laid out before their samples are read.
#[derive(Debug)]
pub(crate) struct CollatedAhead {
    pub(crate) collated: Collated,
    /// True if samples go into their slots as they are, so that a reader puts them there.
    pub(crate) as_read: bool,
    /// True for each field that is as long as the size of its sample, if samples are copied from chunks that are held.
    pub(crate) held: Option<Vec<bool>>,
}
