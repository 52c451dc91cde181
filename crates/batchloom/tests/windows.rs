//! Windows against their enumeration: their number, their places, their contents (L1, L8), gathered and as views, in
//! every layout of the series. No window crosses series, and the missing steps of short ones are zeros in front.

use batchloom::dataset::{Anchor, SampledBy, Short, WindowShape, WindowSteps};
use batchloom::loader::{Batch, PadSlot, Slot};
use batchloom::order::Shuffle;
use batchloom::{Kind, Loader, Tensor, WindowDataset};
use std::ops::Range;

use bytes::Bytes;
use proptest::prelude::*;

use crate::errors::{is, refused};

const WIDTH: usize = 3;

/// Series one after the other, each value its own number plus one; as stored, or with features first in memory.
#[derive(Debug, Clone)]
struct Series {
    lengths: Vec<usize>,
    features_first: bool,
    backwards: bool,
}

impl Series {
    fn offsets(&self) -> Vec<usize> {
        let ends = self.lengths.iter().scan(0, |end, &length| {
            *end += length;
            Some(*end)
        });
        [0].into_iter().chain(ends).collect()
    }

    fn tensor(&self) -> Tensor {
        let total: usize = self.lengths.iter().sum();
        let place = |row: usize, column: usize| {
            let row = if self.backwards { total - 1 - row } else { row };
            if self.features_first { column * total + row } else { row * WIDTH + column }
        };
        let mut values = vec![0_i32; total * WIDTH];
        for row in 0..total {
            (0..WIDTH).for_each(|column| values[place(row, column)] = value(row, column));
        }
        let (mut time, feature) = if self.features_first { (4, 4 * total) } else { (4 * WIDTH, 4) };
        let mut offset = 0;
        if self.backwards {
            offset = (total - 1) * time;
            time = time.wrapping_neg();
        }
        let bytes = Bytes::from(bytemuck_cast(&values));
        let strides = [time.cast_signed(), feature.cast_signed()];
        Tensor::new(bytes, batchloom::DType::I32, &[total, WIDTH], &strides, offset).unwrap()
    }
}

fn bytemuck_cast(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn value(row: usize, column: usize) -> i32 {
    (row * WIDTH + column + 1) as i32
}

/// The rows of every window, by enumeration; `None` for a row of zeros.
fn windows(series: &Series, shape: &WindowShape) -> Vec<Vec<Option<usize>>> {
    let offsets = series.offsets();
    let rows_of_series: Vec<_> = offsets
        .windows(2)
        .map(|pair| of_series(pair[0]..pair[1], shape))
        .filter(|it| !it.is_empty())
        .collect();
    let most = rows_of_series.iter().map(Vec::len).max().unwrap_or(0);
    let repeated = |windows: Vec<_>| {
        let samples = if shape.sampled_by == SampledBy::Series { most } else { windows.len() };
        windows.into_iter().cycle().take(samples).collect::<Vec<_>>()
    };
    rows_of_series.into_iter().flat_map(repeated).collect()
}

fn of_series(rows: Range<usize>, shape: &WindowShape) -> Vec<Vec<Option<usize>>> {
    let (length, span) = (rows.len() as isize, shape.span() as isize);
    let least = span - (shape.lead + shape.trail) as isize;
    let window = |start: isize| {
        let row = |step: isize| (0..length).contains(&step).then(|| rows.start + step as usize);
        (start..start + span).map(row).collect::<Vec<_>>()
    };
    if length < least {
        let padded = length > 0 && (shape.short == Short::Pad || has_all_targets(length as usize, shape));
        return padded.then(|| window(length - span)).into_iter().collect();
    }
    let (first, last) = (-(shape.lead as isize), length + shape.trail as isize - span);
    let starts = (first..=last).filter(|start| match shape.anchor {
        Anchor::Start => (start - first) % shape.stride as isize == 0,
        _ => (last - start) % shape.stride as isize == 0,
    });
    starts.map(window).collect()
}

/// Tells whether a series shorter than a window has all its targets, and some step of its input.
fn has_all_targets(length: usize, shape: &WindowShape) -> bool {
    let exists = |step: usize| step >= shape.span() - length;
    let targets = shape.input_len + shape.gap - shape.label_len..shape.span();
    let is_asked = shape.whole || shape.lead > 0 || shape.trail > 0;
    !is_asked && targets.into_iter().all(exists) && (0..shape.input_len).any(exists)
}

fn values_of(rows: &[Option<usize>]) -> Vec<i32> {
    rows.iter()
        .flat_map(|row| (0..WIDTH).map(move |column| row.map_or(0, |row| value(row, column))))
        .collect()
}

fn shape() -> impl Strategy<Value = WindowShape> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let numbers = (1_usize..9, 0_usize..5, 0_usize..9, 0_usize..3, 1_usize..5);
    (numbers, (0_usize..6, 0_usize..6), flags).prop_map(
        |((input_len, horizon, label_len, gap, stride), (lead, trail), (end, pad, even, whole))| {
            let lead = lead.min(input_len - 1);
            let trail = if horizon == 0 { trail.min(input_len - 1 - lead) } else { 0 };
            let gap = if horizon == 0 { 0 } else { gap };
            let label_len = if horizon == 0 { 0 } else { label_len.min(input_len + gap) };
            let anchor = if end { Anchor::End } else { Anchor::Start };
            let short = if pad { Short::Pad } else { Short::Drop };
            let lead = if pad { lead } else { lead.min(input_len + gap - label_len) };
            let sampled_by = if even { SampledBy::Series } else { SampledBy::Windows };
            WindowShape::new(input_len)
                .horizon(horizon)
                .label_len(label_len)
                .gap(gap)
                .stride(stride)
                .lead(lead)
                .trail(trail)
                .whole(whole)
                .anchor(anchor)
                .short(short)
                .sampled_by(sampled_by)
        },
    )
}

fn series() -> impl Strategy<Value = Series> {
    (prop::collection::vec(0_usize..40, 1..6), any::<bool>(), any::<bool>())
        .prop_filter("some step", |(lengths, ..)| lengths.iter().sum::<usize>() > 0)
        .prop_map(|(lengths, features_first, backwards)| Series { lengths, features_first, backwards })
}

fn read(batch: &Batch, field: &str) -> Vec<i32> {
    batch.field(field).map(|field| field.as_slice::<i32>().unwrap().to_vec()).unwrap_or_default()
}

/// The values of a strided view, element by element.
fn walk(view: &Tensor) -> Vec<i32> {
    let (shape, strides) = (view.shape(), view.strides());
    let mut values = Vec::new();
    for window in 0..shape[0] {
        for step in 0..shape[1] {
            for column in 0..shape[2] {
                let at = [window, step, column]
                    .iter()
                    .zip(strides)
                    .fold(view.layout().offset(), |at, (&index, &stride)| {
                        at.wrapping_add_signed(index.cast_signed() * stride)
                    });
                values.push(i32::from_ne_bytes(view.bytes()[at..at + 4].try_into().unwrap()));
            }
        }
    }
    values
}

proptest! {
    // law: L1, L8, L9
    #[test]
    fn windows_are_their_enumeration(
        series in series(),
        shape in shape(),
        batch_size in 1_u64..9,
        shuffle in prop_oneof![Just(Shuffle::Nothing), Just(Shuffle::Samples), Just(Shuffle::Runs)],
    ) {
        let expected = windows(&series, &shape);
        let dataset = match WindowDataset::new(&series.offsets(), shape) {
            Ok(dataset) => dataset,
            Err(error) => {
                prop_assert!(is(&error, Kind::Data, &["series make no window"]), "{error}");
                prop_assert!(expected.is_empty());
                return Ok(());
            }
        };
        let dataset = dataset.input("x", series.tensor()).unwrap().target("y", series.tensor()).unwrap().mask().unwrap();
        prop_assert_eq!(dataset.len(), expected.len());
        let targets = shape.input_len + shape.gap - shape.label_len..shape.span();
        let targets = if shape.horizon == 0 { 0..0 } else { targets };
        let loader = Loader::builder(dataset).batch_size(batch_size).shuffle(shuffle).build().unwrap();
        let plan = loader.plan(0);
        let mut seen = vec![0; expected.len()];
        for (step, batch) in (0..).zip(loader.iter()) {
            let (batch, samples) = (batch.unwrap(), plan.indices(step, 0).unwrap());
            let rows: Vec<_> = samples.iter().map(|&sample| &expected[sample as usize]).collect();
            let x: Vec<i32> = rows.iter().flat_map(|rows| values_of(&rows[..shape.input_len])).collect();
            let y: Vec<i32> = rows.iter().flat_map(|rows| values_of(&rows[targets.clone()])).collect();
            prop_assert_eq!(read(&batch, "x"), x);
            prop_assert_eq!(read(&batch, "y"), y);
            for (name, steps) in [("mask", 0..shape.input_len), ("target_mask", targets.clone())] {
                let Some(mask) = batch.field(name) else {
                    prop_assert!(name == "target_mask" && shape.horizon == 0);
                    continue;
                };
                let start = mask.layout().offset();
                let marks = &mask.bytes()[start..start + mask.layout().elements()];
                let exists = rows.iter().flat_map(|rows| rows[steps.clone()].iter().map(|row| u8::from(row.is_some())));
                prop_assert_eq!(marks, exists.collect::<Vec<_>>());
            }
            samples.iter().for_each(|&sample| seen[sample as usize] += 1);
            prop_assert_eq!(plan.run(step, 0).unwrap().is_some(), shuffle != Shuffle::Samples);
        }
        prop_assert!(seen.iter().all(|&count| count == 1));
    }

    /// A view holds what a gather holds, and shares the memory of the series; there is no view across series.
    #[test]
    fn views_are_their_enumeration(series in series(), shape in shape(), start in 0.0..1.0_f64, len in 1_u64..9) {
        let expected = windows(&series, &shape);
        let Ok(dataset) = WindowDataset::new(&series.offsets(), shape) else { return Ok(()) };
        let values = series.tensor();
        let memory = values.bytes().as_ptr_range();
        let dataset = dataset.input("x", values.clone()).unwrap().target("y", values).unwrap();
        let start = (start * expected.len() as f64) as u64;
        let end = start + len;
        let of = |window: u64| dataset.place(window).unwrap();
        // Each neighbour begins a stride after the one before.
        let next = |window: u64| {
            let (before, after) = (of(window), of(window + 1));
            before.0 == after.0 && after.1 == before.1 + shape.stride
        };
        let exists = |sample: u64| expected[sample as usize].iter().all(Option::is_some);
        let one = end <= expected.len() as u64 && (start..end).all(exists) && (start..end - 1).all(next);
        let view = dataset.view(start, end);
        prop_assert_eq!(view.is_some(), one);
        if let Some(view) = view {
            let rows = || expected[start as usize..end as usize].iter();
            let x: Vec<i32> = rows().flat_map(|rows| values_of(&rows[..shape.input_len])).collect();
            let label = shape.input_len + shape.gap - shape.label_len;
            let y: Vec<i32> = rows().flat_map(|rows| values_of(&rows[label..])).collect();
            prop_assert_eq!((walk(&view[0]), walk(&view[1])), (x, y));
            prop_assert!(view.iter().all(|field| field.bytes().as_ptr_range() == memory));
        }
    }
}

/// The contents of a step that a series does not have: the nearest step, or a number, as asked.
fn padded(rows: &[Option<usize>], steps: &[usize], pad: Option<i32>) -> Vec<i32> {
    let nearest = |step: usize| {
        let existing = (0..rows.len()).filter(|&other| rows[other].is_some());
        existing.min_by_key(|other| other.abs_diff(step)).and_then(|other| rows[other]).unwrap()
    };
    let of = |&step: &usize| {
        let row = rows[step].or_else(|| pad.is_none().then(|| nearest(step)));
        (0..WIDTH).map(move |column| row.map_or(pad.unwrap_or(0), |row| value(row, column)))
    };
    steps.iter().flat_map(of).collect()
}

proptest! {
    /// Fields of any steps hold the nearest step, or a number, where a series has none; also in another type, scaled.
    // law: L9
    #[test]
    fn missing_steps_are_padded_as_asked(
        series in series(),
        shape in shape(),
        listed in prop::collection::vec(0_usize..30, 1..6),
        every in 1_usize..4,
        pad in prop_oneof![Just(None), (-3..3).prop_map(Some)],
        shuffle in any::<bool>(),
    ) {
        let Ok(dataset) = WindowDataset::new(&series.offsets(), shape) else { return Ok(()) };
        let span = shape.span();
        let listed: Vec<usize> = listed.iter().map(|step| step % span).collect();
        let strided = WindowSteps::Range { start: 0, len: (span - 1) / every + 1, every };
        let strided_steps: Vec<usize> = (0..span).step_by(every).collect();
        let dataset = dataset.input("x", series.tensor()).unwrap();
        let dataset = dataset.steps("listed", series.tensor(), WindowSteps::Listed(listed.clone().into())).unwrap();
        let dataset = dataset.steps("strided", series.tensor(), strided.clone()).unwrap();
        let dataset = dataset.steps("scaled", series.tensor(), strided).unwrap();
        let mut loader = Loader::builder(dataset).batch_size(3).shuffle(shuffle).scale("scaled", 0.5);
        for name in ["x", "listed", "strided", "scaled"] {
            loader = match pad {
                None => loader.pad_edge(name),
                Some(number) => loader.pad_value(name, number),
            };
        }
        let (loader, expected) = (loader.build().unwrap(), windows(&series, &shape));
        let plan = loader.plan(0);
        let batches: Vec<Batch> = loader.iter().map(Result::unwrap).collect();
        for (step, batch) in (0..).zip(&batches) {
            let samples = plan.indices(step, 0).unwrap();
            let of = |steps: &[usize], pad: Option<i32>| -> Vec<i32> {
                samples.iter().flat_map(|&sample| padded(&expected[sample as usize], steps, pad)).collect()
            };
            let input: Vec<usize> = (0..shape.input_len).collect();
            prop_assert_eq!(read(batch, "x"), of(&input, pad));
            prop_assert_eq!(read(batch, "listed"), of(&listed, pad));
            prop_assert_eq!(read(batch, "strided"), of(&strided_steps, pad));
            // A number is put in after the scale: before it, the number would be twice as large.
            let scaled = of(&strided_steps, pad.map(|number| 2 * number)).into_iter().map(|value| value as f32 / 2.0);
            prop_assert_eq!(batch.field("scaled").unwrap().as_slice::<f32>().unwrap(), &scaled.collect::<Vec<_>>()[..]);
        }
    }
}

#[test]
fn padding_that_a_field_cannot_have_is_refused() {
    let steps = Tensor::from_vec(vec![1_i64, 2], &[2]).unwrap();
    let dataset =
        WindowDataset::new(&[0, 2], WindowShape::new(3).lead(2)).unwrap().input("x", steps.clone()).unwrap();
    let loader = || Loader::builder(dataset.clone());
    refused(loader().pad_value("x", f64::NAN).build(), Kind::Argument, &["field x", "NaN", "int64"]);
    refused(loader().pad_edge("z").build(), Kind::Argument, &["z"]);
    let slotted = loader().pad_edge("x").collate("x", Slot::Pad(PadSlot::default()));
    refused(slotted.build(), Kind::Argument, &["field x", "edge", "slot"]);
    let rows = batchloom::TensorDataset::new([("x", steps)]).unwrap();
    refused(
        Loader::builder(rows).pad_edge("x").build(),
        Kind::Argument,
        &["field x", "edge", "not cut from series"],
    );
}

/// Some steps of a window, in any order and as often as they come.
fn some_steps() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0_usize..30, 1..6)
}

proptest! {
    /// Fields of any steps, rows of series, of windows and of steps, and the places of windows, against enumeration.
    // law: L8
    #[test]
    fn fields_beside_windows_are_looked_up(
        series in series(),
        shape in shape(),
        listed in some_steps(),
        every in 1_usize..4,
        shuffle in any::<bool>(),
    ) {
        let Ok(dataset) = WindowDataset::new(&series.offsets(), shape) else { return Ok(()) };
        let (span, offsets) = (shape.span(), series.offsets());
        let listed: Vec<usize> = listed.iter().map(|step| step % span).collect();
        let strided = WindowSteps::Range { start: 0, len: (span - 1) / every + 1, every };
        let strided_steps: Vec<usize> = (0..span).step_by(every).collect();
        let different = shape.sampled_by(SampledBy::Windows);
        let different = WindowDataset::new(&offsets, different).unwrap().len();
        let numbers = |count: usize| Tensor::from_vec((0..count as i64).collect(), &[count]).unwrap();
        let dataset = dataset.steps("listed", series.tensor(), WindowSteps::Listed(listed.clone().into())).unwrap();
        let dataset = dataset.steps("strided", series.tensor(), strided.clone()).unwrap();
        let dataset = dataset.mask_of("strided_mask", strided).unwrap();
        let dataset = dataset.of_series("static", numbers(series.lengths.len())).unwrap();
        let dataset = dataset.of_windows("label", numbers(different)).unwrap();
        let dataset = dataset.of_step("time", numbers(offsets[offsets.len() - 1]), span - 1).unwrap();
        let dataset = dataset.index("start", 0).unwrap();
        let expected = windows(&series, &shape);
        let loader = Loader::builder(dataset.clone()).batch_size(3).shuffle(shuffle).build().unwrap();
        for batch in loader.iter() {
            let batch = batch.unwrap();
            let of = |name: &str| batch.field(name).unwrap().as_slice::<i64>().unwrap().to_vec();
            let samples = of("index");
            let rows: Vec<_> = samples.iter().map(|&sample| &expected[sample as usize]).collect();
            let taken = |steps: &[usize]| -> Vec<i32> {
                rows.iter().flat_map(|rows| steps.iter().flat_map(|&step| values_of(&rows[step..=step]))).collect()
            };
            prop_assert_eq!(read(&batch, "listed"), taken(&listed));
            prop_assert_eq!(read(&batch, "strided"), taken(&strided_steps));
            let exists = rows.iter().flat_map(|rows| strided_steps.iter().map(|&step| u8::from(rows[step].is_some())));
            let mask = batch.field("strided_mask").unwrap();
            let start = mask.layout().offset();
            prop_assert_eq!(&mask.bytes()[start..start + mask.layout().elements()], &exists.collect::<Vec<_>>()[..]);
            for (at, rows) in rows.iter().enumerate() {
                let place = rows.iter().position(Option::is_some).unwrap();
                let first = rows[place].unwrap();
                let number = offsets.partition_point(|&offset| offset <= first) - 1;
                prop_assert_eq!((of("series")[at], of("static")[at]), (number as i64, number as i64));
                let begin = first as i64 - place as i64;
                prop_assert_eq!(of("start")[at], begin - offsets[number] as i64);
                let last = offsets[number + 1] as i64 - 1;
                prop_assert_eq!(of("time")[at], (begin + span as i64 - 1).clamp(first as i64, last));
                prop_assert_eq!(dataset.sample_at(number, (begin - offsets[number] as i64) as isize).is_some(), true);
            }
            if shape.sampled_by == SampledBy::Windows {
                prop_assert_eq!(of("label"), samples);
            }
        }
    }

    /// The horizons of parts that do not overlap have no step in common; only windows that lie across a border are
    /// lost; and without reaching back, no step at all is in common.
    // law: W1
    #[test]
    fn parts_share_no_horizon(
        series in series(),
        shape in shape(),
        borders in (0.0..1.0_f64, 0.0..1.0_f64),
        reach_back in any::<bool>(),
    ) {
        let shape = shape.sampled_by(SampledBy::Windows);
        let Ok(whole) = WindowDataset::new(&series.offsets(), shape) else { return Ok(()) };
        let (low, high) = (borders.0.min(borders.1), borders.0.max(borders.1));
        let at = |length: usize, share: f64| (length as f64 * share) as usize;
        let mut horizons = vec![None; series.lengths.iter().sum()];
        let mut touched = horizons.clone();
        let mut starts = Vec::new();
        for part in 0..3 {
            let within: Vec<_> = series.lengths.iter().map(|&length| {
                let ends = [0, at(length, low), at(length, high), length];
                ends[part]..ends[part + 1]
            }).collect();
            let Ok(dataset) = whole.part(&within, reach_back) else { continue };
            let offsets = series.offsets();
            for window in 0..dataset.len() as u64 {
                let (number, row, missing) = dataset.place(window).unwrap();
                if missing == 0 {
                    starts.push(row);
                }
                let end = row + shape.span() - missing;
                let last = end.min(offsets[number] + within[number].end);
                prop_assert!(end - last <= shape.trail);
                let first = end.saturating_sub(if shape.horizon == 0 { shape.span() } else { shape.horizon });
                let first = first.max(row);
                let (start, end) = (offsets[number] + within[number].start, offsets[number] + within[number].end);
                prop_assert!(start <= first && last <= end, "{start}..{end} has {first}..{last}");
                for owner in &mut horizons[first..last] {
                    prop_assert!(owner.is_none_or(|other| other == part));
                    *owner = Some(part);
                }
                for owner in &mut touched[row..last] {
                    prop_assert!(reach_back || owner.is_none_or(|other| other == part));
                    *owner = Some(part);
                }
            }
        }
        if reach_back && shape.stride == 1 && shape.horizon > 0 {
            for window in 0..whole.len() as u64 {
                let (number, row, missing) = whole.place(window).unwrap();
                let length = series.lengths[number];
                let horizon = row - series.offsets()[number] + shape.span() - shape.horizon;
                let across = [low, high].iter().any(|&share| {
                    let border = at(length, share);
                    horizon < border && border < horizon + shape.horizon
                });
                prop_assert!(missing > 0 || across || starts.contains(&row), "window at {row} is lost");
            }
        }
    }

    /// A part of a part is the part that it would be of the whole.
    // law: W1
    #[test]
    fn parts_of_parts(series in series(), shape in shape(), borders in [0.0..1.0_f64, 0.0..1.0_f64, 0.0..1.0_f64]) {
        let Ok(whole) = WindowDataset::new(&series.offsets(), shape) else { return Ok(()) };
        let mut shares = borders;
        shares.sort_by(f64::total_cmp);
        let [start, middle, end] = shares.map(|share| {
            series.lengths.iter().map(|&length| (length as f64 * share) as usize).collect::<Vec<_>>()
        });
        let ranges = |starts: &[usize], ends: &[usize]| -> Vec<_> {
            starts.iter().zip(ends).map(|(&start, &end)| start..end).collect()
        };
        let places = |dataset: batchloom::Result<WindowDataset>| {
            let dataset = dataset.ok()?;
            Some((0..dataset.len() as u64).map(|window| dataset.place(window).unwrap()).collect::<Vec<_>>())
        };
        let Ok(outer) = whole.part(&ranges(&start, &end), true) else { return Ok(()) };
        let lengths = |from: &[usize]| from.iter().zip(&start).map(|(to, from)| to - from).collect::<Vec<_>>();
        let (zeros, first, all) = (vec![0; start.len()], lengths(&middle), lengths(&end));
        let early = places(outer.part(&ranges(&zeros, &first), true));
        prop_assert_eq!(early, places(whole.part(&ranges(&start, &middle), true)));
        let late = places(outer.part(&ranges(&first, &all), true));
        prop_assert_eq!(late, places(whole.part(&ranges(&middle, &end), true)));
    }

    /// Step by step, an epoch delivers the same as by blocks; counting and resuming are the same.
    #[test]
    fn steps_are_the_batches(series in series(), shape in shape(), batch_size in 1_u64..9, shuffle in any::<bool>()) {
        let Ok(dataset) = WindowDataset::new(&series.offsets(), shape) else { return Ok(()) };
        let dataset = dataset.input("x", series.tensor()).unwrap();
        let build = || Loader::builder(dataset.clone()).batch_size(batch_size).shuffle(shuffle).build().unwrap();
        let (by_blocks, by_steps) = (build(), build());
        let steps = by_steps.steps();
        for batch in by_blocks.iter() {
            let batch = batch.unwrap();
            let formed = steps.form().unwrap();
            let formed: Vec<_> = formed.batches().collect();
            prop_assert_eq!(formed.len(), 1);
            prop_assert_eq!(read(&formed[0], "x"), read(&batch, "x"));
            prop_assert_eq!(steps.indices().unwrap().len(), batch.len());
            prop_assert_eq!(steps.run(0).unwrap().is_none(), shuffle);
            steps.advance();
            prop_assert_eq!(by_steps.len(), by_blocks.len());
        }
        prop_assert_eq!(steps.left().unwrap(), 0);
        prop_assert!(steps.form().is_err());
        steps.end();
        prop_assert_eq!(by_steps.state().epoch, 1);
        prop_assert_eq!(by_steps.state(), by_blocks.state());
    }
}

#[test]
fn bad_input() {
    let wrong = |shape: WindowShape, words: &[&str]| {
        refused(WindowDataset::new(&[0, 10], shape), Kind::Argument, words);
    };
    wrong(WindowShape::new(0), &["input_len is 0"]);
    wrong(WindowShape::new(3).stride(0), &["stride is 0"]);
    wrong(WindowShape::new(3).gap(1), &["label_len is 0", "gap is 1", "horizon is 0"]);
    wrong(WindowShape::new(4).label_len(5).horizon(2), &["label_len is 5", "which is 4"]);
    let late = WindowShape::new(4).lead(2).horizon(1).label_len(3);
    wrong(late, &["label_len is 3", "only 2 steps"]);
    assert!(WindowDataset::new(&[0, 10], late.short(Short::Pad)).is_ok());
    let shape = WindowShape::new(4).horizon(3);
    let words = ["series 1 has 3 steps", "2 of 3 series", "expected at least 4"];
    refused(WindowDataset::new(&[0, 10, 13, 13], shape), Kind::Data, &words);
    let counts = WindowDataset::new(&[0, 10, 13, 17], shape.short(Short::Drop)).unwrap().counts().unwrap();
    assert_eq!((counts.samples, counts.padded, counts.without), (5, 1, 1));
    let none = WindowDataset::new(&[0, 3], WindowShape::new(4).whole(true).short(Short::Drop));
    refused(none, Kind::Data, &["all 1 series make no window", "at least 4 steps"]);
    let whole = WindowDataset::new(&[0, 10, 13], WindowShape::new(3)).unwrap();
    refused(whole.part(&[0..5, 0..1, 0..1], true), Kind::Argument, &["3 parts for 2 series"]);
    let beyond = ["the part of series 1 goes from step 0 to 4", "its 3 steps"];
    refused(whole.part(&[0..5, 0..4], true), Kind::Argument, &beyond);
    let wrong = Tensor::from_vec(vec![0_i32; 9], &[9]).unwrap();
    let built = WindowDataset::new(&[0, 10], WindowShape::new(4)).unwrap().input("x", wrong);
    refused(built, Kind::Data, &["field x has 9 rows for 10 steps"]);
}
