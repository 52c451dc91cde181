//! `plan`: the costs of an epoch by one rule, and questions about it.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use batchloom::Plan;
use batchloom::report::Statistic;
use serde::Serialize;

use crate::arguments::{PlanArguments, Question};
use crate::output::{Output, count_in_words};
use crate::plan_file::PlanFile;
use crate::progress::Progress;
use crate::read::{self, Tables};

pub(super) fn run(arguments: PlanArguments, tables: &dyn Tables, output: &mut Output<'_>) -> Result<()> {
    let sizes = read::sizes(&arguments.source, tables, [&arguments.run.rule])?;
    let folder = arguments.output.as_deref().and_then(Path::parent);
    let mut file = PlanFile::new(&arguments.source, &arguments.run, folder)?;
    let progress = Progress::new("planning");
    let plan = file.plan(sizes.clone())?;
    drop(progress);
    file.fingerprint = plan.fingerprint();
    if let Some(path) = &arguments.output {
        let text = serde_json::to_string_pretty(&file)? + "\n";
        fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    match arguments.question {
        None => costs(&plan, output),
        Some(Question::Step { step, rank }) => show_step(&plan, step, rank, output),
        Some(Question::Where { sample }) => locate(&plan, sample, output),
        Some(Question::Diff { other }) => {
            let given = arguments.source.is_standard_input().then_some(&sizes);
            diff(&plan, &PlanFile::read(&other)?.rebuild(tables, given)?, output)
        }
        Some(Question::Export { output: path }) => export(&plan, path.as_deref(), output),
    }
}

fn costs(plan: &Plan, output: &mut Output<'_>) -> Result<()> {
    let progress = Progress::new("measuring");
    let stats = plan.stats();
    drop(progress);
    let statistics = stats.statistics();
    let name_width = statistics.iter().map(|statistic| statistic.name.len()).max().unwrap_or(0);
    let values = statistics.iter().map(|statistic| statistic.value.to_string().len());
    let value_width = values.max().unwrap_or(0);
    let mut text = format!("{}, fingerprint {}\n", plan.rule(), plan.fingerprint());
    for Statistic { name, value, meaning, .. } in statistics {
        writeln!(text, "{name:name_width$}  {value:>value_width$}  {meaning}")?;
    }
    Ok(output.result(&stats, text)?)
}

/// The samples of a rank at a step.
#[derive(Debug, Serialize)]
struct Batch {
    step: u64,
    rank: u32,
    elements: u64,
    samples: Vec<u64>,
    /// The elements that are taken of each sample.
    sizes: Vec<u32>,
    /// The first element that is taken of each sample, where that is not the first for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    starts: Vec<u32>,
}

fn batch(plan: &Plan, step: u64, rank: u32) -> Result<Batch> {
    let (parts, elements) = (plan.parts(step, rank)?, plan.batch_elements(step, rank)?);
    let starts = if parts.starts.iter().any(|&start| start > 0) { parts.starts } else { Vec::new() };
    Ok(Batch { step, rank, elements, samples: parts.samples, sizes: parts.sizes, starts })
}

fn show_step(plan: &Plan, step: u64, rank: Option<u32>, output: &mut Output<'_>) -> Result<()> {
    let ranks = match rank {
        Some(rank) => vec![rank],
        None => (0..plan.world_size()).collect(),
    };
    let batches = ranks.into_iter().map(|rank| batch(plan, step, rank)).collect::<Result<Vec<_>>>()?;
    let mut text = String::new();
    for batch in &batches {
        let real: u64 = batch.sizes.iter().map(|&size| u64::from(size)).sum();
        let (rank, count, elements) = (batch.rank, batch.samples.len(), batch.elements);
        let samples = count_in_words(count as u64, "sample");
        writeln!(text, "step {step}, rank {rank}: {samples}, {real} of {elements} elements are data")?;
        let samples: Vec<_> = batch.samples.iter().map(u64::to_string).collect();
        writeln!(text, "{}", samples.join(" "))?;
    }
    Ok(output.result(&batches, text)?)
}

/// The place of a sample.
#[derive(Debug, Serialize)]
struct SamplePlace {
    step: u64,
    rank: u32,
    index: u64,
}

fn locate(plan: &Plan, sample: u64, output: &mut Output<'_>) -> Result<()> {
    let places = plan.places(sample)?;
    let places: Vec<_> = places
        .iter()
        .map(|place| SamplePlace { step: place.step, rank: place.rank, index: place.index })
        .collect();
    let mut text = String::new();
    if places.is_empty() {
        writeln!(text, "sample {sample} does not come in this epoch: it is dropped")?;
    }
    for SamplePlace { step, rank, index } in &places {
        writeln!(text, "sample {sample}: step {step}, rank {rank}, place {index}")?;
    }
    Ok(output.result(&places, text)?)
}

/// The difference of two plans.
#[derive(Debug, Serialize)]
struct Difference {
    first: Option<u64>,
    differing: u64,
    steps: u64,
    other_steps: u64,
}

fn diff(plan: &Plan, other: &Plan, output: &mut Output<'_>) -> Result<()> {
    if plan.samples() != other.samples() {
        bail!("the plans have {} and {} samples; expected the same lengths", plan.samples(), other.samples());
    }
    let (steps, other_steps) = (plan.steps(), other.steps());
    let progress = Progress::of(steps.max(other_steps), "comparing");
    let (mut first, mut differing) = (None, 0);
    for step in 0..steps.max(other_steps) {
        let same =
            step < steps && step < other_steps && plan.step(step)?.batches == other.step(step)?.batches;
        if !same {
            first = first.or(Some(step));
            differing += 1;
        }
        progress.add(1);
    }
    drop(progress);
    let text = match first {
        None => format!("the plans are the same: {}\n", count_in_words(steps, "step")),
        Some(first) => format!(
            "the plans differ from step {first} on: in {}, of {steps} here and {other_steps} there\n",
            count_in_words(differing, "step")
        ),
    };
    Ok(output.result(&Difference { first, differing, steps, other_steps }, text)?)
}

/// The file of steps that was written.
#[derive(Debug, Serialize)]
struct Exported {
    file: String,
    steps: u64,
}

fn export(plan: &Plan, path: Option<&Path>, output: &mut Output<'_>) -> Result<()> {
    let Some(path) = path else { return write_steps(plan, output.bytes()) };
    let file = path.display().to_string();
    let mut out = BufWriter::new(File::create(path).with_context(|| file.clone())?);
    write_steps(plan, &mut out)?;
    out.flush().with_context(|| file.clone())?;
    let text = format!("{file}\n");
    Ok(output.result(&Exported { file, steps: plan.steps() }, text)?)
}

fn write_steps(plan: &Plan, out: &mut dyn Write) -> Result<()> {
    for step in 0..plan.steps() {
        for rank in (0..plan.world_size()).filter(|&rank| step < plan.steps_of(rank)) {
            serde_json::to_writer(&mut *out, &batch(plan, step, rank)?)?;
            writeln!(out)?;
        }
    }
    Ok(())
}
