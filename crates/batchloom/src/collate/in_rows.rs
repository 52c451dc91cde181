//! Fields in rows of one shape: another form's field with the parts of each row beside each other.
//!
//! A field with a number for each element becomes `[rows, tokens, ..]`, one with a record for each sample `[rows,
//! samples, ..]`. Promise: whatever a batch holds, its shape is the same. What follows the last sample of a row, and rows
//! without samples, are padding.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::pack::RowBoundaries;
use super::{Form, Members, RowFrame, RowUnit};
use crate::{DType, Result};

/// The field of another form in rows.
#[derive(Debug)]
pub(crate) struct InRows {
    inner: Arc<dyn Form>,
    frame: RowFrame,
    /// The bytes of one element of padding.
    padding: Vec<u8>,
    /// The bytes of a row: the same in all batches of this form.
    row_bytes: OnceLock<usize>,
}

impl InRows {
    /// The field of `inner` in rows, with its own padding unless `padding` is given. A field that has nothing for each
    /// sample or element stays as it is.
    pub(crate) fn wrap(inner: Arc<dyn Form>, frame: RowFrame, padding: Option<Vec<u8>>) -> Arc<dyn Form> {
        match inner.row_unit() {
            RowUnit::Batch => inner,
            RowUnit::Boundary => Arc::new(RowBoundaries { dtype: inner.dtype(), frame }),
            RowUnit::Element | RowUnit::Member => {
                let padding = padding.unwrap_or_else(|| inner.row_padding());
                Arc::new(Self { inner, frame, padding, row_bytes: OnceLock::new() })
            }
        }
    }

    /// The number of records in a row.
    fn len(&self) -> usize {
        match self.inner.row_unit() {
            RowUnit::Element => self.frame.tokens,
            _ => self.frame.samples,
        }
    }

    /// The number of bytes of a row.
    fn row_bytes(&self, members: &Members) -> usize {
        *self.row_bytes.get_or_init(|| {
            let inner = self.inner.shape(members);
            self.len() * inner[1..].iter().product::<usize>() * self.inner.dtype().size()
        })
    }

    /// Fills what follows the parts of a row.
    fn pad(&self, target: &mut [u8]) {
        match *self.padding {
            [byte, ref rest @ ..] if rest.iter().all(|&other| other == byte) => target.fill(byte),
            [a, b] => target.as_chunks_mut().0.fill([a, b]),
            [a, b, c, d] => target.as_chunks_mut().0.fill([a, b, c, d]),
            [a, b, c, d, e, f, g, h] => target.as_chunks_mut().0.fill([a, b, c, d, e, f, g, h]),
            _ => target
                .chunks_exact_mut(self.padding.len())
                .for_each(|slot| slot.copy_from_slice(&self.padding)),
        }
    }
}

impl Form for InRows {
    fn dtype(&self) -> DType {
        self.inner.dtype()
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        [&[self.frame.rows, self.len()], &self.inner.shape(members)[1..]].concat()
    }

    fn start(&self, members: &Members, member: usize) -> usize {
        let row_bytes = self.row_bytes(members);
        if member >= members.count {
            return self.frame.rows * row_bytes;
        }
        let row = members.row_of(member);
        let first = members.row_members(row).start;
        row * row_bytes + self.inner.start(members, member) - self.inner.start(members, first)
    }

    fn end(&self, members: &Members, member: usize) -> usize {
        let bytes = self.inner.start(members, member + 1) - self.inner.start(members, member);
        self.start(members, member) + bytes
    }

    fn is_data(&self) -> bool {
        self.inner.is_data()
    }

    fn reads_data(&self) -> bool {
        self.inner.reads_data()
    }

    fn sample(&self) -> Vec<Option<usize>> {
        self.inner.sample()
    }

    fn most_elements(&self) -> usize {
        self.inner.most_elements()
    }

    fn row_unit(&self) -> RowUnit {
        RowUnit::Batch
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let row_bytes = self.row_bytes(members);
        let place = |member| self.inner.start(members, member);
        let (mut first, mut row, mut rest) = (range.start, members.row_of(range.start), target);
        while first < range.end {
            let before = place(first) - place(members.row_members(row).start);
            let from = row;
            // Rows without padding lie one after the other, and are filled at once.
            let (end, bytes, stop) = loop {
                let end = members.row_members(row).end.min(range.end);
                let bytes = place(end) - place(first);
                if end == range.end {
                    break (end, bytes, rest.len());
                }
                row = members.row_after(row, end);
                let stop = (row - from) * row_bytes - before;
                if stop > bytes {
                    break (end, bytes, stop);
                }
            };
            let (part, later) = rest.split_at_mut(stop);
            let (data, padding) = part.split_at_mut(bytes.min(stop));
            self.inner.fill(members, first..end, data)?;
            self.pad(padding);
            (first, rest) = (end, later);
        }
        Ok(())
    }
}
