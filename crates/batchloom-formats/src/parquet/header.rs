//! `PageHeader`: what stands before a page in its file.
//!
//! Promises: a header that is cut is told apart from one that is damaged, and no memory is taken for what a header says.
//!
//! Source: `PageHeader` of the Parquet format, in the compact protocol of Thrift.

use parquet::basic::Encoding;

/// The header of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PageHeader {
    pub(super) kind: PageKind,
    /// The bytes of the header itself.
    pub(super) length: usize,
    /// The bytes of the page in the file, after its header.
    pub(super) stored: usize,
    /// The bytes of the page once it is decompressed.
    pub(super) bytes: usize,
    /// The checksum of the stored bytes, if there is one.
    pub(super) checksum: Option<u32>,
}

/// A page, and what its kind needs to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageKind {
    /// Values that pages give by their numbers.
    Dictionary { values: usize },
    /// Levels and values, compressed together.
    Data { values: usize, encoding: Encoding, repetition: Encoding, definition: Encoding },
    /// Levels, whose bytes are known, and values, which may be compressed.
    DataV2 { values: usize, encoding: Encoding, repetition: usize, definition: usize, is_compressed: bool },
    /// Something else, which is passed over.
    Other,
}

/// A header that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WrongHeader {
    /// It goes on after the given bytes.
    Cut,
    /// It is no header.
    Damaged,
}

/// The depth of structures in a header that are passed over.
const DEPTH: usize = 8;

impl PageHeader {
    /// The header at the start of some bytes.
    ///
    /// # Errors
    /// It is cut or damaged.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, WrongHeader> {
        let mut reader = Compact(bytes);
        let (mut numbers, mut parts) = ([None; 5], [None; 9]);
        reader.fields(DEPTH, |reader, field, kind| match (field, kind) {
            (1..=4, INT32) => reader.int().map(|value| numbers[field] = Some(value)),
            (5 | 7 | 8, STRUCT) => Part::read(reader).map(|part| parts[field] = Some(part)),
            _ => reader.skip(kind, DEPTH),
        })?;
        let size = |number: Option<i32>| {
            number.and_then(|size| usize::try_from(size).ok()).ok_or(WrongHeader::Damaged)
        };
        let part = |place: usize| parts[place].ok_or(WrongHeader::Damaged);
        let kind = match numbers[1].ok_or(WrongHeader::Damaged)? {
            0 => {
                let part: Part = part(5)?;
                let (encoding, definition, repetition) =
                    (part.encoding(2)?, part.encoding(3)?, part.encoding(4)?);
                PageKind::Data { values: part.size(1)?, encoding, repetition, definition }
            }
            2 => PageKind::Dictionary { values: part(7)?.size(1)? },
            3 => {
                let part: Part = part(8)?;
                let (repetition, definition) = (part.size(6)?, part.size(5)?);
                let (values, encoding) = (part.size(1)?, part.encoding(4)?);
                PageKind::DataV2 { values, encoding, repetition, definition, is_compressed: part.flag }
            }
            _ => PageKind::Other,
        };
        Ok(Self {
            kind,
            length: bytes.len() - reader.0.len(),
            stored: size(numbers[3])?,
            bytes: size(numbers[2])?,
            checksum: numbers[4].map(i32::cast_unsigned),
        })
    }
}

impl PageHeader {
    /// The number of values of a page of values, nulls and empty lists counted; `None` for another page.
    pub(super) fn values(&self) -> Option<usize> {
        match self.kind {
            PageKind::Data { values, .. } | PageKind::DataV2 { values, .. } => Some(values),
            PageKind::Dictionary { .. } | PageKind::Other => None,
        }
    }
}

/// The numbers of a part of a header, by their fields, and the flag of field 7, which is true where it is absent.
#[derive(Debug, Clone, Copy)]
struct Part {
    numbers: [Option<i32>; 7],
    flag: bool,
}

impl Part {
    fn read(reader: &mut Compact<'_>) -> Result<Self, WrongHeader> {
        let mut part = Self { numbers: [None; 7], flag: true };
        reader.fields(DEPTH - 1, |reader, field, kind| match (field, kind) {
            (1..=6, INT32) => reader.int().map(|value| part.numbers[field] = Some(value)),
            (7, TRUE | FALSE) => {
                part.flag = kind == TRUE;
                Ok(())
            }
            _ => reader.skip(kind, DEPTH - 1),
        })?;
        Ok(part)
    }

    fn number(&self, field: usize) -> Result<i32, WrongHeader> {
        self.numbers[field].ok_or(WrongHeader::Damaged)
    }

    fn size(&self, field: usize) -> Result<usize, WrongHeader> {
        usize::try_from(self.number(field)?).map_err(|_| WrongHeader::Damaged)
    }

    fn encoding(&self, field: usize) -> Result<Encoding, WrongHeader> {
        Ok(match self.number(field)? {
            0 => Encoding::PLAIN,
            2 => Encoding::PLAIN_DICTIONARY,
            3 => Encoding::RLE,
            #[expect(deprecated, reason = "old files have it, and it is named where it is refused")]
            4 => Encoding::BIT_PACKED,
            5 => Encoding::DELTA_BINARY_PACKED,
            6 => Encoding::DELTA_LENGTH_BYTE_ARRAY,
            7 => Encoding::DELTA_BYTE_ARRAY,
            8 => Encoding::RLE_DICTIONARY,
            9 => Encoding::BYTE_STREAM_SPLIT,
            _ => return Err(WrongHeader::Damaged),
        })
    }
}

/// The kinds of fields, as the protocol numbers them.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const INT16: u8 = 4;
const INT32: u8 = 5;
const INT64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;

/// Bytes in the compact protocol, from the next one on.
struct Compact<'a>(&'a [u8]);

impl Compact<'_> {
    /// Calls `each` with the number and the kind of each field of a structure, to take the field's bytes.
    fn fields(
        &mut self,
        depth: usize,
        mut each: impl FnMut(&mut Self, usize, u8) -> Result<(), WrongHeader>,
    ) -> Result<(), WrongHeader> {
        if depth == 0 {
            return Err(WrongHeader::Damaged);
        }
        let mut field = 0_usize;
        loop {
            let byte = self.byte()?;
            if byte == 0 {
                return Ok(());
            }
            field = match byte >> 4 {
                0 => usize::try_from(self.int()?).map_err(|_| WrongHeader::Damaged)?,
                step => field.saturating_add(step.into()),
            };
            each(self, field, byte & 0xf)?;
        }
    }

    fn byte(&mut self) -> Result<u8, WrongHeader> {
        let (&byte, rest) = self.0.split_first().ok_or(WrongHeader::Cut)?;
        self.0 = rest;
        Ok(byte)
    }

    fn pass(&mut self, bytes: usize) -> Result<(), WrongHeader> {
        self.0 = self.0.get(bytes..).ok_or(WrongHeader::Cut)?;
        Ok(())
    }

    fn varint(&mut self) -> Result<u64, WrongHeader> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(WrongHeader::Damaged)
    }

    /// A number with its sign in the lowest bit.
    fn int(&mut self) -> Result<i32, WrongHeader> {
        let number = u32::try_from(self.varint()?).map_err(|_| WrongHeader::Damaged)?;
        Ok((number >> 1).cast_signed() ^ -((number & 1).cast_signed()))
    }

    fn size(&mut self) -> Result<usize, WrongHeader> {
        usize::try_from(self.varint()?).map_err(|_| WrongHeader::Damaged)
    }

    /// Passes over a field.
    fn skip(&mut self, kind: u8, depth: usize) -> Result<(), WrongHeader> {
        match kind {
            TRUE | FALSE => Ok(()),
            BYTE => self.pass(1),
            INT16 | INT32 | INT64 => self.varint().map(|_| ()),
            DOUBLE => self.pass(8),
            BINARY => {
                let bytes = self.size()?;
                self.pass(bytes)
            }
            STRUCT => {
                let depth = depth.saturating_sub(1);
                self.fields(depth, |reader, _, kind| reader.skip(kind, depth))
            }
            LIST | SET => {
                let byte = self.byte()?;
                let count = if byte >> 4 == 15 { self.size()? } else { usize::from(byte >> 4) };
                self.skip_elements(count, &[byte & 0xf], depth)
            }
            MAP => {
                let count = self.size()?;
                let kinds = if count == 0 { 0 } else { self.byte()? };
                self.skip_elements(count, &[kinds >> 4, kinds & 0xf], depth)
            }
            _ => Err(WrongHeader::Damaged),
        }
    }

    /// Passes over elements: flags have a byte here.
    fn skip_elements(&mut self, count: usize, kinds: &[u8], depth: usize) -> Result<(), WrongHeader> {
        if depth == 0 {
            return Err(WrongHeader::Damaged);
        }
        for _ in 0..count {
            for &kind in kinds {
                let kind = if kind == TRUE || kind == FALSE { BYTE } else { kind };
                self.skip(kind, depth - 1)?;
            }
        }
        Ok(())
    }
}
