//! Types in the same pass, against a slow definition: every pair of types, every kind of data, scaled or not; and values
//! that a type cannot hold.

use batchloom::batching::{FixedSize, Packing, Rule};
use batchloom::dataset::{GroupLayout, Groups, Sequences, WindowShape};
use batchloom::loader::{Batch, Channels, LoaderBuilder, PadSide};
use batchloom::tensor::Element;
use batchloom::{
    DType, Error, GroupDataset, Kind, Loader, SequenceDataset, Tensor, TensorDataset, TokenDataset,
    WindowDataset,
};
use half::{bf16, f16};
use proptest::prelude::*;

use crate::errors::{is, refused};

/// The types that are converted.
const TYPES: [DType; 13] = [
    DType::Bool,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
];

/// A number that every type of elements rounds to: an integer or a float.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Number {
    Integer(i128),
    Float(f64),
}

impl Number {
    fn float(self) -> f64 {
        match self {
            Self::Integer(value) => value as f64,
            Self::Float(value) => value,
        }
    }

    /// The number as float32, rounded once.
    fn single(self) -> f32 {
        match self {
            Self::Integer(value) => value as f32,
            Self::Float(value) => value as f32,
        }
    }
}

/// The value of an element.
fn read(dtype: DType, bytes: &[u8]) -> Number {
    macro_rules! integer {
        ($type:ty) => {
            Number::Integer(<$type>::from_ne_bytes(bytes.try_into().unwrap()) as i128)
        };
    }
    match dtype {
        DType::Bool | DType::U8 => integer!(u8),
        DType::U16 => integer!(u16),
        DType::U32 => integer!(u32),
        DType::U64 => integer!(u64),
        DType::I8 => integer!(i8),
        DType::I16 => integer!(i16),
        DType::I32 => integer!(i32),
        DType::I64 => integer!(i64),
        DType::F16 => Number::Float(f16::from_ne_bytes(bytes.try_into().unwrap()).to_f64()),
        DType::BF16 => Number::Float(bf16::from_ne_bytes(bytes.try_into().unwrap()).to_f64()),
        DType::F32 => Number::Float(f64::from(f32::from_ne_bytes(bytes.try_into().unwrap()))),
        DType::F64 => Number::Float(f64::from_ne_bytes(bytes.try_into().unwrap())),
        other => unreachable!("{other} is not converted"),
    }
}

/// A number as an element, if the type holds it.
fn write(dtype: DType, number: Number) -> Option<Vec<u8>> {
    macro_rules! integer {
        ($type:ty) => {{
            let value = match number {
                Number::Integer(value) => value,
                Number::Float(value) if value.trunc() == value && value.abs() < 1e30 => value as i128,
                Number::Float(_) => return None,
            };
            Some(<$type>::try_from(value).ok()?.to_ne_bytes().to_vec())
        }};
    }
    // Floats go by way of float32, as in torch, but float64.
    let finite = number.float().is_finite();
    let kept = |is_finite: bool, bytes: Vec<u8>| (is_finite || !finite).then_some(bytes);
    match dtype {
        DType::Bool => [0.0, 1.0].contains(&number.float()).then(|| vec![u8::from(number.float() == 1.0)]),
        DType::U8 => integer!(u8),
        DType::U16 => integer!(u16),
        DType::U32 => integer!(u32),
        DType::U64 => integer!(u64),
        DType::I8 => integer!(i8),
        DType::I16 => integer!(i16),
        DType::I32 => integer!(i32),
        DType::I64 => integer!(i64),
        DType::F16 => {
            let value = f16::from_f32(number.single());
            kept(value.is_finite(), value.to_ne_bytes().to_vec())
        }
        DType::BF16 => {
            let value = bf16::from_f32(number.single());
            kept(value.is_finite(), value.to_ne_bytes().to_vec())
        }
        DType::F32 => kept(number.single().is_finite(), number.single().to_ne_bytes().to_vec()),
        DType::F64 => Some(number.float().to_ne_bytes().to_vec()),
        other => unreachable!("{other} is not converted"),
    }
}

/// A number as an element, scaled in the precision of its type, if the type holds it.
fn write_scaled(dtype: DType, number: Number, scale: f64, mean: f64, std: f64) -> Option<Vec<u8>> {
    if dtype == DType::F64 {
        let value = (number.float() * scale - mean) / std;
        return (value.is_finite() || !number.float().is_finite()).then(|| value.to_ne_bytes().to_vec());
    }
    let single = number.single();
    if number.float().is_finite() && !single.is_finite() {
        return None;
    }
    let value = (single * scale as f32 - mean as f32) / std as f32;
    if single.is_finite() && !value.is_finite() {
        return None;
    }
    write(dtype, Number::Float(f64::from(value)))
}

fn tensor(dtype: DType, elements: &[Vec<u8>], shape: &[usize]) -> Tensor {
    let bytes = Tensor::from_vec(elements.concat(), &[elements.concat().len()]).unwrap();
    let mut strides = vec![0; shape.len()];
    let mut step = dtype.size() as isize;
    for (stride, &len) in strides.iter_mut().zip(shape).rev() {
        *stride = step;
        step *= len.max(1) as isize;
    }
    Tensor::new(bytes.bytes().clone(), dtype, shape, &strides, 0).unwrap()
}

/// The elements of a field, as bytes.
fn elements(batch: &Batch, field: &str) -> Vec<Vec<u8>> {
    let tensor = batch.field(field).unwrap();
    let (size, start) = (tensor.dtype().size(), tensor.layout().offset());
    let end = start + tensor.layout().elements() * size;
    tensor.bytes()[start..end].chunks(size).map(<[u8]>::to_vec).collect()
}

fn values<T: Element>(batch: &Batch, field: &str) -> Vec<T> {
    batch.field(field).unwrap().as_slice::<T>().unwrap().to_vec()
}

/// Numbers near the edges of all types, and between them.
fn numbers() -> impl Strategy<Value = Number> {
    let edge = (0..=64_u32, -2..=2_i128, any::<bool>()).prop_map(|(bits, near, negative)| {
        let value = (1_i128 << bits) + near;
        Number::Integer(if negative { -value } else { value })
    });
    let float = prop_oneof![
        any::<f64>(),
        (-300.0..300.0_f64).prop_map(|value| (value * 2.0).round() / 2.0),
        prop::sample::select(vec![
            65504.0,
            65519.0,
            65520.0,
            3.4e38,
            3.5e38,
            1e300,
            9223372036854775807.0,
            -0.0
        ]),
        prop::sample::select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e-320]),
    ];
    prop_oneof![3 => (0..2_i128).prop_map(Number::Integer), 3 => edge, 4 => float.prop_map(Number::Float)]
}

/// The batches of all rows of one field, or the error.
fn cast_rows(
    array: Tensor,
    batch_size: u64,
    options: impl Fn(LoaderBuilder) -> LoaderBuilder,
) -> Result<Vec<Vec<u8>>, Error> {
    let dataset = TensorDataset::new([("x", array)]).unwrap();
    let loader = options(Loader::builder(dataset).batch_size(batch_size).num_threads(1)).build()?;
    let mut all_elements = Vec::new();
    for batch in loader.iter() {
        all_elements.extend(elements(&batch?, "x"));
    }
    Ok(all_elements)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_pair_of_types_keeps_values_or_refuses_the_first_that_it_cannot_hold(
        from in prop::sample::select(TYPES.to_vec()),
        to in prop::sample::select(TYPES.to_vec()),
        drawn in prop::collection::vec(numbers(), 1..40),
        affine in prop::option::of((-3.0..3.0_f64, -2.0..2.0_f64, 0.1..2.0_f64)),
        batch_size in 1..12_u64,
    ) {
        let stored: Vec<Vec<u8>> = drawn.iter().filter_map(|&number| write(from, number)).collect();
        prop_assume!(!stored.is_empty());
        let is_float = matches!(to, DType::F16 | DType::BF16 | DType::F32 | DType::F64);
        let affine = affine.filter(|_| is_float);
        let expected: Vec<Option<Vec<u8>>> = stored.iter().map(|element| match affine {
            None if from == to => Some(element.clone()),
            None => write(to, read(from, element)),
            Some((scale, mean, std)) => write_scaled(to, read(from, element), scale, mean, std),
        }).collect();
        let rows = stored.len();
        let result = cast_rows(tensor(from, &stored, &[rows]), batch_size, |builder| match affine {
            None => builder.dtype("x", to),
            Some((scale, mean, std)) => {
                builder.dtype("x", to).scale("x", scale).mean("x", [mean]).std("x", [std])
            }
        });
        match (expected.iter().position(Option::is_none), result) {
            (Some(place), Err(error)) => {
                let (no, converted) = (format!("is no {to}"), format!("converted from {from}"));
                prop_assert!(is(&error, Kind::Data, &[&no, &converted]), "{error}");
                prop_assert_eq!(error.sample(), Some(place as u64));
            }
            (None, Ok(converted)) => {
                let is_nan = |element: &Vec<u8>| read(to, element).float().is_nan();
                for (element, expected) in converted.iter().zip(expected.into_iter().flatten()) {
                    prop_assert!(*element == expected || (is_nan(element) && is_nan(&expected)));
                }
            }
            (expected, result) => prop_assert!(false, "first refused {expected:?}, but {result:?}"),
        }
    }

    #[test]
    fn each_channel_has_its_own_mean_and_deviation(
        samples in 1..9_usize,
        (first, middle, last) in (1..6_usize, 1..40_usize, 1..6_usize),
        channels in prop::sample::select(vec![Channels::First, Channels::Last]),
        batch_size in 1..5_u64,
    ) {
        let shape = [samples, first, middle, last];
        let count = if channels == Channels::First { first } else { last };
        let pixels: Vec<u8> = (0..shape.iter().product::<usize>()).map(|place| (place * 7 % 256) as u8).collect();
        let means: Vec<f64> = (0..count).map(|channel| 0.1 * channel as f64).collect();
        let stds: Vec<f64> = (0..count).map(|channel| 0.3 + 0.1 * channel as f64).collect();
        let array = Tensor::from_vec(pixels.clone(), &shape).unwrap();
        let converted = cast_rows(array, batch_size, |builder| {
            builder.scale("x", 1.0 / 255.0).mean("x", means.clone()).std("x", stds.clone()).channels("x", channels)
        }).unwrap();
        for (place, (element, pixel)) in converted.iter().zip(pixels).enumerate() {
            let channel = match channels {
                Channels::First => place / (middle * last) % first,
                Channels::Last => place % last,
            };
            let expected =
                (f32::from(pixel) * (1.0_f64 / 255.0) as f32 - means[channel] as f32) / stds[channel] as f32;
            prop_assert_eq!(element, &expected.to_ne_bytes().to_vec());
        }
    }
}

/// Sequences of uint16 with lengths as given; token `k` of all is `k`.
fn documents(lengths: &[usize]) -> SequenceDataset {
    let mut offsets = vec![0_i64];
    offsets.extend(lengths.iter().scan(0, |end, &length| {
        *end += length as i64;
        Some(*end)
    }));
    let total: usize = lengths.iter().sum();
    let tokens = Tensor::from_vec((0..total as u16).collect::<Vec<_>>(), &[total]).unwrap();
    let pairs = Tensor::from_vec((0..2 * total as i32).collect::<Vec<_>>(), &[total, 2]).unwrap();
    SequenceDataset::new()
        .variable("tokens", Sequences::new("tokens", tokens, &offsets).unwrap())
        .variable("pairs", Sequences::new("pairs", pairs, &offsets).unwrap())
        .build()
        .unwrap()
}

fn batches(loader: &Loader) -> Vec<Batch> {
    loader.iter().map(Result::unwrap).collect()
}

proptest! {
    // law: L9
    #[test]
    fn sequences_come_in_other_types_with_padding_as_it_is_given(
        lengths in prop::collection::vec(0..30_usize, 1..20),
        packs in any::<bool>(),
        left in any::<bool>(),
        threads in 1..3_usize,
        block_bytes in prop::sample::select(vec![1, 4096, 1 << 20]),
    ) {
        prop_assume!(lengths.iter().sum::<usize>() > 0);
        let rule: Rule = if packs { Packing::new(64).unwrap().into() } else { FixedSize::new(4).unwrap().into() };
        let side = if left { PadSide::Left } else { PadSide::Right };
        let plain = || {
            let builder = Loader::builder(documents(&lengths)).rule(rule.clone()).shuffle(true);
            builder.num_threads(threads).block_bytes(block_bytes).pad_side(side)
        };
        let stored = plain().pad_value("tokens", &9999_u16.to_ne_bytes()).pad_value("pairs", &(-1_i32).to_ne_bytes());
        let cast = plain()
            .dtype("tokens", DType::I64)
            .pad_value("tokens", &(-7_i64).to_ne_bytes())
            .dtype("pairs", DType::F32)
            .scale("pairs", 0.5)
            .mean("pairs", [1.0, 2.0])
            .pad_value("pairs", &(-0.25_f32).to_ne_bytes());
        let (stored, cast) = (batches(&stored.build().unwrap()), batches(&cast.build().unwrap()));
        prop_assert_eq!(stored.len(), cast.len());
        for (stored, cast) in stored.iter().zip(&cast) {
            let tokens = values::<u16>(stored, "tokens").into_iter();
            let tokens = tokens.map(|token| if token == 9999 { -7 } else { i64::from(token) });
            prop_assert_eq!(values::<i64>(cast, "tokens"), tokens.collect::<Vec<_>>());
            let pairs = values::<i32>(stored, "pairs").into_iter().enumerate();
            let pairs = pairs.map(|(place, value)| match value {
                -1 => -0.25,
                value => value as f32 * 0.5 - [1.0, 2.0][place % 2],
            });
            prop_assert_eq!(values::<f32>(cast, "pairs"), pairs.collect::<Vec<_>>());
            for name in stored.names().iter().filter(|name| !["tokens", "pairs"].contains(&name.as_str())) {
                prop_assert_eq!(elements(stored, name), elements(cast, name));
            }
        }
    }
}

#[test]
fn samples_of_several_dimensions_are_padded_in_the_type_of_the_batch() {
    // Images [channels, height, width] of 2 x 1 x 2 and 2 x 2 x 1.
    let pixels = Tensor::from_vec(vec![1_u8, 2, 3, 4, 5, 6, 7, 8], &[8]).unwrap();
    let sequences = Sequences::with_shapes("x", &pixels, &[2, 1, 2, 2, 2, 1], 3).unwrap();
    let dataset = SequenceDataset::new().variable("x", sequences).build().unwrap();
    for (side, expected) in [
        (PadSide::Right, [1., 2., 9., 9., 23., 24., 9., 9., 5., 9., 6., 9., 27., 9., 28., 9.]),
        (PadSide::Left, [9., 9., 1., 2., 9., 9., 23., 24., 9., 5., 9., 6., 9., 27., 9., 28.]),
    ] {
        let loader = Loader::builder(dataset.clone()).batch_size(2).pad_side(side).mean("x", [0.0, -20.0]);
        let loader = loader.dtype("x", DType::F64).pad_value("x", &9_f64.to_ne_bytes()).build().unwrap();
        assert_eq!(values::<f64>(&batches(&loader)[0], "x"), expected);
    }
}

#[test]
fn windows_groups_and_tokens_come_in_other_types() {
    let series = Tensor::from_vec((1..7_u8).collect::<Vec<_>>(), &[6, 1]).unwrap();
    let windows = WindowDataset::new(&[0, 1, 5, 6], WindowShape::new(3)).unwrap().input("x", series).unwrap();
    let loader = Loader::builder(windows).batch_size(3).mean("x", [1.0]).build().unwrap();
    assert_eq!(values::<f32>(&batches(&loader)[0], "x"), [0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 2.0, 3.0, 4.0]);
    let rows = Tensor::from_vec(vec![1_u8, 2, 3], &[3]).unwrap();
    for layout in [GroupLayout::Padded, GroupLayout::Concatenated] {
        let groups = GroupDataset::new(Groups::of(&[5, 5, 6]).unwrap()).rows("x", rows.clone()).unwrap();
        let dataset = groups.layout(layout).build().unwrap();
        let loader = Loader::builder(dataset).batch_size(2).mean("x", [1.0]).build().unwrap();
        let expected: &[f32] =
            if layout == GroupLayout::Padded { &[0.0, 1.0, 2.0, 0.0] } else { &[0.0, 1.0, 2.0] };
        assert_eq!(values::<f32>(&batches(&loader)[0], "x"), expected);
    }
    let tokens =
        TokenDataset::new(Tensor::from_vec((0..9_u32).collect::<Vec<_>>(), &[9]).unwrap(), 4).unwrap();
    let loader = Loader::builder(tokens).batch_size(2).dtype("input_ids", DType::I32).build().unwrap();
    let batch = &batches(&loader)[0];
    assert_eq!(values::<i32>(batch, "input_ids"), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(values::<i64>(batch, "labels"), [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn a_value_that_is_not_held_is_an_error_that_names_its_sample() {
    let batches = batches_or_error(documents(&[300, 3]), |builder| builder.dtype("tokens", DType::U8));
    let error = batches.unwrap_err();
    assert_eq!((error.field(), error.sample()), (Some("tokens"), Some(0)));
    assert!(is(&error, Kind::Data, &["holds 256", "no uint8", "converted from uint16"]), "{error}");
    // The second sample, behind the first in one concatenation.
    let batches = batches_or_error(documents(&[100, 200]), |builder| {
        builder.dtype("tokens", DType::I8).rule(Packing::new(300).unwrap())
    });
    refused(batches, Kind::Data, &["field tokens, sample 1,", "no int8"]);
}

#[test]
fn options_that_make_no_sense_are_refused_before_any_work() {
    let wrong = |options: fn(LoaderBuilder) -> LoaderBuilder, words: &[&str]| {
        let image = Tensor::from_vec(vec![0_u8; 2 * 3 * 5 * 3], &[2, 3, 5, 3]).unwrap();
        let builder = Loader::builder(TensorDataset::new([("image", image)]).unwrap());
        let error = options(builder).build().unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    };
    wrong(|builder| builder.dtype("picture", DType::F32), &["picture", "image"]);
    wrong(|builder| builder.dtype("image", DType::C64), &["uint8", "complex64"]);
    wrong(|builder| builder.dtype("image", DType::I32).scale("image", 2.0), &["int32", "float32"]);
    wrong(|builder| builder.mean("image", [0.1, 0.2, 0.3]), &["3 means", "[3, 5, 3]", "say which"]);
    wrong(|builder| builder.mean("image", [0.1, 0.2]), &["2 means", "[3, 5, 3]"]);
    wrong(
        |builder| builder.mean("image", [0.1, 0.2]).std("image", [1.0, 1.0, 2.0]),
        &["2 means", "3 deviations"],
    );
    wrong(|builder| builder.std("image", [0.0]), &["std", "0"]);
    wrong(|builder| builder.scale("image", f64::NAN), &["scale", "NaN"]);
    wrong(|builder| builder.dtype("image", DType::F32).scale("image", 1e300), &["1e300"]);
    let builder = Loader::builder(documents(&[2])).dtype("lengths", DType::I32);
    assert!(builder.build().unwrap_err().to_string().contains("lengths"));
    let builder = Loader::builder(documents(&[2])).dtype("tokens", DType::I64).pad_value("tokens", &[0, 0]);
    refused(builder.build(), Kind::Argument, &["the padding of field tokens has 2 bytes; expected 8"]);
}

fn batches_or_error(
    dataset: SequenceDataset,
    options: impl Fn(LoaderBuilder) -> LoaderBuilder,
) -> Result<Vec<Batch>, Error> {
    options(Loader::builder(dataset).batch_size(1)).build()?.iter().collect()
}

#[test]
fn types_alone_tell_which_conversions_hold_every_value() {
    let is_total = |from: DType, to: DType, scale: Option<f64>| {
        let array = tensor(from, &[vec![0; from.size()]], &[1]);
        let builder = Loader::builder(TensorDataset::new([("x", array)]).unwrap()).dtype("x", to);
        let builder = scale.into_iter().fold(builder, |builder, scale| builder.scale("x", scale));
        builder.conversions().unwrap().first().is_none_or(|conversion| conversion.is_total)
    };
    use DType::{BF16, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    for (from, to) in
        [(U16, I64), (U32, I64), (Bool, F16), (U8, BF16), (I64, F32), (F16, F32), (F32, F64), (I16, F16)]
    {
        assert!(is_total(from, to, None), "{from} to {to}");
    }
    for (from, to) in
        [(I64, U64), (U64, I64), (I32, I8), (F64, F32), (F32, I64), (U8, Bool), (U16, F16), (F32, BF16)]
    {
        assert!(!is_total(from, to, None), "{from} to {to}");
    }
    assert!(is_total(F16, F32, Some(1.0 / 255.0)) && is_total(U8, F16, Some(250.0)));
    assert!(!is_total(F32, F32, Some(2.0)) && !is_total(U8, F16, Some(260.0)));
}
