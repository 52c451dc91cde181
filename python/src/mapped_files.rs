//! The maps of files in this process, and arrays in them that are read from the files.
//!
//! Arrays of any framework lie in such maps: the addresses of their elements are looked up among the maps of the process,
//! whoever made them.
//!
//! Promises: a map is listed only if its bytes are those of its file: it is shared, or it is private, read-only, and the
//! system counts no page of its own in it. An array is read from a file only if the file at its path is the file of the
//! map.

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

/// The map of a file: its addresses, and what lies there.
#[derive(Debug)]
pub(crate) struct MappedFile {
    pub(crate) range: Range<usize>,
    /// True if all who map the file see what is written to it.
    is_shared: bool,
    /// The byte of the file at the first address.
    start: u64,
    /// The device and the number of the file there, as the system writes them.
    device: String,
    number: u64,
    path: PathBuf,
}

/// The maps of files with bytes of the files alone, among those whose addresses are `wanted`.
pub(crate) fn list_mapped_files(wanted: impl Fn(&Range<usize>) -> bool) -> Vec<MappedFile> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut found: Vec<_> = maps.lines().filter_map(mapped_file).filter(|map| wanted(&map.range)).collect();
    if found.iter().any(|map| !map.is_shared) {
        let unchanged = unchanged_maps(&fs::read_to_string("/proc/self/smaps").unwrap_or_default());
        found.retain(|map| map.is_shared || unchanged.contains(&map.range));
    }
    found
}

/// The array with rows that are read from the files whose maps its chunks lie in; chunks elsewhere stay as they are. It is
/// documented in batchloom/arrays/chunked.py.
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

/// The files that were opened, or could not be, by their paths.
#[derive(Debug, Default)]
struct OpenFiles(HashMap<PathBuf, Option<Arc<File>>>);

impl OpenFiles {
    /// The file of a map; `None` if it is not at its path any more, cannot be opened, or too many are open.
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

/// The map that its line in the list of the system describes. `None` for memory that is no file on a disk, and for a
/// private map that may be written to.
fn mapped_file(line: &str) -> Option<MappedFile> {
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

/// The maps of files without a page of their own, in memory or swapped out, by the counts of the system.
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
                let map = mapped_file(line);
                is_counted = map.is_some();
                found.extend(map.map(|map| map.range));
            }
            _ => {}
        }
    }
    found
}
