//! Files that are read when their batch is formed: texts of a folder, padded to the longest of each batch.
//!
//! `cargo run --release --example files`, or with a folder: `cargo run --release --example files -- FOLDER`.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::path::{Path, PathBuf};
use std::{env, fs};

use batchloom::dataset::{MapDataset, Sample, SampleRng, Source, SourceError};
use batchloom::{Loader, Tensor, batching::TokenBudget};

/// The files of a folder, as bytes. A file's size is known without reading it.
struct Files {
    paths: Vec<PathBuf>,
    sizes: Vec<u32>,
}

impl Files {
    fn of(folder: &Path) -> Result<Self, SourceError> {
        let (mut paths, mut sizes) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.metadata()?.is_file() {
                sizes.push(u32::try_from(entry.metadata()?.len())?);
                paths.push(entry.path());
            }
        }
        Ok(Self { paths, sizes })
    }
}

impl Source for Files {
    fn len(&self) -> u64 {
        self.paths.len() as u64
    }

    fn size(&self, sample: u64) -> Option<u32> {
        self.sizes.get(usize::try_from(sample).ok()?).copied()
    }

    fn read(&self, sample: u64, _: &mut SampleRng) -> Result<Sample, SourceError> {
        let path = self.paths.get(usize::try_from(sample)?).ok_or("there is no such file")?;
        let bytes = fs::read(path)?;
        let length = bytes.len();
        Ok(Sample::new([("text", Tensor::from_vec(bytes, &[length])?)]))
    }
}

fn main() -> Result<(), SourceError> {
    let given = env::args().nth(1).map(PathBuf::from);
    let folder = given.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("src/loader"));
    let files = Files::of(&folder)?;
    let (count, bytes) = (files.paths.len(), files.sizes.iter().map(|&size| u64::from(size)).sum::<u64>());
    println!("{count} files of {bytes} bytes in {}", folder.display());

    let rule = TokenBudget::new(bytes.max(1))?.max_samples(4)?;
    let loader = Loader::builder(MapDataset::new(files).build()?).rule(rule).shuffle(true).build()?;
    for batch in &loader {
        let batch = batch?;
        let shape = batch.field("text").map(|text| text.shape().to_vec());
        let lengths =
            batch.field("lengths").and_then(|lengths| lengths.as_slice::<i64>()).unwrap_or_default();
        println!("a batch {:?} of files of {lengths:?} bytes", shape.unwrap_or_default());
    }
    Ok(())
}
