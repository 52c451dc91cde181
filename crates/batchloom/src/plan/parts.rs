//! The contents of a batch: the parts of samples that it holds.

/// The samples of a batch, and the elements that it takes of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parts {
    /// The samples.
    pub samples: Vec<u64>,
    /// The first element that is taken of each sample: 0 unless samples are split, or truncated before their start.
    pub starts: Vec<u32>,
    /// The number of elements that are taken of each sample: its size, unless the rule truncates or splits samples.
    pub sizes: Vec<u32>,
    /// The end of each row among these parts, if batches are rows of one shape. Rows that are empty are not listed.
    pub row_ends: Vec<u32>,
}

impl Parts {
    /// `len` parts: the first parts, or all parts and then the first parts again.
    pub(super) fn fit(self, len: Option<u64>) -> Self {
        let Self { samples, starts, sizes, row_ends } = self;
        Self {
            samples: fit_len(samples, len),
            starts: fit_len(starts, len),
            sizes: fit_len(sizes, len),
            row_ends,
        }
    }

    /// The parts of samples that are not in `banned`, which is in ascending order.
    pub(super) fn without(self, banned: &[u64]) -> Self {
        if banned.is_empty() {
            return self;
        }
        self.choose(|sample| banned.binary_search(&sample).is_err())
    }

    /// The parts of some samples, without their rows.
    pub(super) fn choose(&self, is_chosen: impl Fn(u64) -> bool) -> Self {
        let mut chosen = Self::default();
        for ((&sample, &start), &size) in self.samples.iter().zip(&self.starts).zip(&self.sizes) {
            if is_chosen(sample) {
                chosen.samples.push(sample);
                chosen.starts.push(start);
                chosen.sizes.push(size);
            }
        }
        chosen
    }
}

/// `len` elements: the first elements, or all elements and then the first elements again.
pub(super) fn fit_len<T: Copy>(mut elements: Vec<T>, len: Option<u64>) -> Vec<T> {
    let Some(len) = len.map(|len| usize::try_from(len).unwrap_or(usize::MAX)) else { return elements };
    let own = elements.len();
    elements.truncate(len);
    (own..len).for_each(|place| elements.push(elements[place % own]));
    elements
}
