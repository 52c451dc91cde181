//! Messages of the engine hold in Rust and in Python alike: options by their names, not as one of the two writes them.

use std::path::{Path, PathBuf};

/// Options as Python writes them, and calls that only Python has.
const PYTHON: [&str; 6] = ["=False", "=True", "=None", "iter(loader)", "oversize= ", "sizes= "];

/// Options as Rust writes them.
const RUST: [&str; 4] = ["(true)", "(false)", "Oversize::", "Shuffle::"];

#[test]
fn messages_are_of_no_language() {
    let read = |file: PathBuf| std::fs::read_to_string(file).unwrap();
    let errors: String = files(&source()).into_iter().map(read).collect();
    assert!(errors.matches("#[error(").count() > 150);
    for message in errors.split("#[error(").skip(1) {
        let message = message.split(")]").next().unwrap();
        let word = PYTHON.iter().chain(&RUST).chain(&["=\\\""]).find(|text| message.contains(**text));
        assert_eq!(word, None, "{message}");
    }
}

#[test]
fn reasons_are_free_of_python() {
    for file in files(&source()) {
        let text = std::fs::read_to_string(&file).unwrap();
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim_start().starts_with("//"))
        {
            let word = PYTHON.iter().find(|text| line.contains(**text));
            assert_eq!(word, None, "{}:{number}: {line}", file.display());
        }
    }
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The files of a folder and of the folders in it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}
