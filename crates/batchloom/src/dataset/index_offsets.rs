//! Fields of indices in batches that concatenate samples: which fields they are, and what they count.

use std::sync::Arc;

use super::collation::{CollateOptions, Collation, Index};
use super::error::OffsetCause;
use crate::Result;
use crate::collate::{IndexOffset, is_integer};

impl Collation {
    /// The same fields, those of indices offset: after conversions, so that sums are of the type in batches.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if a field holds no integers, if there is nothing of that name to count, or
    /// if batches are padded.
    pub(crate) fn with_offsets(mut self, options: &CollateOptions) -> Result<Self> {
        for (name, by) in &options.offset_by {
            let (place, field) = (self.place(name)?, || name.clone());
            if !matches!(self.index, Index::Ragged { packs: true, .. }) {
                return Err(OffsetCause::Padded { field: field() }.into());
            }
            let counted = self.counted.iter().find(|(counted, _)| counted == by);
            let &(_, lengths) = counted.ok_or_else(|| {
                let known = self.counted.iter().map(|(name, _)| name.clone()).collect();
                OffsetCause::By { field: field(), by: by.clone(), known }
            })?;
            let inner = Arc::clone(&self.forms[place]);
            if !is_integer(inner.dtype()) {
                let found = inner.dtype();
                return Err(OffsetCause::NoIntegers { field: field(), by: by.clone(), found }.into());
            }
            self.forms[place] = Arc::new(IndexOffset { name: field(), inner, by: lengths });
        }
        Ok(self)
    }
}
