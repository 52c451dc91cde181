//! Parquet files: no file is more than an error, and the chunks of what is opened are rows or errors.
//!
//! The reader of footers and pages panics on some files; the crate turns such panics into errors, so that they are none
//! here. A panic of batchloom's own code ends the run.
#![no_main]

use std::io::Write;
use std::panic;
use std::sync::Once;

use batchloom_formats::parquet::{ColumnLayout, FieldColumns, Null};
use batchloom_formats::{FileSource, ParquetFiles, ParquetIndex, ParquetSource};
use libfuzzer_sys::fuzz_target;

/// Ends the process at panics of our own code alone.
fn abort_at_own_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        panic::set_hook(Box::new(|panic| {
            let is_own = panic.location().is_none_or(|place| !place.file().contains("/registry/"));
            // Slices of the standard library name the caller, bytes their own crate.
            if is_own {
                eprintln!("{panic}");
                std::process::abort();
            }
        }));
    });
}

fuzz_target!(|file: &[u8]| {
    abort_at_own_panics();
    let mut written = tempfile::NamedTempFile::new().expect("a file");
    written.write_all(file).expect("room for the file");
    let Ok(files) = ParquetFiles::open([written.path()]) else { return };
    let columns = files.columns().iter().filter(|column| {
        matches!(column.layout, Ok(ColumnLayout::Scalar(_) | ColumnLayout::Fixed(..) | ColumnLayout::List(_)))
    });
    let sizes = columns.clone().map(|column| column.layout.as_ref().map_or(1, |layout| layout.dtype().size()));
    let names: Vec<(String, usize)> = columns.clone().map(|column| column.name.clone()).zip(sizes).collect();
    for (name, size) in names {
        for null in [None, Some(Null::Element(vec![0; size])), Some(Null::EmptyList)] {
            let names = [name.clone()];
            let Ok(index) = ParquetIndex::make(&files, &names, &[null.clone()], None, &|_, _| true) else { continue };
            if index.rows() > 1 << 16 {
                continue;
            }
            let field = FieldColumns { null: null.clone(), ..FieldColumns::single(name.clone()) };
            let Ok(source) = ParquetSource::new(files.clone(), index, &[field]) else { continue };
            for chunk in 0..source.chunks().len().min(8) {
                drop(source.read_chunk(chunk));
            }
        }
    }
});
