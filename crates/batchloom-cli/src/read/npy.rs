//! Lengths in `.npy` files: integers in one dimension.

use std::fs::File;
use std::io::{BufWriter, Cursor, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use npyz::{DType, Deserialize, NpyFile, TypeChar, WriterBuilder};

use super::length;

/// The most bytes of a header, which declares its length. NumPy refuses more than 10 000.
const LONGEST_HEADER: u32 = 1 << 16;

/// Opens an array. A header that is longer than any is refused before there is memory for it.
fn open_array(mut file: impl Read) -> Result<NpyFile<impl Read>> {
    let mut start = Vec::new();
    file.by_ref().take(12).read_to_end(&mut start)?;
    if let Some(([_, _, _, _, _, _, (2..), _], length)) = start.split_first_chunk::<8>()
        && let Ok(length) = <[u8; 4]>::try_from(length)
        && let length @ LONGEST_HEADER.. = u32::from_le_bytes(length)
    {
        bail!(
            "this is not a .npy file: its header would have {length} bytes; expected less than {LONGEST_HEADER}"
        );
    }
    NpyFile::new(Cursor::new(start).chain(file)).context("this is not a .npy file")
}

/// Reads integers of any size.
pub(super) fn lengths(file: impl Read) -> Result<Vec<u32>> {
    let array = open_array(file)?;
    if array.shape().len() != 1 {
        bail!("the array has shape {:?}; expected one dimension", array.shape());
    }
    let dtype = array.dtype();
    let DType::Plain(kind) = &dtype else { bail!("the array has several fields; expected integers") };
    match (kind.type_char(), kind.size_field()) {
        (TypeChar::Int, 1) => numbers::<i8>(array),
        (TypeChar::Int, 2) => numbers::<i16>(array),
        (TypeChar::Int, 4) => numbers::<i32>(array),
        (TypeChar::Int, 8) => numbers::<i64>(array),
        (TypeChar::Uint, 1) => numbers::<u8>(array),
        (TypeChar::Uint, 2) => numbers::<u16>(array),
        (TypeChar::Uint, 4) => numbers::<u32>(array),
        (TypeChar::Uint, 8) => numbers::<u64>(array),
        _ => bail!("the array is of {kind}; expected integers"),
    }
}

fn numbers<T>(array: NpyFile<impl Read>) -> Result<Vec<u32>>
where
    T: Deserialize + TryInto<u32> + Copy + std::fmt::Display,
{
    let mut lengths = Vec::new();
    for (place, number) in array.data::<T>()?.enumerate() {
        let number = number.with_context(|| format!("the file ends at element {place}"))?;
        lengths.push(length(number, || format!("element {place}"))?);
    }
    Ok(lengths)
}

/// Writes lengths as uint32.
pub(crate) fn write_npy(path: &Path, lengths: &[u32]) -> Result<()> {
    let file = BufWriter::new(File::create(path).with_context(|| path.display().to_string())?);
    let options = npyz::WriteOptions::new().default_dtype().shape(&[lengths.len() as u64]).writer(file);
    let mut writer = options.begin_nd()?;
    writer.extend(lengths.iter().copied())?;
    Ok(writer.finish()?)
}

/// The type and the shape of an array.
pub(crate) fn npy_array(path: &Path) -> Result<(String, Vec<u64>)> {
    let array = open_array(File::open(path)?)?;
    let kind = match array.dtype() {
        DType::Plain(kind) => kind.to_string(),
        _ => "several fields".to_owned(),
    };
    Ok((kind, array.shape().to_vec()))
}
