//! `FieldOfSources`: one field with samples of several sources of data.

use std::ops::Range;
use std::sync::Arc;

use super::{Form, Members, Padding, RowUnit};
use crate::{DType, Result};

/// A field for which each source makes its own samples. The forms agree in all but the data that they read.
#[derive(Debug)]
pub(crate) struct FieldOfSources {
    forms: Box<[Arc<dyn Form>]>,
}

impl FieldOfSources {
    /// The field that `forms` make, one for each source; at least one.
    pub(crate) fn new(forms: impl IntoIterator<Item = Arc<dyn Form>>) -> Self {
        Self { forms: forms.into_iter().collect() }
    }

    fn first(&self) -> &dyn Form {
        &*self.forms[0]
    }
}

impl Form for FieldOfSources {
    fn dtype(&self) -> DType {
        self.first().dtype()
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        self.first().shape(members)
    }

    fn start(&self, members: &Members, member: usize) -> usize {
        self.first().start(members, member)
    }

    fn bands(&self) -> usize {
        self.first().bands()
    }

    fn is_concatenated(&self) -> bool {
        self.first().is_concatenated()
    }

    fn row_unit(&self) -> RowUnit {
        self.first().row_unit()
    }

    fn row_padding(&self) -> Vec<u8> {
        self.first().row_padding()
    }

    fn sample(&self) -> Vec<Option<usize>> {
        self.first().sample()
    }

    fn padding(&self) -> Option<&dyn Padding> {
        self.first().padding().map(|_| self as &dyn Padding)
    }

    fn repeats_edge(&self) -> bool {
        self.first().repeats_edge()
    }

    fn most_elements(&self) -> usize {
        self.forms.iter().map(|form| form.most_elements()).min().unwrap_or(usize::MAX)
    }

    fn sources(&self) -> Option<&[Arc<dyn Form>]> {
        Some(&self.forms)
    }

    fn is_data(&self) -> bool {
        self.first().is_data()
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
        let begin = self.start(members, range.start);
        let mut first = range.start;
        while first < range.end {
            let source = members.source(first);
            let end = (first + 1..range.end).find(|&member| members.source(member) != source);
            let end = end.unwrap_or(range.end);
            // What comes after the last member belongs to it, such as the end of the last of several boundaries.
            let stop = if end == range.end { target.len() } else { self.start(members, end) - begin };
            let part = &mut target[self.start(members, first) - begin..stop];
            self.forms[source].fill_band(members, first..end, band, part)?;
            first = end;
        }
        Ok(())
    }
}

impl Padding for FieldOfSources {
    fn data(&self, members: &Members, member: usize, each: &mut dyn FnMut(Range<usize>)) {
        if let Some(padding) = self.forms[members.source(member)].padding() {
            padding.data(members, member, each);
        }
    }

    fn value(&self) -> Option<&[u8]> {
        self.first().padding()?.value()
    }
}
