//! Rows with separate times against a look at every row (L1, L8, L9): whole, in parts of a split, as index tables.

use std::ops::Range;

use batchloom::dataset::{Dataset, Match, Missing, PartEnd, Timed, WindowShape, WindowSteps};
use batchloom::{Kind, Tensor, WindowDataset};
use proptest::prelude::*;

use crate::errors::refused;

/// Series with steps at growing times, and rows with separate times.
#[derive(Debug, Clone)]
struct Clocks {
    steps: Vec<Vec<i64>>,
    rows: Vec<Vec<i64>>,
    offsets: Vec<i64>,
    matching: Match,
    tolerance: Option<i64>,
    input_len: usize,
    horizon: usize,
    as_floats: bool,
}

fn offsets_of(series: &[Vec<i64>]) -> Vec<usize> {
    let ends = series.iter().scan(0, |end, series| {
        *end += series.len();
        Some(*end)
    });
    [0].into_iter().chain(ends).collect()
}

fn tensor(values: Vec<i64>) -> Tensor {
    let len = values.len();
    Tensor::from_vec(values, &[len]).unwrap()
}

fn floats(values: &[i64]) -> Vec<f64> {
    values.iter().map(|&value| value as f64 * 0.25).collect()
}

fn tensor_of_floats(values: &[i64]) -> Tensor {
    Tensor::from_vec(floats(values), &[values.len()]).unwrap()
}

impl Clocks {
    /// The dataset; each row holds its number, counted from 1 over all series.
    fn dataset(&self, missing: Missing) -> batchloom::Result<WindowDataset> {
        let (steps, rows) = (self.steps.concat(), self.rows.concat());
        let values = tensor((1..=rows.len() as i64).collect());
        let series = offsets_of(&self.rows);
        let shape = WindowShape::new(self.input_len).horizon(self.horizon);
        let x = tensor(steps.clone());
        let dataset = WindowDataset::new(&offsets_of(&self.steps), shape)?.input("x", x)?;
        let dataset = if self.as_floats {
            let clock = Timed::new(
                tensor_of_floats(&steps),
                tensor_of_floats(&rows),
                &series,
                &floats(&self.offsets),
            );
            let tolerance = self.tolerance.map(|tolerance| tolerance as f64 * 0.25);
            dataset.timed(
                "row",
                values,
                clock.matching(self.matching).tolerance(tolerance).missing(missing),
            )?
        } else {
            let clock = Timed::new(tensor(steps), tensor(rows), &series, &self.offsets);
            dataset.timed(
                "row",
                values,
                clock.matching(self.matching).tolerance(self.tolerance).missing(missing),
            )?
        };
        dataset.timed_mask("row_mask", "row")
    }

    /// The number of the row for each offset of a window of a series whose anchor is a step, if it has one, of the rows
    /// with times in a range; 0 where there is none.
    fn expected(&self, series: usize, anchor: Option<usize>, times: &Range<i64>) -> Vec<i64> {
        let Some(now) = anchor.map(|step| self.steps[series][step]) else {
            return vec![0; self.offsets.len()];
        };
        let before = offsets_of(&self.rows)[series] as i64;
        let row = |offset: &i64| {
            let (wanted, mut best) = (now + offset, None);
            for (row, &time) in self.rows[series].iter().enumerate() {
                let is_valid = self.matching == Match::Nearest || time <= wanted;
                let away = (wanted - time).abs();
                if times.contains(&time) && is_valid && best.is_none_or(|(_, least)| away < least) {
                    best = Some((row as i64 + before + 1, away));
                }
            }
            best.filter(|(_, away)| self.tolerance.is_none_or(|most| *away <= most)).map_or(0, |(row, _)| row)
        };
        self.offsets.iter().map(row).collect()
    }
}

fn growing(most: usize) -> impl Strategy<Value = Vec<i64>> {
    prop::collection::btree_set(-20_i64..20, 0..most).prop_map(|times| times.into_iter().collect())
}

fn clocks() -> impl Strategy<Value = Clocks> {
    let series = prop::collection::vec((growing(16), growing(10)), 1..4);
    let offsets = prop::collection::vec(-12_i64..12, 1..5);
    let matching = prop_oneof![Just(Match::Last), Just(Match::Nearest)];
    let tolerance = prop::option::of(0_i64..9);
    (series, offsets, matching, tolerance, 1_usize..4, 0_usize..3, any::<bool>()).prop_filter_map(
        "no window",
        |(series, offsets, matching, tolerance, input_len, horizon, as_floats)| {
            let (steps, rows): (Vec<_>, Vec<_>) = series.into_iter().unzip();
            let clocks = Clocks { steps, rows, offsets, matching, tolerance, input_len, horizon, as_floats };
            clocks.dataset(Missing::Pad).is_ok().then_some(clocks)
        },
    )
}

/// The series of a window, the step of its anchor, its rows and its mask.
type Taken = (usize, Option<usize>, Vec<i64>, Vec<bool>);

/// The rows of each window.
fn windows(dataset: &WindowDataset, clocks: &Clocks) -> Vec<Taken> {
    let samples = Dataset::from(dataset.clone());
    let starts = offsets_of(&clocks.steps);
    (0..dataset.len() as u64)
        .map(|window| {
            let (series, row, missing) = dataset.place(window).unwrap();
            let fields = samples.sample(window).unwrap();
            let field = |name: &str| &fields.iter().find(|(other, _)| other == name).unwrap().1;
            let rows = field("row").as_slice::<i64>().unwrap().to_vec();
            let mask = field("row_mask").as_slice::<bool>().unwrap().to_vec();
            let anchor =
                (clocks.input_len - 1).checked_sub(missing).map(|steps| row + steps - starts[series]);
            (series, anchor, rows, mask)
        })
        .collect()
}

proptest! {
    // law: L8, L9
    #[test]
    fn each_window_holds_the_rows_of_its_times(clocks in clocks()) {
        let dataset = clocks.dataset(Missing::Pad).unwrap();
        let mut missing = 0;
        for (series, anchor, rows, mask) in windows(&dataset, &clocks) {
            let expected = clocks.expected(series, anchor, &(i64::MIN..i64::MAX));
            prop_assert_eq!(&rows, &expected);
            prop_assert_eq!(mask, expected.iter().map(|&row| row > 0).collect::<Vec<_>>());
            missing += expected.iter().filter(|&&row| row == 0).count();
        }
        match clocks.dataset(Missing::Error) {
            Ok(_) => prop_assert_eq!(missing, 0),
            Err(error) => {
                let all = dataset.len() * clocks.offsets.len();
                prop_assert_eq!(error.kind(), Kind::Data);
                prop_assert!(error.to_string().contains(&format!("({missing} of {all} rows are missing)")), "{}", error);
                prop_assert_eq!(error.field(), Some("row"));
            }
        }
    }

    // law: L8
    #[test]
    fn parts_find_no_row_from_their_end_on(
        clocks in clocks(),
        ends in prop::collection::vec(1_i64..16, 1..3),
        reach_back in any::<bool>(),
    ) {
        let dataset = clocks.dataset(Missing::Pad).unwrap();
        let mut ends = ends;
        ends.sort_unstable();
        let names = ["first", "second"];
        let mut parts: Vec<_> = names.into_iter().zip(ends.iter().map(|&end| PartEnd::Step(end))).collect();
        parts.push(("rest", PartEnd::Rest));
        let Ok(split) = dataset.split(&parts, reach_back) else { return Ok(()) };
        let mut begin = 0;
        for (place, part) in split.iter().enumerate() {
            let end = ends.get(place).map_or(usize::MAX, |&end| end as usize);
            for (series, anchor, rows, _) in windows(part, &clocks) {
                let steps = &clocks.steps[series];
                let reaches = reach_back && clocks.horizon > 0;
                let first = if begin == 0 || reaches { i64::MIN } else { steps.get(begin).copied().unwrap_or(i64::MAX) };
                let last = steps.get(end).copied().unwrap_or(i64::MAX);
                prop_assert_eq!(rows, clocks.expected(series, anchor, &(first..last)));
            }
            begin = end;
        }
    }

    // law: L9
    #[test]
    fn numbers_of_rows_are_the_rows_of_batches(clocks in clocks()) {
        let dataset = clocks.dataset(Missing::Pad).unwrap();
        let numbers = dataset.timed_rows(&(0..dataset.len() as u64).collect::<Vec<_>>()).unwrap();
        prop_assert_eq!(numbers.shape(), [clocks.offsets.len(), dataset.len()]);
        let numbers = numbers.as_slice::<i64>().unwrap();
        for (window, (_, _, rows, _)) in windows(&dataset, &clocks).into_iter().enumerate() {
            for (place, row) in rows.into_iter().enumerate() {
                prop_assert_eq!((numbers[place * dataset.len() + window] + 1).max(0), row);
            }
        }
    }
}

#[test]
fn clocks_that_make_no_sense_are_refused() {
    let whole = || {
        let steps = tensor((0..8).collect());
        WindowDataset::new(&[0, 5, 8], WindowShape::new(2)).unwrap().input("x", steps).unwrap()
    };
    let steps = || tensor((0..8).collect());
    let values = || tensor(vec![1, 2, 3]);
    let clock = |times: Vec<i64>, series: &[usize]| Timed::new(steps(), tensor(times), series, &[0_i64]);
    let add = |clock: Timed<i64>| whole().timed("row", values(), clock.missing(Missing::Pad));
    refused(
        add(clock(vec![0, 1, 2], &[0, 3])),
        Kind::Data,
        &["field row has rows of 1 series", "there are 2"],
    );
    refused(add(clock(vec![0, 1], &[0, 1, 2])), Kind::Data, &["field row has 3 rows and 2 times"]);
    refused(add(clock(vec![0, 1, 1], &[0, 1, 3])), Kind::Data, &["field row: row 1 of series 1"]);
    let short = Timed::new(tensor(vec![0]), values(), &[0, 1, 3], &[0_i64]);
    refused(add(short), Kind::Data, &["field row has 1 rows for 8 steps"]);
    let none = Timed::new(steps(), values(), &[0, 1, 3], &[]);
    refused(add(none), Kind::Argument, &["offsets of field row"]);
    let negative = clock(vec![0, 1, 2], &[0, 1, 3]).tolerance(Some(-1));
    refused(add(negative), Kind::Argument, &["tolerance of field row"]);
    refused(add(clock(vec![0, 1, 2], &[0, 1, 3]).anchor(2)), Kind::Argument, &["field row holds step 2"]);
    let floats = tensor_of_floats(&[0, 1, 2]);
    let nan = Timed::new(tensor_of_floats(&[0; 8]), floats, &[0, 1, 3], &[f64::NAN]);
    refused(whole().timed("row", values(), nan), Kind::Data, &["field row: step 1 of series 0"]);
    let wrong = Timed::new(steps(), tensor_of_floats(&[0, 1, 2]), &[0, 1, 3], &[0_i64]);
    refused(whole().timed("row", values(), wrong), Kind::Type, &["float64"]);
    let found = add(clock(vec![0, 1, 2], &[0, 1, 3])).unwrap();
    refused(found.clone().timed_mask("x", "row"), Kind::Data, &["x"]);
    refused(found.clone().timed_mask("mask", "x"), Kind::Argument, &["field x has no separate times"]);
    refused(found.timed("row", values(), clock(vec![0, 1, 2], &[0, 1, 3])), Kind::Data, &["row"]);
}

#[test]
fn any_step_of_a_window_may_be_its_anchor() {
    let shape = WindowShape::new(3).lead(2);
    let dataset = WindowDataset::new(&[0, 4], shape).unwrap();
    let steps = WindowSteps::neighbours(0, 1);
    let dataset = dataset.steps("x", tensor((0..4).collect()), steps).unwrap();
    let clock = Timed::new(tensor((0..4).collect()), tensor((0..4).collect()), &[0, 4], &[0_i64]);
    let dataset =
        dataset.timed("row", tensor((10..14).collect()), clock.anchor(0).missing(Missing::Pad)).unwrap();
    let rows: Vec<_> = (0..4).map(|window| Dataset::from(dataset.clone()).sample(window).unwrap()).collect();
    let rows: Vec<_> = rows.iter().map(|fields| fields[1].1.as_slice::<i64>().unwrap()[0]).collect();
    assert_eq!(rows, [0, 0, 10, 11]); // two windows begin before the series
}
