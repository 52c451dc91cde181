//! Folders of files: the files of samples in the order in which `batchloom.open` reads them.
//!
//! Promises: paths keep the order in which they are given, and a file is read once; a pattern that the shell has left as it
//! is stands for the files that fit it. Files of a folder and of a pattern are in natural order, so that `shard-2` is
//! before `shard-10`; the files of a folder that `datasets` has saved are in the order of the list in its state. Of the two
//! files of a Megatron corpus, the index stands for both.

use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::FileFormat;

/// The files that `datasets` writes into a folder: a list of data files, and a list of splits.
const STATE: &str = "state.json";
const SPLITS: &str = "dataset_dict.json";
/// The file that a conversion writes beside its own.
const MANIFEST: &str = "manifest.json";
/// The keys of the files of an index, now and in early versions.
const INDICES: [&str; 2] = ["_indices_data_files", "_indices_files"];

/// The files that paths stand for, one path after the other.
///
/// # Errors
/// A folder cannot be read, holds no file, or a file of no known kind; or it shows rows of files by an index; a pattern
/// fits no file; a file is given twice.
pub(crate) fn list_files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = Vec::new();
    for file in paths.iter().map(|path| list_path(path)).collect::<Result<Vec<_>>>()?.concat() {
        let index = file.with_extension("idx");
        let is_pair = file.extension().is_some_and(|end| end == "bin" || end == "idx");
        match is_pair && index.exists() && file.with_extension("bin").exists() {
            true if files.contains(&index) => {}
            true => files.push(index),
            false => files.push(file),
        }
    }
    let mut places: Vec<_> = files.iter().map(|file| (fs::canonicalize(file).ok(), file)).collect();
    places.sort();
    let twice = places.windows(2).find(|pair| pair[0].0.is_some() && pair[0].0 == pair[1].0);
    match twice {
        Some(pair) => bail!("{} is given twice; expected every file once", pair[1].1.display()),
        None => Ok(files),
    }
}

/// The files that a path stands for: the files of a folder or of a pattern, or the path itself.
fn list_path(path: &Path) -> Result<Vec<PathBuf>> {
    let is_pattern = path.to_string_lossy().contains(['*', '?', '[']);
    if is_pattern && !path.exists() {
        return list_pattern(path);
    }
    if path.is_dir() { list_folder(path) } else { Ok(vec![path.to_owned()]) }
}

/// The files that a pattern fits. Its folders are names.
fn list_pattern(pattern: &Path) -> Result<Vec<PathBuf>> {
    let folder = pattern.parent().unwrap_or(Path::new(""));
    let wanted = pattern.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if folder.to_string_lossy().contains(['*', '?', '[']) {
        bail!(
            "{} has a pattern in a folder's name; expected one in the names of files alone",
            pattern.display()
        );
    }
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let mut names = Vec::new();
    for entry in fs::read_dir(here).with_context(|| here.display().to_string())? {
        let entry = entry.with_context(|| here.display().to_string())?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_shown = !name.starts_with('.') || wanted.starts_with('.');
        if is_shown && fits(wanted.as_bytes(), name.as_bytes()) && entry.path().is_file() {
            names.push(name);
        }
    }
    if names.is_empty() {
        bail!("{} fits no file; expected at least one", pattern.display());
    }
    names.sort_by(|one, other| compare_names(one, other));
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

/// Returns true if a name fits a pattern of `*`, `?` and `[...]`.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let Some((&first, rest)) = pattern.split_first() else { return name.is_empty() };
    if first == b'*' {
        return (0..=name.len()).any(|skipped| fits(rest, &name[skipped..]));
    }
    let Some((&found, others)) = name.split_first() else { return false };
    // A bracket may stand first among its own letters.
    let end = rest.iter().skip(1).position(|&letter| letter == b']').map(|end| end + 1);
    match (first, end) {
        (b'?', _) => fits(rest, others),
        (b'[', Some(end)) => {
            let (letters, is_other) = match rest[..end].split_first() {
                Some((b'!', letters)) => (letters, true),
                _ => (&rest[..end], false),
            };
            is_among(letters, found) != is_other && fits(&rest[end + 1..], others)
        }
        _ => first == found && fits(rest, others),
    }
}

/// Returns true if a letter is one of those in brackets, or lies in a range of them.
fn is_among(letters: &[u8], found: u8) -> bool {
    let in_range = letters.windows(3).any(|range| range[1] == b'-' && (range[0]..=range[2]).contains(&found));
    in_range || letters.contains(&found)
}

/// The files of a folder.
fn list_folder(path: &Path) -> Result<Vec<PathBuf>> {
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
        if file.is_file() && !name.starts_with(['.', '_']) && name != MANIFEST {
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
