//! `state`: where a run stands.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use batchloom::plan::{STATE_VERSION, State};
use serde::Serialize;

use crate::output::{Output, count_in_words};
use crate::plan_file::PlanFile;
use crate::read::Tables;

/// A state in words that need no knowledge of its format.
#[derive(Debug, Serialize)]
struct Standing {
    epoch: u64,
    batches: u64,
    worlds: Vec<(u32, u64)>,
    steps: Option<u64>,
    seed: u64,
    fingerprint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<Left>,
}

/// The rest of the epoch.
#[derive(Debug, Serialize)]
struct Left {
    epoch: u64,
    world_size: u32,
    steps: u64,
}

pub(super) fn run(
    path: &Path,
    plan: Option<&Path>,
    world_size: Option<u32>,
    tables: &dyn Tables,
    output: &mut Output<'_>,
) -> Result<()> {
    let named = || path.display().to_string();
    let text = fs::read_to_string(path).with_context(named)?;
    let state: State =
        serde_json::from_str(&text).context("this is not the state of a loader").with_context(named)?;
    if state.version != STATE_VERSION {
        bail!("{}: the state has version {}; expected {STATE_VERSION}", named(), state.version);
    }
    let left =
        plan.map(|plan| find_rest(&state, plan, world_size, tables)).transpose().with_context(named)?;
    let mut words =
        format!("epoch {}, seed {}, fingerprint {}\n", state.epoch, state.seed, state.fingerprint);
    for (ranks, steps) in &state.worlds {
        writeln!(
            words,
            "{} of this epoch with {}",
            count_in_words(*steps, "step"),
            count_in_words((*ranks).into(), "rank")
        )?;
    }
    writeln!(words, "delivered of this epoch: {}", count_in_words(state.batches, "batch"))?;
    if let Some(steps) = state.steps {
        writeln!(words, "{} in all epochs", count_in_words(steps, "step"))?;
    }
    if let Some(left) = &left {
        let Left { epoch, world_size, steps } = left;
        let (steps, ranks) = (count_in_words(*steps, "step"), count_in_words((*world_size).into(), "rank"));
        writeln!(words, "left of epoch {epoch}: {steps} with {ranks}")?;
    }
    let State { epoch, batches, worlds, steps, seed, fingerprint, .. } = state;
    Ok(output.result(&Standing { epoch, batches, worlds, steps, seed, fingerprint, left }, words)?)
}

fn find_rest(state: &State, plan: &Path, world_size: Option<u32>, tables: &dyn Tables) -> Result<Left> {
    let mut file = PlanFile::read(plan)?;
    if file.seed != state.seed {
        bail!(
            "the state is of a run with seed {}, and the plan has seed {}; expected the same",
            state.seed,
            file.seed
        );
    }
    // The fingerprint is the same for any number of ranks.
    file.world_size = world_size.unwrap_or(file.world_size);
    let rest = file.rebuild(tables, None)?.resume(state)?;
    Ok(Left { epoch: rest.epoch(), world_size: rest.world_size(), steps: rest.steps() })
}
