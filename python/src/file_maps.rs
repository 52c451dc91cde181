//! The maps of files in this process, and arrays in them that are read from the files.
//!
//! An array of any framework may lie in a map. Its map is found by the addresses of its elements.
//!
//! Promises: a listed map has the bytes of its file. Such a map is shared; or it is private and read-only, and the system
//! counts no changed page in it. An array is read from the file at a path only if its map is a map of that file.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, TryLockError, Weak};

use pyo3::prelude::*;

use crate::chunked::{ChunkedTensor, FieldArray};
use crate::dlpack::Tensor;
use crate::error::raise;

/// The most files that stay open for arrays: a quarter of the files that a process may usually have open.
const MOST_FILES: usize = 256;

/// The map of a file.
#[derive(Debug)]
pub(crate) struct FileMap {
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
pub(crate) fn list_file_maps(wanted: impl Fn(&Range<usize>) -> bool) -> Vec<FileMap> {
    let maps = read_list("/proc/self/maps");
    let mut found: Vec<_> = maps.lines().filter_map(read_line).filter(|map| wanted(&map.range)).collect();
    if found.iter().any(|map| !map.is_shared) {
        let unchanged = unchanged_maps(&read_list("/proc/self/smaps"));
        found.retain(|map| map.is_shared || unchanged.contains(&map.range));
    }
    found
}

/// Reads a list of the system. Names of files that are no text have other characters.
fn read_list(path: &str) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// The maps of files in this process at one time, and their files as far as they are open. A dataset is made in that time.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct FileMaps {
    /// In the order of their addresses.
    maps: Vec<FileMap>,
    /// The files by the addresses of their maps; `None` for a file that could not be opened.
    files: Mutex<HashMap<usize, Option<Arc<File>>>>,
}

#[pymethods]
impl FileMaps {
    /// Lists the maps.
    #[new]
    fn new() -> Self {
        Self { maps: list_file_maps(|_| true), files: Mutex::default() }
    }

    /// The same array, where chunks in maps of files are read from the files. Other chunks stay as they are.
    fn find_files(&self, py: Python<'_>, array: FieldArray<'_>) -> PyResult<Py<PyAny>> {
        match array {
            FieldArray::Whole(array) => {
                Ok(Tensor(self.find_file(&array.0)).into_pyobject(py)?.into_any().unbind())
            }
            FieldArray::Chunked(array) => {
                let chunks: Vec<_> = array.0.chunks().map(|chunk| self.find_file(chunk)).collect();
                let array = batchloom::ChunkedTensor::new("chunks", chunks).map_err(|error| raise(&error))?;
                Ok(ChunkedTensor(array).into_pyobject(py)?.into_any().unbind())
            }
        }
    }
}

impl FileMaps {
    fn find_file(&self, chunk: &batchloom::Tensor) -> batchloom::Tensor {
        // Rows with gaps between them are not read, so that their file need not stay open.
        if !chunk.layout().is_compact(chunk.dtype().size()) {
            return chunk.clone();
        }
        let memory = chunk.bytes().as_ptr_range();
        let (first, end) = (memory.start.addr(), memory.end.addr());
        let map = self.maps[..self.maps.partition_point(|map| map.range.start <= first)].last();
        let map = map.filter(|map| first < end && end <= map.range.end);
        match map.and_then(|map| Some((map, self.open(map)?))) {
            Some((map, file)) => {
                let start = map.start + (first - map.range.start) as u64;
                chunk.clone().with_file(file, map.path.clone(), start)
            }
            None => chunk.clone(),
        }
    }

    /// The file of a map. `None` if another file is at its path, if the file cannot be opened, or if too many are open.
    fn open(&self, map: &FileMap) -> Option<Arc<File>> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.entry(map.range.start).or_insert_with(|| open_file(map)).clone()
    }
}

/// The files that arrays are read from, by their paths, as long as an array keeps them open.
static OPEN: LazyLock<Mutex<HashMap<PathBuf, Weak<File>>>> = LazyLock::new(Mutex::default);

/// Opens the file of a map, or shares it with the arrays that are read from it already.
fn open_file(map: &FileMap) -> Option<Arc<File>> {
    // A process that was forked while a thread opened a file does without.
    let mut open = match OPEN.try_lock() {
        Ok(open) => open,
        Err(TryLockError::Poisoned(open)) => open.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    if let Some(file) = open.get(&map.path).and_then(Weak::upgrade)
        && file.metadata().is_ok_and(|found| is_file_of(map, &found))
    {
        return Some(file);
    }
    open.retain(|_, file| file.strong_count() > 0);
    // A path may name a pipe meanwhile, whose opening would wait for a writer.
    let is_there = fs::metadata(&map.path).is_ok_and(|found| found.is_file() && is_file_of(map, &found));
    if open.len() >= MOST_FILES || !is_there {
        return None;
    }
    let file = File::open(&map.path).ok().filter(leaves_half);
    let file = Arc::new(file.filter(|file| file.metadata().is_ok_and(|found| is_file_of(map, &found)))?);
    open.insert(map.path.clone(), Arc::downgrade(&file));
    Some(file)
}

/// Returns true if a file is one of the first half of the files that this process may have open: a new file has the lowest
/// number that is free.
#[cfg(target_os = "linux")]
fn leaves_half(file: &File) -> bool {
    use std::os::fd::AsRawFd;

    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let most = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<i64>().ok());
    most.is_none_or(|most| i64::from(file.as_raw_fd()) < most / 2)
}

/// Returns true if a file is the file of a map.
#[cfg(target_os = "linux")]
fn is_file_of(map: &FileMap, found: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;

    // A device has 12 and 8 bits of two numbers, and more bits of both above them.
    let split = |device: u64| {
        (
            (device >> 8) & 0xFFF | (device >> 32) & !0xFFF,
            device & 0xFF | (device >> 12) & !0xFF & 0xFFFF_FFFF,
        )
    };
    let (major, minor) = split(found.dev());
    found.ino() == map.number && format!("{major:02x}:{minor:02x}") == map.device
}

/// Leaves arrays in their maps: only Linux lists maps.
#[cfg(not(target_os = "linux"))]
fn leaves_half(_: &File) -> bool {
    false
}

/// Leaves arrays in their maps: only Linux lists maps.
#[cfg(not(target_os = "linux"))]
fn is_file_of(_: &FileMap, _: &Metadata) -> bool {
    false
}

/// Reads a line of the system's list of maps. `None` for memory without a file on a disk, and for a private map that may
/// be written to.
fn read_line(line: &str) -> Option<FileMap> {
    let mut words = line.splitn(6, ' '); // the path, behind more spaces, may have some
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let (offset, device, number) = (words.next()?, words.next()?, words.next()?);
    let path = words.next()?.trim_start();
    let is_memory = ["/dev/", "/sys/", "/memfd:", "/SYSV"].iter().any(|memory| path.starts_with(memory));
    let is_shared = rights.ends_with('s');
    if is_memory || !path.starts_with('/') || !(is_shared || rights == "r--p") {
        return None;
    }
    let address = |text| usize::from_str_radix(text, 16).ok();
    Some(FileMap {
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
