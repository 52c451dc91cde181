//! A keyed permutation of `[0, samples)` with random access in both directions.
//!
//! A generalised Feistel cipher (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002): a position is
//! written as a pair `(left, right)` with `left < rows` and `right < columns`, and each round adds to one half a keyed
//! pseudo-random function of the other, modulo the side of the first. Each round can be undone, so the whole is a
//! bijection on `rows x columns`.
//!
//! The sides are as near to the square root as possible, so that `rows x columns` exceeds `samples` by less than one
//! side. A value that lands outside is sent through again until it lands inside ("cycle walking"). This happens to
//! fewer than one in `columns` values, so there is no size at which walking is slow, whereas a cipher on whole bits is
//! slow just above each power of two.
//!
//! Small sides mix slowly (the distance from a uniform shuffle halves with each round when the sides are 2 and 3), so
//! small sets get more rounds. Both halves fit 32 bits, and the rounds run over many positions side by side, which
//! compilers turn into vector instructions.
//!
//! # Promise
//! For a given [`VERSION`](super::VERSION), the same key and number of samples give the same permutation in every
//! release and on every platform. `tests/golden/permutation.json` pins it.

use rand::Rng;

use super::Key;
use super::chunks::index;

/// The largest number of samples that can be permuted: both sides stay below 2^31, so a sum of two halves fits 32 bits.
pub const LIMIT: u64 = 1 << 62;

/// The number of positions that go through the rounds side by side.
const LANES: usize = 64;

/// The number of values outside from which on it pays to send them through the rounds side by side, full lanes or not.
const FEW: usize = 4;

/// The number of rounds, for long sides, which mix quickly, and for short ones, which do not.
const ROUNDS: usize = 8;
const ROUNDS_SMALL: usize = 24;

/// The largest number of samples for which [`ROUNDS_SMALL`] rounds are run.
const SMALL: u64 = 1 << 12;

type Lanes = [u32; LANES];

/// A keyed permutation of `[0, samples)`.
///
/// It takes about 200 bytes, whatever the number of samples. One position costs some tens of nanoseconds by [`get`] and
/// a few by [`fill`].
///
/// [`get`]: Permutation::get
/// [`fill`]: Permutation::fill
///
/// ```
/// use batchloom::order::{Key, Permutation, Purpose};
///
/// let permutation = Permutation::new(1_000_000_000, &Key::new(0, 0, Purpose::Samples));
/// let sample = permutation.get(123_456_789);
/// assert_eq!(permutation.find(sample), 123_456_789);
/// ```
#[derive(Debug, Clone)]
pub struct Permutation {
    samples: u64,
    rows: u32,
    columns: u32,
    rounds: usize,
    keys: [[u32; 2]; ROUNDS_SMALL],
}

impl Permutation {
    /// The permutation of `[0, samples)` that `key` stands for.
    ///
    /// # Panics
    /// Panics if `samples` exceeds [`LIMIT`]. Plans check it and return an error.
    pub fn new(samples: u64, key: &Key) -> Self {
        assert!(samples <= LIMIT, "{samples} samples exceed the limit of {LIMIT}");
        let rows = ceiling_root(samples).max(1);
        let columns = samples.div_ceil(rows).max(1);
        let mut stream = key.stream();
        let mut keys = [[0; 2]; ROUNDS_SMALL];
        keys.iter_mut().flatten().for_each(|word| *word = stream.next_u32());
        let rounds = if samples <= SMALL { ROUNDS_SMALL } else { ROUNDS };
        Self { samples, rows: low(rows), columns: low(columns), rounds, keys }
    }

    /// The number of samples permuted.
    pub fn len(&self) -> u64 {
        self.samples
    }

    /// Returns true if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// The sample at `position`.
    ///
    /// # Panics
    /// Panics if `position` is not below [`len`](Self::len).
    pub fn get(&self, position: u64) -> u64 {
        assert!(position < self.samples, "position {position} is not below {}", self.samples);
        self.walk(position, Self::forward)
    }

    /// The position of `sample`: the inverse of [`get`](Self::get).
    ///
    /// # Panics
    /// Panics if `sample` is not below [`len`](Self::len).
    pub fn find(&self, sample: u64) -> u64 {
        assert!(sample < self.samples, "sample {sample} is not below {}", self.samples);
        self.walk(sample, Self::backward)
    }

    /// Fills `out` with the samples at `start`, `start + 1`, and so on.
    ///
    /// # Panics
    /// Panics if a position is not below [`len`](Self::len).
    pub fn fill(&self, start: u64, out: &mut [u64]) {
        let end = start.checked_add(out.len() as u64);
        assert!(end.is_some_and(|end| end <= self.samples), "positions from {start} leave {}", self.samples);
        pulp::Arch::new().dispatch(Fill { permutation: self, start, out });
    }

    /// Sends at most [`LANES`] positions through the rounds once. Values may land outside.
    #[inline(always)]
    fn fill_lanes(&self, start: u64, out: &mut [u64]) {
        let (left, right) = self.rounds(self.split_run(start));
        for ((sample, left), right) in out.iter_mut().zip(left).zip(right) {
            *sample = self.join(left, right);
        }
    }

    /// Sends the values at some places of `out` through the rounds once more, and keeps the places of those that land
    /// outside again.
    #[inline(always)]
    fn walk_lanes(&self, places: &mut Vec<usize>, out: &mut [u64]) {
        let mut outside = Vec::new();
        for places in places.chunks(LANES) {
            let (mut left, mut right) = ([0; LANES], [0; LANES]);
            for ((left, right), &place) in left.iter_mut().zip(&mut right).zip(places) {
                (*left, *right) = self.split(out[place]);
            }
            let (left, right) = self.rounds((left, right));
            for ((&place, left), right) in places.iter().zip(left).zip(right) {
                out[place] = self.join(left, right);
                if out[place] >= self.samples {
                    outside.push(place);
                }
            }
        }
        *places = outside;
    }

    /// Runs all rounds over some halves.
    #[inline(always)]
    fn rounds(&self, (mut left, mut right): (Lanes, Lanes)) -> (Lanes, Lanes) {
        for (round, key) in self.keys[..self.rounds].iter().enumerate() {
            match round % 2 {
                0 => add_round(&mut left, &right, key, self.rows),
                _ => add_round(&mut right, &left, key, self.columns),
            }
        }
        (left, right)
    }

    /// The halves of [`LANES`] consecutive positions. Those past the end wrap around and are not used.
    #[inline(always)]
    fn split_run(&self, start: u64) -> (Lanes, Lanes) {
        let (row, column) = self.split(start);
        let (mut left, mut right) = ([row; LANES], [0; LANES]);
        right.iter_mut().zip(column..).for_each(|(right, column)| *right = column);
        // The last lane is `LANES - 1` after the first, and a row ends every `columns` positions.
        for _ in (0..LANES).step_by(index(self.columns.into())) {
            for (left, right) in left.iter_mut().zip(&mut right) {
                let passes = u32::from(*right >= self.columns);
                *right -= passes * self.columns;
                *left += passes;
            }
        }
        left.iter_mut().for_each(|left| *left = (*left).min(left.wrapping_sub(self.rows)));
        (left, right)
    }

    /// Applies `step` until the value lies inside `[0, samples)`; the cycle that holds `value` brings it there.
    #[inline(always)]
    fn walk(&self, value: u64, step: impl Fn(&Self, u64) -> u64) -> u64 {
        let mut value = step(self, value);
        while value >= self.samples {
            value = step(self, value);
        }
        value
    }

    #[inline(always)]
    fn forward(&self, value: u64) -> u64 {
        let (mut left, mut right) = self.split(value);
        for (round, key) in self.keys[..self.rounds].iter().enumerate() {
            match round % 2 {
                0 => left = add(left, scatter(right, key, self.rows), self.rows),
                _ => right = add(right, scatter(left, key, self.columns), self.columns),
            }
        }
        self.join(left, right)
    }

    fn backward(&self, value: u64) -> u64 {
        let (mut left, mut right) = self.split(value);
        for (round, key) in self.keys[..self.rounds].iter().enumerate().rev() {
            match round % 2 {
                0 => left = subtract(left, scatter(right, key, self.rows), self.rows),
                _ => right = subtract(right, scatter(left, key, self.columns), self.columns),
            }
        }
        self.join(left, right)
    }

    #[inline(always)]
    fn split(&self, value: u64) -> (u32, u32) {
        let columns = u64::from(self.columns);
        (low(value / columns), low(value % columns))
    }

    #[inline(always)]
    fn join(&self, left: u32, right: u32) -> u64 {
        u64::from(left) * u64::from(self.columns) + u64::from(right)
    }
}

/// [`Permutation::fill`] as a task for the widest vectors that the processor has. Only code that is inlined into it is
/// compiled for them, hence the attributes on everything that it calls.
struct Fill<'a> {
    permutation: &'a Permutation,
    start: u64,
    out: &'a mut [u64],
}

impl pulp::NullaryFnOnce for Fill<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { permutation, start, out } = self;
        // Values outside are few: they wait for each other, and walk side by side.
        let mut outside = Vec::new();
        for first in (0..out.len()).step_by(LANES) {
            let chunk = first..out.len().min(first + LANES);
            permutation.fill_lanes(start + first as u64, &mut out[chunk.clone()]);
            for place in chunk {
                if out[place] >= permutation.samples {
                    outside.push(place);
                }
            }
            if outside.len() >= LANES {
                permutation.walk_lanes(&mut outside, out);
            }
        }
        while outside.len() >= FEW {
            permutation.walk_lanes(&mut outside, out);
        }
        for place in outside {
            out[place] = permutation.walk(out[place], Permutation::forward);
        }
    }
}

/// Runs one round over all lanes. The loops have no branch, so that they become vector instructions.
#[inline(always)]
fn add_round(half: &mut Lanes, other: &Lanes, key: &[u32; 2], side: u32) {
    let mut mixed = [0; LANES];
    mixed.iter_mut().zip(other).for_each(|(mixed, &other)| *mixed = mix(other, key));
    // Processors multiply lanes of 32 bits two by two, to products of 64 bits, whose high halves take the places of their
    // factors, in either order of bytes.
    let mut pairs: [u64; LANES / 2] = bytemuck::cast(mixed);
    for pair in &mut pairs {
        let low = ((*pair & LOW) * u64::from(side)) >> 32;
        let high = ((*pair >> 32) * u64::from(side)) & !LOW;
        *pair = low | high;
    }
    let scattered: Lanes = bytemuck::cast(pairs);
    half.iter_mut().zip(scattered).for_each(|(half, scattered)| *half = add(*half, scattered, side));
}

/// The low 32 bits of 64.
const LOW: u64 = 0xFFFF_FFFF;

/// `(a + b) % side` for `a, b < side < 2^31`: of the sum and the sum less `side`, the smaller is the residue, because
/// a negative difference wraps to a large number.
#[inline(always)]
fn add(a: u32, b: u32, side: u32) -> u32 {
    let sum = a + b;
    sum.min(sum.wrapping_sub(side))
}

/// `(a - b) % side`, as [`add`].
fn subtract(a: u32, b: u32, side: u32) -> u32 {
    let difference = a.wrapping_sub(b);
    difference.min(difference.wrapping_add(side))
}

/// A pseudo-random number below `side` for each `half`: the high half of a product with `side` maps what is mixed to
/// `[0, side)` by its upper bits.
#[inline(always)]
fn scatter(half: u32, key: &[u32; 2], side: u32) -> u32 {
    low((u64::from(mix(half, key)) * u64::from(side)) >> 32)
}

/// Spreads every bit of a half upwards, by two multiplications.
#[inline(always)]
fn mix(half: u32, key: &[u32; 2]) -> u32 {
    let mixed = (half ^ key[0]).wrapping_mul(0x7FEB_352D);
    (mixed ^ (mixed >> 15) ^ key[1]).wrapping_mul(0x846C_A68B)
}

/// The least `root` with `root * root >= value`.
fn ceiling_root(value: u64) -> u64 {
    let floor = value.isqrt();
    floor + u64::from(floor * floor < value)
}

/// The low 32 bits of a value that is known to fit into them.
#[expect(clippy::cast_possible_truncation, reason = "callers pass values below 2^32")]
#[inline(always)]
fn low(value: u64) -> u32 {
    debug_assert!(u32::try_from(value).is_ok());
    value as u32
}
