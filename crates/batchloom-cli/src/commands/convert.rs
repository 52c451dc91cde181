//! `convert`: files that every rank can address, of files that have to be decoded.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use batchloom_formats::json_lines::JsonWord;
use batchloom_formats::parquet::{ColumnLayout, FieldColumns};
use batchloom_formats::{FileSource, JsonLines, ParquetFiles, ParquetIndex, ParquetSource};

use crate::arguments::{ConvertArguments, TargetFormat, TokenWidth};
use crate::convert::{Conversion, Target, convert, describe_origin};
use crate::output::{Output, count_in_words};

pub(super) fn run(arguments: &ConvertArguments, output: &mut Output<'_>) -> Result<()> {
    let target = target_of(arguments)?;
    let source = open(&arguments.files, &arguments.columns)?;
    let manifest = convert(&Conversion {
        source: &*source,
        origin: describe_origin(&arguments.files)?,
        target,
        shuffle: arguments.shuffle,
        folder: &arguments.out,
    })?;
    let (rows, files) =
        (count_in_words(manifest.rows, "row"), count_in_words(manifest.files.len() as u64, "file"));
    let bytes = count_in_words(manifest.files.iter().map(|file| file.bytes).sum(), "byte");
    let text = format!("{}: {rows} in {files}, {bytes}\n", arguments.out.display());
    Ok(output.result(&manifest, text)?)
}

fn target_of(arguments: &ConvertArguments) -> Result<Target> {
    let is_tokens = arguments.to == TargetFormat::Bin;
    ensure!(
        is_tokens || arguments.dtype.is_none() && arguments.end.is_none(),
        "--dtype and --end are for --to bin alone"
    );
    Ok(match arguments.to {
        TargetFormat::Arrow => Target::Arrow,
        TargetFormat::Safetensors => Target::Safetensors,
        TargetFormat::Bin => {
            let width = if arguments.dtype == Some(TokenWidth::Uint32) { 4 } else { 2 };
            if let Some(end) = arguments.end.filter(|&end| width == 2 && end > u32::from(u16::MAX)) {
                bail!("--end is {end}, which takes more than 16 bits; expected --dtype uint32");
            }
            Target::Tokens { width, end: arguments.end }
        }
    })
}

/// Opens files of one format.
fn open(files: &[PathBuf], columns: &[String]) -> Result<Box<dyn FileSource>> {
    let end =
        |file: &Path| file.extension().map(|end| end.to_string_lossy().to_lowercase()).unwrap_or_default();
    let is_parquet = |file: &PathBuf| matches!(end(file).as_str(), "parquet" | "pq");
    let is_lines = |file: &PathBuf| matches!(end(file).as_str(), "jsonl" | "ndjson");
    if files.iter().all(is_parquet) {
        let files = ParquetFiles::open(files)?;
        let can_be_read = |layout: &ColumnLayout| {
            matches!(layout, ColumnLayout::Scalar(_) | ColumnLayout::Fixed(..) | ColumnLayout::List(_))
        };
        let known = files.columns().iter();
        let known = known
            .filter(|column| column.layout.as_ref().is_ok_and(can_be_read))
            .map(|column| column.name.clone());
        let names = if columns.is_empty() { known.collect() } else { columns.to_vec() };
        let index = ParquetIndex::make(&files, &names, &[], None, &|_, _| true)?;
        let fields: Vec<FieldColumns> = names.iter().map(FieldColumns::single).collect();
        return Ok(Box::new(ParquetSource::new(files, index, &fields)?));
    }
    if files.iter().all(is_lines) {
        let lines = JsonLines::open(files)?;
        let known =
            lines.columns().iter().filter(|column| matches!(column.word, JsonWord::Number | JsonWord::List));
        let known = known.map(|column| column.name.clone());
        let names: Vec<String> = if columns.is_empty() { known.collect() } else { columns.to_vec() };
        return Ok(Box::new(lines.source(&names, &names, &[], false, None, &|_, _| true)?));
    }
    bail!(
        "files are neither all .parquet nor all .jsonl; expected files of one format that has to be decoded"
    )
}
