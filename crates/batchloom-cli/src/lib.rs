//! The program `batchloom`, as a function: `cargo install batchloom-cli`, `python -m batchloom` and the console script
//! of the Python package call it.
//!
//! A command reads lengths ([`read`]), calls the engine, and writes text or JSON ([`output`]). Promises:
//!
//! - Bad data is one line on standard error with what and where, and exit code 1; bad usage is exit code 2.
//! - Standard output holds results alone. Progress goes to standard error, and only to a terminal.
//! - A reader that closes the pipe ends the program in silence.

mod arguments;
mod commands;
mod convert;
mod output;
mod plan_file;
mod progress;
mod read;

use std::error::Error;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::Parser;

#[cfg(feature = "columns")]
pub use read::Files;
pub use read::{Table, Tables};

use crate::arguments::Arguments;
use crate::output::Output;

/// Runs the program: its name and arguments, and the reader of Parquet and Arrow files.
///
/// Returns 0, 1 if the data is bad, or 2 if the arguments are.
pub fn main(arguments: impl IntoIterator<Item = OsString>, tables: &dyn Tables) -> ExitCode {
    ExitCode::from(run(arguments, tables, &mut io::stdout().lock(), &mut io::stderr()))
}

/// Runs the program as [`main`] does, with other outputs, and returns its exit code.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    tables: &dyn Tables,
    out: &mut dyn Write,
    errors: &mut dyn Write,
) -> u8 {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            let text = error.render();
            let is_wrong = error.use_stderr();
            let done = if is_wrong { write!(errors, "{text}") } else { write!(out, "{text}") };
            return done.map_or(0, |()| if is_wrong { 2 } else { 0 });
        }
    };
    let mut output = Output::new(out, arguments.json);
    let done = commands::run(arguments.command, tables, &mut output).and_then(|()| Ok(output.flush()?));
    match done {
        Ok(()) => 0,
        Err(error) if is_closed_pipe(&error) => 0,
        Err(error) => {
            // If standard error is closed, the exit code still tells.
            let _closed = writeln!(errors, "batchloom: {}", one_line(&format!("{error:#}")));
            1
        }
    }
}

/// A message on one line, without the traceback that another language adds.
fn one_line(message: &str) -> String {
    let end = message.find(" Detail: Python exception").or_else(|| message.find("Traceback ("));
    let end = end.unwrap_or(message.len());
    message[..end].split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns true if the reader of standard output has enough.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let kind = |cause: &(dyn Error + 'static)| match cause.downcast_ref::<io::Error>() {
        Some(error) => Some(error.kind()),
        None => cause.downcast_ref::<serde_json::Error>()?.io_error_kind(),
    };
    error.chain().any(|cause| kind(cause) == Some(ErrorKind::BrokenPipe))
}
