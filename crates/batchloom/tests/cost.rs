//! A cost model that is fitted to measurements: an exact one is found again, and none fits better.

use batchloom::batching::{CostModel, Fit, Measurement, Transformer};
use batchloom::{Error, Kind};
use proptest::prelude::*;

use crate::errors::{is, refused};

const SHAPES: [(u64, u64); 9] =
    [(1, 8), (4, 8), (16, 8), (1, 64), (4, 64), (16, 64), (1, 512), (4, 512), (2, 2000)];

fn measured(shapes: &[(u64, u64)], step: impl Fn(u64, u64) -> f64) -> Vec<Measurement> {
    let measured = |&(samples, length)| Measurement { samples, length, seconds: step(samples, length) };
    shapes.iter().map(measured).collect()
}

fn coefficients(fit: &Fit) -> [f64; 3] {
    [fit.model.fixed(), fit.model.per_token(), fit.model.per_pair()]
}

/// The sum of the squares of the relative errors, by definition.
fn error(coefficients: [f64; 3], measurements: &[Measurement]) -> f64 {
    let [fixed, per_token, per_pair] = coefficients;
    let relative = |measurement: &Measurement| {
        let (samples, length) = (measurement.samples as f64, measurement.length as f64);
        (fixed + per_token * samples * length + per_pair * samples * length * length) / measurement.seconds
            - 1.0
    };
    measurements.iter().map(|measurement| relative(measurement).powi(2)).sum()
}

fn measurements() -> impl Strategy<Value = Vec<Measurement>> {
    let shapes = prop::collection::btree_set((1_u64..99, 1_u64..999), 4..12);
    (shapes, prop::collection::vec(1e-6..10.0_f64, 12)).prop_map(|(shapes, seconds)| {
        let measured = |((samples, length), seconds)| Measurement { samples, length, seconds };
        shapes.into_iter().zip(seconds).map(measured).collect()
    })
}

proptest! {
    #[test]
    fn cost_of_an_exact_model_is_found_again(
        known in (0.0..1.0_f64, 0.0..1e-3_f64, 0.0..1e-6_f64),
        zeros in prop::array::uniform3(any::<bool>()),
    ) {
        let known = [known.0, known.1, known.2];
        let [fixed, per_token, per_pair] = [0, 1, 2].map(|place| if zeros[place] { 0.0 } else { known[place] });
        let model = CostModel::new(fixed + 1e-6, per_token, per_pair).unwrap();
        let measurements = measured(&SHAPES, |samples, length| model.cost(samples, length));
        let fit = CostModel::fit(&measurements).unwrap();
        prop_assert!(fit.worst < 1e-6, "{fit:?}");
        for (samples, length) in [(3, 100), (100, 3), (7, 3000)] {
            let (fitted, expected) = (fit.model.cost(samples, length), model.cost(samples, length));
            prop_assert!((fitted / expected - 1.0).abs() < 1e-5, "{fitted} {expected}");
        }
    }

    /// The sum of squares is convex: a model that no neighbour is better than is the best.
    #[test]
    fn cost_fits_no_worse_than_any_neighbour(
        measurements in measurements(),
        away in prop::array::uniform3(-1.0..1.0_f64),
    ) {
        prop_assume!(CostModel::fit(&measurements).is_ok());
        let fit = CostModel::fit(&measurements).unwrap();
        let best = coefficients(&fit);
        prop_assert!(best.iter().all(|&number| number >= 0.0));
        let least = error(best, &measurements);
        let largest = |term: fn(&Measurement) -> f64| {
            measurements.iter().map(|measurement| term(measurement) / measurement.seconds).fold(0.0, f64::max)
        };
        let scale = [
            largest(|_| 1.0),
            largest(|measurement| (measurement.samples * measurement.length) as f64),
            largest(|measurement| (measurement.samples * measurement.length * measurement.length) as f64),
        ];
        for reach in [1e-4, 1e-2, 1.0, 100.0] {
            for chosen in 1..8_usize {
                let moves = |place: usize| chosen >> place & 1 == 1;
                let step = |place: usize| if moves(place) { away[place] * reach / scale[place] } else { 0.0 };
                let other = [0, 1, 2].map(|place| (best[place] + step(place)).max(0.0));
                prop_assert!(error(other, &measurements) >= least * (1.0 - 1e-9) - 1e-12);
            }
        }
    }

    #[test]
    fn cost_errors_are_their_definition(measurements in measurements()) {
        prop_assume!(CostModel::fit(&measurements).is_ok());
        let fit = CostModel::fit(&measurements).unwrap();
        let relative = |measurement: &Measurement| (fit.model.cost(measurement.samples, measurement.length) / measurement.seconds - 1.0).abs();
        let mut errors: Vec<f64> = measurements.iter().map(relative).collect();
        errors.sort_by(f64::total_cmp);
        let count = errors.len();
        let median =
            if count % 2 == 1 { errors[count / 2] } else { (errors[count / 2 - 1] + errors[count / 2]) / 2.0 };
        prop_assert_eq!(fit.worst, errors[count - 1]);
        prop_assert_eq!(fit.error, median);
    }
}

#[test]
fn cost_that_falls_with_length_has_no_negative_coefficient() {
    let fit = CostModel::fit(&measured(&SHAPES, |_, length| 1.0 / length as f64)).unwrap();
    assert!(coefficients(&fit).iter().all(|&number| number >= 0.0));
    assert!(fit.error > 0.2);
}

#[test]
fn cost_needs_shapes_that_tell_coefficients_apart() {
    let few = CostModel::check_shapes(&[(1, 2), (2, 1), (1, 2)]);
    refused(few, Kind::Argument, &["2 distinct shapes"]);
    refused(CostModel::check_shapes(&[]), Kind::Argument, &["0 distinct shapes"]);
    for alike in [[(1, 8), (4, 8), (16, 8)], [(2, 8), (2, 8), (2, 16)]] {
        let error = CostModel::check_shapes(&alike).unwrap_err();
        let said = ["do not tell the coefficients apart", "2 distinct shapes"];
        assert!(said.iter().any(|said| is(&error, Kind::Argument, &[said])), "{error}");
    }
    CostModel::check_shapes(&[(3, 8), (3, 16), (3, 32)]).unwrap();
    CostModel::check_shapes(&SHAPES).unwrap();
}

#[test]
fn cost_of_a_wrong_measurement_is_refused() {
    for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let fitted = CostModel::fit(&measured(&SHAPES, |_, _| seconds));
        refused(fitted, Kind::Argument, &["1 samples of length 8", "seconds"]);
    }
    for empty in [(0, 1), (1, 0)] {
        let checked = CostModel::check_shapes(&[empty, (1, 1), (2, 2), (3, 5)]);
        let shape = format!("{} samples of length {}", empty.0, empty.1);
        refused(checked, Kind::Argument, &[&shape, "unknown seconds"]);
    }
}

#[test]
fn cost_is_calibrated_by_the_least_of_several_runs() {
    // The first run warms up, and two of five are disturbed.
    let times = [0.1, 1.0, 50.0, 1.1, 2.0, 1.0];
    let mut calls = 0;
    let several = Measurement::of_shapes(&[(2, 8)], |_, _| {
        calls += 1;
        Ok::<_, Error>(times[(calls - 1) % times.len()] * 0.05)
    });
    assert_eq!(several, Ok(vec![Measurement { samples: 2, length: 8, seconds: 0.05 }]));
    assert_eq!(calls, 6, "a warm-up and five runs take longer than needed");
    let mut calls = 0;
    let short = Measurement::of_shapes(&[(1, 1)], |_, _| {
        calls += 1;
        Ok::<_, Error>(0.0)
    });
    assert!(short.is_ok_and(|measured| measured[0].seconds > 0.0));
    assert_eq!(calls, 21);
    assert_eq!(Measurement::of_shapes(&[(1, 1)], |_, _| Err("no memory")), Err("no memory"));
}

#[test]
fn cost_is_calibrated_by_shapes_that_take_turns() {
    let (shapes, mut ran) = ([(1, 8), (4, 8), (1, 64)], Vec::new());
    let seconds = |samples: u64| if samples == 4 { 1.0 } else { 0.03125 };
    let measured = Measurement::of_shapes(&shapes, |samples, length| {
        ran.push((samples, length));
        Ok::<_, Error>(seconds(samples))
    });
    assert!(measured.is_ok_and(|all| all.iter().all(|one| one.seconds == seconds(one.samples))));
    assert!(ran.chunks(3).take(6).all(|turn| turn == shapes), "{ran:?}");
    assert!(ran[18..].iter().all(|&(samples, _)| samples == 1), "two more turns of short ones: {ran:?}");
    assert_eq!(ran.len(), 18 + 2 * 2);
}

#[test]
fn cost_of_a_step_is_timed_on_every_shape() {
    let mut shapes = Vec::new();
    let fit = CostModel::calibrate(CostModel::shapes(), |samples, length| shapes.push((samples, length)));
    assert!(fit.is_ok());
    shapes.truncate(CostModel::shapes().len());
    assert_eq!(shapes, CostModel::shapes());
    let alike = CostModel::calibrate([(1, 8), (4, 8), (16, 8)], |_, _| panic!("a step ran"));
    refused(alike, Kind::Argument, &["[(1, 8), (4, 8), (16, 8)]", "do not tell the coefficients apart"]);
}

proptest! {
    /// Two integer sums decide: no order of samples changes a bit.
    #[test]
    fn cost_of_a_concatenation_is_of_two_sums(
        mut lengths in prop::collection::vec(any::<u32>(), 0..50),
        given in (0.0..1e3_f64, 1e-6..1e3_f64, 0.0..1.0_f64),
        turn in 0..50_usize,
    ) {
        let model = CostModel::new(given.0, given.1, given.2).unwrap();
        let cost = |lengths: &[u32]| {
            let squares = lengths.iter().map(|&length| u128::from(length).pow(2)).sum();
            model.packed_cost(lengths.iter().map(|&length| u64::from(length)).sum(), squares)
        };
        let whole = cost(&lengths);
        let one_by_one: f64 = lengths.iter().map(|&length| model.cost(1, u64::from(length)) - given.0).sum();
        prop_assert!((whole - (given.0 + one_by_one)).abs() <= whole * 1e-12);
        let middle = turn.min(lengths.len());
        lengths.rotate_left(middle);
        prop_assert_eq!(cost(&lengths).to_bits(), whole.to_bits());
    }
}

#[test]
fn cost_of_a_transformer_is_its_operations() {
    let shape = Transformer::new(4096, 32).unwrap();
    let model = CostModel::of(&shape);
    assert_eq!(
        (model.fixed(), model.per_token(), model.per_pair()),
        (0.0, 32.0 * 24.0 * 4096.0 * 4096.0, 32.0 * 4.0 * 4096.0)
    );
    let default = CostModel::default();
    assert_eq!(model.per_token() / model.per_pair(), default.per_token() / default.per_pair());
    assert_eq!(CostModel::of(&shape.causal(true)).per_pair(), model.per_pair() / 2.0);
    assert_eq!(CostModel::of(&shape.vocab_size(7)).per_token(), model.per_token() + 2.0 * 7.0 * 4096.0);
    let shape = shape.intermediate_size(1024).unwrap().gated(true).experts_per_token(2).unwrap();
    let shape = shape.heads(32, 8).unwrap().head_dim(64).unwrap();
    let per_layer = 4096.0 * (2.0 * 2048.0 + 2.0 * 512.0 + 3.0 * 2.0 * 1024.0);
    assert_eq!(CostModel::of(&shape).per_token(), 2.0 * 32.0 * per_layer);
    assert_eq!(CostModel::of(&shape).per_pair(), 32.0 * 4.0 * 2048.0);
}

#[test]
fn cost_of_no_transformer_is_refused() {
    refused(Transformer::new(0, 1), Kind::Argument, &["hidden_size", "0"]);
    refused(Transformer::new(1, 0), Kind::Argument, &["layers", "0"]);
    let shape = Transformer::new(64, 2).unwrap();
    refused(shape.intermediate_size(0), Kind::Argument, &["intermediate_size", "0"]);
    refused(shape.heads(6, 4), Kind::Argument, &["6", "4"]);
    refused(shape.heads(0, 1), Kind::Argument, &["heads", "0"]);
    refused(shape.heads(2, 0), Kind::Argument, &["kv_heads", "0"]);
    refused(shape.head_dim(0), Kind::Argument, &["head_dim", "0"]);
    refused(shape.experts_per_token(0), Kind::Argument, &["experts_per_token", "0"]);
}
