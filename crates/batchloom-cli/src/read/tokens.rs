//! Files of tokens: indices of Megatron (`.idx`), which have the lengths of sequences, and tokens without an index (`.bin`).

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use batchloom::DType;

use super::npy::lengths_of_array;

/// The mark and the version of an index, and the bytes of its header.
const MAGIC: &[u8; 9] = b"MMIDIDX\x00\x00";
const VERSION: u64 = 1;
const HEADER: usize = 34;

/// The types of tokens by their codes, from 1 on.
const TYPES: [&str; 8] = ["uint8", "int8", "int16", "int32", "int64", "float64", "float32", "uint16"];

/// The first number of the headers of programs in the style of llm.c, and the bytes of such a header.
const HEADED: [u32; 2] = [20_240_520, 20_240_801];
const HEADED_BYTES: u64 = 1024;

/// An index of Megatron.
#[derive(Debug)]
pub(crate) struct MegatronIndex {
    pub(crate) dtype: &'static str,
    /// The length of each sequence.
    pub(crate) lengths: Vec<u32>,
    pub(crate) documents: u64,
}

/// Reads an index.
pub(crate) fn read_megatron(path: &Path) -> Result<MegatronIndex> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut file = BufReader::with_capacity(1 << 20, file);
    let mut header = [0; HEADER];
    file.read_exact(&mut header).context("this is no index of Megatron: it is cut")?;
    let number = |start: usize| {
        header[start..start + 8].iter().rev().fold(0, |number: u64, &byte| number << 8 | u64::from(byte))
    };
    let (version, code, sequences, bounds) = (number(9), header[17], number(18), number(26));
    ensure!(
        header.starts_with(MAGIC) && version == VERSION,
        "this is no index of Megatron, of version {VERSION}"
    );
    let dtype = usize::from(code).checked_sub(1).and_then(|code| TYPES.get(code)).copied();
    let dtype =
        dtype.with_context(|| format!("its code of a type is {code}; expected 1 to {}", TYPES.len()))?;
    // A length of 4 bytes and a place of 8 for each sequence, 8 bytes for each bound, and perhaps a byte for each mode.
    let expected = u128::from(sequences) * 12 + u128::from(bounds) * 8 + HEADER as u128;
    ensure!(
        [expected, expected + u128::from(sequences)].contains(&size.into()),
        "it has {size} bytes; expected {expected} for {sequences} sequences"
    );
    let lengths = lengths_of_array(file, DType::I32, usize::try_from(sequences)?)?;
    Ok(MegatronIndex { dtype, lengths, documents: bounds.saturating_sub(1) })
}

/// Describes a file of tokens without an index.
pub(crate) fn describe_tokens(path: &Path) -> Result<String> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut start = [0; 4];
    let is_headed = size >= HEADED_BYTES
        && file.read_exact(&mut start).is_ok()
        && HEADED.contains(&u32::from_le_bytes(start));
    let bytes = if is_headed { size - HEADED_BYTES } else { size };
    let header = if is_headed { format!(", behind a header of {HEADED_BYTES} bytes") } else { String::new() };
    Ok(match (bytes % 2, bytes % 4) {
        (1, _) => format!("{bytes} tokens of one byte{header}"),
        (_, 0) => format!("{} uint16 or {} uint32 tokens{header}", bytes / 2, bytes / 4),
        _ => format!("{} uint16 tokens{header}", bytes / 2),
    })
}

/// Refuses to make lengths of tokens without an index.
pub(super) fn refuse_stream() -> Result<Vec<u32>> {
    bail!(
        "tokens without an index beside them are one stream, and have no lengths: batchloom.open cuts it by seq_len=; \
         expected the index (.idx) of a Megatron corpus, or documents in Parquet, Arrow or .jsonl"
    )
}
