//! `sparse`: rows of a sparse matrix, made dense in their slots or put together as compressed rows.
//!
//! A dense slot is zeroed and filled while it is in the cache. Compressed rows take as much memory as they have
//! entries, so that the shape of a batch follows from its samples. The matrix is never made dense as a whole.

use std::ops::Range;

use bytemuck::Pod;

use super::error::CollateCause;
use super::prefetch::prefetch_row;
use super::{Form, Members, RowSlots, Taken};
use crate::tensor::error::TensorCause;
use crate::tensor::{Column, SparseRows, is_ascending};
use crate::{DType, Result, Tensor};

/// The prefetch distance, in samples, and the bytes of a row that are asked for.
const AHEAD: usize = 2;
const ASKED: usize = 1024;

/// All columns of the row of each sample: `[samples, columns]`.
#[derive(Debug, Clone)]
pub(crate) struct Densify(pub(crate) SparseRows);

impl Form for Densify {
    fn dtype(&self) -> DType {
        self.0.values().dtype()
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        vec![members.count, self.0.width()]
    }

    fn is_data(&self) -> bool {
        true
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let slots = RowSlots { batch: range.len(), stride: target.len(), fillers: 0, loss_denominator: 0 };
        self.gather(members.take(range), target, slots)
    }

    fn gather(&self, taken: Taken<'_>, target: &mut [u8], slots: RowSlots) -> Result<()> {
        match (self.0.columns().as_slice::<i32>(), self.0.columns().as_slice::<i64>()) {
            (Some(columns), _) => self.rows(columns, taken.rows, target, slots),
            (_, Some(columns)) => self.rows(columns, taken.rows, target, slots),
            _ => Err(TensorCause::Elsewhere { field: self.0.name().to_owned() }.into()),
        }
    }
}

impl Densify {
    /// Fills the slots of samples, batch by batch.
    fn rows<C: Column>(
        &self,
        columns: &[C],
        samples: &[u64],
        target: &mut [u8],
        slots: RowSlots,
    ) -> Result<()> {
        let size = self.dtype().size();
        let slot = self.0.width() * size;
        if slot == 0 {
            // Slots without columns have no place for entries, but their rows may have some.
            return samples.iter().try_for_each(|&sample| {
                let row = number(sample);
                self.0.check_columns(columns, row, self.0.entries(row)).map(|_| ())
            });
        }
        let mut ahead = samples.iter().skip(AHEAD);
        for (batch, wanted) in target.chunks_mut(slots.stride).zip(samples.chunks(slots.batch)) {
            for (slot, &sample) in batch.chunks_exact_mut(slot).zip(wanted) {
                if let Some(&next) = ahead.next() {
                    self.prefetch(size_of::<C>(), self.0.entries(number(next)));
                }
                self.row(columns, number(sample), slot)?;
            }
        }
        Ok(())
    }

    fn prefetch(&self, column: usize, entries: Range<usize>) {
        for (array, size) in [(self.0.columns(), column), (self.0.values(), self.dtype().size())] {
            let start = array.layout().offset() + entries.start * size;
            prefetch_row(array.bytes(), start, entries.len() * size, ASKED);
        }
    }

    /// Fills the slot of one row.
    fn row<C: Column>(&self, columns: &[C], row: usize, slot: &mut [u8]) -> Result<()> {
        let entries = self.0.entries(row);
        let columns = self.0.check_columns(columns, row, entries.clone())?;
        let values = entry_bytes(self.0.values(), entries);
        slot.fill(0);
        if !is_ascending(columns) && self.0.repeats(columns, row)? {
            add(self.dtype(), columns, values, slot);
            return Ok(());
        }
        match self.dtype().size() {
            1 => put::<C, 1>(columns, values, slot),
            2 => put::<C, 2>(columns, values, slot),
            4 => put::<C, 4>(columns, values, slot),
            8 => put::<C, 8>(columns, values, slot),
            _ => put::<C, 16>(columns, values, slot),
        }
        Ok(())
    }
}

/// Puts values of `N` bytes at their columns.
fn put<C: Column, const N: usize>(columns: &[C], values: &[u8], slot: &mut [u8]) {
    let slot = slot.as_chunks_mut::<N>().0;
    for (column, value) in columns.iter().zip(values.as_chunks::<N>().0) {
        slot[number(column.to_unsigned())] = *value;
    }
}

/// Adds values to their columns. Integers wrap around, as in NumPy; truth values are combined by "or".
fn add<C: Column>(dtype: DType, columns: &[C], values: &[u8], slot: &mut [u8]) {
    match dtype {
        DType::Bool => add_each(columns, values, slot, |sum: u8, value: u8| sum | value),
        DType::U8 | DType::I8 => add_each(columns, values, slot, u8::wrapping_add),
        DType::U16 | DType::I16 => add_each(columns, values, slot, u16::wrapping_add),
        DType::U32 | DType::I32 => add_each(columns, values, slot, u32::wrapping_add),
        DType::U64 | DType::I64 => add_each(columns, values, slot, u64::wrapping_add),
        DType::F32 => add_each(columns, values, slot, |sum: f32, value| sum + value),
        DType::F64 => add_each(columns, values, slot, |sum: f64, value| sum + value),
        DType::C64 => add_each(columns, values, slot, |sum: [f32; 2], value: [f32; 2]| {
            [sum[0] + value[0], sum[1] + value[1]]
        }),
        DType::C128 => add_each(columns, values, slot, |sum: [f64; 2], value: [f64; 2]| {
            [sum[0] + value[0], sum[1] + value[1]]
        }),
        // Rows of these that repeat a column are refused.
        DType::F16
        | DType::BF16
        | DType::F8E4M3FN
        | DType::F8E4M3FNUZ
        | DType::F8E5M2
        | DType::F8E5M2FNUZ => {}
    }
}

fn add_each<C: Column, T: Pod>(columns: &[C], values: &[u8], slot: &mut [u8], sum: impl Fn(T, T) -> T) {
    let size = size_of::<T>();
    for (column, value) in columns.iter().zip(values.chunks_exact(size)) {
        let start = number(column.to_unsigned()) * size;
        let place = &mut slot[start..start + size];
        let total = sum(bytemuck::pod_read_unaligned(place), bytemuck::pod_read_unaligned(value));
        place.copy_from_slice(bytemuck::bytes_of(&total));
    }
}

/// The bounds of the rows of a batch among its entries: `[samples + 1]`, in the type of columns, as torch wants it.
#[derive(Debug, Clone)]
pub(crate) struct CrowIndices {
    pub(crate) rows: SparseRows,
    /// The place of the rows among those that batches hold compressed.
    pub(crate) place: usize,
}

impl Form for CrowIndices {
    fn dtype(&self) -> DType {
        self.rows.columns().dtype()
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        vec![members.count + 1]
    }

    fn start(&self, _: &Members, member: usize) -> usize {
        // The first bound goes with the first sample, and each sample has the one at its end.
        if member == 0 { 0 } else { (member + 1) * self.dtype().size() }
    }

    fn is_concatenated(&self) -> bool {
        true
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let ends = (range.start..range.end).map(|member| members.entry(self.place, member + 1));
        let size = self.dtype().size();
        let (first, bounds) = target.split_at_mut(if range.start == 0 { size } else { 0 });
        first.fill(0);
        for (bound, end) in bounds.chunks_exact_mut(size).zip(ends) {
            match i32::try_from(end) {
                Ok(end) if size == size_of::<i32>() => bound.copy_from_slice(&end.to_ne_bytes()),
                Err(_) if size == size_of::<i32>() => {
                    return Err(
                        CollateCause::BatchTooLarge { samples: members.count as u64, row: end }.into()
                    );
                }
                _ => bound.copy_from_slice(&end.to_ne_bytes()),
            }
        }
        Ok(())
    }
}

/// A number of each entry of a batch, its column or its value: `[entries]`.
#[derive(Debug, Clone)]
pub(crate) struct EntryField {
    pub(crate) rows: SparseRows,
    /// The place of the rows among those that batches hold compressed.
    pub(crate) place: usize,
    pub(crate) part: EntryPart,
}

/// The part of an entry that is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryPart {
    /// Its column, which is checked.
    Column,
    /// Its value.
    Value,
}

impl EntryField {
    /// The array that has the part of all entries.
    fn array(&self) -> &Tensor {
        match self.part {
            EntryPart::Column => self.rows.columns(),
            EntryPart::Value => self.rows.values(),
        }
    }

    /// Checks the columns of some rows, which are in the cache now.
    fn check_columns(&self, samples: &[u64]) -> Result<()> {
        match (self.rows.columns().as_slice::<i32>(), self.rows.columns().as_slice::<i64>()) {
            (Some(columns), _) => self.check(columns, samples),
            (_, Some(columns)) => self.check(columns, samples),
            _ => Err(TensorCause::Elsewhere { field: self.rows.name().to_owned() }.into()),
        }
    }

    fn check<C: Column>(&self, columns: &[C], samples: &[u64]) -> Result<()> {
        samples
            .iter()
            .map(|&sample| number(sample))
            .try_for_each(|row| self.rows.check_columns(columns, row, self.rows.entries(row)).map(|_| ()))
    }
}

impl Form for EntryField {
    fn dtype(&self) -> DType {
        self.array().dtype()
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        vec![members.entry(self.place, members.count)]
    }

    fn start(&self, members: &Members, member: usize) -> usize {
        members.entry(self.place, member) * self.dtype().size()
    }

    fn is_concatenated(&self) -> bool {
        true
    }

    fn is_data(&self) -> bool {
        self.part == EntryPart::Value
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let samples = members.rows(range);
        copy(&self.rows, self.array(), samples, target);
        match self.part {
            EntryPart::Column => self.check_columns(samples),
            EntryPart::Value => Ok(()),
        }
    }
}

/// Copies what `array` has for the entries of some rows, one after the other.
fn copy(rows: &SparseRows, array: &Tensor, samples: &[u64], target: &mut [u8]) {
    let size = array.dtype().size();
    let mut ahead = samples.iter().skip(AHEAD);
    let mut rest = target;
    for &sample in samples {
        if let Some(&next) = ahead.next() {
            let entries = rows.entries(number(next));
            let start = array.layout().offset() + entries.start * size;
            prefetch_row(array.bytes(), start, entries.len() * size, ASKED);
        }
        let source = entry_bytes(array, rows.entries(number(sample)));
        let (part, later) = rest.split_at_mut(source.len());
        part.copy_from_slice(source);
        rest = later;
    }
}

/// The bytes that an array has for some entries.
fn entry_bytes(array: &Tensor, entries: Range<usize>) -> &[u8] {
    let (size, offset) = (array.dtype().size(), array.layout().offset());
    // An array without elements may have an offset outside its memory.
    array.bytes().get(offset + entries.start * size..offset + entries.end * size).unwrap_or(&[])
}

/// A number of the plan or of a column, which was checked, as an index.
#[inline(always)]
fn number(index: u64) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}
