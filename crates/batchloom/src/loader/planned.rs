//! `PlannedBlock`: a block that is laid out and has no memory yet.

use std::sync::Arc;

use bytes::Bytes;

use super::fields::Fields;
use super::index_table::Table;
use super::layout::BlockLayout;
use crate::Result;
use crate::dataset::{Objects, Skipped};

/// A block that is laid out and has no memory yet.
pub(super) struct PlannedBlock {
    pub(super) fields: Arc<Fields>,
    pub(super) layout: BlockLayout,
    /// The size of its index table, if the block is one.
    pub(super) table: Option<Table>,
    /// The samples that could not be read, if these are left out.
    pub(super) skipped: Skipped,
    /// The objects that samples hold beside arrays.
    pub(super) objects: Vec<Objects>,
    /// True if batches at its end were left out.
    pub(super) is_cut: bool,
}

impl PlannedBlock {
    /// A block of these fields, all of which forms or readers fill.
    pub(super) fn of(fields: Arc<Fields>, layout: BlockLayout) -> Self {
        Self { fields, layout, table: None, skipped: Vec::new(), objects: Vec::new(), is_cut: false }
    }

    /// Leaves out the batches from `step` on. Returns false if none is left.
    pub(super) fn end_before(&mut self, step: u64) -> bool {
        self.is_cut = true;
        self.table.is_none() && self.layout.end_before(step)
    }

    /// The memory of its batches, given the memory of the block: a copy if batches at its end were left out.
    ///
    /// # Errors
    /// [`Kind::Memory`](crate::Kind::Memory).
    pub(super) fn memory_of_batches(&mut self, whole: Bytes) -> Result<Bytes> {
        if self.is_cut { self.layout.compact(&whole) } else { Ok(whole) }
    }

    /// The number of bytes that the block takes in memory.
    pub(super) fn memory(&self) -> usize {
        self.table.map_or(self.layout.bytes, |table| table.bytes())
    }
}
