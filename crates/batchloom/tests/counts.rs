//! Counts of datasets are those of their definition, item by item.

use batchloom::dataset::{GroupOversize, Groups, Sequences, TokenMode};
use batchloom::{GroupDataset, SequenceDataset, Tensor, TokenDataset};
use proptest::prelude::*;

fn range(len: usize) -> Tensor {
    Tensor::from_vec((0..len as i64).collect(), &[len]).unwrap()
}

fn offsets(lengths: &[u32]) -> Vec<i64> {
    let ends = lengths.iter().scan(0, |end, &length| {
        *end += i64::from(length);
        Some(*end)
    });
    [0].into_iter().chain(ends).collect()
}

proptest! {
    #[test]
    fn counts_of_sequences(lengths in prop::collection::vec(0_u32..20, 1..40)) {
        let offsets = offsets(&lengths);
        let values = range(offsets[lengths.len()] as usize);
        let dataset = SequenceDataset::new().variable("x", Sequences::new("x", values, &offsets).unwrap());
        let dataset = dataset.build().unwrap();
        // Only the engine makes such a value; all fields of this one are set.
        let mut expected = dataset.counts();
        expected.samples = lengths.len() as u64;
        expected.tokens = lengths.iter().map(|&length| u64::from(length)).sum();
        expected.shortest = *lengths.iter().min().unwrap();
        expected.longest = *lengths.iter().max().unwrap();
        prop_assert_eq!(dataset.counts(), expected);
    }

    #[test]
    fn counts_of_groups(ids in prop::collection::vec(0_i64..8, 1..60), max_rows in 1_u32..10) {
        let dataset = GroupDataset::new(Groups::of(&ids).unwrap()).rows("x", range(ids.len())).unwrap();
        let dataset = dataset.max_rows(max_rows, GroupOversize::Truncate).build().unwrap();
        let rows = |group: i64| ids.iter().filter(|&&id| id == group).count() as u64;
        let lengths: Vec<u64> = (0..8).map(rows).filter(|&rows| rows > 0).collect();
        let left_out: Vec<u64> = lengths.iter().map(|rows| rows.saturating_sub(u64::from(max_rows))).collect();
        // Only the engine makes such a value; all fields of this one are set.
        let mut expected = dataset.counts();
        expected.groups = lengths.len() as u64;
        expected.rows = ids.len() as u64;
        expected.longest = *lengths.iter().max().unwrap();
        expected.longer = left_out.iter().filter(|&&rows| rows > 0).count() as u64;
        expected.left_out = left_out.iter().sum();
        prop_assert_eq!(dataset.counts(), expected);
        prop_assert_eq!(Groups::of(&ids).unwrap().counts(Some(max_rows)), expected);
        let mut whole = expected;
        (whole.longer, whole.left_out) = (0, 0);
        prop_assert_eq!(Groups::of(&ids).unwrap().counts(None), whole);
    }

    #[test]
    fn counts_of_tokens(
        lengths in prop::collection::vec(1_u32..30, 1..10),
        seq_len in 1_usize..12,
        separates in any::<bool>(),
        continuous in any::<bool>(),
        rows in 1_u64..6,
    ) {
        let offsets = offsets(&lengths);
        let tokens = offsets[lengths.len()] as usize;
        let ends = Tensor::from_vec(offsets, &[lengths.len() + 1]).unwrap();
        let mut dataset = TokenDataset::new(range(tokens), seq_len).unwrap();
        if separates {
            dataset = dataset.separator(7);
        }
        if continuous {
            dataset = dataset.mode(TokenMode::Continuous);
        }
        let dataset = dataset.documents(&ends).unwrap();
        let separators = if separates { lengths.len() - 1 } else { 0 };
        let stream = tokens + separators;
        // Every piece has a token after it, within its row.
        let rows_of_stream = if continuous { rows as usize } else { 1 };
        let row = stream.saturating_sub(1) / rows_of_stream;
        let samples = (0..row).filter(|token| token % seq_len == seq_len - 1).count() * rows_of_stream;
        // Only the engine makes such a value; all fields of this one are set.
        let mut expected = dataset.counts(rows);
        expected.tokens = tokens as u64;
        expected.documents = lengths.len() as u64;
        expected.separators = separators as u64;
        expected.samples = samples as u64;
        expected.inputs = (samples * seq_len) as u64;
        expected.tail = (stream - samples * seq_len) as u64;
        prop_assert_eq!(dataset.counts(rows), expected);
    }
}
