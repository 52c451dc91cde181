//! Weights of labels: over an update they add up to the loss of one large batch, whatever divides its samples.

use batchloom::batching::{LabelCounts, Loss, Sizes};
use batchloom::ranks::Uneven;
use batchloom::{Kind, Loader, SequenceDataset, Tensor, TensorDataset};
use proptest::prelude::*;

use crate::rules::{count_labels, rule};

fn losses() -> impl Strategy<Value = Loss> {
    prop::sample::select(vec![Loss::TokenMean, Loss::SequenceMean, Loss::SequenceSum])
}

/// The sum of weights that an update has by definition, given the labels of each of its samples.
fn total(loss: Loss, labels: &[usize]) -> f64 {
    let (all, labelled) = (labels.iter().sum::<usize>(), labels.iter().filter(|&&count| count > 0).count());
    match loss {
        _ if labelled == 0 => 0.0,
        Loss::SequenceSum => all as f64 / labelled as f64,
        _ => 1.0,
    }
}

proptest! {
    // law: L3
    #[test]
    fn weights_of_an_update_add_up_over_ranks_and_steps(
        lengths in prop::collection::vec(0_usize..9, 1..40),
        rule in rule(),
        loss in losses(),
        world_size in 1_u32..4,
        accumulate in 1_u64..4,
        masked in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let sentences: Vec<Vec<i64>> = lengths.iter().map(|&length| vec![5; length]).collect();
        let dataset = SequenceDataset::new().slices("ids", &sentences).unwrap().build().unwrap();
        let uneven = if masked { Uneven::Mask } else { Uneven::Pad };
        let loader = |rank| {
            let loader = Loader::builder(dataset.clone()).rule(rule.clone()).rank(rank, world_size).labels("ids");
            loader.shuffle(true).seed(seed).uneven(uneven).accumulate(accumulate).loss(loss).build()
        };
        let Ok(first) = loader(0) else { return Ok(()) }; // the rule refuses a length
        let plan = first.plan(0);
        let mut sums = vec![0.0; plan.updates() as usize];
        for rank in 0..world_size {
            for (step, batch) in (0..).zip(loader(rank).unwrap().iter()) {
                let batch = batch.unwrap();
                let update = plan.update_of(step);
                let (labels, weights) = (batch.view::<i64>("labels").unwrap(), batch.view::<f32>("loss_weight").unwrap());
                prop_assert_eq!(labels.len(), weights.len());
                prop_assert!(labels.iter().zip(weights).all(|(&label, &weight)| (label == -100) == (weight == 0.0)));
                let expected = plan.loss_denominator(step, loss).unwrap().unwrap();
                prop_assert_eq!(batch.view::<i64>("loss_denominator").unwrap(), [expected as i64]);
                sums[update as usize] += weights.iter().map(|&weight| f64::from(weight)).sum::<f64>();
            }
        }
        let sizes: Vec<u32> = lengths.iter().map(|&length| length as u32).collect();
        for (update, sum) in (0..).zip(sums) {
            let counted = plan.update(update).unwrap();
            let mut labels = Vec::new();
            for step in counted.steps.clone() {
                for rank in (0..world_size).filter(|&rank| step < plan.steps_of(rank)) {
                    let parts = plan.parts(step, rank).unwrap();
                    let len = parts.sizes.len() - plan.fillers(step, rank).unwrap() as usize;
                    let counts = count_labels(&rule, &sizes, &parts);
                    labels.extend(counts.into_iter().take(len).map(|count| count as usize));
                }
            }
            prop_assert!((sum - total(loss, &labels)).abs() < 1e-4, "{} {:?}", sum, counted);
            prop_assert_eq!(counted.labels, Some(labels.iter().sum::<usize>() as u64));
        }
    }

    // law: L4
    #[test]
    fn a_denominator_is_the_count_of_its_update(
        sizes in prop::collection::vec(1_u32..40, 1..60),
        rule in rule(),
        loss in losses(),
        worlds in (1_u32..4, 1_u32..4),
        accumulate in 1_u64..4,
        taken in 0_u64..6,
    ) {
        let counts: Vec<u32> = sizes.iter().map(|size| size / 3).collect();
        let plan = batchloom::Plan::builder(sizes.len() as u64).sizes(Sizes::new(sizes)).rule(rule).shuffle(true);
        let plan = plan.labels(Some(LabelCounts::new(counts).into())).accumulate(accumulate).world_size(worlds.0).build();
        let Ok(plan) = plan else { return Ok(()) };
        let state = plan.state(taken.min(plan.steps()));
        let rest = plan.in_world(worlds.1).unwrap().resume(&state).unwrap();
        for step in 0..rest.steps() {
            let update = rest.update(rest.update_of(step)).unwrap();
            prop_assert!(update.steps.contains(&step));
            let counted = if loss == Loss::TokenMean { update.labels } else { update.sequences };
            prop_assert_eq!(rest.loss_denominator(step, loss).unwrap(), counted.map(|count| count.max(1)));
        }
        prop_assert!(rest.loss_denominator(rest.steps() + accumulate, loss).unwrap() == Some(1));
    }
}

#[test]
fn one_label_a_sample_weighs_one_over_their_number() {
    let labels = Tensor::from_vec(vec![3_i32, -100, 1, 2, -100, 0, 7], &[7]).unwrap();
    let dataset = TensorDataset::new([("labels", labels)]).unwrap();
    let counts = LabelCounts::new([1, 0, 1, 1, 0, 1, 1]);
    let loader =
        Loader::builder(dataset).batch_size(2).accumulate(2).label_counts(counts).loss(Loss::TokenMean);
    let batches = loader.build().unwrap().iter().collect::<Result<Vec<_>, _>>().unwrap();
    let weights: Vec<&[f32]> = batches.iter().map(|batch| batch.view("loss_weight").unwrap()).collect();
    let third = 1.0 / 3.0;
    assert_eq!(weights, [&[third, 0.0][..], &[third, third], &[0.0, 0.5], &[0.5]]);
}

#[test]
fn a_loss_that_cannot_be_known_is_refused() {
    let numbers = || Tensor::from_vec(vec![1_i64, 2, 3], &[3]).unwrap();
    let built = |name: &str| {
        let dataset = TensorDataset::new([(name, numbers())]).unwrap();
        Loader::builder(dataset).loss(Loss::SequenceMean)
    };
    let error = built("x").build().unwrap_err();
    assert_eq!((error.kind(), error.option()), (Kind::Argument, Some("loss")));
    let error = built("labels").build().unwrap_err();
    assert_eq!((error.kind(), error.option()), (Kind::Argument, Some("label_counts")));
    let error =
        built("labels").label_counts(LabelCounts::new([1, 1, 1])).index_table(true).build().unwrap_err();
    assert_eq!((error.kind(), error.option()), (Kind::Argument, Some("loss")));
    let floats = Tensor::from_vec(vec![1.0_f32, 2.0, 3.0], &[3]).unwrap();
    let dataset = TensorDataset::new([("labels", floats)]).unwrap();
    let loader = Loader::builder(dataset).loss(Loss::TokenMean).label_counts(LabelCounts::new([1, 1, 1]));
    assert_eq!(loader.build().unwrap_err().option(), Some("loss"));
    let taken = TensorDataset::new([("labels", numbers()), ("loss_weight", numbers())]).unwrap();
    let loader = Loader::builder(taken).loss(Loss::TokenMean).label_counts(LabelCounts::new([1, 1, 1]));
    let error = loader.build().unwrap_err();
    assert_eq!((error.option(), error.field()), (Some("loss"), Some("loss_weight")));
    for loss in [Loss::TokenMean, Loss::SequenceMean, Loss::SequenceSum] {
        assert_eq!(loss.name().parse::<Loss>().unwrap(), loss);
    }
    assert!("mean".parse::<Loss>().unwrap_err().to_string().contains("sequence-sum"));
}
