//! Results come back in the order of the dataset: each sample has its last result, and a missing one is named.

use batchloom::plan::restore_order;
use batchloom::ranks::Uneven;
use batchloom::{Error, Plan};
use proptest::prelude::*;

/// The place of each sample's last result, and the first sample without one, by definition.
fn slow(samples: &[u64]) -> Result<Vec<usize>, Error> {
    let most = samples.iter().max().map_or(0, |most| most + 1);
    let last = |sample| samples.iter().rposition(|&found| found == sample);
    (0..most).map(|sample| last(sample).ok_or(Error::MissingResult { sample })).collect()
}

proptest! {
    #[test]
    fn restore_order_finds_the_last_result_of_each_sample(samples in prop::collection::vec(0_u64..12, 0..40)) {
        prop_assert_eq!(restore_order(&samples, samples.len()), slow(&samples));
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
    assert_eq!(restore_order(&[0_u64, 1], 3), Err(Error::Results { results: 3, samples: 2 }));
    assert_eq!(restore_order(&[0, u64::MAX], 2), Err(Error::MissingResult { sample: 1 }));
    assert_eq!(restore_order::<i64>(&[], 0), Ok(Vec::new()));
}
