//! `lengths`: quantiles and a histogram, and a file that other commands read fast.

use std::path::Path;

use anyhow::Result;
use batchloom::report::Histogram;

use crate::arguments::LengthsSource;
use crate::output::Output;
use crate::read::{self, Tables};

pub(super) fn run(
    source: &LengthsSource,
    file: Option<&Path>,
    tables: &dyn Tables,
    output: &mut Output<'_>,
) -> Result<()> {
    let lengths = read::lengths(source, tables)?;
    if let Some(file) = file {
        read::write_npy(file, &lengths)?;
    }
    let histogram = Histogram::new(&lengths);
    Ok(output.result(&histogram, &histogram)?)
}
