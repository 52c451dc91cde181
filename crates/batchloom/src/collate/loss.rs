//! The weight of each label in the loss of an update, and the number that this loss is divided by.
//!
//! Promise: the sum over an update of weight times term is the loss of one large batch, however its samples are divided
//! among batches, ranks and steps. A label has no weight if it is [`IGNORED`], padding, or of a member that does not
//! count.

use std::ops::Range;
use std::sync::Arc;

use super::labels::IGNORED;
use super::{Form, Members, RowUnit};
use crate::{DType, Result, memory};

/// The weights of labels that another form makes, in their layout; float32.
#[derive(Debug, Clone)]
pub(crate) struct LossWeight {
    pub(crate) labels: Arc<dyn Form>,
    /// True if the labels of a member share the weight of the member.
    pub(crate) is_shared: bool,
    /// True for each member that could not be read. Empty if all could.
    pub(crate) skipped: Arc<[bool]>,
}

/// The number that the loss of the update is divided by: `[1]`, int64.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LossDenominator;

impl Form for LossWeight {
    fn dtype(&self) -> DType {
        DType::F32
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        self.labels.shape(members)
    }

    fn start(&self, members: &Members, member: usize) -> usize {
        self.labels.start(members, member) / self.labels.dtype().size() * size_of::<f32>()
    }

    fn is_data(&self) -> bool {
        true
    }

    fn is_concatenated(&self) -> bool {
        self.labels.is_concatenated()
    }

    fn sample(&self) -> Vec<Option<usize>> {
        self.labels.sample()
    }

    fn most_elements(&self) -> usize {
        self.labels.most_elements()
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let size = self.labels.dtype().size();
        let begin = self.labels.start(members, range.start);
        let bytes = self.labels.start(members, range.end) - begin;
        let mut labels: Vec<u8> = memory::reserve(bytes)?;
        labels.resize(bytes, 0);
        self.labels.fill(members, range.clone(), &mut labels)?;
        let mut counts = Vec::new();
        for member in range {
            let place = |member| (self.labels.start(members, member) - begin) / size;
            let (first, end) = (place(member), place(member + 1));
            self.find_counted(members, member, &labels[first * size..end * size], &mut counts);
            let weight = self.weigh(members, &counts);
            let slots = target[first * size_of::<f32>()..end * size_of::<f32>()].as_chunks_mut::<4>().0;
            for (slot, &counts) in slots.iter_mut().zip(&counts) {
                *slot = if counts { weight } else { 0.0 }.to_ne_bytes();
            }
        }
        Ok(())
    }
}

impl LossWeight {
    /// Writes to `counts` which labels of a member count.
    fn find_counted(&self, members: &Members, member: usize, labels: &[u8], counts: &mut Vec<bool>) {
        counts.clear();
        let is_skipped = self.skipped.get(member).is_some_and(|&skipped| skipped);
        if is_skipped || members.is_filler(member) {
            counts.resize(labels.len() / self.labels.dtype().size(), false);
            return;
        }
        find_used(self.labels.dtype(), labels, counts);
        let Some(padding) = self.labels.padding() else { return };
        let mut end = 0;
        padding.data(members, member, &mut |data| {
            counts[end..data.start].fill(false);
            end = data.end;
        });
        counts[end..].fill(false);
    }

    /// The weight of each label of a member that counts.
    #[expect(clippy::cast_possible_truncation, reason = "weights are rounded to the type that losses have")]
    fn weigh(&self, members: &Members, counts: &[bool]) -> f32 {
        let sharing = if self.is_shared { counts.iter().filter(|&&counts| counts).count().max(1) } else { 1 };
        // A denominator is at least 1; both are far below 2^53.
        (1.0 / (members.loss_denominator.max(1) as f64 * sharing as f64)) as f32
    }
}

/// Adds to `used` which of these labels losses do not ignore. Types that do not hold [`IGNORED`] have no other.
fn find_used(dtype: DType, labels: &[u8], used: &mut Vec<bool>) {
    macro_rules! find {
        ($type:ty) => {
            used.extend(
                labels
                    .as_chunks::<{ size_of::<$type>() }>()
                    .0
                    .iter()
                    .map(|label| i64::from(<$type>::from_ne_bytes(*label)) != IGNORED),
            )
        };
    }
    match dtype {
        DType::I8 => find!(i8),
        DType::I16 => find!(i16),
        DType::I32 => find!(i32),
        DType::I64 => find!(i64),
        other => used.resize(labels.len() / other.size(), true),
    }
}

impl Form for LossDenominator {
    fn dtype(&self) -> DType {
        DType::I64
    }

    fn shape(&self, _: &Members) -> Vec<usize> {
        vec![1]
    }

    /// The first member has it.
    fn start(&self, _: &Members, member: usize) -> usize {
        member.min(1) * size_of::<i64>()
    }

    fn row_unit(&self) -> RowUnit {
        RowUnit::Batch
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        if let (0, Some(slot)) = (range.start, target.first_chunk_mut::<8>()) {
            *slot = members.loss_denominator.max(1).cast_signed().to_ne_bytes();
        }
        Ok(())
    }
}
