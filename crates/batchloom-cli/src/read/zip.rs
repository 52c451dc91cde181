//! `ZipArchive`: the members of an archive of NumPy, by the directory at its end.
//!
//! Promise: a directory or a member that leaves the file is an error, before memory for it is asked for.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use flate2::read::DeflateDecoder;

/// The mark and the bytes of the end of a directory, and the most bytes of a comment behind it.
const END: (&[u8], usize) = (b"PK\x05\x06", 22);
const COMMENT: u64 = 1 << 16;
/// The place of the end of a directory that needs 64 bits, and that end.
const LOCATOR: (&[u8], usize) = (b"PK\x06\x07", 20);
const LARGE_END: (&[u8], usize) = (b"PK\x06\x06", 56);
/// The fixed parts of an entry of the directory, and of a member.
const ENTRY: (&[u8], usize) = (b"PK\x01\x02", 46);
const LOCAL: (&[u8], usize) = (b"PK\x03\x04", 30);
/// The part of an entry that has its numbers in 64 bits.
const LARGE: u64 = 1;

/// The number that stands for one of 64 bits elsewhere.
const UNSAID: u64 = 0xffff_ffff;

/// A member.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) name: String,
    method: u64,
    stored: u64,
    start: u64,
}

/// An archive.
#[derive(Debug)]
pub(super) struct ZipArchive {
    file: File,
    bytes: u64,
    pub(super) members: Vec<Member>,
}

/// A number of up to 8 bytes, the lowest first.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

impl ZipArchive {
    /// Reads the directory.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        let mut archive = Self { file, bytes, members: Vec::new() };
        let (start, length) = archive.find_directory().context("this is no archive of NumPy")?;
        let directory = archive.read(start, length)?;
        let mut rest = &directory[..];
        while rest.starts_with(ENTRY.0) {
            let (member, after) = read_entry(rest).context("its directory is damaged")?;
            archive.members.push(member);
            rest = after;
        }
        ensure!(
            rest.is_empty() && !archive.members.is_empty(),
            "its directory is damaged, or it has no array"
        );
        Ok(archive)
    }

    /// The bytes of a member, as they were before they were compressed.
    pub(super) fn open_member(&self, member: &Member) -> Result<Box<dyn Read>> {
        let header = self.read(member.start, LOCAL.1 as u64)?;
        ensure!(header.starts_with(LOCAL.0), "{} is not where the directory has it", member.name);
        let start = member.start + LOCAL.1 as u64 + number(&header[26..28]) + number(&header[28..30]);
        let is_within = start.checked_add(member.stored).is_some_and(|end| end <= self.bytes);
        ensure!(is_within, "{} leaves the file", member.name);
        let mut file = self.file.try_clone()?;
        file.seek(SeekFrom::Start(start))?;
        let stored = BufReader::with_capacity(1 << 20, file.take(member.stored));
        match member.method {
            0 => Ok(Box::new(stored)),
            8 => Ok(Box::new(BufReader::with_capacity(1 << 16, DeflateDecoder::new(stored)))),
            other => bail!("{} is compressed by method {other}; expected one that NumPy writes", member.name),
        }
    }

    /// Reads bytes at a place.
    fn read(&self, start: u64, length: u64) -> Result<Vec<u8>> {
        let is_within = start.checked_add(length).is_some_and(|end| end <= self.bytes);
        ensure!(is_within, "{length} bytes from {start} on leave its {} bytes", self.bytes);
        let mut bytes = vec![0; usize::try_from(length)?];
        let mut file = &self.file;
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// The place and the bytes of the directory.
    fn find_directory(&self) -> Result<(u64, u64)> {
        let start = self.bytes.saturating_sub(COMMENT + END.1 as u64);
        let tail = self.read(start, self.bytes - start)?;
        let last = tail.len().checked_sub(END.1).context("it is cut")?;
        let place = (0..=last).rev().find(|&place| tail[place..].starts_with(END.0));
        let place = place.context("it has no directory")?;
        let (length, first) = (number(&tail[place + 12..place + 16]), number(&tail[place + 16..place + 20]));
        let locator = place.checked_sub(LOCATOR.1).filter(|&before| tail[before..].starts_with(LOCATOR.0));
        let Some(locator) = locator.filter(|_| first == UNSAID || length == UNSAID) else {
            return Ok((first, length));
        };
        let end = self.read(number(&tail[locator + 8..locator + 16]), LARGE_END.1 as u64)?;
        ensure!(end.starts_with(LARGE_END.0), "its directory is damaged");
        Ok((number(&end[48..56]), number(&end[40..48])))
    }
}

/// The member of an entry, and the entries after it.
fn read_entry(entry: &[u8]) -> Option<(Member, &[u8])> {
    let fixed = entry.get(..ENTRY.1)?;
    let lengths = [28, 30, 32].map(|place| usize::from(fixed[place]) | usize::from(fixed[place + 1]) << 8);
    let (name, rest) = entry[ENTRY.1..].split_at_checked(lengths[0])?;
    let (mut more, rest) = rest.split_at_checked(lengths[1])?;
    let rest = rest.get(lengths[2]..)?;
    let (mut stored, size, mut start) =
        (number(&fixed[20..24]), number(&fixed[24..28]), number(&fixed[42..46]));
    while more.len() >= 4 {
        let (kind, length) = (number(&more[..2]), usize::try_from(number(&more[2..4])).ok()?);
        let (mut part, after) = more[4..].split_at_checked(length)?;
        if kind == LARGE {
            // Numbers that do not fit into 32 bits are here, in this order.
            let mut take = |before: u64| match part.split_at_checked(8).filter(|_| before == UNSAID) {
                Some((found, others)) => {
                    part = others;
                    number(found)
                }
                None => before,
            };
            take(size);
            stored = take(stored);
            start = take(start);
        }
        more = after;
    }
    let name = String::from_utf8_lossy(name).into_owned();
    Some((Member { name, method: number(&fixed[10..12]), stored, start }, rest))
}
