//! `Lists`: lists of numbers in one piece of memory, such as the samples of each unit or the bins of each rank.

/// Lists of numbers, one behind the other.
#[derive(Debug, Default)]
pub(super) struct Lists {
    numbers: Vec<usize>,
    /// The end of each list in `numbers`.
    ends: Vec<usize>,
}

impl Lists {
    /// Lists of one number each: 0, 1 and so on.
    pub(super) fn alone(count: usize) -> Self {
        Self { numbers: (0..count).collect(), ends: (1..=count).collect() }
    }

    /// The places in `lists` where each list is named, in order.
    pub(super) fn of_places(lists: &[usize]) -> Self {
        let mut ends = vec![0; lists.iter().max().map_or(0, |most| most + 1)];
        lists.iter().for_each(|&list| ends[list] += 1);
        let mut begin = 0;
        // As long as numbers are put in place, an end is the place of the next one.
        for end in &mut ends {
            begin += std::mem::replace(end, begin);
        }
        let mut numbers = vec![0; lists.len()];
        for (place, &list) in lists.iter().enumerate() {
            numbers[ends[list]] = place;
            ends[list] += 1;
        }
        Self { numbers, ends }
    }

    /// Some lists, in the order in which they are named.
    pub(super) fn select(&self, lists: &[usize]) -> Self {
        let mut selected =
            Self { numbers: Vec::with_capacity(self.numbers.len()), ends: Vec::with_capacity(lists.len()) };
        lists.iter().for_each(|&list| selected.push(self.of(list)));
        selected
    }

    /// Adds a list.
    pub(super) fn push(&mut self, numbers: &[usize]) {
        self.numbers.extend_from_slice(numbers);
        self.ends.push(self.numbers.len());
    }

    /// The numbers of a list.
    pub(super) fn of(&self, list: usize) -> &[usize] {
        let begin = list.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.numbers[begin..self.ends[list]]
    }

    /// The numbers of each list.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[usize]> {
        (0..self.len()).map(|list| self.of(list))
    }

    /// The number of lists.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }
}
