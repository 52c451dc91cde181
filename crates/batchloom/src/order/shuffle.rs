//! The choice of what a run shuffles.

use serde::{Serialize, Serializer};

use crate::named::named;

/// The things that each epoch puts in another random order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Shuffle {
    /// No shuffle: samples are used as stored.
    #[default]
    Nothing,
    /// The samples.
    Samples,
    /// The batches, each a run of neighbouring samples as stored. Runs begin at another sample in each epoch, so that
    /// samples get new neighbours, and the first run may be short as well as the last. With shards, they begin where
    /// their shard does.
    Runs,
}

impl From<bool> for Shuffle {
    fn from(shuffle: bool) -> Self {
        match shuffle {
            true => Self::Samples,
            false => Self::Nothing,
        }
    }
}

impl Shuffle {
    /// The name of this choice in Python.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Samples => "samples",
            Self::Runs => "runs",
        }
    }
}

named!(Shuffle, "shuffle", {
    "nothing" => Nothing,
    "samples" => Samples,
    "runs" => Runs,
});

impl Serialize for Shuffle {
    /// Writes the choice as Python spells it: a boolean, or the name.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Nothing => serializer.serialize_bool(false),
            Self::Samples => serializer.serialize_bool(true),
            Self::Runs => serializer.serialize_str("runs"),
        }
    }
}
