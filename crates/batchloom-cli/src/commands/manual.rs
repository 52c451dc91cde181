//! `completions` and `manual`: what shells and `man` read.

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::arguments::Arguments;
use crate::output::Output;

pub(super) fn completions(shell: Shell, output: &mut Output<'_>) -> Result<()> {
    // The generator panics where a pipe is closed, so it writes to memory.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "batchloom", &mut text);
    Ok(output.bytes().write_all(&text)?)
}

/// A page of the program, and after it one of each command.
pub(super) fn page(output: &mut Output<'_>) -> Result<()> {
    let mut command = Arguments::command();
    command.build();
    pages(&command, output)
}

fn pages(command: &clap::Command, output: &mut Output<'_>) -> Result<()> {
    clap_mangen::Man::new(command.clone()).render(&mut output.bytes())?;
    let commands = command.get_subcommands().filter(|command| command.get_name() != "help");
    commands.into_iter().try_for_each(|command| pages(command, output))
}
