//! A training that is killed and goes on: the same weights as one that was not.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::tempdir;

/// The example, built by `cargo test`.
fn classifier(folder: &Path) -> Command {
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join("examples/classifier");
    let mut command = Command::new(program);
    command.arg(folder).arg("8").stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn last_line(folder: &Path) -> String {
    let done = classifier(folder).stdout(Stdio::piped()).output().unwrap();
    assert!(done.status.success());
    String::from_utf8(done.stdout).unwrap().trim().lines().last().unwrap().to_owned()
}

fn kill_after(mut running: Child, file: &Path) {
    let begun = Instant::now();
    while !file.exists() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{} is not written", file.display());
        assert!(running.try_wait().unwrap().is_none(), "it ended before it was killed");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Into the epoch after it.
    std::thread::sleep(Duration::from_millis(20));
    running.kill().unwrap();
    running.wait().unwrap();
}

#[test]
fn a_killed_training_comes_to_the_same_weights() {
    let (whole, killed) = (tempdir().unwrap(), tempdir().unwrap());
    let expected = last_line(whole.path());
    assert!(expected.starts_with("weights "), "{expected}");
    for epoch in [1, 4] {
        let running = classifier(killed.path()).spawn().unwrap();
        kill_after(running, &killed.path().join(format!("checkpoint/scheduler-{epoch}.bpk")));
    }
    assert_eq!(last_line(killed.path()), expected);
    let states: Vec<_> = std::fs::read_dir(killed.path().join("checkpoint"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("loader"))
        .collect();
    assert_eq!(states.len(), 2, "states go with their checkpoints: {states:?}");
}
