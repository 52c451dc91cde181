//! Results come back in the order of the dataset: each sample has its last result, and a missing one is named.

use batchloom::plan::restore_order;
use batchloom::ranks::Uneven;
use batchloom::{Kind, Plan};
use proptest::prelude::*;

use crate::errors::{is, refused};

/// The place of each sample's last result, and the first sample without one, by definition.
fn slow(samples: &[u64]) -> Result<Vec<usize>, u64> {
    let most = samples.iter().max().map_or(0, |most| most + 1);
    let last = |sample| samples.iter().rposition(|&other| other == sample);
    (0..most).map(|sample| last(sample).ok_or(sample)).collect()
}

proptest! {
    #[test]
    fn restore_order_finds_the_last_result_of_each_sample(samples in prop::collection::vec(0_u64..12, 0..40)) {
        match (restore_order(&samples, samples.len()), slow(&samples)) {
            (Ok(places), expected) => prop_assert_eq!(Ok(places), expected),
            (Err(error), expected) => {
                prop_assert!(is(&error, Kind::Data, &["has no result"]), "{error}");
                prop_assert_eq!(error.sample(), expected.err());
            }
        }
    }

    #[test]
    fn restore_order_undoes_any_plan(
        samples in 1_u64..300,
        batch_size in 1_u64..40,
        seed: u64,
        world_size in 1_u32..5,
    ) {
        let plan = Plan::builder(samples).batch_size(batch_size).shuffle(true).seed(seed).world_size(world_size);
        let plan = plan.uneven(Uneven::Pad).build().unwrap();
        let ranks = (0..world_size).flat_map(|rank| (0..plan.steps()).map(move |step| (step, rank)));
        let order: Vec<u64> = ranks.flat_map(|(step, rank)| plan.indices(step, rank).unwrap()).collect();
        let restored = restore_order(&order, order.len()).unwrap();
        let restored: Vec<u64> = restored.into_iter().map(|place| order[place]).collect();
        prop_assert_eq!(restored, (0..samples).collect::<Vec<_>>());
    }
}

#[test]
fn restore_order_refuses_results_that_do_not_fit() {
    refused(restore_order(&[0_u64, 1], 3), Kind::Data, &["3 results for 2 samples"]);
    refused(restore_order(&[0, u64::MAX], 2), Kind::Data, &["sample 1 has no result"]);
    assert_eq!(restore_order::<i64>(&[], 0), Ok(Vec::new()));
}
