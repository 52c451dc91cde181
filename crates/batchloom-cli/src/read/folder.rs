//! Folders of files: the files of samples in the order in which `batchloom.open` reads them.
//!
//! Promise: files are in natural order, so that `shard-2` is before `shard-10`; the files of a folder that `datasets` has
//! saved are in the order of the list in its state.

use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::FileFormat;

/// The files that `datasets` writes into a folder: a list of data files, and a list of splits.
const STATE: &str = "state.json";
const SPLITS: &str = "dataset_dict.json";
/// The keys of the files of an index, now and in early versions.
const INDICES: [&str; 2] = ["_indices_data_files", "_indices_files"];

/// The files that a path stands for: the files of a folder, or the path itself.
///
/// # Errors
/// The folder cannot be read, holds no file, or a file of no known kind; or it shows rows of files by an index.
pub(crate) fn list_files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let named = || path.display().to_string();
    if path.join(SPLITS).exists() {
        bail!("{} has several splits; expected the folder of one of them", path.display());
    }
    if path.join(STATE).exists() {
        return list_saved(path).with_context(named);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).with_context(named)? {
        let file = entry.with_context(named)?.path();
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if file.is_file() && !name.starts_with(['.', '_']) {
            FileFormat::of(&file)?;
            files.push((name, file));
        }
    }
    if files.is_empty() {
        bail!("{} holds no file; expected a folder with files", path.display());
    }
    files.sort_by(|(one, _), (other, _)| compare_names(one, other));
    Ok(files.into_iter().map(|(_, file)| file).collect())
}

/// The files of a folder that `datasets` has saved.
fn list_saved(folder: &Path) -> Result<Vec<PathBuf>> {
    let text = fs::read_to_string(folder.join(STATE))?;
    let state: Value = serde_json::from_str(&text).context(STATE)?;
    let lists_files = |key: &str| state[key].as_array().is_some_and(|files| !files.is_empty());
    if INDICES.into_iter().any(lists_files) {
        bail!(
            "the set shows rows of its files by an index; expected one that was saved after flatten_indices()"
        );
    }
    let files = state["_data_files"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names = files.iter().map(|file| file["filename"].as_str().map(|name| folder.join(name)));
    let names: Option<Vec<PathBuf>> = names.collect();
    names.filter(|names| !names.is_empty()).with_context(|| format!("{STATE} lists no files"))
}

/// Compares names with the numbers in them as numbers.
fn compare_names(one: &str, other: &str) -> Ordering {
    cut_numbers(one).cmp(&cut_numbers(other)).then_with(|| one.cmp(other))
}

/// The parts of a name: a number without its zeros in front, by its digits; or what is no number.
fn cut_numbers(name: &str) -> Vec<(usize, &str)> {
    let bytes = name.as_bytes();
    let mut parts = Vec::new();
    let mut start = 0;
    while start < bytes.len() {
        let is_number = bytes[start].is_ascii_digit();
        let rest = &bytes[start..];
        let length = rest.iter().position(|byte| byte.is_ascii_digit() != is_number).unwrap_or(rest.len());
        let part = &name[start..start + length];
        let digits = part.trim_start_matches('0');
        // Of two numbers, the one with more digits is larger.
        parts.push(if is_number { (digits.len(), digits) } else { (usize::MAX, part) });
        start += length;
    }
    parts
}
