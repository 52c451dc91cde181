//! Arrays that files hold by name: archives of NumPy (`.npz`), and safetensors.
//!
//! Promise: only the array with the lengths has its values read.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use batchloom::DType;
use batchloom::tensor::NpyHeader;
use serde_json::Value;

use super::describe_missing;
use super::npy::{lengths_of_array, read_lengths};
use super::zip::ZipArchive;

/// The most bytes of a header of safetensors.
const LONGEST_HEADER: u64 = 100_000_000;

/// An array: its name, type and shape.
#[derive(Debug)]
pub(crate) struct ArrayInfo {
    pub(crate) name: String,
    pub(crate) dtype: String,
    pub(crate) shape: Vec<u64>,
}

/// The arrays of an archive of NumPy.
pub(crate) fn npz_arrays(path: &Path) -> Result<Vec<ArrayInfo>> {
    let archive = ZipArchive::open(path)?;
    let info = |member: &super::zip::Member| {
        let name = name_of(&member.name).to_owned();
        let header =
            NpyHeader::read(archive.open_member(member)?).with_context(|| format!("array {name}"))?;
        let shape = header.shape.iter().map(|&extent| extent as u64).collect();
        Ok(ArrayInfo { name, dtype: header.dtype.to_string(), shape })
    };
    archive.members.iter().map(info).collect()
}

/// The lengths in an array of an archive of NumPy.
pub(super) fn npz_lengths(path: &Path, column: Option<&str>) -> Result<Vec<u32>> {
    let archive = ZipArchive::open(path)?;
    let names: Vec<_> = archive.members.iter().map(|member| name_of(&member.name)).collect();
    let place = choose(&names, column)?;
    let file = archive.open_member(&archive.members[place])?;
    read_lengths(file).with_context(|| format!("array {}", names[place]))
}

fn name_of(member: &str) -> &str {
    member.strip_suffix(".npy").unwrap_or(member)
}

/// The place of the array that was named, or of the only one.
fn choose(names: &[&str], column: Option<&str>) -> Result<usize> {
    match (column, names) {
        (Some(column), _) => {
            let place = names.iter().position(|name| *name == column);
            place.with_context(|| format!("the file {}", describe_missing(column, names)))
        }
        (None, [_]) => Ok(0),
        (None, names) => {
            bail!("there are {} arrays; expected --column, one of {}", names.len(), names.join(", "))
        }
    }
}

/// A tensor, and its bytes in the file.
struct Tensor {
    info: ArrayInfo,
    start: u64,
    end: u64,
}

/// The tensors of a file of safetensors.
pub(crate) fn safetensors_arrays(path: &Path) -> Result<Vec<ArrayInfo>> {
    Ok(read_tensors(&mut File::open(path)?)?.into_iter().map(|tensor| tensor.info).collect())
}

/// The lengths in a tensor of a file of safetensors.
pub(super) fn safetensors_lengths(path: &Path, column: Option<&str>) -> Result<Vec<u32>> {
    let mut file = File::open(path)?;
    let tensors = read_tensors(&mut file)?;
    let names: Vec<_> = tensors.iter().map(|tensor| tensor.info.name.as_str()).collect();
    let tensor = &tensors[choose(&names, column)?];
    let mut read = || -> Result<Vec<u32>> {
        let dtype = match tensor.info.dtype.as_str() {
            "U8" => DType::U8,
            "U16" => DType::U16,
            "U32" => DType::U32,
            "U64" => DType::U64,
            "I8" => DType::I8,
            "I16" => DType::I16,
            "I32" => DType::I32,
            "I64" => DType::I64,
            other => bail!("it is of {other}; expected integers"),
        };
        let [count] = tensor.info.shape[..] else {
            bail!("it has shape {:?}; expected one dimension", tensor.info.shape);
        };
        let bytes = count.checked_mul(dtype.size() as u64);
        ensure!(
            bytes == Some(tensor.end - tensor.start),
            "it has {} bytes for {count} of {dtype}; expected a whole file",
            tensor.end - tensor.start
        );
        file.seek(SeekFrom::Start(tensor.start))?;
        lengths_of_array(BufReader::with_capacity(1 << 20, &mut file), dtype, usize::try_from(count)?)
    };
    read().with_context(|| format!("tensor {}", tensor.info.name))
}

/// Reads the header of a file, in the order of the bytes of tensors.
fn read_tensors(file: &mut File) -> Result<Vec<Tensor>> {
    let size = file.metadata()?.len();
    let mut prefix = [0; 8];
    file.read_exact(&mut prefix).context("this is no file of safetensors: it is cut")?;
    let length = u64::from_le_bytes(prefix);
    ensure!(
        length <= LONGEST_HEADER && length <= size.saturating_sub(8),
        "this is no file of safetensors: its header would have {length} bytes of {size}"
    );
    let mut text = vec![0; usize::try_from(length)?];
    file.read_exact(&mut text)?;
    let header: Value =
        serde_json::from_slice(&text).map_err(|error| anyhow!("its header is damaged: {error}"))?;
    let entries = header.as_object().context("its header holds no tensors by name")?;
    let begin = 8 + length;
    let tensor = |(name, entry): (&String, &Value)| {
        let shape = entry["shape"].as_array().and_then(|shape| shape.iter().map(Value::as_u64).collect());
        let offset =
            |place: usize| entry["data_offsets"][place].as_u64().map(|offset| begin.saturating_add(offset));
        let found = (entry["dtype"].as_str(), shape, offset(0), offset(1));
        let (Some(dtype), Some(shape), Some(start), Some(end)) = found else {
            bail!("tensor {name} is described as {entry}; expected dtype, shape and data_offsets");
        };
        ensure!(
            start <= end && end <= size,
            "tensor {name} ends at byte {end} of {size}; expected a whole file"
        );
        Ok(Tensor { info: ArrayInfo { name: name.clone(), dtype: dtype.to_owned(), shape }, start, end })
    };
    let entries = entries.iter().filter(|(name, _)| *name != "__metadata__");
    let mut tensors = entries.map(tensor).collect::<Result<Vec<_>>>()?;
    ensure!(!tensors.is_empty(), "it holds no tensor; expected at least one");
    tensors.sort_by_key(|tensor| (tensor.start, tensor.end));
    Ok(tensors)
}
