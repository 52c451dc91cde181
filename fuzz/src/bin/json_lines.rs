//! Lines of JSON: no text is more than an error, and what one look accepts is read.
#![no_main]

use std::io::Write;

use batchloom_formats::json_lines::JsonWord;
use batchloom_formats::{FileSource, JsonLines};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let mut written = tempfile::NamedTempFile::new().expect("a file");
    written.write_all(text).expect("room for the file");
    let Ok(lines) = JsonLines::open([written.path()]) else { return };
    let keys = lines.columns().iter().filter(|column| matches!(column.word, JsonWord::Number | JsonWord::List));
    let keys: Vec<String> = keys.map(|column| column.name.clone()).collect();
    for null in [None, Some(1.5)] {
        let nulls = vec![null; keys.len()];
        let Ok(source) = lines.source(&keys, &keys, &nulls, false, None, &|_, _| true) else { continue };
        let rows: usize = (0..source.chunks().len())
            .map(|chunk| source.read_chunk(chunk).expect("what was looked at is read").len())
            .sum();
        assert!(keys.is_empty() || rows > 0);
    }
});
