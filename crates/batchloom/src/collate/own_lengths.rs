//! Fields with separate lengths: another form's field, made of the members as that field has them.

use std::ops::Range;
use std::sync::Arc;

use super::{Form, Members, Padding};
use crate::{DType, Result};

/// The field of another form, with other sizes of samples than the rest of the fields.
#[derive(Debug, Clone)]
pub(crate) struct OwnLengths {
    pub(crate) inner: Arc<dyn Form>,
    /// The place of the lengths among the separate ones, which several fields may share.
    pub(crate) place: usize,
}

impl OwnLengths {
    fn members<'a>(&self, members: &'a Members) -> &'a Members {
        members.own.get(self.place).unwrap_or(members)
    }
}

impl Form for OwnLengths {
    fn dtype(&self) -> DType {
        self.inner.dtype()
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        self.inner.shape(self.members(members))
    }

    fn start(&self, members: &Members, member: usize) -> usize {
        self.inner.start(self.members(members), member)
    }

    fn sample(&self) -> Vec<Option<usize>> {
        self.inner.sample()
    }

    fn bands(&self) -> usize {
        self.inner.bands()
    }

    fn is_concatenated(&self) -> bool {
        self.inner.is_concatenated()
    }

    fn padding(&self) -> Option<&dyn Padding> {
        self.inner.padding().map(|_| self as &dyn Padding)
    }

    fn is_data(&self) -> bool {
        self.inner.is_data()
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        self.inner.fill(self.members(members), range, target)
    }

    fn fill_band(
        &self,
        members: &Members,
        range: Range<usize>,
        band: usize,
        target: &mut [u8],
    ) -> Result<()> {
        self.inner.fill_band(self.members(members), range, band, target)
    }
}

impl Padding for OwnLengths {
    fn data(&self, members: &Members, member: usize, each: &mut dyn FnMut(Range<usize>)) {
        if let Some(padding) = self.inner.padding() {
            padding.data(self.members(members), member, each);
        }
    }

    fn value(&self) -> Option<&[u8]> {
        self.inner.padding()?.value()
    }
}
