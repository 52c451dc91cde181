//! `Manifest`: the files of a conversion, and what they were made of.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3Default;

/// The name of the file that holds it.
const NAME: &str = "manifest.json";

/// The files of a conversion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// The files that were read: names, bytes and times of modification.
    pub(crate) origin: String,
    pub(crate) format: String,
    /// The options of the format, in words.
    pub(crate) options: String,
    pub(crate) columns: Vec<String>,
    /// The seed of the order, if rows are shuffled.
    pub(crate) shuffle: Option<u64>,
    pub(crate) rows: u64,
    pub(crate) rows_per_file: u64,
    /// The files that are whole, in order.
    pub(crate) files: Vec<WrittenFile>,
}

/// A file that is whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WrittenFile {
    pub(crate) name: String,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// The checksum of its bytes by xxh3, 64 bits, in hexadecimal digits.
    pub(crate) xxh3: String,
}

impl WrittenFile {
    /// Describes a file that was just written.
    pub(super) fn of(name: String, rows: u64, path: &Path) -> Result<Self> {
        let failed = || path.display().to_string();
        let mut file = File::open(path).with_context(failed)?;
        let (mut digest, mut bytes, mut buffer) = (Xxh3Default::new(), 0, vec![0; 1 << 20]);
        loop {
            let count = file.read(&mut buffer).with_context(failed)?;
            if count == 0 {
                break;
            }
            digest.update(&buffer[..count]);
            bytes += count as u64;
        }
        file.sync_all().with_context(failed)?;
        Ok(Self { name, rows, bytes, xxh3: format!("{:016x}", digest.digest()) })
    }
}

impl Manifest {
    /// The manifest in a folder, if it is of the same conversion, with the files that are still as they were
    /// written; otherwise `fresh`.
    pub(super) fn open(folder: &Path, fresh: Self) -> Result<Self> {
        let path = folder.join(NAME);
        if !path.exists() {
            require_empty(folder)?;
            fresh.keep(folder)?;
            return Ok(fresh);
        }
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let mut kept: Self = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        let files = std::mem::take(&mut kept.files);
        if kept != fresh {
            bail!(
                "{} is of another conversion, of other files, columns, format, order or options; expected an empty folder",
                path.display()
            );
        }
        for file in files {
            let here = folder.join(&file.name);
            let found =
                here.exists().then(|| WrittenFile::of(file.name.clone(), file.rows, &here)).transpose()?;
            // A file that is gone, or is not as it was written, is made again.
            if found.as_ref() == Some(&file) {
                kept.files.push(file);
            }
        }
        Ok(kept)
    }

    /// Returns true if a file is whole.
    pub(super) fn has(&self, name: &str) -> bool {
        self.files.iter().any(|file| file.name == name)
    }

    /// Adds a file that is whole, in its place.
    pub(super) fn add(&mut self, folder: &Path, file: WrittenFile) -> Result<()> {
        self.files.push(file);
        self.files.sort_by(|one, other| one.name.cmp(&other.name));
        self.keep(folder)
    }

    /// Removes the manifest of a conversion without files.
    pub(super) fn remove(&self, folder: &Path) {
        drop(fs::remove_file(folder.join(NAME)));
    }

    fn keep(&self, folder: &Path) -> Result<()> {
        let part = folder.join(format!("{NAME}.part"));
        let path = folder.join(NAME);
        let text = serde_json::to_string_pretty(self)?;
        fs::write(&part, text + "\n")
            .and_then(|()| fs::rename(&part, &path))
            .with_context(|| path.display().to_string())
    }
}

/// Refuses a folder with files that no conversion wrote, such as the files that are read.
fn require_empty(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // An interrupt may have left what is hidden, or a manifest that is not whole.
        if !name.starts_with('.') && name != format!("{NAME}.part") {
            bail!(
                "{} holds {name}, and no manifest of a conversion; expected an empty folder",
                folder.display()
            );
        }
    }
    Ok(())
}
