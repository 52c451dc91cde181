//! Prose: the summary of a doc comment begins with a verb or a noun, so that a list of summaries reads like an index.

use std::path::{Path, PathBuf};

/// The words that begin a clause in place of a noun.
const QUESTIONS: [&str; 15] = [
    "How",
    "Nobody",
    "None",
    "Nothing",
    "That",
    "What",
    "Whatever",
    "When",
    "Where",
    "Whether",
    "Which",
    "Whichever",
    "Who",
    "Whoever",
    "Whose",
];

#[test]
fn summaries_begin_with_a_verb_or_a_noun() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["src", "tests", "benches", "examples", "../../python/src"] {
        collect(&package.join(folder), &mut files);
    }
    assert!(files.len() > 50, "only {} files in {}", files.len(), package.display());
    let questions: Vec<String> = files.iter().flat_map(|file| questions(file)).collect();
    assert!(
        questions.is_empty(),
        "{} summaries begin with a question:\n{}",
        questions.len(),
        questions.join("\n")
    );
}

/// Adds the Rust files of a folder, if there is one, and of the folders in it.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in folder.read_dir().into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The summaries of a file that begin with a question, each with its place.
fn questions(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let mut documented = false;
    let mut places = Vec::new();
    for (number, line) in (1..).zip(text.lines().map(str::trim_start)) {
        let comment = ["///", "//!"].iter().find_map(|&mark| line.strip_prefix(mark));
        let begins = comment.is_some() && !documented;
        documented = comment.is_some();
        let first = comment.unwrap_or_default().split_whitespace().next().unwrap_or_default();
        if begins && QUESTIONS.contains(&first.trim_end_matches(|letter: char| !letter.is_alphabetic())) {
            places.push(format!("{}:{number}: {}", file.display(), comment.unwrap_or_default().trim()));
        }
    }
    places
}
