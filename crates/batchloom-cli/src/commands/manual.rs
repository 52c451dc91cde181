//! `completions` and `manual`: what shells and `man` read.

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;
use serde::Serialize;

use crate::arguments::Arguments;
use crate::output::Output;

/// The completions for a shell.
#[derive(Debug, Serialize)]
struct Completions<'a> {
    shell: String,
    script: &'a str,
}

/// The manual.
#[derive(Debug, Serialize)]
struct Manual<'a> {
    roff: &'a str,
}

pub(super) fn completions(shell: Shell, output: &mut Output<'_>) -> Result<()> {
    // The generator panics where a pipe is closed, so it writes to memory.
    let mut bytes = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "batchloom", &mut bytes);
    let script = &String::from_utf8(bytes)?;
    Ok(output.result(&Completions { shell: shell.to_string(), script }, script)?)
}

/// A page of the program, and after it one of each command.
pub(super) fn page(output: &mut Output<'_>) -> Result<()> {
    let mut command = Arguments::command();
    command.build();
    let mut bytes = Vec::new();
    pages(&command, &mut bytes)?;
    let roff = &String::from_utf8(bytes)?;
    Ok(output.result(&Manual { roff }, roff)?)
}

fn pages(command: &clap::Command, out: &mut Vec<u8>) -> Result<()> {
    clap_mangen::Man::new(command.clone()).render(out)?;
    let mut commands = command.get_subcommands().filter(|command| command.get_name() != "help");
    commands.try_for_each(|command| pages(command, out))
}
