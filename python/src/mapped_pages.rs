//! The pages of mapped files that arrays lie in: unmapped once more of them are in memory than a limit allows.
//!
//! Arrays of any framework lie in such maps: the addresses of their elements are looked up among the maps of the process,
//! whoever made them. The pages stay in the system's cache, and are mapped again when they are read.
//!
//! Promises: no value changes, because only pages of files are unmapped. Maps that are copied on writing have changes in
//! memory alone, so a private map is left as it is unless it is read-only and the system counts no page of its own in it.
//! A look at the memory takes a microsecond.
//!
//! One of the files that may be unsafe: the system unmaps pages by their addresses.
#![expect(unsafe_code, reason = "the system unmaps pages by their addresses")]

use std::fs::File;
use std::io::{Read, Seek};
use std::ops::Range;
use std::process;
use std::sync::{Mutex, PoisonError, TryLockError};

use batchloom::ChunkedTensor;
use pyo3::prelude::*;

use crate::chunked::FieldArray;
use crate::file_maps::list_file_maps;

/// The pages of the maps that some arrays lie in.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct MappedPages {
    /// The arrays, which keep their memory where it is.
    _arrays: Vec<ChunkedTensor>,
    /// The addresses of their elements, in order and apart.
    places: Vec<Range<usize>>,
    /// The most bytes that may be in memory.
    limit: usize,
    /// The bytes of a page.
    page: usize,
    watch: Mutex<Watch>,
}

/// The findings of looks at the memory so far.
#[derive(Debug)]
enum Watch {
    /// There was none.
    Unseen,
    /// The maps hold no more bytes than the limit, or the system does not count pages.
    Needless,
    /// The bytes of files that were in memory without these pages.
    Beside(usize, PageCount),
}

#[pymethods]
impl MappedPages {
    /// The pages of `arrays`, of `page` bytes each, of which `limit` bytes may be in memory.
    #[new]
    fn new(arrays: Vec<FieldArray<'_>>, limit: usize, page: usize) -> Self {
        let arrays: Vec<ChunkedTensor> = arrays.into_iter().map(Into::into).collect();
        let chunks = arrays.iter().flat_map(ChunkedTensor::chunks).filter(|chunk| !chunk.is_elsewhere());
        let places =
            join(chunks.map(|chunk| chunk.bytes().as_ptr_range()).map(|at| at.start.addr()..at.end.addr()));
        Self { _arrays: arrays, places, limit, page, watch: Mutex::new(Watch::Unseen) }
    }

    /// The bytes of the maps of files that elements lie in.
    #[getter]
    fn mapped(&self) -> usize {
        self.maps().iter().map(Range::len).sum()
    }

    /// Unmaps all pages of the maps at the first call, and whenever more bytes of files than the limit allows have come
    /// into memory since the last time.
    // The interpreter stays: a thread of Python that moves an array meanwhile could free its map.
    fn release(&self) {
        let mut watch = match self.watch.try_lock() {
            Ok(watch) => watch,
            Err(TryLockError::Poisoned(watch)) => PoisonError::into_inner(watch),
            Err(TryLockError::WouldBlock) => return, // another thread looks
        };
        match &mut *watch {
            Watch::Needless => {}
            Watch::Unseen => *watch = self.look_first().unwrap_or(Watch::Needless),
            Watch::Beside(beside, count) => match self.look(*beside, count) {
                Some(found) => *beside = found,
                None => *watch = Watch::Needless,
            },
        }
    }
}

impl MappedPages {
    fn look_first(&self) -> Option<Watch> {
        let most = self.places.iter().map(Range::len).fold(0, usize::saturating_add);
        if most <= self.limit || self.mapped() <= self.limit {
            return None;
        }
        let mut count = PageCount::new()?;
        self.unmap();
        Some(Watch::Beside(count.read()?.saturating_mul(self.page), count))
    }

    /// Looks at the memory, given the bytes of files in it beside these pages, and returns that number anew.
    fn look(&self, beside: usize, count: &mut PageCount) -> Option<usize> {
        let found = count.read()?.saturating_mul(self.page);
        if found <= beside.saturating_add(self.limit) {
            return Some(beside.min(found));
        }
        self.unmap();
        Some(count.read()?.saturating_mul(self.page))
    }

    fn unmap(&self) {
        for map in self.maps() {
            unmap(&map);
        }
    }

    /// The maps that elements lie in, as they are now: those without a page that is in memory alone.
    fn maps(&self) -> Vec<Range<usize>> {
        list_file_maps(|range| self.touches(range)).into_iter().map(|map| map.range).collect()
    }

    /// Returns true if an element lies in a map.
    fn touches(&self, map: &Range<usize>) -> bool {
        let after = self.places.partition_point(|place| place.start < map.end);
        self.places[..after].last().is_some_and(|place| place.end > map.start)
    }
}

/// Addresses in order, those that overlap or adjoin as one.
fn join(places: impl Iterator<Item = Range<usize>>) -> Vec<Range<usize>> {
    let mut places: Vec<_> = places.filter(|place| !place.is_empty()).collect();
    places.sort_unstable_by_key(|place| place.start);
    places.dedup_by(|place, before| {
        let adjoins = place.start <= before.end;
        if adjoins {
            before.end = before.end.max(place.end);
        }
        adjoins
    });
    places
}

/// The count of the pages of files that this process has in memory, in a file that stays open.
#[derive(Debug)]
struct PageCount {
    file: File,
    process: u32,
}

impl PageCount {
    /// `None` where the system does not count them.
    fn new() -> Option<Self> {
        Some(Self { file: File::open("/proc/self/statm").ok()?, process: process::id() })
    }

    /// The pages of files in memory now.
    fn read(&mut self) -> Option<usize> {
        if self.process != process::id() {
            *self = Self::new()?; // of a process that was forked since
        }
        let mut text = [0; 256];
        self.file.rewind().ok()?;
        let len = self.file.read(&mut text).ok()?;
        str::from_utf8(text.get(..len)?).ok()?.split_ascii_whitespace().nth(2)?.parse().ok()
    }
}

/// Unmaps the pages of a map, all of them pages of its file.
#[cfg(target_os = "linux")]
fn unmap(map: &Range<usize>) {
    use std::ffi::{c_int, c_void};

    /// The advice that pages are not needed now, on Linux.
    const MADV_DONTNEED: c_int = 4;

    unsafe extern "C" {
        fn madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int;
    }
    // SAFETY: the addresses are a whole map of the process, from the list of the system that was read just before. Arrays
    // that `MappedPages` holds lie in it, so its owner keeps it, and no other memory takes its place. All of its pages are
    // those of a file: it is shared, and then the file has what anybody wrote to it; or it is private and read-only, and
    // the system counts no page that it has copied. So whatever is unmapped is read again from the file, and no value
    // that any thread reads or has written is lost.
    let _refused = unsafe { madvise(std::ptr::without_provenance_mut(map.start), map.len(), MADV_DONTNEED) };
}

/// Leaves pages to the system, which has no list of maps either.
#[cfg(not(target_os = "linux"))]
fn unmap(_: &Range<usize>) {}
