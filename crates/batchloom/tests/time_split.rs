//! Splits of time: shares are exact, borders are in order, and parts are those of their borders.

use batchloom::dataset::{BacktestShape, PartEnd, WindowShape, borders, tslib_ends};
use batchloom::{Kind, Tensor, WindowDataset};
use proptest::prelude::*;

use crate::errors::refused;

fn shares(shares: &[f64]) -> Vec<(&'static str, PartEnd)> {
    let names = ["a", "b", "c", "d", "e", "f"];
    names.into_iter().zip(shares.iter().map(|&share| PartEnd::Share(share))).collect()
}

fn dataset(lengths: &[usize], input_len: usize, horizon: usize) -> Option<WindowDataset> {
    let mut offsets = vec![0];
    lengths.iter().for_each(|length| offsets.push(offsets[offsets.len() - 1] + length));
    let rows = offsets[lengths.len()];
    let values = Tensor::from_vec((0..rows as i64).collect(), &[rows]).unwrap();
    let windows = WindowDataset::new(&offsets, WindowShape::new(input_len).horizon(horizon)).ok()?;
    Some(windows.input("x", values.clone()).unwrap().target("y", values).unwrap())
}

proptest! {
    /// Fractions as floats are taken as the fractions.
    #[test]
    fn time_split_takes_shares_as_meant(
        (first, below) in (2_u64..1000).prop_flat_map(|below| (1..below, Just(below))),
        (second, other) in (2_u64..1000).prop_flat_map(|below| (1..below, Just(below))),
        lengths in prop::collection::vec(0_usize..100_000, 1..4),
    ) {
        prop_assume!(first * other + second * below <= below * other);
        let parts = shares(&[first as f64 / below as f64, second as f64 / other as f64]);
        let stops = borders(&lengths, &parts).unwrap();
        let exact = |above: u64, below: u64| -> Vec<usize> {
            lengths.iter().map(|&length| (u128::from(above) * length as u128 / u128::from(below)) as usize).collect()
        };
        prop_assert_eq!(&stops[0], &exact(first, below));
        prop_assert_eq!(&stops[1], &exact(first * other + second * below, below * other));
    }

    #[test]
    fn time_split_by_all_shares_leaves_nothing_out(
        weights in prop::collection::vec(1e-3..1.0_f64, 1..6),
        length in 0_usize..1_000_000,
    ) {
        let total: f64 = weights.iter().sum();
        let normal: Vec<f64> = weights.iter().map(|weight| weight / total).collect();
        let all_stops = borders(&[length], &shares(&normal)).unwrap();
        prop_assert_eq!(all_stops[all_stops.len() - 1][0], length);
        let mut sum = 0.0;
        for (share, stops) in normal.iter().zip(&all_stops) {
            sum += share;
            let exact = sum * length as f64;
            prop_assert!((stops[0] as f64 - exact).abs() <= 1.0 + 1e-6 * length as f64, "{} {exact}", stops[0]);
        }
        prop_assert!(all_stops.windows(2).all(|pair| pair[0] <= pair[1]));
    }

    #[test]
    fn time_split_of_a_float_near_no_fraction_is_its_floor(share in 1e-6..1.0_f64, length in 1_usize..100_000) {
        let stops = borders(&[length], &shares(&[share])).unwrap()[0][0];
        let exact = share * length as f64;
        // A simple fraction that is nearer than 1e-7 moves it by no more.
        prop_assert!(stops as f64 <= exact + 1e-7 * length as f64 + 1e-9, "{stops} {exact}");
        prop_assert!(stops as f64 > exact - 1.0 - 1e-7 * length as f64 - 1e-9, "{stops} {exact}");
    }

    /// The windows of a backtest, step by step: an origin in each series, inputs before it, horizons from it on.
    // law: W1
    #[test]
    fn backtests_never_look_ahead(
        lengths in prop::collection::vec(0_usize..60, 1..4), start in 1_i64..40, horizon in 1_usize..20, stride in 1_usize..20,
        refit in 0_usize..4, train_len in prop::option::of(1_usize..40), input_len in 1_usize..6, steps in 0_usize..4,
    ) {
        let Some(whole) = dataset(&lengths, input_len, steps) else { return Ok(()) };
        let shape = BacktestShape { horizon, stride, refit, train_len };
        let Ok(backtest) = whole.backtest(&PartEnd::Step(start), shape) else { return Ok(()) };
        let span = input_len + steps;
        let mut first_rows = vec![0];
        lengths.iter().for_each(|length| first_rows.push(first_rows[first_rows.len() - 1] + length));
        let taken = |part: &WindowDataset| -> Vec<(usize, usize, usize)> {
            (0..part.len() as u64).map(|window| part.place(window).unwrap()).collect()
        };
        for fold in 0..backtest.folds() {
            let origin = |series: usize, fold: usize| (start as usize).min(lengths[series]) + fold * stride;
            let trained_at = fold.checked_div(refit).map_or(0, |refits| refits * refit);
            prop_assert_eq!(backtest.trained_at(fold), trained_at);
            let (mut expected_train, mut expected_test) = (Vec::new(), Vec::new());
            for (series, &length) in lengths.iter().enumerate() {
                let (end, tested) = (origin(series, trained_at).min(length), origin(series, fold));
                let from = end - train_len.unwrap_or(usize::MAX).min(end);
                for step in 0..(length + 1).saturating_sub(span) {
                    if step >= from && step + span <= end {
                        expected_train.push((series, first_rows[series] + step, 0));
                    }
                    let reaches = if steps > 0 { step + input_len } else { step };
                    if tested + horizon <= length && reaches >= tested && step + span <= tested + horizon {
                        expected_test.push((series, first_rows[series] + step, 0));
                    }
                }
            }
            // A series that is padded in front has one window, which ends with its part.
            let complete = |part: Vec<_>| part.into_iter().filter(|&(_, _, missing)| missing == 0).collect::<Vec<_>>();
            match backtest.train(fold) {
                Ok(train) => {
                    for (series, row, missing) in taken(&train) {
                        prop_assert!(row - first_rows[series] + span - missing <= origin(series, fold));
                    }
                    prop_assert_eq!(complete(taken(&train)), expected_train);
                }
                Err(_) => prop_assert!(expected_train.is_empty()),
            }
            match backtest.test(fold) {
                Ok(test) => prop_assert_eq!(complete(taken(&test)), expected_test),
                Err(_) => prop_assert!(expected_test.is_empty()),
            }
        }
        // The next fold would fit in no series.
        let next = start as usize + backtest.folds() * stride + horizon;
        prop_assert!(lengths.iter().all(|&length| length < (start as usize).min(length) + next - start as usize));
    }

    // law: W1
    #[test]
    fn time_split_makes_the_parts_of_its_borders(
        lengths in prop::collection::vec(0_usize..40, 1..4),
        ends in prop::collection::vec(1_i64..40, 1..4),
        reach_back in any::<bool>(),
    ) {
        let Some(whole) = dataset(&lengths, 3, 2) else { return Ok(()) };
        let mut ends = ends;
        ends.sort_unstable();
        let names = ["a", "b", "c"];
        let mut parts: Vec<_> = names.into_iter().zip(ends.iter().map(|&end| PartEnd::Step(end))).collect();
        parts.push(("rest", PartEnd::Rest));
        let longest = *lengths.iter().max().unwrap() as i64;
        let split = whole.split(&parts, reach_back);
        if let Some(outside) = ends.iter().position(|&end| end > longest) {
            let words = [format!("part {} is {}", names[outside], ends[outside]), format!("from 1 to {longest}")];
            refused(split, Kind::Argument, &words.each_ref().map(String::as_str));
            return Ok(());
        }
        let mut starts = vec![0; lengths.len()];
        for (place, (name, _)) in parts.iter().enumerate() {
            let end = ends.get(place).map_or(usize::MAX, |&end| end as usize);
            let stops: Vec<_> = lengths.iter().map(|&length| length.min(end)).collect();
            if starts == stops {
                let end = stops.iter().copied().max().unwrap_or(0) as u64;
                refused(split, Kind::Data, &[&format!("part {name} ends at {end} of {longest}")]);
                return Ok(());
            }
            let within: Vec<_> = starts.iter().zip(&stops).map(|(&start, &stop)| start..stop).collect();
            match (whole.part(&within, reach_back), &split) {
                (Ok(expected), Ok(datasets)) => {
                    prop_assert_eq!(expected.parts(), datasets[place].parts());
                    prop_assert_eq!(expected.counts(), datasets[place].counts());
                }
                (Ok(_), Err(_)) => {}
                (Err(error), split) => {
                    let refusal = split.as_ref().unwrap_err();
                    prop_assert_eq!((error.kind(), refusal.kind()), (Kind::Data, Kind::Data));
                    prop_assert_eq!(refusal.to_string(), format!("part {name}: {error}"));
                    return Ok(());
                }
            }
            starts = stops;
        }
        prop_assert!(split.is_ok());
    }
}

#[test]
fn time_split_by_steps_of_each_series() {
    let ends = [("a", PartEnd::Steps(vec![3, 0])), ("b", PartEnd::Steps(vec![3, 7])), ("c", PartEnd::Rest)];
    assert_eq!(borders(&[5, 7], &ends).unwrap(), [[3, 0], [3, 7], [5, 7]]);
    for (wrong, words) in [
        (vec![3], "part a ends at 1 steps; expected one for each of 2 series"),
        (vec![6, 7], "part a ends at step 6 of series 0; expected at most 5"),
    ] {
        refused(borders(&[5, 7], &[("a", PartEnd::Steps(wrong))]), Kind::Argument, &[words]);
    }
}

#[test]
fn time_split_of_ends_that_make_no_sense() {
    refused(borders(&[10], &[]), Kind::Argument, &["the split has no part"]);
    let early = [("a", PartEnd::Rest), ("b", PartEnd::Step(5))];
    refused(borders(&[10], &early), Kind::Argument, &["part a takes the rest"]);
    for share in [0.0, -0.5, 1.5, f64::NAN, f64::INFINITY] {
        let text = format!("{share:?}").to_lowercase();
        let words = [&format!("part a is {text}"), "shares"];
        refused(borders(&[10], &shares(&[share])), Kind::Argument, &words);
    }
    let message = borders(&[10], &shares(&[0.8, 0.3])).unwrap_err().to_string();
    assert!(message.contains("part b is 0.3, which brings the shares to 1.1;"), "{message}");
    for step in [0, -5, 11] {
        let ends = borders(&[10, 3], &[("a", PartEnd::Step(step))]);
        refused(ends, Kind::Argument, &[&format!("part a is {step}"), "from 1 to 10"]);
    }
    let unordered = [("b", PartEnd::Step(5)), ("a", PartEnd::Step(4))];
    refused(borders(&[10], &unordered), Kind::Argument, &["part a ends before the previous part"]);
}

/// The borders of `Dataset_Custom`: int(n * 0.7), the rest, int(n * 0.2).
// law: W1
#[test]
fn time_split_as_the_time_series_library_counts() {
    for length in [10_usize, 101, 17_420, 26_304, 52_696] {
        let shares = [("train", 0.7), ("val", 0.1), ("test", 0.2)];
        let [train, val, test] = tslib_ends(&[length], shares).unwrap();
        let ends = [("train", train), ("val", val), ("test", test)];
        let (first, last) = ((length as f64 * 0.7) as usize, (length as f64 * 0.2) as usize);
        assert_eq!(borders(&[length], &ends).unwrap(), [[first], [length - last], [length]]);
    }
    for wrong in [[0.7, 0.1, 0.1], [0.0, 0.8, 0.2], [f64::NAN, 0.1, 0.2], [1.7, -0.9, 0.2]] {
        let shares = [("train", wrong[0]), ("val", wrong[1]), ("test", wrong[2])];
        refused(tslib_ends(&[10], shares), Kind::Argument, &["part train", "brings the shares to"]);
    }
}

#[test]
fn backtests_that_make_no_sense() {
    let whole = dataset(&[40, 20], 4, 2).unwrap();
    let shape = BacktestShape { horizon: 5, stride: 5, refit: 1, train_len: None };
    let parts = |shape| whole.backtest(&PartEnd::Step(10), shape);
    let short = ["parts to test on have 1 steps; expected at least 2"];
    refused(parts(BacktestShape { horizon: 1, ..shape }), Kind::Argument, &short);
    refused(parts(BacktestShape { stride: 0, ..shape }), Kind::Argument, &["the stride of a backtest is 0"]);
    let long = ["parts to test on have 31 steps", "at most 30"];
    refused(parts(BacktestShape { horizon: 31, ..shape }), Kind::Argument, &long);
    refused(parts(BacktestShape { train_len: Some(0), ..shape }), Kind::Data, &["part train"]);
    refused(whole.backtest(&PartEnd::Share(1.5), shape), Kind::Argument, &["part start is 1.5"]);
    assert_eq!(whole.backtest(&PartEnd::Step(10), shape).unwrap().folds(), 6);
}
