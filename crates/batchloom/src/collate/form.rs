//! `Form`: the contract of collation: how one field of a batch is made.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use super::{Members, Taken};
use crate::{DType, Result};

/// The maker of one field of a batch.
///
/// A form gives the shape of the field for given [`Members`] and the place of each member's part, and fills the parts
/// of some members, so that several threads can fill one field. Filling may fail; the error reaches the consumer.
///
/// A field whose elements are not its first dimension, `[bands, elements, ..]`, lies in several bands, one after the other:
/// each holds a part of every member, at the same place, and is filled by itself.
pub(crate) trait Form: Debug + Send + Sync {
    /// The type of an element.
    fn dtype(&self) -> DType;

    /// The shape of the field for these members; its first dimension counts members, or elements of all of them.
    fn shape(&self, members: &Members) -> Vec<usize>;

    /// The byte at which the part of member `member` begins in a band; for one past the last, the byte at which the band
    /// ends.
    fn start(&self, members: &Members, member: usize) -> usize {
        member * self.shape(members)[1..].iter().product::<usize>() * self.dtype().size()
    }

    /// The byte at which the part of member `member` ends: padding of a row may follow.
    fn end(&self, members: &Members, member: usize) -> usize {
        self.start(members, member + 1)
    }

    /// Returns true if the field holds data of samples, which the place of a banned one does not. Other fields describe
    /// their places.
    fn is_data(&self) -> bool {
        false
    }

    /// Returns true if the field is made of the data of samples, in this field or in another one.
    fn reads_data(&self) -> bool {
        self.is_data()
    }

    /// The number of bands.
    fn bands(&self) -> usize {
        1
    }

    /// Returns true if a dimension, the first if there is one band, counts the elements of all members, one after the other,
    /// and none counts the members.
    fn is_concatenated(&self) -> bool {
        false
    }

    /// The records of which a row of one shape holds several, if batches are such rows.
    fn row_unit(&self) -> RowUnit {
        if self.is_concatenated() { RowUnit::Element } else { RowUnit::Member }
    }

    /// The bytes of the element that pads rows of one shape.
    fn row_padding(&self) -> Vec<u8> {
        vec![0; self.dtype().size()]
    }

    /// The shape of a sample, `None` for each dimension in which samples may differ.
    fn sample(&self) -> Vec<Option<usize>> {
        let mut shape: Vec<_> = self.shape(&Members::of_count(1, 0)).into_iter().map(Some).collect();
        match self.is_concatenated() {
            true => shape[0] = None,
            false => drop(shape.remove(0)),
        }
        shape
    }

    /// The places of padding, if the form pads.
    fn padding(&self) -> Option<&dyn Padding> {
        None
    }

    /// Returns true if the form repeats the nearest step of a series where a window leaves it.
    fn repeats_edge(&self) -> bool {
        false
    }

    /// The most elements of a batch that the form can number.
    fn most_elements(&self) -> usize {
        usize::MAX
    }

    /// The forms of several sources of data, one for each, if there are several sources.
    fn sources(&self) -> Option<&[Arc<dyn Form>]> {
        None
    }

    /// Fills the parts of `range` of the members in the first band.
    ///
    /// # Errors
    /// The samples of the source that the form reads.
    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()>;

    /// Fills the parts of `range` of the members in one band.
    ///
    /// # Errors
    /// As [`fill`](Self::fill).
    fn fill_band(
        &self,
        members: &Members,
        range: Range<usize>,
        _band: usize,
        target: &mut [u8],
    ) -> Result<()> {
        self.fill(members, range, target)
    }

    /// Fills the parts of samples that do not differ in size, batch by batch: their numbers suffice.
    ///
    /// # Errors
    /// As [`fill`](Self::fill).
    fn gather(&self, taken: Taken<'_>, target: &mut [u8], slots: RowSlots) -> Result<()> {
        let mut held = taken.held.cloned();
        for (batch, wanted) in target.chunks_mut(slots.stride.max(1)).zip(taken.chunks(slots.batch.max(1))) {
            let members = Members::of_samples(Taken { held: held.as_ref(), ..wanted }, slots.fillers);
            let members = Members { loss_denominator: slots.loss_denominator, ..members };
            held.iter_mut().for_each(|held| held.first += wanted.samples.len());
            let end = self.start(&members, members.count);
            self.fill(&members, 0..members.count, &mut batch[..end])?;
        }
        Ok(())
    }
}

/// The records of a field that rows of one shape hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowUnit {
    /// One for each element.
    Element,
    /// One for each member.
    Member,
    /// One for each boundary of members, which number the elements of a row.
    Boundary,
    /// The field is one of the whole batch.
    Batch,
}

/// The places of padding in a field, for padding that a form's wrapper makes.
pub(crate) trait Padding {
    /// Visits the elements of the part of member `member` that are data, in order. The rest is padding.
    fn data(&self, members: &Members, member: usize, each: &mut dyn FnMut(Range<usize>));

    /// The bytes of the element that the form itself writes where padding is, if it writes one there.
    fn value(&self) -> Option<&[u8]> {
        None
    }
}

/// The places for the rows of consecutive batches: batch `k` starts at `k * stride` and holds `batch` rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowSlots {
    /// The number of rows in a batch.
    pub(crate) batch: usize,
    /// The number of bytes from one batch to the next.
    pub(crate) stride: usize,
    /// The number of rows, at the end of each batch, that only fill it up.
    pub(crate) fillers: usize,
    /// The number that the loss of the update is divided by; 0 where batches have no weights of labels.
    pub(crate) loss_denominator: u64,
}
