//! Pages as they were before they were compressed: whole, or their front, where levels lie.
//!
//! Promises: a page has the bytes that its header says, or is an error; the contexts of libraries are used for page after
//! page.

use std::fmt::{self, Debug, Formatter};

use parquet::basic::Compression;
use zstd::zstd_safe::{DCtx, InBuffer, OutBuffer, ResetDirective, get_frame_content_size};

use crate::buffers::Buffer;

/// Bytes that are no page of their compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WrongBytes;

/// A decompressor of pages, one after the other.
pub(super) struct Decompressor {
    zstd: DCtx<'static>,
    snappy: snap::raw::Decoder,
}

impl Debug for Decompressor {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("Decompressor")
    }
}

impl Default for Decompressor {
    fn default() -> Self {
        Self { zstd: DCtx::create(), snappy: snap::raw::Decoder::new() }
    }
}

/// The most bytes that a byte of snappy's becomes: three bytes copy 64.
const SNAPPY_RATIO: usize = 22;

/// The stored bytes that are read at first for the front of a page, and the bytes that are decompressed at first: a page
/// of a megabyte of numbers has levels of 32 KiB, in a block of zstd's of 128 KiB.
const FIRST_STORED: usize = 96 << 10;
const FIRST_BYTES: usize = 40 << 10;

impl Decompressor {
    /// Returns true if this decompresses pages; the reader of the format's own crate does otherwise.
    pub(super) fn knows(compression: Compression) -> bool {
        matches!(compression, Compression::SNAPPY | Compression::ZSTD(_))
    }

    /// Returns false if what is stored says that it does not become `bytes` bytes.
    pub(super) fn fits(compression: Compression, stored: &[u8], bytes: usize) -> bool {
        match compression {
            Compression::SNAPPY => {
                snap::raw::decompress_len(stored) == Ok(bytes) && bytes / SNAPPY_RATIO <= stored.len()
            }
            _ => !matches!(get_frame_content_size(stored), Ok(Some(found)) if found != bytes as u64),
        }
    }

    /// Decompresses the `bytes` bytes of a page that it [`knows`](Self::knows) behind some levels, in place of what `out`
    /// holds.
    pub(super) fn decompress(
        &mut self,
        compression: Compression,
        (levels, stored): (&[u8], &[u8]),
        bytes: usize,
        out: &mut Buffer,
    ) -> Result<(), WrongBytes> {
        if !Self::fits(compression, stored, bytes) {
            return Err(WrongBytes);
        }
        out.clear();
        out.extend_from_slice(levels);
        self.decompress_into(compression, stored, out.grow(bytes))
    }

    /// Fills `target` with the decompressed bytes. The compression is one that it [`knows`](Self::knows).
    pub(super) fn decompress_into(
        &mut self,
        compression: Compression,
        stored: &[u8],
        target: &mut [u8],
    ) -> Result<(), WrongBytes> {
        let found = match compression {
            Compression::SNAPPY => self.snappy.decompress(stored, target).map_err(|_| WrongBytes)?,
            _ => self.zstd.decompress(target, stored).map_err(|_| WrongBytes)?,
        };
        if found == target.len() { Ok(()) } else { Err(WrongBytes) }
    }

    /// Decompresses the front of a page into `out`: as far as `needed` says of what is there so far. `read` fills `stored`
    /// with that many first bytes of the page, at most `all`.
    pub(super) fn front<E: From<WrongBytes>>(
        &mut self,
        compression: Compression,
        all: usize,
        needed: impl Fn(&[u8]) -> usize,
        mut read: impl FnMut(&mut Vec<u8>, usize) -> Result<(), E>,
        (stored, out): (&mut Vec<u8>, &mut Vec<u8>),
    ) -> Result<(), E> {
        stored.clear();
        out.clear();
        let mut first = all.min(FIRST_STORED);
        read(stored, first)?;
        let (mut taken, mut wanted) = (0, FIRST_BYTES);
        self.zstd.reset(ResetDirective::SessionOnly).map_err(|_| WrongBytes)?;
        loop {
            let before = (taken, out.len());
            match compression {
                Compression::SNAPPY => snappy_front(stored, wanted, out)?,
                _ => taken = self.zstd_front(stored, taken, wanted, out)?,
            }
            let need = needed(out);
            if out.len() >= need {
                return Ok(());
            }
            // What is there grows by steps, since a damaged page may need anything.
            wanted = need.min(wanted.max(2 * out.len()));
            let is_stuck = before == (taken, out.len());
            if is_stuck && first == all {
                return Err(WrongBytes.into());
            }
            if is_stuck {
                first = first.saturating_mul(2).min(all);
                read(stored, first)?;
            }
        }
    }

    /// Decompresses from the stored byte `taken` on, until `wanted` bytes are there or nothing is left; returns the byte to
    /// go on from.
    fn zstd_front(
        &mut self,
        stored: &[u8],
        taken: usize,
        wanted: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize, WrongBytes> {
        let start = out.len();
        out.try_reserve(wanted.saturating_sub(start)).map_err(|_| WrongBytes)?;
        let mut input = InBuffer::around(&stored[taken..]);
        let mut output = OutBuffer::around_pos(out, start);
        while output.pos() < wanted {
            let before = (input.pos(), output.pos());
            let left = self.zstd.decompress_stream(&mut output, &mut input).map_err(|_| WrongBytes)?;
            if left == 0 || before == (input.pos(), output.pos()) {
                break;
            }
        }
        Ok(taken + input.pos())
    }
}

/// Decompresses from the start on, until at least `wanted` bytes are there or the stored bytes end.
///
/// Source: the description of snappy's format: a length, then literals and copies of what came before.
fn snappy_front(stored: &[u8], wanted: usize, out: &mut Vec<u8>) -> Result<(), WrongBytes> {
    out.clear();
    let length = stored.iter().take(5).position(|byte| byte & 0x80 == 0).ok_or(WrongBytes)?;
    let mut rest = &stored[length + 1..];
    while out.len() < wanted {
        let Some((&tag, after)) = rest.split_first() else { return Ok(()) };
        let long = usize::from(tag >> 2);
        let following = match tag & 3 {
            0 => long.saturating_sub(59),
            3 => 4,
            kind => usize::from(kind),
        };
        let Some((number, after)) = after.split_at_checked(following) else { return Ok(()) };
        let number = number.iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte));
        rest = after;
        if tag & 3 == 0 {
            let count = if following == 0 { long } else { number }.saturating_add(1);
            let literal = rest.get(..count).unwrap_or(rest);
            out.extend_from_slice(literal);
            rest = &rest[literal.len()..];
            continue;
        }
        let (count, back) = match tag & 3 {
            1 => ((long & 7) + 4, usize::from(tag >> 5) << 8 | number),
            _ => (long + 1, number),
        };
        if back == 0 || back > out.len() {
            return Err(WrongBytes);
        }
        for _ in 0..count {
            out.push(out[out.len() - back]);
        }
    }
    Ok(())
}
