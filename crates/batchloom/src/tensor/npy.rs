//! Arrays in files of NumPy's format `.npy`, taken over without a copy. Feature `npy`.
//!
//! Promises: elements are not copied; a file that is damaged is an error, whatever its header claims. Its header is
//! read here, because the crate that reads such files multiplies the lengths of a shape without a look at overflow.
//!
//! The format is NumPy's `numpy.lib.format`, versions 1 to 3.

use std::io::Read;

use bytes::Bytes;

use super::error::FileCause;
use super::{DType, Layout, Tensor};
use crate::{Error, Result};

const MAGIC: &[u8] = b"\x93NUMPY";
const FORMAT: &str = ".npy";

/// The most bytes of a header, which declares its length. NumPy refuses more than 10 000.
const LONGEST_HEADER: usize = 1 << 16;

/// The description of an array at the beginning of a `.npy` file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NpyHeader {
    /// The type of the elements.
    pub dtype: DType,
    /// True if the first index varies fastest, as in Fortran.
    pub is_fortran: bool,
    /// The lengths of the dimensions.
    pub shape: Vec<usize>,
}

impl NpyHeader {
    /// Reads the header of a file, and leaves `file` at the first byte of the array.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if the file does not begin with such a header, cannot be read, or if
    /// [`Tensor::from_npy`] does not take its elements.
    pub fn read(file: impl Read) -> Result<Self> {
        let mut start = Start { file, bytes: Vec::new() };
        if start.read_up_to(MAGIC.len())? != MAGIC {
            return Err(no_file("it does not begin with \\x93NUMPY".to_owned()));
        }
        let length = match start.read(2)?[0] {
            1 => start.read(2)?.iter().rev().fold(0, |length, &byte| length << 8 | usize::from(byte)),
            2 | 3 => start.read(4)?.iter().rev().fold(0, |length, &byte| length << 8 | usize::from(byte)),
            version => return Err(no_file(format!("it has version {version}; expected 1, 2 or 3"))),
        };
        if length > LONGEST_HEADER {
            return Err(no_file(format!(
                "its header would have {length} bytes; expected at most {LONGEST_HEADER}"
            )));
        }
        let text = start.read(length)?;
        parse_header(std::str::from_utf8(text).map_err(|_| no_file("its header is no text".to_owned()))?)
    }
}

/// The bytes at the start of a file that were read so far.
struct Start<File> {
    file: File,
    bytes: Vec<u8>,
}

impl<File: Read> Start<File> {
    /// Reads the next `count` bytes.
    fn read(&mut self, count: usize) -> Result<&[u8]> {
        let before = self.bytes.len();
        match self.read_up_to(count)?.len() {
            read if read == count => Ok(&self.bytes[before..]),
            read => Err(no_file(format!("its {} bytes end within the header", before + read))),
        }
    }

    /// Reads the next `count` bytes, or all that there are.
    fn read_up_to(&mut self, count: usize) -> Result<&[u8]> {
        let before = self.bytes.len();
        let read = self.file.by_ref().take(count as u64).read_to_end(&mut self.bytes);
        read.map_err(|error| no_file(format!("it cannot be read: {error}")))?;
        Ok(&self.bytes[before..])
    }
}

impl Tensor {
    /// The array of a `.npy` file, given as the bytes of the file: read, or a map of it that `Bytes::from_owner` holds.
    /// The memory is shared, not copied. Arrays in Fortran's order have the strides of that order.
    ///
    /// ```
    /// use batchloom::{DType, Tensor};
    ///
    /// // What numpy.save writes of numpy.array([3, 1, 2], "uint8").
    /// let mut file = b"\x93NUMPY\x01\x00\x76\x00{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }".to_vec();
    /// file.resize(127, b' ');
    /// file.extend(b"\n\x03\x01\x02");
    ///
    /// let lengths = Tensor::from_npy(file)?;
    /// assert_eq!((lengths.dtype(), lengths.shape()), (DType::U8, &[3][..]));
    /// assert_eq!(lengths.try_as_slice::<u8>()?, [3, 1, 2]);
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if the bytes are no such file, if it is cut or has bytes after its array, or
    /// if the elements are no numbers in this machine's byte order: times, texts, records and objects are none.
    pub fn from_npy(file: impl Into<Bytes>) -> Result<Self> {
        let file = file.into();
        let mut rest = &file[..];
        let NpyHeader { dtype, is_fortran, shape } = NpyHeader::read(&mut rest)?;
        let values = file.slice(file.len() - rest.len()..);
        let compact = Layout::compact(&shape, dtype.size());
        let layout = compact.filter(|layout| layout.elements() * dtype.size() == values.len());
        let layout = layout.ok_or_else(|| {
            let length = values.len();
            no_file(format!("its header tells of {dtype} of shape {shape:?}, and {length} bytes follow"))
        })?;
        match is_fortran {
            false => Self::new(values, dtype, &shape, layout.strides(), 0),
            true => Self::new(values, dtype, &shape, &columns_first(&shape, dtype.size()), 0),
        }
    }
}

/// Reads the text of a header, a dict of Python.
fn parse_header(text: &str) -> Result<NpyHeader> {
    let wrong = || {
        let shown: String = text.trim_end().chars().take(200).collect();
        no_file(format!("its header is {shown}; expected descr, fortran_order and shape"))
    };
    let (mut descr, mut is_fortran, mut shape) = (None, None, None);
    let mut rest =
        text.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).ok_or_else(wrong)?.trim();
    while !rest.is_empty() {
        let (key, after) = parse_quoted(rest).ok_or_else(wrong)?;
        let value = after.trim_start().strip_prefix(':').ok_or_else(wrong)?.trim_start();
        let after = match key {
            "descr" => match parse_quoted(value) {
                Some((spelling, after)) => {
                    descr = Some(spelling);
                    after
                }
                // A list describes records.
                None => return Err(no_numbers(value)),
            },
            "fortran_order" => {
                let (flag, after) = truth(value).ok_or_else(wrong)?;
                is_fortran = Some(flag);
                after
            }
            "shape" => {
                let (extents, after) = lengths(value).ok_or_else(wrong)?;
                shape = Some(extents);
                after
            }
            _ => return Err(wrong()),
        };
        rest = after.trim_start();
        rest = match rest.strip_prefix(',') {
            Some(next) => next.trim_start(),
            None if rest.is_empty() => rest,
            None => return Err(wrong()),
        };
    }
    let (Some(descr), Some(is_fortran), Some(shape)) = (descr, is_fortran, shape) else {
        return Err(wrong());
    };
    Ok(NpyHeader { dtype: parse_dtype(descr).ok_or_else(|| no_numbers(descr))?, is_fortran, shape })
}

/// A text in quotes, and what follows it.
fn parse_quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|first| ['\'', '"'].contains(first))?;
    text[1..].split_once(quote)
}

fn truth(text: &str) -> Option<(bool, &str)> {
    let is_true = text.strip_prefix("True").map(|rest| (true, rest));
    is_true.or_else(|| text.strip_prefix("False").map(|rest| (false, rest)))
}

/// A tuple of lengths, and what follows it. Python 2 wrote an `L` after each.
fn lengths(text: &str) -> Option<(Vec<usize>, &str)> {
    let (inside, after) = text.strip_prefix('(')?.split_once(')')?;
    let inside = inside.trim();
    let inside = inside.strip_suffix(',').unwrap_or(inside);
    let number = |text: &str| text.trim().trim_end_matches('L').parse().ok();
    let lengths: Option<Vec<usize>> = match inside.is_empty() {
        true => Some(Vec::new()),
        false => inside.split(',').map(number).collect(),
    };
    Some((lengths?, after))
}

/// The type that NumPy writes so, in the byte order of this machine.
fn parse_dtype(descr: &str) -> Option<DType> {
    let own = if cfg!(target_endian = "little") { '<' } else { '>' };
    let (order, kind) = descr.split_at_checked(1)?;
    let dtype = match kind {
        "b1" => DType::Bool,
        "u1" => DType::U8,
        "u2" => DType::U16,
        "u4" => DType::U32,
        "u8" => DType::U64,
        "i1" => DType::I8,
        "i2" => DType::I16,
        "i4" => DType::I32,
        "i8" => DType::I64,
        "f2" => DType::F16,
        "f4" => DType::F32,
        "f8" => DType::F64,
        "c8" => DType::C64,
        "c16" => DType::C128,
        _ => return None,
    };
    (dtype.size() == 1 || order.starts_with([own, '='])).then_some(dtype)
}

/// The strides of an array with the first index varying fastest.
fn columns_first(shape: &[usize], size: usize) -> Vec<isize> {
    let step = |next: &mut usize, &len: &usize| {
        let stride = next.cast_signed();
        *next = next.saturating_mul(len.max(1));
        Some(stride)
    };
    shape.iter().scan(size, step).collect()
}

fn no_numbers(descr: &str) -> Error {
    let shown: String = descr.chars().take(60).collect();
    no_file(format!(
        "its elements are {shown}; expected bools, integers, floats or complex numbers in native byte order"
    ))
}

fn no_file(reason: String) -> Error {
    FileCause::File { format: FORMAT, reason }.into()
}
