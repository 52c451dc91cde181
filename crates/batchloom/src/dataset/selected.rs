//! `Selected`: some samples of a dataset, of any kind that reads samples by their numbers.

use std::ops::Range;
use std::sync::Arc;

use super::collation::{CollateOptions, Collation, Ragged};
use super::kind::{Content, ContentRequest, EpochKey, Kind};
use super::selection::Selection;
use crate::batching::{LabelCounts, Labels, Rule, Sizes};
use crate::{ChunkedTensor, Result, Tensor};

/// Some samples of a dataset. The data stays where it is; a sample's place in it is looked up when a batch is formed.
#[derive(Debug)]
pub(super) struct Selected {
    whole: Arc<dyn Kind>,
    selection: Selection,
    sizes: Option<Sizes>,
}

impl Selected {
    /// Selected samples of `whole`.
    ///
    /// # Errors
    /// [`Kind::Memory`](crate::Kind::Memory).
    pub(super) fn new(whole: Arc<dyn Kind>, selection: Selection) -> Result<Self> {
        let sizes = whole.sizes().map(|sizes| sizes.gather(selection.iter())).transpose()?;
        Ok(Self { whole, selection, sizes })
    }
}

impl Kind for Selected {
    fn len(&self) -> usize {
        usize::try_from(self.selection.len()).unwrap_or(usize::MAX)
    }

    fn arrays(&self) -> Vec<(&str, &ChunkedTensor)> {
        self.whole.arrays()
    }

    fn sizes(&self) -> Option<Sizes> {
        self.sizes.clone()
    }

    fn is_concatenated(&self) -> bool {
        self.whole.is_concatenated()
    }

    fn collation(&self, rule: &Rule, options: &CollateOptions, epoch: EpochKey) -> Result<Collation> {
        let collation = self.whole.collation(rule, options, epoch)?;
        let sizes = |ragged: Ragged| Ragged { sizes: self.sizes.clone().unwrap_or(ragged.sizes), ..ragged };
        let located = collation.located.select(&self.selection)?;
        Ok(Collation { ragged: collation.ragged.map(sizes), located, ..collation })
    }

    fn labels(&self, options: &CollateOptions) -> Option<Labels> {
        Some(match self.whole.labels(options)? {
            Labels::Counted(counts) => {
                let index = |sample| usize::try_from(sample).unwrap_or(usize::MAX);
                let counts: Vec<u32> =
                    self.selection.iter().map(|sample| counts.as_slice()[index(sample)]).collect();
                LabelCounts::new(counts).into()
            }
            labels => labels,
        })
    }

    fn makes_labels(&self) -> bool {
        self.whole.makes_labels()
    }

    fn has_documents(&self) -> bool {
        self.whole.has_documents()
    }

    fn changes_with_epoch(&self, options: &CollateOptions) -> bool {
        self.whole.changes_with_epoch(options)
    }

    fn content(&self, request: &ContentRequest) -> Result<Option<Content>> {
        let whole = self.whole.content(request)?;
        let (text, rows, tail) = whole
            .map_or((String::new(), None, 0), |whole| (format!("{} ", whole.text), whole.rows, whole.tail));
        Ok(Some(Content { text: format!("{text}select {}", self.selection.text()), rows, tail }))
    }

    fn sample(&self, sample: u64) -> Result<Vec<(String, Tensor)>> {
        self.whole.sample(self.selection.get(sample))
    }

    fn rows(&self, samples: Range<usize>) -> Vec<Range<usize>> {
        let number = |place: usize| usize::try_from(self.selection.get(place as u64)).unwrap_or(usize::MAX);
        let numbers = samples.map(number);
        let (first, end) = (numbers.clone().min(), numbers.max().map(|last| last + 1));
        self.whole.rows(first.unwrap_or(0)..end.unwrap_or(0))
    }

    fn most_rows(&self, samples: usize) -> Vec<usize> {
        match self.selection.as_range() {
            Some(_) => self.whole.most_rows(samples),
            None => self.whole.most_rows(self.whole.len()),
        }
    }

    fn select(&self, selection: &Selection) -> Option<Result<Arc<dyn Kind>>> {
        let selection = selection.within(&self.selection);
        let selected = selection.and_then(|selection| Self::new(Arc::clone(&self.whole), selection));
        Some(selected.map(|selected| Arc::new(selected) as Arc<dyn Kind>))
    }
}
