//! Levels of Parquet, which say where lists begin and which values are there: runs of equal numbers, and numbers of a few
//! bits in groups of eight.
//!
//! Promises: no more levels are found than were asked for, and a run that leaves its page is an error.

/// Some levels: of one value, or packed.
pub(crate) enum LevelRun<'a> {
    /// A value, and how often it comes.
    Same(u64, usize),
    /// Numbers of `bits` bits, the lowest bits first, and how many there are.
    Packed(&'a [u8], usize),
}

/// The runs of numbers of `bits` bits, up to `left` numbers.
///
/// Source: the hybrid of run lengths and packed bits, in the encodings of the Parquet format.
pub(crate) struct LevelRuns<'a> {
    bytes: &'a [u8],
    bits: usize,
    left: usize,
}

/// A page that ends within a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CutRun;

impl<'a> LevelRuns<'a> {
    pub(crate) fn new(bytes: &'a [u8], bits: usize, count: usize) -> Self {
        Self { bytes, bits, left: count }
    }

    /// The next run, or `None` after the last number.
    pub(crate) fn next_run(&mut self) -> Result<Option<LevelRun<'a>>, CutRun> {
        if self.left == 0 {
            return Ok(None);
        }
        let header = self.varint()?;
        let length = usize::try_from(header >> 1).map_err(|_| CutRun)?;
        if header & 1 == 0 {
            let value = self.take(self.bits.div_ceil(8))?;
            let value = value.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
            let count = length.min(self.left);
            if count == 0 {
                return Err(CutRun);
            }
            self.left -= count;
            return Ok(Some(LevelRun::Same(value, count)));
        }
        let count = length.checked_mul(8).ok_or(CutRun)?.min(self.left);
        // Writers may leave out what fills the last group.
        let packed = (count * self.bits).div_ceil(8);
        let whole = length.checked_mul(self.bits).ok_or(CutRun)?.min(self.bytes.len());
        if count == 0 || whole < packed {
            return Err(CutRun);
        }
        let bytes = self.take(whole)?;
        self.left -= count;
        Ok(Some(LevelRun::Packed(bytes, count)))
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], CutRun> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(CutRun)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, CutRun> {
        let (mut value, mut shift) = (0_u64, 0);
        loop {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f).checked_shl(shift).ok_or(CutRun)?;
            if byte < 0x80 {
                return Ok(value);
            }
            shift += 7;
        }
    }
}

/// The number of bits of levels up to `most`.
pub(crate) fn level_bits(most: i16) -> usize {
    usize::try_from(i16::BITS - most.max(0).leading_zeros()).unwrap_or(0)
}

/// Returns true if all of `count` levels are `value`.
pub(crate) fn are_all(bytes: &[u8], bits: usize, count: usize, value: u64) -> Result<bool, CutRun> {
    let mut runs = LevelRuns::new(bytes, bits, count);
    while let Some(run) = runs.next_run()? {
        let is_equal = match run {
            LevelRun::Same(found, _) => found == value,
            LevelRun::Packed(bytes, count) => (0..count).all(|place| unpack(bytes, bits, place) == value),
        };
        if !is_equal {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Calls `each` with the place of each level 0 among `count` levels of one bit.
pub(crate) fn for_each_zero(bytes: &[u8], count: usize, mut each: impl FnMut(usize)) -> Result<(), CutRun> {
    let mut runs = LevelRuns::new(bytes, 1, count);
    let mut place = 0;
    while let Some(run) = runs.next_run()? {
        match run {
            LevelRun::Same(0, count) => {
                (place..place + count).for_each(&mut each);
                place += count;
            }
            LevelRun::Same(_, count) => place += count,
            LevelRun::Packed(bytes, count) => {
                for (group, &bits) in bytes.iter().enumerate() {
                    let mut zeros = !bits;
                    while zeros != 0 {
                        let at = 8 * group + zeros.trailing_zeros() as usize;
                        if at < count {
                            each(place + at);
                        }
                        zeros &= zeros - 1;
                    }
                }
                place += count;
            }
        }
    }
    Ok(())
}

/// All of `count` levels.
pub(crate) fn list_levels(bytes: &[u8], bits: usize, count: usize) -> Result<Vec<u8>, CutRun> {
    let mut levels = Vec::with_capacity(count);
    let mut runs = LevelRuns::new(bytes, bits, count);
    while let Some(run) = runs.next_run()? {
        match run {
            LevelRun::Same(value, count) => levels.resize(levels.len() + count, value.to_le_bytes()[0]),
            LevelRun::Packed(bytes, count) => {
                levels.extend((0..count).map(|place| unpack(bytes, bits, place).to_le_bytes()[0]));
            }
        }
    }
    Ok(levels)
}

/// The number at a place among packed numbers of at most 32 bits.
pub(crate) fn unpack(bytes: &[u8], bits: usize, place: usize) -> u64 {
    let bit = place * bits;
    let mut word = [0; 8];
    let rest = bytes.get(bit / 8..).unwrap_or_default();
    let count = rest.len().min(8);
    word[..count].copy_from_slice(&rest[..count]);
    u64::from_le_bytes(word) >> (bit % 8) & ((1 << bits) - 1)
}
