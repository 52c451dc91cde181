//! Counts of datasets are those of their definition, item by item.

use batchloom::dataset::{
    GroupCounts, GroupOversize, Groups, SequenceCounts, Sequences, TokenCounts, TokenMode,
};
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
        let expected = SequenceCounts {
            samples: lengths.len() as u64,
            tokens: lengths.iter().map(|&length| u64::from(length)).sum(),
            shortest: *lengths.iter().min().unwrap(),
            longest: *lengths.iter().max().unwrap(),
        };
        prop_assert_eq!(dataset.build().unwrap().counts(), expected);
    }

    #[test]
    fn counts_of_groups(ids in prop::collection::vec(0_i64..8, 1..60), max_rows in 1_u32..10) {
        let dataset = GroupDataset::new(Groups::of(&ids).unwrap()).rows("x", range(ids.len())).unwrap();
        let dataset = dataset.max_rows(max_rows, GroupOversize::Truncate).build().unwrap();
        let rows = |group: i64| ids.iter().filter(|&&id| id == group).count() as u64;
        let lengths: Vec<u64> = (0..8).map(rows).filter(|&rows| rows > 0).collect();
        let left_out: Vec<u64> = lengths.iter().map(|rows| rows.saturating_sub(u64::from(max_rows))).collect();
        let expected = GroupCounts {
            groups: lengths.len() as u64,
            rows: ids.len() as u64,
            longest: *lengths.iter().max().unwrap(),
            longer: left_out.iter().filter(|&&rows| rows > 0).count() as u64,
            left_out: left_out.iter().sum(),
        };
        prop_assert_eq!(dataset.counts(), expected);
        prop_assert_eq!(Groups::of(&ids).unwrap().counts(Some(max_rows)), expected);
        let whole = GroupCounts { longer: 0, left_out: 0, ..expected };
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
        let expected = TokenCounts {
            tokens: tokens as u64,
            documents: lengths.len() as u64,
            separators: separators as u64,
            samples: samples as u64,
            inputs: (samples * seq_len) as u64,
            tail: (stream - samples * seq_len) as u64,
        };
        prop_assert_eq!(dataset.counts(rows), expected);
    }
}
