//! Files of lengths in the program: no file is more than one line and exit code 1. Parquet and Arrow files are left to
//! their own crates, which panic on some of them; the program's tests look at that.
#![no_main]

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use batchloom_cli::{Files, run};
use libfuzzer_sys::fuzz_target;

static FOLDER: LazyLock<tempfile::TempDir> =
    LazyLock::new(|| tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder"));

fuzz_target!(|file: &[u8]| {
    let Some((form, bytes)) = file.split_first() else { return };
    let suffix = ["npy", "txt", "jsonl"][usize::from(*form) % 3];
    let path: PathBuf = FOLDER.path().join(format!("lengths.{suffix}"));
    fs::write(&path, bytes).expect("a file");
    for command in ["lengths", "inspect"] {
        let arguments: Vec<OsString> = ["batchloom".into(), command.into(), path.clone().into()].into();
        let (mut out, mut errors) = (Vec::new(), Vec::new());
        let code = run(arguments, &Files, &mut out, &mut errors);
        let errors = String::from_utf8(errors).expect("a text");
        assert!(code == 0 || (code == 1 && errors.trim_end().lines().count() == 1), "{code}: {errors}");
    }
});
