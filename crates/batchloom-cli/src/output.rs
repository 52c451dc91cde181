//! Results on standard output: text, or JSON.

use std::fmt::Display;
use std::io::{self, BufWriter, Write};

use serde::Serialize;
use terminal_size::{Width, terminal_size_of};

/// The output of a command.
pub(crate) struct Output<'a> {
    out: BufWriter<&'a mut dyn Write>,
    json: bool,
}

impl<'a> Output<'a> {
    pub(crate) fn new(out: &'a mut dyn Write, json: bool) -> Self {
        Self { out: BufWriter::new(out), json }
    }

    /// Writes a result: `value` if JSON was asked for, and otherwise `text`.
    pub(crate) fn result(&mut self, value: &impl Serialize, text: impl Display) -> io::Result<()> {
        match self.json {
            true => {
                // What cannot be written as JSON is an error before anything is written.
                let text = serde_json::to_string(value)?;
                writeln!(self.out, "{text}")
            }
            false => write!(self.out, "{text}"),
        }
    }

    /// The bytes themselves.
    pub(crate) fn bytes(&mut self) -> &mut dyn Write {
        &mut self.out
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The columns of the terminal on standard output; `None` without a terminal.
pub(crate) fn columns() -> Option<usize> {
    terminal_size_of(io::stdout()).map(|(Width(columns), _)| columns.into())
}

/// A number of things in words: `1 step`, `2 steps`, `2 batches`.
pub(crate) fn count_in_words(number: u64, thing: &str) -> String {
    match (number, thing.ends_with("ch")) {
        (1, _) => format!("1 {thing}"),
        (_, true) => format!("{number} {thing}es"),
        (_, false) => format!("{number} {thing}s"),
    }
}
