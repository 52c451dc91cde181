//! Files made of other files: rows in the order of files, or shuffled exactly, in two passes over memory that is bounded.
//!
//! Promises:
//!
//! - The order is a permutation that follows from the seed and the number of rows alone. Every row is written once.
//! - A file takes its name when it is whole, and is then in the manifest, with its rows, bytes and checksum. A conversion
//!   that was interrupted goes on after the last whole file, and gives the same files.
//! - Memory holds a chunk that is read, a megabyte for each file of the first pass, and one file that is written.

mod manifest;
mod rows;
mod scatter;
mod write;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use batchloom::order::{Key, Permutation, Purpose};
use batchloom_formats::FileSource;

pub(crate) use manifest::{Manifest, WrittenFile};
use rows::Rows;
use scatter::Buckets;
pub(crate) use write::Target;

use crate::progress::Progress;

/// The most files that a conversion makes: each has a buffer in the first pass.
const MOST_FILES: u64 = 256;

/// The bytes of rows in a file, about.
const FILE_BYTES: u64 = 64 << 20;

/// Rows to convert, and the form of the new files.
#[derive(Debug)]
pub(crate) struct Conversion<'a> {
    pub(crate) source: &'a dyn FileSource,
    /// The names, bytes and times of the files that are read.
    pub(crate) origin: String,
    pub(crate) target: Target,
    /// The seed of the order; `None` for the order of files.
    pub(crate) shuffle: Option<u64>,
    pub(crate) folder: &'a Path,
}

/// Converts, or goes on with a conversion.
pub(crate) fn convert(conversion: &Conversion<'_>) -> Result<Manifest> {
    let chunks = conversion.source.chunks();
    let rows = chunks.samples();
    ensure!(rows > 0, "there are no rows; expected at least one");
    fs::create_dir_all(conversion.folder).with_context(|| conversion.folder.display().to_string())?;
    let first = Rows::of_chunk(conversion.source, 0)?;
    conversion.target.require(&first)?;
    let row_bytes = (first.bytes() as u64 / first.count().max(1) as u64).max(1);
    let per_file = (FILE_BYTES / row_bytes).max(rows.div_ceil(MOST_FILES)).clamp(1, u64::from(u32::MAX));
    let order = conversion.shuffle.map(|seed| Permutation::new(rows, &Key::new(seed, 0, Purpose::Samples)));
    let fresh = Manifest {
        origin: conversion.origin.clone(),
        format: conversion.target.name().to_owned(),
        options: conversion.target.options(),
        columns: conversion.source.names().to_vec(),
        shuffle: conversion.shuffle,
        rows,
        rows_per_file: per_file,
        files: Vec::new(),
    };
    let mut manifest = Manifest::open(conversion.folder, fresh)?;
    let files = rows.div_ceil(per_file);
    if manifest.files.len() as u64 == files {
        return Ok(manifest);
    }
    let buckets = Buckets::new(conversion.folder, files, per_file, &first);
    if !buckets.are_whole() {
        let bar = Progress::of(rows, "reading rows");
        buckets.scatter(
            conversion.source,
            |row| order.as_ref().map_or(row, |order| order.find(row)),
            |count| bar.add(count),
        )?;
    }
    let bar = Progress::of(files, "writing files");
    bar.add(manifest.files.len() as u64);
    for file in manifest.files.len() as u64..files {
        let held = buckets.gather(file, (rows - file * per_file).min(per_file))?;
        let name = format!("part-{file:05}.{}", conversion.target.suffix());
        let part = conversion.folder.join(format!("{name}.part"));
        if let Err(error) = conversion.target.write(&part, &held) {
            // Rows that the format does not hold: nothing is left of a conversion without files.
            drop(fs::remove_file(&part));
            if manifest.files.is_empty() {
                buckets.remove();
                manifest.remove(conversion.folder);
            }
            return Err(error.context(part.display().to_string()));
        }
        let path = conversion.folder.join(&name);
        let written = WrittenFile::of(name, held.count() as u64, &part)?;
        fs::rename(&part, &path).with_context(|| path.display().to_string())?;
        manifest.add(conversion.folder, written)?;
        bar.add(1);
    }
    buckets.remove();
    Ok(manifest)
}

/// Describes files by their names, bytes and times of modification.
pub(crate) fn describe_origin(files: &[PathBuf]) -> Result<String> {
    let mut parts = Vec::new();
    for file in files {
        let found = fs::metadata(file).with_context(|| file.display().to_string())?;
        let modified = found.modified().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        parts.push(format!("{name}:{}:{}", found.len(), modified.map_or(0, |time| time.as_nanos())));
    }
    if parts.is_empty() {
        bail!("there is no file to convert");
    }
    Ok(parts.join(" "))
}
