//! The commands, one a file.

mod compare;
mod convert;
mod index;
mod inspect;
mod lengths;
mod manual;
mod micro_batches;
mod plan;
mod report;
mod state;

use anyhow::Result;

use crate::arguments::Command;
use crate::output::Output;
use crate::read::Tables;

pub(crate) fn run(command: Command, tables: &dyn Tables, output: &mut Output<'_>) -> Result<()> {
    match command {
        Command::Inspect { files } => inspect::run(&files, tables, output),
        Command::Convert(arguments) => convert::run(&arguments, tables, output),
        Command::Index { files, columns } => index::run(&files, &columns, output),
        Command::Lengths { source, output: file } => lengths::run(&source, file.as_deref(), tables, output),
        Command::Compare { source, rules } => compare::run(&source, &rules, tables, output),
        Command::Microbatches { source, options } => micro_batches::run(&source, &options, tables, output),
        Command::Plan(arguments) => plan::run(*arguments, tables, output),
        Command::Report { source, rules, output: file } => {
            report::run(&source, &rules, &file, tables, output)
        }
        Command::State { state, plan, world_size } => {
            state::run(&state, plan.as_deref(), world_size, tables, output)
        }
        Command::Completions { shell } => manual::completions(shell, output),
        Command::Manual => manual::page(output),
    }
}
