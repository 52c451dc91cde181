//! Conversion of elements from one type to another, scaled on the way: `(x * scale - mean) / std`.
//!
//! A value that the other type cannot hold is refused: one outside its range, a fraction or NaN as an integer. Rounding
//! to a floating type is neither. Each pair of types has its own plain loop, which the compiler turns into
//! vector code; such a loop notes that something was refused, and only then is the value looked for.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "each cast stands beside the test that its value is held"
)]

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

use crate::DType;
use crate::named::named;

/// The number of elements that are converted before refusals are looked at.
const RUN: usize = 4096;

/// The least number of means and deviations that a loop goes through at once.
const TILE: usize = 64;

/// The dimension of a sample that means and deviations are given for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Channels {
    /// The first dimension, as of images `[channels, height, width]`.
    First,
    /// The last dimension, as of images `[height, width, channels]` or of rows of features.
    Last,
}

named!(Channels, "channels", {
    "first" => First,
    "last" => Last,
});

/// A conversion of elements of one type to another.
#[derive(Debug, Clone)]
pub(crate) struct Conversion {
    pub(crate) from: DType,
    pub(crate) to: DType,
    kernel: Kernel,
}

/// The loop of a pair of types: it returns false if a value was refused.
#[derive(Debug, Clone)]
enum Kernel {
    Plain(Plain),
    Affine(Scaled, Affine),
}

type Plain = fn(&[u8], &mut [u8]) -> bool;
type Scaled = fn(&[u8], &mut [u8], &Affine, Phase) -> bool;

/// The numbers of `(x * scale - mean) / std`, in the precision of the target: float64 for float64, otherwise float32.
#[derive(Debug, Clone)]
pub(crate) struct Affine {
    channels: Channels,
    count: usize,
    single: Vec<Tile<f32>>,
    double: Vec<Tile<f64>>,
}

/// The numbers for neighbouring elements, over and over. One tile has all channels where these are neighbours,
/// otherwise each channel has its own.
#[derive(Debug, Clone)]
struct Tile<F> {
    scale: F,
    means: Vec<F>,
    stds: Vec<F>,
}

/// A tile, and the place in it that belongs to the first element.
#[derive(Debug, Clone, Copy)]
struct Phase {
    tile: usize,
    start: usize,
}

/// A value that the target type cannot hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unrepresentable {
    /// The number of the element.
    pub(crate) place: usize,
    /// The value, as it is stored.
    pub(crate) value: String,
}

impl Affine {
    /// The numbers for a target of type `to`: one mean and one deviation, or one of each for each channel. `None` if
    /// the precision of the target has no such number, or has 0 for a deviation.
    pub(crate) fn new(
        to: DType,
        scale: f64,
        means: &[f64],
        stds: &[f64],
        channels: Channels,
    ) -> Option<Self> {
        let count = means.len().max(stds.len()).max(1);
        let each = |numbers: &[f64], default: f64| -> Vec<f64> {
            let number = |channel: usize| match numbers {
                [] => default,
                [one] => *one,
                _ => numbers.get(channel).copied().unwrap_or(default),
            };
            (0..count).map(number).collect()
        };
        let (means, stds) = (each(means, 0.0), each(stds, 1.0));
        let held = |number: f64| match to {
            DType::F64 => number.is_finite(),
            _ => (number as f32).is_finite(),
        };
        let divides = |std: f64| if to == DType::F64 { std != 0.0 } else { std as f32 != 0.0 };
        if ![scale].iter().chain(&means).chain(&stds).all(|&number| held(number))
            || !stds.iter().all(|&std| divides(std))
        {
            return None;
        }
        let tile = |means: &[f64], stds: &[f64]| {
            let times = TILE.div_ceil(means.len());
            Tile { scale, means: means.repeat(times), stds: stds.repeat(times) }
        };
        let double: Vec<Tile<f64>> = match channels {
            Channels::Last => vec![tile(&means, &stds)],
            Channels::First => {
                means.chunks(1).zip(stds.chunks(1)).map(|(mean, std)| tile(mean, std)).collect()
            }
        };
        let single = double.iter().map(|tile| Tile {
            scale: tile.scale as f32,
            means: tile.means.iter().map(|&mean| mean as f32).collect(),
            stds: tile.stds.iter().map(|&std| std as f32).collect(),
        });
        Some(Self { channels, count, single: single.collect(), double })
    }

    /// The tile of element `first` of a sample, and the number of elements that it serves.
    fn phase(&self, first: usize, stretch: usize) -> (Phase, usize) {
        match self.channels {
            Channels::Last => (Phase { tile: 0, start: first % self.count }, RUN),
            Channels::First => {
                let stretch = stretch.max(1);
                (Phase { tile: first / stretch % self.count, start: 0 }, stretch - first % stretch)
            }
        }
    }
}

impl Conversion {
    /// The conversion of elements of type `from` to type `to`, scaled by `affine`. `None` for complex numbers and
    /// floats of 8 bits, and for numbers that are scaled and then no floats.
    pub(crate) fn new(from: DType, to: DType, affine: Option<Affine>) -> Option<Self> {
        let kernel = match affine {
            None => Kernel::Plain(plain(from, to)?),
            Some(affine) => Kernel::Affine(scaling_loop(from, to)?, affine),
        };
        Some(Self { from, to, kernel })
    }

    /// The number of neighbouring elements that share a channel, in samples of shape `sample`.
    pub(crate) fn stretch(&self, sample: &[usize]) -> usize {
        match &self.kernel {
            Kernel::Affine(_, Affine { channels: Channels::First, .. }) => sample.iter().skip(1).product(),
            _ => 1,
        }
    }

    /// Converts compact elements; the first is element `first` of its sample; `stretch` neighbours share a
    /// channel.
    ///
    /// # Errors
    /// The first element that the target type cannot hold.
    pub(crate) fn convert(
        &self,
        source: &[u8],
        target: &mut [u8],
        first: usize,
        stretch: usize,
    ) -> Result<(), Unrepresentable> {
        let (from, to) = (self.from.size(), self.to.size());
        let elements = source.len() / from;
        let mut done = 0;
        while done < elements {
            let (phase, most) = self.phase(first + done, stretch);
            let end = elements.min(done + most.min(RUN));
            let (source, target) = (&source[done * from..end * from], &mut target[done * to..end * to]);
            if !self.run(source, target, phase) {
                return Err(self.find_refused(source, target, first + done, stretch, done));
            }
            done = end;
        }
        Ok(())
    }

    /// Returns true if `source`, an element, becomes `target` wherever in a sample it lies.
    pub(crate) fn makes(&self, source: &[u8], target: &[u8]) -> bool {
        let mut converted = vec![0; target.len()];
        matches!(self.kernel, Kernel::Plain(_))
            && self.convert(source, &mut converted, 0, 1).is_ok()
            && converted == target
    }

    /// Returns true if the types alone prove that every value is held, given the numbers that they are scaled by.
    pub(crate) fn is_total(&self) -> bool {
        let floats = |dtype| matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64);
        if floats(self.from) && !floats(self.to) {
            return false;
        }
        // Every conversion but those is monotonous, so the extremes of the type tell.
        let channels = match &self.kernel {
            Kernel::Plain(_) => 1,
            Kernel::Affine(_, affine) => affine.count,
        };
        let mut target = [0; 16];
        let target = &mut target[..self.to.size()];
        let extremes = extremes(self.from);
        (0..channels)
            .all(|channel| extremes.iter().all(|extreme| self.convert(extreme, target, channel, 1).is_ok()))
    }

    fn phase(&self, first: usize, stretch: usize) -> (Phase, usize) {
        match &self.kernel {
            Kernel::Plain(_) => (Phase { tile: 0, start: 0 }, RUN),
            Kernel::Affine(_, affine) => affine.phase(first, stretch),
        }
    }

    /// Converts elements of one tile. Returns false if one was refused.
    fn run(&self, source: &[u8], target: &mut [u8], phase: Phase) -> bool {
        match &self.kernel {
            Kernel::Plain(kernel) => kernel(source, target),
            Kernel::Affine(kernel, affine) => kernel(source, target, affine, phase),
        }
    }

    /// The first element that is refused, of some that hold one; `first` numbers the first of them in its sample,
    /// `done` in the whole.
    fn find_refused(
        &self,
        source: &[u8],
        target: &mut [u8],
        first: usize,
        stretch: usize,
        done: usize,
    ) -> Unrepresentable {
        let elements = source.chunks(self.from.size()).zip(target.chunks_mut(self.to.size()));
        let mut refused = elements.enumerate().filter_map(|(place, (source, target))| {
            let (phase, _) = self.phase(first + place, stretch);
            let value = || text(self.from, source);
            (!self.run(source, target, phase))
                .then(|| Unrepresentable { place: done + place, value: value() })
        });
        refused.next().unwrap_or(Unrepresentable { place: done, value: String::new() })
    }
}

/// A type of elements, by the bytes of one and by the type that it is computed in, which holds all its values.
trait Stored: Copy {
    /// The bytes of one element, an array.
    type Bytes: bytemuck::Pod;
    type Wide: Copy;

    fn widen(bytes: Self::Bytes) -> Self::Wide;

    fn bytes(self) -> Self::Bytes;
}

/// A value of type `W` as this type, and whether the type holds it.
trait Narrow<W>: Stored {
    fn narrow(wide: W) -> (Self, bool);
}

/// The arithmetic that a target is computed in.
trait Real: Copy {
    fn tiles(affine: &Affine) -> &[Tile<Self>];

    /// The scaled value, and whether it is finite where this one is.
    fn affine(self, scale: Self, mean: Self, std: Self) -> (Self, bool);
}

/// A float, and the arithmetic that its values are computed in.
trait Floating: Narrow<Self::Real> {
    type Real: Real + Stored;
}

/// A boolean, as one byte.
#[derive(Clone, Copy)]
struct Truth(bool);

impl Stored for Truth {
    type Bytes = [u8; 1];
    type Wide = i32;

    fn widen(bytes: [u8; 1]) -> i32 {
        i32::from(bytes[0] != 0)
    }

    fn bytes(self) -> [u8; 1] {
        [u8::from(self.0)]
    }
}

macro_rules! stored {
    ($($type:ty as $wide:ty, $bytes:literal;)*) => {
        $(impl Stored for $type {
            type Bytes = [u8; $bytes];
            type Wide = $wide;

            fn widen(bytes: [u8; $bytes]) -> $wide {
                <$wide>::from(<$type>::from_ne_bytes(bytes))
            }

            fn bytes(self) -> [u8; $bytes] {
                self.to_ne_bytes()
            }
        })*
    };
}

stored! {
    u8 as i32, 1;
    i8 as i32, 1;
    u16 as i32, 2;
    i16 as i32, 2;
    u32 as i64, 4;
    i32 as i32, 4;
    u64 as u64, 8;
    i64 as i64, 8;
    f16 as f32, 2;
    bf16 as f32, 2;
    f32 as f32, 4;
    f64 as f64, 8;
}

macro_rules! integers_of_integers {
    ($wide:ty: $($type:ty),*) => {
        $(impl Narrow<$wide> for $type {
            fn narrow(wide: $wide) -> (Self, bool) {
                (wide as Self, Self::try_from(wide).is_ok())
            }
        })*
    };
}

integers_of_integers!(i32: u8, i8, u16, i16, u32, i32, u64, i64);
integers_of_integers!(i64: u8, i8, u16, i16, u32, i32, u64, i64);
integers_of_integers!(u64: u8, i8, u16, i16, u32, i32, u64, i64);

macro_rules! integers_of_floats {
    ($wide:ty: $($type:ty),*) => {
        $(impl Narrow<$wide> for $type {
            fn narrow(wide: $wide) -> (Self, bool) {
                let value = wide as Self;
                // The largest integer itself may be no float; the one after it is.
                let within = wide >= Self::MIN as $wide && wide < Self::MAX as $wide + 1.0;
                (value, within & (value as $wide == wide))
            }
        })*
    };
}

integers_of_floats!(f32: u8, i8, u16, i16, u32, i32, u64, i64);
integers_of_floats!(f64: u8, i8, u16, i16, u32, i32, u64, i64);

macro_rules! truths {
    ($($wide:ty, $zero:literal, $one:literal;)*) => {
        $(impl Narrow<$wide> for Truth {
            fn narrow(wide: $wide) -> (Self, bool) {
                (Self(wide == $one), (wide == $zero) | (wide == $one))
            }
        })*
    };
}

truths! {
    i32, 0, 1;
    i64, 0, 1;
    u64, 0, 1;
    f32, 0.0, 1.0;
    f64, 0.0, 1.0;
}

macro_rules! floats {
    ($($wide:ty),*) => {
        $(impl Narrow<$wide> for f32 {
            fn narrow(wide: $wide) -> (Self, bool) {
                let value = wide as Self;
                (value, value.is_finite() | !(wide as f64).is_finite())
            }
        }

        impl Narrow<$wide> for f64 {
            fn narrow(wide: $wide) -> (Self, bool) {
                (wide as Self, true)
            }
        }

        impl Narrow<$wide> for f16 {
            fn narrow(wide: $wide) -> (Self, bool) {
                let value = Self::from_f32(wide as f32);
                (value, value.is_finite() | !(wide as f64).is_finite())
            }
        }

        impl Narrow<$wide> for bf16 {
            fn narrow(wide: $wide) -> (Self, bool) {
                let value = Self::from_f32(wide as f32);
                (value, value.is_finite() | !(wide as f64).is_finite())
            }
        })*
    };
}

floats!(i32, i64, u64, f32, f64);

macro_rules! reals {
    ($($type:ty: $tiles:ident),*) => {
        $(impl Real for $type {
            fn tiles(affine: &Affine) -> &[Tile<Self>] {
                &affine.$tiles
            }

            fn affine(self, scale: Self, mean: Self, std: Self) -> (Self, bool) {
                let value = (self * scale - mean) / std;
                (value, value.is_finite() | !self.is_finite())
            }
        })*
    };
}

reals!(f32: single, f64: double);

macro_rules! floating {
    ($($type:ty as $real:ty),*) => {
        $(impl Floating for $type {
            type Real = $real;
        })*
    };
}

floating!(f16 as f32, bf16 as f32, f32 as f32, f64 as f64);

/// Converts elements. Returns false if one was refused.
fn cast<S: Stored, T: Narrow<S::Wide>>(source: &[u8], target: &mut [u8]) -> bool {
    let source: &[S::Bytes] = bytemuck::cast_slice(source);
    let target: &mut [T::Bytes] = bytemuck::cast_slice_mut(target);
    let mut held = true;
    for (slot, &bytes) in target.iter_mut().zip(source) {
        let (value, holds) = T::narrow(S::widen(bytes));
        held &= holds;
        *slot = value.bytes();
    }
    held
}

/// Converts elements of one tile and scales them. Returns false if one was refused.
fn scale<S: Stored, T: Floating>(source: &[u8], target: &mut [u8], affine: &Affine, phase: Phase) -> bool
where
    T::Real: Narrow<S::Wide> + Stored<Wide = T::Real>,
{
    let source: &[S::Bytes] = bytemuck::cast_slice(source);
    let target: &mut [T::Bytes] = bytemuck::cast_slice_mut(target);
    let tile = &T::Real::tiles(affine)[phase.tile];
    let (first, second) = source.split_at((tile.means.len() - phase.start).min(source.len()));
    let (begin, rest) = target.split_at_mut(first.len());
    let mut held = scale_run::<S, T>(first, begin, tile, phase.start);
    for (source, target) in second.chunks(tile.means.len()).zip(rest.chunks_mut(tile.means.len())) {
        held &= scale_run::<S, T>(source, target, tile, 0);
    }
    held
}

/// Converts and scales elements from `start` on, at most one tile of them.
#[inline(always)]
fn scale_run<S: Stored, T: Floating>(
    source: &[S::Bytes],
    target: &mut [T::Bytes],
    tile: &Tile<T::Real>,
    start: usize,
) -> bool
where
    T::Real: Narrow<S::Wide>,
{
    let (means, stds) = (&tile.means[start..], &tile.stds[start..]);
    let mut held = true;
    for (((slot, &bytes), &mean), &std) in target.iter_mut().zip(source).zip(means).zip(stds) {
        let (number, holds) = T::Real::narrow(S::widen(bytes));
        let (scaled, stays) = number.affine(tile.scale, mean, std);
        let (value, fits) = T::narrow(scaled);
        held &= holds & stays & fits;
        *slot = value.bytes();
    }
    held
}

/// Evaluates an expression for the Rust type of an element type; `None` for types that are not converted.
macro_rules! with_type {
    ($dtype:expr, $name:ident => $body:expr) => {
        with_type!($dtype, $name => $body;
            Bool: Truth, U8: u8, I8: i8, U16: u16, I16: i16, U32: u32, I32: i32, U64: u64, I64: i64,
            F16: f16, BF16: bf16, F32: f32, F64: f64)
    };
    (float $dtype:expr, $name:ident => $body:expr) => {
        with_type!($dtype, $name => $body; F16: f16, BF16: bf16, F32: f32, F64: f64)
    };
    ($dtype:expr, $name:ident => $body:expr; $($variant:ident: $type:ty),*) => {
        match $dtype {
            $(DType::$variant => {
                type $name = $type;
                $body
            })*
            _ => None,
        }
    };
}

/// The loop that converts from one type to another.
fn plain(from: DType, to: DType) -> Option<Plain> {
    with_type!(from, Source => with_type!(to, Target => Some(cast::<Source, Target>)))
}

/// The loop that converts from one type to a floating one, and scales.
fn scaling_loop(from: DType, to: DType) -> Option<Scaled> {
    with_type!(from, Source => with_type!(float to, Target => Some(scale::<Source, Target>)))
}

/// The least and the largest value of a type, as bytes.
fn extremes(dtype: DType) -> Vec<Vec<u8>> {
    if dtype == DType::Bool {
        return vec![vec![0], vec![1]];
    }
    let bounds: Option<Vec<Vec<u8>>> = with_type!(dtype, Type => Some(
        [Type::MIN, Type::MAX].iter().map(|&value| bytemuck::bytes_of(&value.bytes()).to_vec()).collect()
    ); U8: u8, I8: i8, U16: u16, I16: i16, U32: u32, I32: i32, U64: u64, I64: i64, F16: f16, BF16: bf16, F32: f32, F64: f64);
    bounds.unwrap_or_default()
}

/// The value of one element, in words.
fn text(dtype: DType, element: &[u8]) -> String {
    let words: Option<String> = with_type!(dtype, Type => {
        bytemuck::try_from_bytes(element).ok().map(|&bytes| format!("{:?}", Type::widen(bytes)))
    });
    words.unwrap_or_default()
}
