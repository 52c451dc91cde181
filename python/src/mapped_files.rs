//! The maps of files in this process, and arrays in them that are read from the files.
//!
//! An array of any framework may lie in a map. Its map is found by the addresses of its elements.
//!
//! Promises: a listed map has the bytes of its file. Such a map is shared; or it is private and read-only, and the system
//! counts no changed page in it. An array is read from the file at a path only if its map is a map of that file.

use std::collections::HashMap;
use std::fs::{self, File};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;

use crate::chunked::{ChunkedTensor, FieldArray};
use crate::dlpack::Tensor;
use crate::error::raise;

/// The most files that stay open for the arrays of a field: a quarter of the files that a process may usually have open.
const MOST_FILES: usize = 256;

/// The map of a file.
#[derive(Debug)]
pub(crate) struct MappedFile {
    pub(crate) range: Range<usize>,
    /// True if writes to the map go to the file.
    is_shared: bool,
    /// The place in the file of the byte at the first address.
    start: u64,
    /// The device of the file, as the system writes it, and the number of the file on the device.
    device: String,
    number: u64,
    path: PathBuf,
}

/// The maps whose bytes are the bytes of their files, and whose addresses are `wanted`.
pub(crate) fn list_mapped_files(wanted: impl Fn(&Range<usize>) -> bool) -> Vec<MappedFile> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut found: Vec<_> = maps.lines().filter_map(read_line).filter(|map| wanted(&map.range)).collect();
    if found.iter().any(|map| !map.is_shared) {
        let unchanged = unchanged_maps(&fs::read_to_string("/proc/self/smaps").unwrap_or_default());
        found.retain(|map| map.is_shared || unchanged.contains(&map.range));
    }
    found
}

/// The same array, where chunks in maps of files are read from the files. Other chunks stay as they are.
#[pyfunction]
pub(crate) fn read_from_files(py: Python<'_>, array: FieldArray<'_>) -> PyResult<Py<PyAny>> {
    let maps = list_mapped_files(|_| true); // in the order of their addresses
    let mut files = OpenFiles::default();
    match array {
        FieldArray::Whole(array) => {
            Ok(Tensor(read_chunk(&array.0, &maps, &mut files)).into_pyobject(py)?.into_any().unbind())
        }
        FieldArray::Chunked(array) => {
            let chunks: Vec<_> = array.0.chunks().map(|chunk| read_chunk(chunk, &maps, &mut files)).collect();
            let array = batchloom::ChunkedTensor::new("chunks", chunks).map_err(|error| raise(&error))?;
            Ok(ChunkedTensor(array).into_pyobject(py)?.into_any().unbind())
        }
    }
}

fn read_chunk(chunk: &batchloom::Tensor, maps: &[MappedFile], files: &mut OpenFiles) -> batchloom::Tensor {
    let memory = chunk.bytes().as_ptr_range();
    let (first, end) = (memory.start.addr(), memory.end.addr());
    let map = maps[..maps.partition_point(|map| map.range.start <= first)].last();
    let map = map.filter(|map| first < end && end <= map.range.end);
    match map.and_then(|map| Some((map, files.open(map)?))) {
        Some((map, file)) => {
            let start = map.start + (first - map.range.start) as u64;
            chunk.clone().with_file(file, map.path.clone(), start)
        }
        None => chunk.clone(),
    }
}

/// Files by their paths; `None` for a file that could not be opened.
#[derive(Debug, Default)]
struct OpenFiles(HashMap<PathBuf, Option<Arc<File>>>);

impl OpenFiles {
    /// The file of a map. `None` if another file is at its path, if the file cannot be opened, or if too many are open.
    fn open(&mut self, map: &MappedFile) -> Option<Arc<File>> {
        if self.0.len() >= MOST_FILES && !self.0.contains_key(&map.path) {
            return None;
        }
        let open = || File::open(&map.path).ok().filter(|file| is_file_of(map, file)).map(Arc::new);
        self.0.entry(map.path.clone()).or_insert_with(open).clone()
    }
}

/// Returns true if a file is the file of a map.
#[cfg(target_os = "linux")]
fn is_file_of(map: &MappedFile, file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;

    // A device has 12 and 8 bits of two numbers, and more bits of both above them.
    let split = |device: u64| {
        (
            (device >> 8) & 0xFFF | (device >> 32) & !0xFFF,
            device & 0xFF | (device >> 12) & !0xFF & 0xFFFF_FFFF,
        )
    };
    file.metadata().is_ok_and(|found| {
        let (major, minor) = split(found.dev());
        found.ino() == map.number && format!("{major:02x}:{minor:02x}") == map.device
    })
}

/// Leaves arrays in their maps where the system lists no maps.
#[cfg(not(target_os = "linux"))]
fn is_file_of(_: &MappedFile, _: &File) -> bool {
    false
}

/// Reads a line of the system's list of maps. `None` for memory without a file on a disk, and for a private map that may
/// be written to.
fn read_line(line: &str) -> Option<MappedFile> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let (offset, device, number) = (words.next()?, words.next()?, words.next()?);
    let path = line.get(line.find('/')?..)?; // no word before it has a slash
    let is_memory = ["/dev/", "/sys/", "/memfd:", "/SYSV"].iter().any(|memory| path.starts_with(memory));
    let is_shared = rights.ends_with('s');
    if is_memory || !path.starts_with('/') || !(is_shared || rights == "r--p") {
        return None;
    }
    let address = |text| usize::from_str_radix(text, 16).ok();
    Some(MappedFile {
        range: address(start)?..address(end)?,
        is_shared,
        start: u64::from_str_radix(offset, 16).ok()?,
        device: device.to_owned(),
        number: number.parse().ok()?,
        path: path.into(),
    })
}

/// The maps of files without a changed page, in memory or swapped out, by the counts of the system.
fn unchanged_maps(counts: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut is_counted = false; // the last one of `found` is the map that counts follow
    for line in counts.lines() {
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next()) {
            (Some("Anonymous:" | "Swap:"), kilobytes) if is_counted && kilobytes != Some("0") => {
                found.pop();
                is_counted = false;
            }
            (Some(range), Some(_)) if range.contains('-') => {
                let map = read_line(line);
                is_counted = map.is_some();
                found.extend(map.map(|map| map.range));
            }
            _ => {}
        }
    }
    found
}
