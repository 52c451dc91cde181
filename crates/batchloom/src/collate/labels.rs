//! Labels for language models: the token after each token, and [`IGNORED`] after the last one and where a sample only
//! fills up. Where a row ends inside of a sample that is continued, its last label is the first token of the rest.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use super::index::write;
use super::read_rows::take_rows;
use super::{Form, Members, PadSide};
use crate::tensor::Sequences;
use crate::{DType, Result};

/// The label that losses ignore.
pub(crate) const IGNORED: i64 = -100;

/// The tokens of samples.
pub(crate) trait SampleTokens: Debug + Send + Sync {
    /// The type of a token: integers.
    fn dtype(&self) -> DType;

    /// Returns true if the sample of a member was read.
    fn has(&self, _member: usize) -> bool {
        true
    }

    /// Copies tokens of the sample of a member: these, counted from its first one.
    ///
    /// # Errors
    /// The errors of reading samples.
    fn copy(&self, members: &Members, member: usize, tokens: Range<usize>, target: &mut [u8]) -> Result<()>;
}

impl SampleTokens for Sequences {
    fn dtype(&self) -> DType {
        self.values().dtype()
    }

    fn copy(&self, members: &Members, member: usize, tokens: Range<usize>, target: &mut [u8]) -> Result<()> {
        take_rows(self.values(), self.start(members.row(member)) + tokens.start, tokens.len(), target)
    }
}

/// The next tokens of one field: `[samples, length]`, or `[elements]`; int64.
#[derive(Debug, Clone)]
pub(crate) struct Labels {
    pub(crate) tokens: Arc<dyn SampleTokens>,
    pub(crate) side: PadSide,
    /// True if samples are concatenated, not padded.
    pub(crate) packed: bool,
}

impl Form for Labels {
    fn dtype(&self) -> DType {
        DType::I64
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        match self.packed {
            true => vec![members.elements()],
            false => [&[members.count], members.union.as_slice()].concat(),
        }
    }

    fn start(&self, members: &Members, member: usize) -> usize {
        let elements = match self.packed {
            true => members.ends[member],
            false => member * members.union.iter().product::<usize>(),
        };
        elements * size_of::<i64>()
    }

    fn reads_data(&self) -> bool {
        true
    }

    fn is_concatenated(&self) -> bool {
        self.packed
    }

    fn row_padding(&self) -> Vec<u8> {
        IGNORED.to_ne_bytes().to_vec()
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let longest = range.clone().map(|member| members.length(member)).max().unwrap_or(0);
        let mut tokens = Vec::with_capacity(longest * self.tokens.dtype().size());
        let mut rest = target;
        for member in range {
            let length = members.length(member);
            let slot = if self.packed { length } else { members.union.first().copied().unwrap_or(0) };
            let (part, later) = rest.split_at_mut(slot * size_of::<i64>());
            let padding = (slot - length) * size_of::<i64>();
            let (before, after) = match self.side {
                PadSide::Left => (padding, 0),
                PadSide::Right => (0, padding),
            };
            let (ignored, part) = part.split_at_mut(before);
            write(std::iter::repeat(IGNORED), ignored);
            let (part, ignored) = part.split_at_mut(part.len() - after);
            write(std::iter::repeat(IGNORED), ignored);
            self.fill_next(members, member, &mut tokens, part)?;
            rest = later;
        }
        Ok(())
    }
}

impl Labels {
    /// Writes the tokens from the second on, and [`IGNORED`] after the last of the sample; only that if the member is a
    /// filler, or was not read. A sample that is continued has a token after the last of this part. `tokens` is memory
    /// that is used again.
    fn fill_next(
        &self,
        members: &Members,
        member: usize,
        tokens: &mut Vec<u8>,
        target: &mut [u8],
    ) -> Result<()> {
        if members.is_filler(member) || !self.tokens.has(member) {
            write(std::iter::repeat(IGNORED), target);
            return Ok(());
        }
        let first = members.start(member) + 1;
        let last = usize::from(!members.is_continued(member));
        let next = members.length(member).saturating_sub(last);
        let dtype = self.tokens.dtype();
        tokens.resize(next * dtype.size(), 0);
        if next > 0 {
            self.tokens.copy(members, member, first..first + next, tokens)?;
        }
        let (labels, last) = target.split_at_mut(next * size_of::<i64>());
        widen(dtype, tokens, labels);
        write(std::iter::once(IGNORED), last);
        Ok(())
    }
}

/// Writes integers of any width as int64.
pub(super) fn widen(dtype: DType, tokens: &[u8], target: &mut [u8]) {
    let slots = target.as_chunks_mut::<8>().0;
    macro_rules! widen {
        ($type:ty) => {
            for (slot, token) in slots.iter_mut().zip(tokens.as_chunks::<{ size_of::<$type>() }>().0) {
                *slot = i64::from(<$type>::from_ne_bytes(*token)).to_ne_bytes();
            }
        };
    }
    match dtype {
        DType::U8 => widen!(u8),
        DType::U16 => widen!(u16),
        DType::U32 => widen!(u32),
        DType::I8 => widen!(i8),
        DType::I16 => widen!(i16),
        DType::I32 => widen!(i32),
        // Elements of 64 bits are taken as they are.
        _ => slots.iter_mut().zip(tokens.as_chunks::<8>().0).for_each(|(slot, token)| *slot = *token),
    }
}

/// Returns true if elements of this type can be tokens.
pub(crate) fn is_integer(dtype: DType) -> bool {
    use DType::{I8, I16, I32, I64, U8, U16, U32, U64};
    matches!(dtype, U8 | U16 | U32 | U64 | I8 | I16 | I32 | I64)
}
