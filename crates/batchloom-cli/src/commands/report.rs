//! `report`: a page that shows lengths, rules and the plan of the best one.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use batchloom::Plan;
use batchloom::report::{Histogram, Page};
use serde::Serialize;

use super::compare::compare;
use crate::arguments::{LengthsSource, Rules};
use crate::output::Output;
use crate::progress::Progress;
use crate::read::{self, Tables};

/// The page that was written.
#[derive(Debug, Serialize)]
struct Written {
    page: String,
}

pub(super) fn run(
    source: &LengthsSource,
    rules: &Rules,
    file: &Path,
    tables: &dyn Tables,
    output: &mut Output<'_>,
) -> Result<()> {
    let sizes = read::sizes(source, tables, &rules.rules)?;
    let comparison = compare(&sizes, rules)?;
    let progress = Progress::new("drawing");
    let best = comparison.rules[comparison.best].rule.clone();
    let builder = Plan::builder(sizes.len()).rule(best).sizes(sizes.clone()).shuffle(true);
    let plan = builder.world_size(rules.world_size).build()?;
    let page = Page::new(format!("Batches of {}", source.title()));
    let page = page.histogram(&Histogram::new(sizes.as_slice())).comparison(&comparison).plan(&plan);
    fs::write(file, page.html()).with_context(|| file.display().to_string())?;
    drop(progress);
    let page = file.display().to_string();
    let text = format!("{page}\n");
    Ok(output.result(&Written { page }, text)?)
}
