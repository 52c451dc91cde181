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
    /// The number of bytes that the block takes in memory.
    pub(super) fn memory(&self) -> usize {
        self.table.map_or(self.layout.bytes, |table| table.bytes())
    }
}
