//! The fields of a window dataset that have separate times: they are added, looked up, and refused where rows are missing.

use std::ops::Range;
use std::sync::Arc;

use super::WindowDataset;
use super::error::TimedCause;
use super::search::Tick;
use super::timed::{Missing, MissingRow, Timed, TimedField};
use crate::collate::{FindRows, FoundMask, Members, Taken, WindowSteps};
use crate::dataset::collation::CollateOptions;
use crate::tensor::error::TensorCause;
use crate::{ChunkedTensor, Result, Tensor, memory};

impl WindowDataset {
    /// Adds a field of rows `[rows, ..]` that have separate times: `[offsets, ..]` for each window.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if a name is given twice, if arrays disagree, if times do not grow, or if a
    /// window lacks a row and that is an [error](Missing::Error); [`Kind::Argument`](crate::Kind::Argument) if offsets or
    /// tolerance make no sense.
    pub fn timed<T: Tick>(
        mut self,
        name: impl Into<String>,
        values: impl Into<ChunkedTensor>,
        timed: Timed<T>,
    ) -> Result<Self> {
        let (name, values) = (name.into(), values.into());
        self.require_new(&name)?;
        let anchor = timed.anchor.unwrap_or(self.shape().input_len - 1);
        self.require_steps(&name, &WindowSteps::neighbours(anchor, 1))?;
        if values.shape().is_empty() {
            return Err(TensorCause::ScalarField { field: name }.into());
        }
        memory::require_each(self.starts.len(), size_of::<Range<usize>>())?;
        let field = TimedField::new(name, values, timed, &self.offsets(), anchor)?;
        self.timed.push(field);
        self.require_rows()?;
        Ok(self)
    }

    /// Adds a field that is true for those rows of the field `of` that exist: `[offsets]` for each window.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if a name is given twice; [`Kind::Argument`](crate::Kind::Argument) if `of` has
    /// no separate times.
    pub fn timed_mask(mut self, name: impl Into<String>, of: &str) -> Result<Self> {
        let name = name.into();
        self.require_new(&name)?;
        match self.timed.iter_mut().find(|field| field.name == of) {
            Some(field) => field.mask = Some(name),
            None => return Err(TimedCause::Unknown { field: of.to_owned() }.into()),
        }
        Ok(self)
    }

    /// The first row that windows lack, of a field in which none may be missing. It looks at each window if the field has
    /// a tolerance, and otherwise at those before the first row of each series.
    pub fn first_missing(&self) -> Option<MissingRow> {
        let offsets = self.offsets();
        let unpadded = self.timed.iter().filter(|field| field.missing != Missing::Pad);
        unpadded.filter_map(|field| field.first_missing(&self.windows, &offsets)).next()
    }

    /// Refuses windows that lack a row of a field in which that is an error.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data), with the first such row.
    pub(super) fn require_rows(&self) -> Result<()> {
        let offsets = self.offsets();
        let fields = self.timed.iter().filter(|field| field.missing == Missing::Error);
        let mut missing = fields.filter_map(|field| field.first_missing(&self.windows, &offsets));
        missing.next().map_or(Ok(()), |row| Err(row.into()))
    }

    /// The rows of the fields with separate times, `[places, windows]`: field by field and offset by offset, the row of
    /// each of some windows. It is -1 where no row exists, and -2 less the nearest row where only that exists.
    ///
    /// # Errors
    /// [`Kind::Range`](crate::Kind::Range) if there is no such window; [`Kind::Memory`](crate::Kind::Memory).
    #[doc(hidden)]
    pub fn timed_rows(&self, windows: &[u64]) -> Result<Tensor> {
        let finders = self.finders();
        let places = finders.iter().map(|finder| finder.count()).sum::<usize>();
        let mut numbers = memory::reserve(places.saturating_mul(windows.len()))?;
        numbers.resize(places * windows.len(), 0);
        let (mut found, mut first) = (Vec::new(), 0);
        for finder in finders {
            for (column, &window) in windows.iter().enumerate() {
                self.place(window)?;
                finder.find(window, &mut found);
                for (line, found) in (first..).zip(&found) {
                    numbers[line * windows.len() + column] = found.number();
                }
            }
            first += finder.count();
        }
        Tensor::from_vec(numbers, &[places, windows.len()])
    }

    /// The fields with separate times of a batch of some windows: for each its rows and its mask, with these elements
    /// in place of missing rows, or the nearest ones.
    ///
    /// # Errors
    /// [`Kind::Range`](crate::Kind::Range) if there is no such window; [`Kind::Argument`](crate::Kind::Argument) if the
    /// bytes of a padding value are not those of an element; [`Kind::Memory`](crate::Kind::Memory).
    #[doc(hidden)]
    pub fn form_timed(
        &self,
        windows: &[u64],
        pad_values: Vec<(String, Vec<u8>)>,
        edges: Vec<String>,
    ) -> Result<Vec<Tensor>> {
        windows.iter().try_for_each(|&window| self.place(window).map(drop))?;
        let pad_values = pad_values.into_iter().map(|(name, value)| (name, value.into())).collect();
        let options = CollateOptions { pad_values, pad_edges: edges, ..CollateOptions::default() };
        let members = Members::of_samples(Taken::as_stored(windows), 0);
        let mut tensors = Vec::new();
        for (field, finder) in self.timed.iter().zip(self.finders()) {
            let rows = field.forms(&finder, &options)?.remove(0).1;
            for form in [&*rows, &FoundMask(finder)] {
                let shape = form.shape(&members);
                let bytes = shape.iter().product::<usize>().saturating_mul(form.dtype().size());
                let mut target = memory::reserve(bytes)?;
                target.resize(bytes, 0);
                form.fill(&members, 0..members.count, &mut target)?;
                tensors.push(Tensor::from_bytes(target.into(), form.dtype(), &shape)?);
            }
        }
        Ok(tensors)
    }

    /// The finder of each field with separate times.
    pub(super) fn finders(&self) -> Vec<Arc<dyn FindRows>> {
        self.timed.iter().map(|field| field.finder(&self.windows)).collect()
    }

    /// The first step of each series among all steps, and the number of all.
    pub(super) fn offsets(&self) -> Vec<usize> {
        self.starts.iter().copied().chain([self.rows]).collect()
    }
}
