//! `convert`: files that every rank can address, of files that have to be decoded.

use anyhow::{Result, bail, ensure};

use crate::arguments::{ConvertArguments, TargetFormat, TokenWidth};
use crate::convert::{Conversion, SourceRows, Target, convert};
use crate::output::{Output, count_in_words};
use crate::read::{Tables, list_files};

pub(super) fn run(arguments: &ConvertArguments, tables: &dyn Tables, output: &mut Output<'_>) -> Result<()> {
    let target = target_of(arguments)?;
    let files = list_files(&arguments.files)?;
    let source = SourceRows::open(files, &arguments.columns, tables)?;
    let manifest =
        convert(&Conversion { source: &source, target, shuffle: arguments.shuffle, folder: &arguments.out })?;
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
