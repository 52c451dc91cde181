//! The numbers of labels that losses do not ignore, so that every rank knows the divisor of a step's loss.
//!
//! Labels that a loader makes follow from sizes. Where a field of the data is the labels, and some of them are -100,
//! they have to be counted once: [`Dataset::count_labels`](crate::dataset::Dataset::count_labels) does it.

use std::sync::Arc;

use super::error::BatchingCause;
use super::{Rule, Sizes};
use crate::Result;

/// The number of labels of each sample that losses do not ignore.
#[derive(Clone, PartialEq, Eq)]
pub struct LabelCounts {
    counts: Arc<[u32]>,
    piece: Option<u32>,
}

crate::brief::debug_in_brief!(LabelCounts, [piece], [counts]);

impl LabelCounts {
    /// One number for each sample.
    pub fn new(counts: impl Into<Arc<[u32]>>) -> Self {
        Self { counts: counts.into(), piece: None }
    }

    /// One number for each piece of each sample, for a rule that truncates or splits samples. A sample has a piece for
    /// every `piece` of its elements, the last one smaller, and at least one.
    pub fn of_pieces(counts: impl Into<Arc<[u32]>>, piece: u32) -> Self {
        Self { counts: counts.into(), piece: Some(piece) }
    }

    /// The numbers.
    pub fn as_slice(&self) -> &[u32] {
        &self.counts
    }

    /// The number of elements of a piece, or `None` if each number counts a whole sample.
    pub fn piece(&self) -> Option<u32> {
        self.piece
    }
}

/// The labels of batches that losses do not ignore.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Labels {
    /// Each element has the next one as its label, and the last one that a batch takes of a sample has none.
    Next,
    /// Every sample has the same number.
    Each(u64),
    /// Samples have `each`, but the last ones: from sample `from` on the first `longer` have `last`, and the others one
    /// less. These are the ends of the rows of a stream.
    Last {
        /// The number of labels of all samples before `from`.
        each: u64,
        /// The first of the last samples.
        from: u64,
        /// The number of those that have `last` labels.
        longer: u64,
        /// The number of labels of these.
        last: u64,
    },
    /// They were counted.
    Counted(LabelCounts),
}

impl Labels {
    /// The number of labels of a sample; the last samples may have fewer. 0 for labels of another variant.
    pub(crate) fn of_last(&self, sample: u64) -> u64 {
        match *self {
            Self::Last { each, from, .. } if sample < from => each,
            Self::Last { from, longer, last, .. } => {
                if sample - from < longer {
                    last
                } else {
                    last.saturating_sub(1)
                }
            }
            _ => 0,
        }
    }
}

impl From<LabelCounts> for Labels {
    fn from(counts: LabelCounts) -> Self {
        Self::Counted(counts)
    }
}

/// The labels of the samples of a plan.
#[derive(Clone)]
pub(crate) struct SampleLabels {
    labels: Labels,
    /// The first piece of each sample, if counts are of pieces.
    first: Option<Arc<[u64]>>,
    /// The number of elements that batches take of each sample, if what one has no room for is continued in later ones:
    /// the last element of a part then has the first one of the next as its label.
    continued: Option<Arc<[u32]>>,
}

crate::brief::debug_in_brief!(SampleLabels, [labels], [first, continued]);

impl SampleLabels {
    /// Checks that counts, if labels were counted, fit `samples` samples of these sizes, as `rule` takes them: at
    /// most `most` elements of each.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if they are not.
    pub(crate) fn new(
        labels: Labels,
        samples: u64,
        sizes: Option<&Sizes>,
        rule: &Rule,
        most: Option<u32>,
    ) -> Result<Self> {
        let limit = rule.limit(sizes);
        let sizes = sizes.map_or(&[][..], Sizes::as_slice);
        if rule.continues() {
            return match labels {
                Labels::Next => {
                    let taken: Vec<u32> = sizes.iter().map(|&size| rule.count_taken(size)).collect();
                    Ok(Self { labels, first: None, continued: Some(taken.into()) })
                }
                _ => Err(BatchingCause::LabelCountsContinued { rule: rule.name() }.into()),
            };
        }
        let Labels::Counted(counts) = &labels else {
            return Ok(Self { labels, first: None, continued: None });
        };
        let numbers = counts.as_slice().len() as u64;
        let (first, expected) = match counts.piece() {
            None => {
                check_whole(sizes, rule, limit, most)?;
                (None, samples)
            }
            Some(piece) if limit == Some(piece) => {
                let mut pieces_before = 0;
                let starts = sizes.iter().map(|&size| {
                    let start = pieces_before;
                    pieces_before += u64::from(pieces(size, piece));
                    start
                });
                (Some(starts.collect()), pieces_before)
            }
            Some(piece) => {
                return Err(BatchingCause::LabelCountsPiece { found: piece, limit, rule: rule.name() }.into());
            }
        };
        match numbers == expected {
            true => Ok(Self { labels, first, continued: None }),
            false => Err(BatchingCause::LabelCountsLength { found: numbers, expected }.into()),
        }
    }

    /// The labels as they were given.
    pub(crate) fn labels(&self) -> &Labels {
        &self.labels
    }

    /// The number of labels of parts of samples, which begin with elements `starts` and have `sizes` elements.
    pub(crate) fn of(&self, samples: &[u64], starts: &[u32], sizes: &[u32]) -> u64 {
        match &self.labels {
            Labels::Each(labels) => labels * samples.len() as u64,
            _ => self.each(samples, starts, sizes).iter().sum(),
        }
    }

    /// The number of labels of each of these parts.
    pub(crate) fn each(&self, samples: &[u64], starts: &[u32], sizes: &[u32]) -> Vec<u64> {
        match &self.labels {
            Labels::Next if self.continued.is_some() => {
                let whole = |sample: u64| self.continued.as_ref().map_or(0, |taken| taken[to_index(sample)]);
                let parts = samples.iter().zip(starts).zip(sizes);
                parts
                    .map(|((&sample, start), &size)| {
                        u64::from(size.saturating_sub(u32::from(start + size >= whole(sample))))
                    })
                    .collect()
            }
            Labels::Next => sizes.iter().map(|&size| u64::from(size.saturating_sub(1))).collect(),
            Labels::Each(labels) => vec![*labels; samples.len()],
            Labels::Last { .. } => samples.iter().map(|&sample| self.labels.of_last(sample)).collect(),
            Labels::Counted(counts) => {
                let parts = samples.iter().zip(starts);
                parts.map(|(&sample, &start)| counts.as_slice()[self.place(sample, start)].into()).collect()
            }
        }
    }

    /// The place of the count of the part of `sample` that begins with element `start`.
    fn place(&self, sample: u64, start: u32) -> usize {
        match (&self.labels, &self.first) {
            (Labels::Counted(LabelCounts { piece: Some(piece), .. }), Some(first)) => {
                to_index(first[to_index(sample)] + u64::from(start / piece))
            }
            _ => to_index(sample),
        }
    }
}

/// A number of a sample, or of a piece, as an index.
fn to_index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Refuses counts of whole samples if some of these sizes are truncated or split.
fn check_whole(sizes: &[u32], rule: &Rule, limited: Option<u32>, most: Option<u32>) -> Result<()> {
    let Some(limit) = most else { return Ok(()) };
    match (0..).zip(sizes).find(|(_, size)| **size > limit) {
        Some((sample, &size)) if limited.is_none() => {
            Err(BatchingCause::LabelCountsPadded { sample, size, limit }.into())
        }
        Some((sample, &size)) => {
            Err(BatchingCause::LabelCountsWhole { sample, size, limit, rule: rule.name() }.into())
        }
        None => Ok(()),
    }
}

/// The number of pieces of a sample.
pub(crate) fn pieces(size: u32, piece: u32) -> u32 {
    size.div_ceil(piece).max(1)
}
