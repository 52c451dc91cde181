//! The values of pages as bytes, one value after the other.
//!
//! Promises: as many values are appended as were asked for, or the reason why there are fewer; numbers of a dictionary are
//! checked.

use parquet::basic::Encoding;

use super::levels::{CutRun, LevelRun, LevelRuns, unpack};
use crate::buffers::Buffer;

/// Values that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WrongValues {
    /// The page is damaged.
    Damaged(&'static str),
    /// The page is sound, and in an encoding that is not read here.
    Encoding(Encoding),
}

impl From<CutRun> for WrongValues {
    fn from(_: CutRun) -> Self {
        Self::Damaged("a run of numbers leaves its page")
    }
}

/// The form of stored values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored {
    /// Bits, of which each becomes a byte.
    Bits,
    /// As many bytes for each value.
    Bytes(usize),
}

impl Stored {
    /// The bytes of a value once it is read.
    pub(crate) fn width(self) -> usize {
        match self {
            Self::Bits => 1,
            Self::Bytes(width) => width,
        }
    }
}

/// Appends `count` values of a page.
pub(crate) fn append_values(
    stored: Stored,
    encoding: Encoding,
    page: &[u8],
    dictionary: &[u8],
    count: usize,
    out: &mut Buffer,
) -> Result<(), WrongValues> {
    match (encoding, stored) {
        (Encoding::PLAIN, Stored::Bytes(width)) => {
            let bytes = count.checked_mul(width).and_then(|bytes| page.get(..bytes));
            out.extend_from_slice(bytes.ok_or(WrongValues::Damaged("values leave their page"))?);
            Ok(())
        }
        (Encoding::PLAIN, Stored::Bits) => append_bits(page, count, out),
        (Encoding::RLE, Stored::Bits) => {
            let bytes = page.get(4..).ok_or(WrongValues::Damaged("values leave their page"))?;
            append_runs(bytes, count, out)
        }
        (Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY, _) => {
            append_numbered(page, dictionary, stored.width(), count, out)
        }
        (Encoding::BYTE_STREAM_SPLIT, Stored::Bytes(width)) => append_split(page, width, count, out),
        (encoding, _) => Err(WrongValues::Encoding(encoding)),
    }
}

/// Appends bits, each as a byte.
fn append_bits(page: &[u8], count: usize, out: &mut Buffer) -> Result<(), WrongValues> {
    if page.len() < count.div_ceil(8) {
        return Err(WrongValues::Damaged("values leave their page"));
    }
    for (place, bit) in out.grow(count).iter_mut().enumerate() {
        *bit = page[place / 8] >> (place % 8) & 1;
    }
    Ok(())
}

/// Appends runs of bits, each bit as a byte.
fn append_runs(bytes: &[u8], count: usize, out: &mut Buffer) -> Result<(), WrongValues> {
    let mut runs = LevelRuns::new(bytes, 1, count);
    while let Some(run) = runs.next_run()? {
        match run {
            LevelRun::Same(value, count) => out.grow(count).fill(u8::from(value != 0)),
            LevelRun::Packed(bytes, count) => append_bits(bytes, count, out)?,
        }
    }
    Ok(())
}

/// Appends values of which the first bytes come first, then the second ones, and so on.
fn append_split(page: &[u8], width: usize, count: usize, out: &mut Buffer) -> Result<(), WrongValues> {
    let bytes = count.checked_mul(width).and_then(|bytes| page.get(..bytes));
    let page = bytes.ok_or(WrongValues::Damaged("values leave their page"))?;
    for (place, value) in out.grow(page.len()).chunks_exact_mut(width.max(1)).enumerate() {
        for (byte, target) in value.iter_mut().enumerate() {
            *target = page[byte * count + place];
        }
    }
    Ok(())
}

/// Appends values of a dictionary by their numbers.
fn append_numbered(
    page: &[u8],
    dictionary: &[u8],
    width: usize,
    count: usize,
    out: &mut Buffer,
) -> Result<(), WrongValues> {
    if count == 0 {
        return Ok(());
    }
    let (&bits, bytes) = page.split_first().ok_or(WrongValues::Damaged("a page is empty"))?;
    let bits = usize::from(bits);
    if bits > 32 {
        return Err(WrongValues::Damaged("numbers of more than 32 bits"));
    }
    match width {
        4 => append_known::<4>(bytes, bits, dictionary.as_chunks().0, count, out),
        8 => append_known::<8>(bytes, bits, dictionary.as_chunks().0, count, out),
        2 => append_known::<2>(bytes, bits, dictionary.as_chunks().0, count, out),
        1 => append_known::<1>(bytes, bits, dictionary.as_chunks().0, count, out),
        _ => append_wide(bytes, bits, dictionary, width, count, out),
    }
}

const OUTSIDE: WrongValues = WrongValues::Damaged("a number is none of its dictionary");

/// The numbers that are unpacked at a time: as many bytes as there are bits, four times.
const GROUP: usize = 32;

/// The bytes of the longest group, and those behind it that are read with the last number.
const WINDOW: usize = GROUP / 8 * 32 + 8;

/// Appends values of `W` bytes by numbers of `bits` bits.
fn append_known<const W: usize>(
    bytes: &[u8],
    bits: usize,
    dictionary: &[[u8; W]],
    count: usize,
    out: &mut Buffer,
) -> Result<(), WrongValues> {
    let mut runs = LevelRuns::new(bytes, bits, count);
    while let Some(run) = runs.next_run()? {
        match run {
            LevelRun::Same(number, count) => {
                let value = usize::try_from(number).ok().and_then(|number| dictionary.get(number));
                out.grow(count * W).as_chunks_mut().0.fill(*value.ok_or(OUTSIDE)?);
            }
            LevelRun::Packed(packed, count) => append_packed(packed, bits, dictionary, count, out)?,
        }
    }
    Ok(())
}

/// Appends values by `count` packed numbers, a group at a time.
fn append_packed<const W: usize>(
    packed: &[u8],
    bits: usize,
    dictionary: &[[u8; W]],
    count: usize,
    out: &mut Buffer,
) -> Result<(), WrongValues> {
    let unpack = UNPACK.get(bits).ok_or(OUTSIDE)?;
    let (mut numbers, mut padded, mut rest) = ([0_u32; GROUP], [0; WINDOW], packed);
    for values in out.grow(count * W).as_chunks_mut::<W>().0.chunks_mut(GROUP) {
        match rest.first_chunk() {
            Some(window) => unpack(window, &mut numbers),
            None => {
                padded[..rest.len()].copy_from_slice(rest);
                unpack(&padded, &mut numbers);
            }
        }
        for (value, &number) in values.iter_mut().zip(&numbers) {
            *value = *dictionary.get(number as usize).ok_or(OUTSIDE)?;
        }
        rest = rest.get(GROUP / 8 * bits..).unwrap_or_default();
    }
    Ok(())
}

/// A function that unpacks a group.
type Unpack = fn(&[u8; WINDOW], &mut [u32; GROUP]);

/// The function for each number of bits: where that is known, the place of each number is, too.
static UNPACK: [Unpack; 33] = {
    macro_rules! each {
        ($($bits:literal)*) => { [$(unpack_group::<$bits>),*] };
    }
    each!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32)
};

/// The bytes of eight numbers, and those behind that are read with the last one.
const EIGHT: usize = 32 + 8;

/// Unpacks a group of numbers of `BITS` bits: eight at a time, which begin with a byte.
fn unpack_group<const BITS: usize>(bytes: &[u8; WINDOW], numbers: &mut [u32; GROUP]) {
    let mask = (1_u64 << BITS) - 1;
    for (place, numbers) in numbers.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        // Places in an array of known size are not checked one by one.
        let Some(bytes) = bytes[place * BITS..].first_chunk::<EIGHT>() else { return };
        for (place, number) in numbers.iter_mut().enumerate() {
            let bit = place * BITS;
            let [a, b, c, d, e, f, g, h, ..] = bytes[bit / 8..] else { return };
            let word = u64::from_le_bytes([a, b, c, d, e, f, g, h]) >> (bit % 8) & mask;
            let [a, b, c, d, ..] = word.to_le_bytes();
            *number = u32::from_le_bytes([a, b, c, d]);
        }
    }
}

/// Appends values of any width by numbers of `bits` bits.
fn append_wide(
    bytes: &[u8],
    bits: usize,
    dictionary: &[u8],
    width: usize,
    count: usize,
    out: &mut Buffer,
) -> Result<(), WrongValues> {
    let mut append = |number: u64, count: usize| {
        let start = usize::try_from(number).ok().and_then(|number| number.checked_mul(width));
        let value =
            start.and_then(|start| dictionary.get(start..start.checked_add(width)?)).ok_or(OUTSIDE)?;
        (0..count).for_each(|_| out.extend_from_slice(value));
        Ok::<(), WrongValues>(())
    };
    let mut runs = LevelRuns::new(bytes, bits, count);
    while let Some(run) = runs.next_run()? {
        match run {
            LevelRun::Same(number, count) => append(number, count)?,
            LevelRun::Packed(packed, count) => {
                for place in 0..count {
                    append(unpack(packed, bits, place), 1)?;
                }
            }
        }
    }
    Ok(())
}
