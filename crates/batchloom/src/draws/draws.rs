//! `Draws`: the sample at each position of an epoch.

use super::mixed::Mixed;
use super::per_class::PerClass;
use super::stream::Stream;
use super::weighted::Weighted;
use crate::order::{ChunkWindow, Order, Shards};

/// The samples of an epoch, position by position.
#[derive(Debug)]
pub(crate) enum Draws {
    /// Every sample once.
    Once(Order),
    /// Samples of one source, pass after pass, from place `first` on.
    Passes {
        /// The passes.
        stream: Stream,
        /// The number of samples drawn in earlier epochs.
        first: u64,
        /// The number of samples to draw.
        len: u64,
    },
    /// Samples in proportion to their weights.
    Weighted(Weighted),
    /// Samples of several sources.
    Mixed(Box<Mixed>),
    /// Samples of classes, several in a row.
    PerClass(Box<PerClass>),
}

impl Draws {
    /// The number of positions.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Once(order) => order.len(),
            Self::Passes { len, .. } => *len,
            Self::Weighted(weighted) => weighted.len(),
            Self::Mixed(mixed) => mixed.len(),
            Self::PerClass(classes) => classes.len(),
        }
    }

    /// The shards, if every sample is drawn once, shard by shard.
    pub(crate) fn shards(&self) -> Option<&Shards> {
        match self {
            Self::Once(order) => order.shards(),
            _ => None,
        }
    }

    /// The window over chunks, if samples are read chunk by chunk.
    pub(crate) fn chunk_window(&self) -> Option<&ChunkWindow> {
        match self {
            Self::Once(order) => order.chunk_window(),
            _ => None,
        }
    }

    /// Fills `out` with the samples at positions `start`, `start + 1`, and so on.
    pub(crate) fn fill(&self, start: u64, out: &mut [u64]) {
        match self {
            Self::Once(order) => order.fill(start, out),
            Self::Passes { stream, first, .. } => stream.fill(*first, start, out),
            Self::Weighted(weighted) => weighted.fill(start, out),
            Self::Mixed(mixed) => mixed.fill(start, out),
            Self::PerClass(classes) => classes.fill(start, out),
        }
    }

    /// The positions of a sample.
    pub(crate) fn find(&self, sample: u64) -> Vec<u64> {
        let mut positions = match self {
            Self::Once(order) => vec![order.find(sample)],
            Self::Passes { stream, first, len } => stream.find(sample, *first, *len).collect(),
            Self::Weighted(weighted) => weighted.find(sample),
            Self::Mixed(mixed) => mixed.find(sample),
            Self::PerClass(classes) => classes.find(sample),
        };
        positions.sort_unstable();
        positions
    }

    /// The first position of a sample, without a look at those after it: a small source of a mixture may pass thousands
    /// of times.
    pub(crate) fn find_first(&self, sample: u64) -> Option<u64> {
        match self {
            Self::Passes { stream, first, len } => stream.find(sample, *first, *len).next(),
            Self::Mixed(mixed) => mixed.find_first(sample),
            _ => self.find(sample).first().copied(),
        }
    }
}
