//! Slots that resize: their shapes and channels, what stays as it is, and what is refused.

use batchloom::dataset::{MapDataset, Sample};
use batchloom::loader::{Batch, Channels, Filter, Resize, Slot};
use batchloom::{DType, Loader, Result, Tensor};
use proptest::prelude::*;

/// The batch of arrays that are resized.
fn batch(images: Vec<Tensor>, resize: Resize) -> Result<Batch> {
    let samples = images.len() as u64;
    let read = move |sample: u64, _: &mut _| Ok(Sample::new([("image", images[sample as usize].clone())]));
    let dataset = MapDataset::new((samples, read)).build()?;
    let loader =
        Loader::builder(dataset).batch_size(samples).collate("image", Slot::Resize(resize)).build()?;
    loader.iter().next().unwrap()
}

/// The image `[height, width, channels]` of these values, or the same image with its channels in the first dimension.
fn image(values: &[u8], size: [usize; 3], channels: Channels, is_float: bool, is_transposed: bool) -> Tensor {
    let [height, width, depth] = size;
    let (shape, steps) = match channels {
        Channels::Last => (size, [width * depth, depth, 1]),
        Channels::First => ([depth, height, width], [1, width * depth, depth]),
    };
    let bytes: Vec<u8> = match is_float {
        true => values.iter().flat_map(|&value| f32::from(value).to_ne_bytes()).collect(),
        false => values.to_vec(),
    };
    let dtype = if is_float { DType::F32 } else { DType::U8 };
    let strides = steps.map(|step| (step * dtype.size()) as isize);
    let strided = Tensor::new(bytes.into(), dtype, &shape, &strides, 0).unwrap();
    if is_transposed {
        return strided;
    }
    // The same elements, one after another.
    let mut compact = Vec::new();
    for first in 0..shape[0] {
        for second in 0..shape[1] {
            for third in 0..shape[2] {
                let start = first * steps[0] + second * steps[1] + third * steps[2];
                compact.extend_from_slice(&strided.bytes()[start * dtype.size()..(start + 1) * dtype.size()]);
            }
        }
    }
    let strides = [shape[1] * shape[2], shape[2], 1].map(|step| (step * dtype.size()) as isize);
    Tensor::new(compact.into(), dtype, &shape, &strides, 0).unwrap()
}

/// The elements of the only image of a batch as `[height, width, channels]`.
fn pixels(batch: &Batch, channels: Channels) -> Vec<f32> {
    let field = &batch.fields()[0];
    let values: Vec<f32> = match field.dtype() {
        DType::U8 => field.as_slice::<u8>().unwrap().iter().map(|&value| f32::from(value)).collect(),
        _ => field.as_slice::<f32>().unwrap().to_vec(),
    };
    let [_, first, second, third] = <[usize; 4]>::try_from(field.shape()).unwrap();
    match channels {
        Channels::Last => values,
        Channels::First => {
            let place = |pixel: usize, channel: usize| channel * second * third + pixel;
            let channels = |pixel: usize| (0..first).map(move |channel| place(pixel, channel));
            (0..second * third).flat_map(channels).map(|place| values[place]).collect()
        }
    }
}

fn filters() -> impl Strategy<Value = Filter> {
    prop_oneof![Just(Filter::Nearest), Just(Filter::Bilinear), Just(Filter::Bicubic)]
}

fn orders() -> impl Strategy<Value = Channels> {
    prop_oneof![Just(Channels::First), Just(Channels::Last)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// The pixels are the same with channels in any dimension and any strides; images of the wanted size stay, and
    /// constant ones stay constant.
    #[test]
    fn channels_lie_anywhere(
        size in (1_usize..12, 1_usize..12, 1_usize..5), to_size in (1_usize..12, 1_usize..12),
        values in prop::collection::vec(any::<u8>(), 12 * 12 * 4), filter in filters(), antialias in any::<bool>(),
        channels in orders(), to in orders(), is_float in any::<bool>(), is_transposed in any::<bool>(),
        is_constant in any::<bool>(), keeps_size in any::<bool>(),
    ) {
        let size = [size.0, size.1, size.2];
        let mut values = values[..size.iter().product()].to_vec();
        if is_constant {
            let first = values[..size[2]].to_vec();
            values.chunks_exact_mut(size[2]).for_each(|pixel| pixel.copy_from_slice(&first));
        }
        let (height, width) = if keeps_size { (size[0], size[1]) } else { to_size };
        let resize = Resize { filter, antialias, channels, to, ..Resize::new(height, width) };
        let resized = batch(vec![image(&values, size, channels, is_float, is_transposed)], resize.clone()).unwrap();
        let shape = match to {
            Channels::First => [1, size[2], height, width],
            Channels::Last => [1, height, width, size[2]],
        };
        prop_assert_eq!(resized.fields()[0].shape(), shape);
        let resized = pixels(&resized, to);
        let last = Resize { channels: Channels::Last, to: Channels::Last, ..resize };
        let plain = batch(vec![image(&values, size, Channels::Last, is_float, false)], last).unwrap();
        let close = |one: &[f32], other: &[f32]| one.iter().zip(other).all(|(one, other)| (one - other).abs() < 1e-3);
        prop_assert!(close(&resized, &pixels(&plain, Channels::Last)));
        let floats: Vec<f32> = values.iter().map(|&value| f32::from(value)).collect();
        if keeps_size {
            prop_assert_eq!(&resized, &floats);
        }
        if is_constant {
            prop_assert!(resized.chunks_exact(size[2]).all(|pixel| close(pixel, &floats[..size[2]])));
        }
    }
}

/// Images of a batch differ in size, and have no dimension of channels.
#[test]
fn gray_images_of_several_sizes() {
    let gray =
        |height: usize, width: usize| Tensor::from_vec(vec![height as u8; height * width], &[height, width]);
    let images = vec![gray(3, 5).unwrap(), gray(9, 2).unwrap()];
    let resized = batch(images, Resize { to: Channels::First, ..Resize::new(2, 4) }).unwrap();
    assert_eq!(resized.fields()[0].shape(), [2, 2, 4]);
    assert_eq!(resized.fields()[0].as_slice::<u8>().unwrap(), [[3; 8], [9; 8]].concat());
}

#[test]
fn what_is_no_image_is_refused() {
    let zeros = |shape: &[usize]| Tensor::from_vec(vec![0_u8; shape.iter().product()], shape).unwrap();
    let message = |images: Vec<Tensor>, resize: Resize| batch(images, resize).unwrap_err().to_string();
    for (array, description) in [
        (zeros(&[0, 4, 3]), "uint8[0, 4, 3]"),
        (zeros(&[4, 4, 5]), "uint8[4, 4, 5]"),
        (zeros(&[4]), "uint8[4]"),
        (Tensor::from_vec(vec![0_i64; 4], &[2, 2]).unwrap(), "int64[2, 2]"),
    ] {
        let expected = format!(
            "field image of sample 0 is {description}, and its slot resizes images; expected uint8 or float32 of the shape \
             [height, width] or [height, width, channels], with 1 to 4 channels and no extent of 0"
        );
        assert_eq!(message(vec![array], Resize::new(2, 2)), expected);
    }
    let other = message(vec![zeros(&[2, 2, 3]), zeros(&[2, 3, 1])], Resize::new(2, 2));
    assert!(
        other.starts_with("field image of sample 1 is uint8[2, 3, 1]; in sample 0 it was uint8[2, 2, 3]"),
        "{other}"
    );
    let empty = message(vec![zeros(&[2, 2])], Resize::new(0, 2));
    assert_eq!(empty, "field image: images are resized to 0 x 2 pixels; expected at least 1 x 1");
}
