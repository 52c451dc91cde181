//! Splits of time: a dataset for each part of all series.

use super::WindowDataset;
use crate::Result;
use crate::dataset::error::SelectionCause;
use crate::dataset::parts::{PartEnd, borders};

impl WindowDataset {
    /// Splits the time of every series into parts, each a dataset over the same arrays. See [`part`](Self::part) for
    /// the windows that a part holds. Of a part, shares and steps count within it.
    ///
    /// ```
    /// use batchloom::dataset::{PartEnd, WindowShape};
    /// use batchloom::{Tensor, WindowDataset};
    ///
    /// let series = Tensor::from_vec((0..100).map(|step| step as f32).collect(), &[100])?;
    /// let dataset = WindowDataset::new(&[0, 100], WindowShape::new(10).horizon(4))?;
    /// let dataset = dataset.input("x", series.clone())?.target("y", series)?;
    /// let parts = dataset.split(&[("train", PartEnd::Share(0.8)), ("test", PartEnd::Rest)], true)?;
    /// assert_eq!((parts[0].len(), parts[1].len()), (80 - 14 + 1, 20 - 4 + 1));
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`borders`]; [`Kind::Data`](crate::Kind::Data) if a part is empty, or has no windows.
    pub fn split(&self, parts: &[(&str, PartEnd)], reach_back: bool) -> Result<Vec<Self>> {
        let lengths: Vec<usize> = self.parts().iter().map(ExactSizeIterator::len).collect();
        let mut starts = vec![0; lengths.len()];
        let mut datasets = Vec::with_capacity(parts.len());
        for ((name, _), stops) in parts.iter().zip(borders(&lengths, parts)?) {
            if starts == stops {
                let longest = |ends: &[usize]| ends.iter().copied().max().unwrap_or(0) as u64;
                let (end, count) = (longest(&stops), longest(&lengths));
                return Err(SelectionCause::EmptyPart { part: (*name).to_owned(), end, count }.into());
            }
            let within: Vec<_> = starts.iter().zip(&stops).map(|(&start, &stop)| start..stop).collect();
            let dataset = self.part(&within, reach_back);
            datasets.push(dataset.map_err(|error| error.in_part(name))?);
            starts = stops;
        }
        Ok(datasets)
    }
}
