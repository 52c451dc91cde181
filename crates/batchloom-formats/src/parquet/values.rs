//! The values of pages as bytes, one value after the other.
//!
//! Promises: as many values are appended as were asked for, or the reason why there are fewer; numbers of a dictionary are
//! checked.

use parquet::basic::Encoding;

use super::levels::{CutRun, LevelRun, LevelRuns, unpack};

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
    out: &mut Vec<u8>,
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
fn append_bits(page: &[u8], count: usize, out: &mut Vec<u8>) -> Result<(), WrongValues> {
    if page.len() < count.div_ceil(8) {
        return Err(WrongValues::Damaged("values leave their page"));
    }
    out.extend((0..count).map(|place| page[place / 8] >> (place % 8) & 1));
    Ok(())
}

/// Appends runs of bits, each bit as a byte.
fn append_runs(bytes: &[u8], count: usize, out: &mut Vec<u8>) -> Result<(), WrongValues> {
    let mut runs = LevelRuns::new(bytes, 1, count);
    while let Some(run) = runs.next_run()? {
        match run {
            LevelRun::Same(value, count) => out.resize(out.len() + count, u8::from(value != 0)),
            LevelRun::Packed(bytes, count) => append_bits(bytes, count, out)?,
        }
    }
    Ok(())
}

/// Appends values of which the first bytes come first, then the second ones, and so on.
fn append_split(page: &[u8], width: usize, count: usize, out: &mut Vec<u8>) -> Result<(), WrongValues> {
    let bytes = count.checked_mul(width).and_then(|bytes| page.get(..bytes));
    let page = bytes.ok_or(WrongValues::Damaged("values leave their page"))?;
    for place in 0..count {
        out.extend((0..width).map(|byte| page[byte * count + place]));
    }
    Ok(())
}

/// Appends values of a dictionary by their numbers.
fn append_numbered(
    page: &[u8],
    dictionary: &[u8],
    width: usize,
    count: usize,
    out: &mut Vec<u8>,
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

/// Appends values of `W` bytes by numbers of `bits` bits.
fn append_known<const W: usize>(
    bytes: &[u8],
    bits: usize,
    dictionary: &[[u8; W]],
    count: usize,
    out: &mut Vec<u8>,
) -> Result<(), WrongValues> {
    let mut runs = LevelRuns::new(bytes, bits, count);
    while let Some(run) = runs.next_run()? {
        let start = out.len();
        match run {
            LevelRun::Same(number, count) => {
                let value = usize::try_from(number).ok().and_then(|number| dictionary.get(number));
                let value = value.ok_or(OUTSIDE)?;
                out.resize(start + count * W, 0);
                out[start..].as_chunks_mut::<W>().0.fill(*value);
            }
            LevelRun::Packed(packed, count) => {
                out.resize(start + count * W, 0);
                write_packed(packed, bits, dictionary, out[start..].as_chunks_mut::<W>().0)?;
            }
        }
    }
    Ok(())
}

/// Writes values by packed numbers.
fn write_packed<const W: usize>(
    packed: &[u8],
    bits: usize,
    dictionary: &[[u8; W]],
    places: &mut [[u8; W]],
) -> Result<(), WrongValues> {
    let (groups, rest) = places.as_chunks_mut::<GROUP>();
    let (mut numbers, mut most) = ([0_u32; GROUP], 0);
    // A number lies within eight bytes from the byte in which it begins: the last ones would leave the group.
    let mut padded = [0; GROUP / 8 * 32 + 8];
    let bytes = GROUP / 8 * bits;
    let first_of_rest = groups.len() * GROUP;
    for (number, group) in groups.iter_mut().enumerate() {
        padded[..bytes].copy_from_slice(&packed[number * bytes..(number + 1) * bytes]);
        unpack_group(&padded, bits, &mut numbers);
        for number in numbers {
            most = most.max(number);
        }
        if most as usize >= dictionary.len() {
            return Err(OUTSIDE);
        }
        for place in 0..GROUP {
            group[place] = dictionary[numbers[place] as usize];
        }
    }
    for (place, value) in rest.iter_mut().enumerate() {
        let number = usize::try_from(unpack(packed, bits, first_of_rest + place)).unwrap_or(usize::MAX);
        *value = *dictionary.get(number).ok_or(OUTSIDE)?;
    }
    Ok(())
}

/// Unpacks a group of numbers of `bits` bits.
#[inline(always)]
fn unpack_group(padded: &[u8; GROUP / 8 * 32 + 8], bits: usize, numbers: &mut [u32; GROUP]) {
    let mask = (1_u64 << bits) - 1;
    for (place, number) in numbers.iter_mut().enumerate() {
        let bit = place * bits;
        let mut word = [0; 8];
        word.copy_from_slice(&padded[bit / 8..bit / 8 + 8]);
        let [a, b, c, d, ..] = (u64::from_le_bytes(word) >> (bit % 8) & mask).to_le_bytes();
        *number = u32::from_le_bytes([a, b, c, d]);
    }
}

/// Appends values of any width by numbers of `bits` bits.
fn append_wide(
    bytes: &[u8],
    bits: usize,
    dictionary: &[u8],
    width: usize,
    count: usize,
    out: &mut Vec<u8>,
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
