//! Members of tars (`.tar`), by a walk over their headers, grouped by stem as WebDataset does.
//!
//! Promise: each header is checked by its sum, and contents of members are not read.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

/// The bytes of a header, and what members fill up to.
const BLOCK: usize = 512;
/// The most bytes of a description of a member: no path is as long.
const LONGEST: u64 = 1 << 20;

/// The samples of a tar.
#[derive(Debug, Default)]
pub(crate) struct TarSamples {
    pub(crate) samples: u64,
    /// The extensions, in the order in which they first appear.
    pub(crate) extensions: Vec<Extension>,
}

/// The members of one extension.
#[derive(Debug)]
pub(crate) struct Extension {
    pub(crate) name: String,
    pub(crate) members: u64,
    pub(crate) least: u64,
    pub(crate) most: u64,
}

/// Reads the headers of a tar.
pub(crate) fn list_samples(path: &Path) -> Result<TarSamples> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let (mut place, mut found, mut stems) = (0, TarSamples::default(), HashSet::new());
    let (mut long_name, mut long_size) = (None, None);
    loop {
        let mut block = [0; BLOCK];
        file.seek(SeekFrom::Start(place))?;
        file.read_exact(&mut block).with_context(|| {
            format!("it ends at byte {size} without its mark of an end; expected a whole tar")
        })?;
        if block.iter().all(|&byte| byte == 0) {
            break;
        }
        ensure!(has_sum(&block), "it has no header of a tar at byte {place}; expected a whole tar");
        let start = place + BLOCK as u64;
        let bytes = long_size.take().or_else(|| read_number(&block[124..136]));
        let bytes = bytes.filter(|&bytes| start.checked_add(bytes).is_some_and(|end| end <= size));
        let bytes = bytes.with_context(|| format!("the member at byte {place} leaves the file"))?;
        match block[156] {
            b'L' | b'x' => {
                ensure!(
                    bytes <= LONGEST,
                    "the member at byte {place} describes another one in {bytes} bytes"
                );
                let mut text = vec![0; usize::try_from(bytes)?];
                file.read_exact(&mut text)?;
                match block[156] {
                    b'L' => long_name = Some(cut(&text)),
                    _ => {
                        long_name = pax_value(&text, "path").or(long_name);
                        long_size = pax_value(&text, "size").and_then(|size| size.parse().ok());
                    }
                }
            }
            b'K' | b'g' => {}
            b'0' | 0 | b'7' => {
                let name = long_name.take().unwrap_or_else(|| read_name(&block));
                add_member(&mut found, &mut stems, &name, bytes);
            }
            b'5' => long_name = None,
            kind => bail!(
                "member {:?} is of kind {:?}; expected plain files and folders",
                long_name.unwrap_or_else(|| read_name(&block)),
                char::from(kind)
            ),
        }
        place = start + bytes.next_multiple_of(BLOCK as u64);
    }
    ensure!(found.samples > 0, "it holds no sample; expected members with extensions");
    Ok(found)
}

/// Adds a member to the samples. Names without an extension, and hidden ones, belong to no sample.
fn add_member(found: &mut TarSamples, stems: &mut HashSet<String>, name: &str, bytes: u64) {
    let file = name.rfind('/').map_or(0, |slash| slash + 1);
    let Some(dot) = name[file..].find('.').filter(|&dot| dot > 0).map(|dot| file + dot) else { return };
    if stems.insert(name[..dot].to_owned()) {
        found.samples += 1;
    }
    let extension = &name[dot + 1..];
    match found.extensions.iter_mut().find(|known| known.name == extension) {
        Some(known) => {
            known.members += 1;
            (known.least, known.most) = (known.least.min(bytes), known.most.max(bytes));
        }
        None => found.extensions.push(Extension {
            name: extension.to_owned(),
            members: 1,
            least: bytes,
            most: bytes,
        }),
    }
}

/// Returns true if a header has the sum that it holds.
fn has_sum(block: &[u8; BLOCK]) -> bool {
    let bytes = block.iter().enumerate();
    let sum = bytes.map(|(place, &byte)| if (148..156).contains(&place) { 32 } else { u64::from(byte) });
    read_number(&block[148..156]) == Some(sum.sum())
}

/// A number: in octal digits, or in binary where its first bit is set.
fn read_number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        let is_small = field[0] == 0x80 && field[1..field.len() - 8].iter().all(|&byte| byte == 0);
        let number = field[field.len().saturating_sub(8).max(1)..].iter();
        return is_small.then(|| number.fold(0, |number, &byte| number << 8 | u64::from(byte)));
    }
    match cut(field).trim() {
        "" => Some(0),
        digits => u64::from_str_radix(digits, 8).ok(),
    }
}

/// The name in a header.
fn read_name(block: &[u8; BLOCK]) -> String {
    let name = cut(&block[..100]);
    let prefix = if &block[257..263] == b"ustar\0" { cut(&block[345..500]) } else { String::new() };
    if prefix.is_empty() { name } else { format!("{prefix}/{name}") }
}

/// The text before the first zero.
fn cut(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The value of a key in the records of pax, which are `LENGTH KEY=VALUE` each.
fn pax_value(mut records: &[u8], key: &str) -> Option<String> {
    let mut found = None;
    while let Some(space) = records.iter().position(|&byte| byte == b' ') {
        let length: usize = std::str::from_utf8(&records[..space]).ok()?.parse().ok()?;
        let record = records.get(space + 1..length.checked_sub(1)?)?;
        let text = String::from_utf8_lossy(record);
        if let Some((_, value)) = text.split_once('=').filter(|(name, _)| *name == key) {
            found = Some(value.to_owned());
        }
        records = records.get(length..)?;
    }
    found
}
