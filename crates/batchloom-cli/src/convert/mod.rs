//! Files made of other files: rows in the order of files, or shuffled exactly, in two passes over memory that is bounded.
//!
//! Promises:
//!
//! - The order is a permutation that follows from the seed and the number of rows alone. Every row is written once, with
//!   all its columns or those that were chosen. What a format does not hold is an error before anything is written.
//! - A file takes its name when it is whole, and is then in the manifest, with its rows, bytes and checksum. A conversion
//!   that was interrupted is continued, and gives the same files. A file that is gone or damaged by then is made again.
//! - One process at a time converts into a folder; a second one is refused.
//! - Memory holds the rows that are sorted, a megabyte for each file of the first pass, and one file that is written.

mod fields;
mod lock;
mod manifest;
mod rows;
mod scatter;
mod write;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use arrow_array::RecordBatch;
use batchloom::order::{Key, Permutation, Purpose};

use lock::FolderLock;
pub(crate) use manifest::{Manifest, WrittenFile};
pub(crate) use rows::SourceRows;
use scatter::Buckets;
pub(crate) use write::Target;

use crate::progress::Progress;

/// The most files that a conversion makes: each has a buffer in the first pass.
const MOST_FILES: u64 = 256;

/// The bytes of rows in a file, about.
const FILE_BYTES: u64 = 64 << 20;

/// Rows to convert, and the form of the new files.
pub(crate) struct Conversion<'a> {
    pub(crate) source: &'a SourceRows<'a>,
    pub(crate) target: Target,
    /// The seed of the order; `None` for the order of files.
    pub(crate) shuffle: Option<u64>,
    pub(crate) folder: &'a Path,
}

/// Converts, or continues a conversion.
pub(crate) fn convert(conversion: &Conversion<'_>) -> Result<Manifest> {
    let Conversion { source, target, folder, .. } = conversion;
    let rows = source.rows();
    ensure!(rows > 0, "there are no rows; expected at least one");
    target.require(source.schema())?;
    let origin = describe_origin(source.files())?;
    let per_file = (FILE_BYTES / bytes_of_row(source)?).max(rows.div_ceil(MOST_FILES));
    let per_file = per_file.clamp(1, u64::from(u32::MAX));
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let _lock = FolderLock::take(folder)?;
    let fresh = Manifest {
        origin: origin.clone(),
        format: target.name().to_owned(),
        options: target.options(),
        columns: source.schema().fields().iter().map(|field| field.name().clone()).collect(),
        shuffle: conversion.shuffle,
        rows,
        rows_per_file: per_file,
        files: Vec::new(),
    };
    let mut manifest = Manifest::open(folder, fresh)?;
    let files = rows.div_ceil(per_file);
    let buckets = Buckets::new(folder, files, per_file, source.schema());
    if manifest.files.len() as u64 == files {
        // An interrupt may have left them.
        buckets.remove();
        return Ok(manifest);
    }
    let done = fill(conversion, &buckets, &origin)
        .and_then(|()| write_files(conversion, &buckets, files, &mut manifest));
    if done.is_err() && manifest.files.is_empty() {
        // Rows that the format does not hold: nothing is left of a conversion without files.
        buckets.remove();
        manifest.remove(folder);
    }
    done.map(|()| manifest)
}

/// The first pass: puts all rows into buckets, unless they are there.
fn fill(conversion: &Conversion<'_>, buckets: &Buckets, origin: &str) -> Result<()> {
    if buckets.are_whole() {
        return Ok(());
    }
    let Conversion { source, target, .. } = conversion;
    let rows = source.rows();
    let order = conversion.shuffle.map(|seed| Permutation::new(rows, &Key::new(seed, 0, Purpose::Samples)));
    let bar = Progress::of(rows, "reading rows");
    buckets.scatter(
        source,
        |row| order.as_ref().map_or(row, |order| order.find(row)),
        |path, first, batch| target.require_values(path, first, batch),
        |count| bar.add(count),
        || {
            ensure!(
                describe_origin(source.files())? == origin,
                "a file was changed while it was read; expected files that stay as they are"
            );
            Ok(())
        },
    )
}

/// The second pass: writes the files that are not there.
fn write_files(
    conversion: &Conversion<'_>,
    buckets: &Buckets,
    files: u64,
    manifest: &mut Manifest,
) -> Result<()> {
    let Conversion { source, target, folder, .. } = conversion;
    let bar = Progress::of(files, "writing files");
    bar.add(manifest.files.len() as u64);
    for file in 0..files {
        let name = format!("part-{file:05}.{}", target.suffix());
        if manifest.has(&name) {
            continue;
        }
        let first = file * manifest.rows_per_file;
        let held = buckets.gather(file, (manifest.rows - first).min(manifest.rows_per_file))?;
        let part = folder.join(format!("{name}.part"));
        if let Err(error) = target.write(&part, &held, source.schema()) {
            drop(fs::remove_file(&part));
            return Err(error.context(part.display().to_string()));
        }
        let path = folder.join(&name);
        let written = WrittenFile::of(name, held.count() as u64, &part)?;
        fs::rename(&part, &path).with_context(|| path.display().to_string())?;
        manifest.add(folder, written)?;
        bar.add(1);
    }
    buckets.remove();
    Ok(())
}

/// The bytes of a row, about: the mean of the first part that has rows.
fn bytes_of_row(source: &SourceRows<'_>) -> Result<u64> {
    for file in 0..source.files().len() {
        for batch in source.batches(file)? {
            let batch = batch?;
            if batch.num_rows() > 0 {
                return Ok((count_bytes(&batch) / batch.num_rows() as u64).max(1));
            }
        }
    }
    Ok(1)
}

fn count_bytes(batch: &RecordBatch) -> u64 {
    let bytes = batch.columns().iter().map(|column| {
        let exact = column.to_data().get_slice_memory_size();
        exact.unwrap_or_else(|_| column.get_array_memory_size()) as u64
    });
    bytes.sum()
}

/// Describes files by their names, bytes and times of modification.
fn describe_origin(files: &[PathBuf]) -> Result<String> {
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
