//! Lengths in `.npy` files: integers in one dimension.

use std::fmt::Display;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use batchloom::DType;
use batchloom::tensor::NpyHeader;

use super::length;

/// The number of bytes that an array's place in a file is a multiple of, as NumPy writes it.
const ALIGNMENT: usize = 64;

/// Reads integers of any size, behind their header.
pub(super) fn read_lengths(mut file: impl Read) -> Result<Vec<u32>> {
    let header = NpyHeader::read(&mut file)?;
    let [count] = header.shape[..] else {
        bail!("the array has shape {:?}; expected one dimension", header.shape);
    };
    lengths_of_array(file, header.dtype, count)
}

/// Reads `count` integers of any size.
pub(super) fn lengths_of_array(file: impl Read, dtype: DType, count: usize) -> Result<Vec<u32>> {
    match dtype {
        DType::I8 => numbers(file, count, i8::from_ne_bytes),
        DType::I16 => numbers(file, count, i16::from_ne_bytes),
        DType::I32 => numbers(file, count, i32::from_ne_bytes),
        DType::I64 => numbers(file, count, i64::from_ne_bytes),
        DType::U8 => numbers(file, count, u8::from_ne_bytes),
        DType::U16 => numbers(file, count, u16::from_ne_bytes),
        DType::U32 => numbers(file, count, u32::from_ne_bytes),
        DType::U64 => numbers(file, count, u64::from_ne_bytes),
        dtype => bail!("the array is of {dtype}; expected integers"),
    }
}

/// Reads `count` numbers of `N` bytes each.
fn numbers<const N: usize, T>(
    mut file: impl Read,
    count: usize,
    number: impl Fn([u8; N]) -> T,
) -> Result<Vec<u32>>
where
    T: TryInto<u32> + Copy + Display,
{
    let mut lengths = Vec::new();
    for place in 0..count {
        let mut bytes = [0; N];
        file.read_exact(&mut bytes).with_context(|| format!("the file ends at element {place}"))?;
        lengths.push(length(number(bytes), || format!("element {place}"))?);
    }
    Ok(lengths)
}

/// Writes lengths as uint32.
pub(crate) fn write_npy(path: &Path, lengths: &[u32]) -> Result<()> {
    let order = if cfg!(target_endian = "little") { '<' } else { '>' };
    let mut text =
        format!("{{'descr': '{order}u4', 'fortran_order': False, 'shape': ({},), }}", lengths.len());
    // The text ends with a line, and is preceded by ten bytes.
    let padded = (text.len() + 11).next_multiple_of(ALIGNMENT) - 11;
    text.extend(std::iter::repeat_n(' ', padded - text.len()));
    text.push('\n');
    let mut file = BufWriter::new(File::create(path).with_context(|| path.display().to_string())?);
    file.write_all(b"\x93NUMPY\x01\x00")?;
    file.write_all(&u16::try_from(text.len())?.to_le_bytes())?;
    file.write_all(text.as_bytes())?;
    lengths.iter().try_for_each(|length| file.write_all(&length.to_ne_bytes()))?;
    Ok(file.flush()?)
}

/// The type and the shape of an array.
pub(crate) fn npy_array(path: &Path) -> Result<(String, Vec<u64>)> {
    let header = NpyHeader::read(BufReader::new(File::open(path)?))?;
    Ok((header.dtype.to_string(), header.shape.into_iter().map(|extent| extent as u64).collect()))
}
