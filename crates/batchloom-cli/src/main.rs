//! The program `batchloom`.

use std::process::ExitCode;

fn main() -> ExitCode {
    batchloom_cli::Files.silence_panics();
    batchloom_cli::main(std::env::args_os(), &batchloom_cli::Files)
}
