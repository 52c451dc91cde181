//! `PlannedBlock`: a block that is laid out and has no memory yet.

use std::sync::Arc;

use super::fields::Fields;
use super::index_table::Table;
use super::layout::BlockLayout;
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
}

impl PlannedBlock {
    /// A block of these fields, all of which forms or readers fill.
    pub(super) fn of(fields: Arc<Fields>, layout: BlockLayout) -> Self {
        Self { fields, layout, table: None, skipped: Vec::new(), objects: Vec::new() }
    }

    /// Leaves out the batches from `step` on. Returns false if none is left.
    pub(super) fn end_before(&mut self, step: u64) -> bool {
        self.table.is_none() && self.layout.end_before(step)
    }

    /// The number of bytes that the block takes in memory.
    pub(super) fn memory(&self) -> usize {
        self.table.map_or(self.layout.bytes, |table| table.bytes())
    }
}
