//! `index_offset`: a field of indices, which count elements of their own sample, as a concatenation needs them: with the
//! elements of the samples before them added.
//!
//! Promises:
//!
//! - No sum is wrong: one that the type does not hold is an error of its batch.
//! - The zeros of a banned sample are offset as indices are, so they stay within that sample.

use std::ops::Range;
use std::sync::Arc;

use super::error::CollateCause;
use super::{Form, Members};
use crate::{DType, Error, Result};

/// The field of another form, which holds integers, offset.
#[derive(Debug, Clone)]
pub(crate) struct IndexOffset {
    pub(crate) name: String,
    pub(crate) inner: Arc<dyn Form>,
    /// The place of the lengths that count, among the separate ones; `None` for the lengths of samples.
    pub(crate) by: Option<usize>,
}

impl IndexOffset {
    /// The elements of the samples before a member.
    fn before(&self, members: &Members, member: usize) -> usize {
        self.by.and_then(|place| members.own.get(place)).unwrap_or(members).ends[member]
    }

    fn too_large(&self, members: &Members, member: usize, value: String, offset: usize) -> Error {
        CollateCause::OffsetTooLarge {
            field: self.name.clone(),
            sample: members.samples.get(member).copied(),
            value,
            offset: offset as u64,
            dtype: self.dtype(),
        }
        .into()
    }
}

impl Form for IndexOffset {
    fn dtype(&self) -> DType {
        self.inner.dtype()
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        self.inner.shape(members)
    }

    fn start(&self, members: &Members, member: usize) -> usize {
        self.inner.start(members, member)
    }

    /// False, since the form clears the parts of banned members itself: before it offsets them.
    fn is_data(&self) -> bool {
        false
    }

    fn bands(&self) -> usize {
        self.inner.bands()
    }

    fn is_concatenated(&self) -> bool {
        self.inner.is_concatenated()
    }

    fn sample(&self) -> Vec<Option<usize>> {
        self.inner.sample()
    }

    fn most_elements(&self) -> usize {
        self.inner.most_elements()
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        self.fill_band(members, range, 0, target)
    }

    fn fill_band(
        &self,
        members: &Members,
        range: Range<usize>,
        band: usize,
        target: &mut [u8],
    ) -> Result<()> {
        self.inner.fill_band(members, range.clone(), band, target)?;
        let begin = self.start(members, range.start);
        let mut start = 0;
        for member in range {
            let end = self.start(members, member + 1) - begin;
            let part = &mut target[start..end];
            if members.is_banned(member) {
                part.fill(0);
            }
            let offset = self.before(members, member);
            let added = add(self.dtype(), offset, part);
            added.map_err(|value| self.too_large(members, member, value, offset))?;
            start = end;
        }
        Ok(())
    }
}

/// Adds `offset` to each of some integers.
///
/// # Errors
/// The first of them for which the type does not hold the sum, as a text.
#[expect(clippy::cognitive_complexity, reason = "one loop, written once for each type")]
fn add(dtype: DType, offset: usize, integers: &mut [u8]) -> std::result::Result<(), String> {
    macro_rules! add {
        ($type:ty) => {{
            let integers = integers.as_chunks_mut::<{ size_of::<$type>() }>().0;
            let (small, mut fits) = (<$type>::try_from(offset), true);
            if let Ok(offset) = small {
                for integer in integers.iter_mut() {
                    let (sum, overflows) = <$type>::from_ne_bytes(*integer).overflowing_add(offset);
                    fits &= !overflows;
                    *integer = sum.to_ne_bytes();
                }
            }
            // The integers are as they were where their sums were wrong.
            let before = |sum: &[u8; size_of::<$type>()]| {
                <$type>::from_ne_bytes(*sum).wrapping_sub(small.unwrap_or_default())
            };
            match small {
                Ok(_) if fits => Ok(()),
                Ok(offset) => {
                    let mut before = integers.iter().map(before);
                    let refused = before.find(|integer| integer.checked_add(offset).is_none());
                    Err(refused.unwrap_or_default().to_string())
                }
                Err(_) => integers.first().map_or(Ok(()), |first| Err(before(first).to_string())),
            }
        }};
    }
    match dtype {
        DType::U8 => add!(u8),
        DType::U16 => add!(u16),
        DType::U32 => add!(u32),
        DType::U64 => add!(u64),
        DType::I8 => add!(i8),
        DType::I16 => add!(i16),
        DType::I32 => add!(i32),
        DType::I64 => add!(i64),
        _ => Ok(()),
    }
}
