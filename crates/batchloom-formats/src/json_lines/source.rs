//! `JsonLines` and `JsonLinesSource`: files of lines, and runs of lines as chunks of samples.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use batchloom::dataset::{ChunkField, Sequences};
use batchloom::order::Chunks;
use batchloom::{DType, Tensor};

use super::lines::{cut_lines, lines_of, read_run};
use super::parser::{Number, Sink, WantedKeys, parse_line};
use super::scan::{ScannedRun, SeenType, WrongRow, scan_run};
use crate::error::{FormatError, FormatErrorKind, Result};
use crate::file::{DataFile, OPEN_FILES};
use crate::kept_index::{KeptIndex, Numbers, append_list};
use crate::parallel::{Progress, for_each_part};
use crate::source::{FieldType, FileSource, SampleElements};

/// A key of the first line, and what its value is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonColumn {
    /// The name; keys of objects in objects follow after a dot.
    pub name: String,
    /// The word for its value.
    pub word: JsonWord,
}

/// The value of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonWord {
    /// A number or a truth value.
    Number,
    /// A list of numbers.
    List,
    /// A text.
    Text,
    /// Null, which tells no type.
    Null,
    /// Something else: a list of something else.
    Other,
}

/// Files of lines of JSON.
#[derive(Debug, Clone)]
pub struct JsonLines {
    files: Arc<[Arc<DataFile>]>,
    columns: Vec<JsonColumn>,
}

impl JsonLines {
    /// Opens files, at least one, and reads the first line.
    ///
    /// # Errors
    /// A file cannot be read, no file is given, or the first line is no object.
    pub fn open<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<Self> {
        let paths: Vec<PathBuf> = paths.into_iter().map(|path| path.as_ref().to_owned()).collect();
        let stays_open = paths.len() <= OPEN_FILES;
        let open = |path: &PathBuf| DataFile::open(path, stays_open).map(Arc::new);
        let files = paths.iter().map(open).collect::<Result<Arc<[_]>>>()?;
        let nothing = || FormatError::new(FormatErrorKind::Argument, Path::new(""), "there is no file");
        let first = files.first().ok_or_else(nothing)?;
        let columns = first_columns(first)?;
        Ok(Self { files, columns })
    }

    /// The keys of the first line.
    pub fn columns(&self) -> &[JsonColumn] {
        &self.columns
    }

    /// The samples of some keys, of which each is a field of the name in its place, after one look at all lines with a thread for each core; in
    /// `cache`, if that is a folder, what was found in each file is kept. If `as_rows` is true, lists have to have one
    /// length, and are rows. `nulls` are the numbers in place of nulls, by place.
    ///
    /// # Errors
    /// A line is no object, lacks a key, or holds something else than a number or a list of numbers there; values of one
    /// key are lists in some lines alone; lists of one line differ in length; a value is null without a number for it.
    pub fn source(
        &self,
        names: &[String],
        keys: &[String],
        nulls: &[Option<f64>],
        as_rows: bool,
        cache: Option<&Path>,
        progress: Progress<'_>,
    ) -> Result<JsonLinesSource> {
        let wanted = WantedKeys::new(keys);
        let scanned = self.scan(keys, cache, progress)?;
        let columns = keys.iter().enumerate().map(|(key, name)| {
            let null = nulls.get(key).copied().flatten();
            let seen = scanned.iter().fold(SeenType::default(), |seen, (_, run)| seen.or(run.types[key]));
            type_of(seen, null).or_else(|reason| {
                let place = self.find_row(&scanned, keys, key, |seen| type_of(seen, null).is_err())?;
                Err(self.describe(place, &reason).of_column(name))
            })
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let has_lists = columns.iter().any(|column| column.is_list);
        let lengths: Vec<u32> = scanned.iter().flat_map(|(_, run)| run.lengths.iter().copied()).collect();
        let first = lengths.first().copied();
        if as_rows && let Some(row) = lengths.iter().position(|&length| Some(length) != first) {
            let reason = format!(
                "it has lists of {} elements, and the first sample has {}; expected one length for rows",
                lengths[row],
                first.unwrap_or(0)
            );
            return Err(self.describe(self.locate(&scanned, row), &reason));
        }
        let chunks = scanned.into_iter().map(|(run, _)| run).collect();
        let row_extent = first.filter(|_| as_rows && has_lists).map(|first| first as usize);
        let lengths = has_lists.then_some(lengths);
        Ok(JsonLinesSource {
            files: self.files.clone(),
            names: names.to_vec(),
            wanted,
            columns,
            chunks,
            lengths,
            row_extent,
        })
    }
}

impl JsonLines {
    /// The path of the file and the row there of the first sample with an element of `key` that is not 1; `None` if all
    /// are. One look at all lines, as for [`source`](Self::source).
    ///
    /// # Errors
    /// As [`source`](Self::source), for this key.
    pub fn find_other_than_one(
        &self,
        key: &str,
        cache: Option<&Path>,
        progress: Progress<'_>,
    ) -> Result<Option<(&Path, u64)>> {
        let keys = [key.to_owned()];
        let scanned = self.scan(&keys, cache, progress)?;
        if scanned.iter().all(|(_, run)| !run.types[0].has_other) {
            return Ok(None);
        }
        let (file, row) = self.find_row(&scanned, &keys, 0, |seen| seen.has_other)?;
        Ok(Some((self.files[file].path(), row)))
    }

    /// Looks at all lines, or at what was kept of a look before.
    fn scan(
        &self,
        keys: &[String],
        cache: Option<&Path>,
        progress: Progress<'_>,
    ) -> Result<Vec<(Run, ScannedRun)>> {
        let wanted = WantedKeys::new(keys);
        let question = format!("json of 2026-11\0{}", keys.join("\0"));
        let mut all = Vec::new();
        for (number, file) in self.files.iter().enumerate() {
            let kept = KeptIndex::new(cache, file, question.as_bytes());
            let found = match kept.load().and_then(|bytes| decode(&bytes, keys.len())) {
                Some(found) => found,
                None => {
                    let found = scan_file(file, &wanted, keys, progress)?;
                    kept.store(&encode(&found));
                    found
                }
            };
            let run = |(bytes, run): (_, ScannedRun)| (Run { file: number, bytes, rows: run.rows }, run);
            all.extend(found.into_iter().map(run));
        }
        Ok(all)
    }

    /// The file and the row there of the first sample with which the type of a key, over all samples so far, is one that
    /// `is_sought`. Its run is read again.
    fn find_row(
        &self,
        scanned: &[(Run, ScannedRun)],
        keys: &[String],
        key: usize,
        is_sought: impl Fn(SeenType) -> bool,
    ) -> Result<(usize, u64)> {
        let (mut seen, mut before) = (SeenType::default(), 0);
        for (run, found) in scanned {
            if !is_sought(seen.or(found.types[key])) {
                seen = seen.or(found.types[key]);
                before += run.rows as usize;
                continue;
            }
            let (bytes, wanted) = (read_run(&self.files[run.file], &run.bytes)?, WantedKeys::new(keys));
            for line in lines_of(&bytes) {
                let row = scan_run(line, &wanted, keys.len());
                seen = row.map_or(seen, |row| seen.or(row.types[key]));
                if is_sought(seen) {
                    break;
                }
                before += 1;
            }
            break;
        }
        Ok(self.locate(scanned, before))
    }

    /// The file of a sample, and its row there.
    fn locate(&self, scanned: &[(Run, ScannedRun)], sample: usize) -> (usize, u64) {
        let mut rows = vec![0; self.files.len()];
        scanned.iter().for_each(|(run, _)| rows[run.file] += u64::from(run.rows));
        let mut row = sample as u64;
        for (file, rows) in rows.into_iter().enumerate() {
            if row < rows {
                return (file, row);
            }
            row -= rows;
        }
        (self.files.len() - 1, row)
    }

    /// An error of a sample, by its file and its row there.
    fn describe(&self, (file, row): (usize, u64), reason: &str) -> FormatError {
        FormatError::data(self.files[file].path(), format!("sample {row}: {reason}"))
    }
}

/// The keys of the first line of a file.
fn first_columns(file: &DataFile) -> Result<Vec<JsonColumn>> {
    let runs = cut_lines(file)?;
    let wrong = |reason: String| FormatError::data(file.path(), reason);
    for run in runs {
        let bytes = read_run(file, &run)?;
        let Some(line) = lines_of(&bytes).next() else { continue };
        let value: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(line)
            .map_err(|error| wrong(format!("its first line is no object of JSON: {error}")))?;
        let mut columns = Vec::new();
        add_columns(&value, "", &mut columns);
        return Ok(columns);
    }
    Err(wrong("it has no lines; expected an object of JSON in each".to_owned()))
}

fn add_columns(
    values: &serde_json::Map<String, serde_json::Value>,
    before: &str,
    columns: &mut Vec<JsonColumn>,
) {
    use serde_json::Value;
    for (key, value) in values {
        let name = format!("{before}{key}");
        let is_number = |value: &Value| value.is_number() || value.is_boolean();
        let word = match value {
            Value::Object(inner) => {
                add_columns(inner, &format!("{name}."), columns);
                continue;
            }
            value if is_number(value) => JsonWord::Number,
            Value::String(_) => JsonWord::Text,
            Value::Null => JsonWord::Null,
            Value::Array(elements)
                if elements.iter().all(|element| is_number(element) || element.is_null()) =>
            {
                JsonWord::List
            }
            _ => JsonWord::Other,
        };
        columns.push(JsonColumn { name, word });
    }
}

/// Each run of a file, with its rows, types and lengths.
type Scanned = Vec<(Range<u64>, ScannedRun)>;

fn scan_file(
    file: &DataFile,
    wanted: &WantedKeys,
    names: &[String],
    progress: Progress<'_>,
) -> Result<Scanned> {
    let runs = cut_lines(file)?;
    let scanned = for_each_part(runs.len(), file.path(), progress, |part| {
        let bytes = read_run(file, &runs[part])?;
        Ok(scan_run(&bytes, wanted, names.len()))
    })?;
    let (mut found, mut rows) = (Vec::new(), 0);
    for (run, scanned) in runs.into_iter().zip(scanned) {
        let scanned = scanned.map_err(|wrong| describe(file.path(), names, rows, &wrong))?;
        rows += u64::from(scanned.rows);
        found.push((run, scanned));
    }
    Ok(found)
}

fn describe(path: &Path, names: &[String], before: u64, wrong: &WrongRow) -> FormatError {
    let error = FormatError::data(path, format!("sample {}: {}", before + wrong.row as u64, wrong.reason));
    match wrong.key.and_then(|key| names.get(key)) {
        Some(name) => error.of_column(name),
        None => error,
    }
}

fn encode(found: &Scanned) -> Vec<u8> {
    let mut bytes = (found.len() as u64).to_le_bytes().to_vec();
    for (run, scanned) in found {
        bytes.extend_from_slice(&run.start.to_le_bytes());
        bytes.extend_from_slice(&run.end.to_le_bytes());
        bytes.extend_from_slice(&scanned.rows.to_le_bytes());
        bytes.extend(scanned.types.iter().map(|seen| seen.bits()));
        append_list(&mut bytes, &scanned.lengths);
    }
    bytes
}

fn decode(bytes: &[u8], keys: usize) -> Option<Scanned> {
    let mut numbers = Numbers(bytes);
    let count = numbers.count(28)?;
    let mut found = Vec::with_capacity(count);
    for _ in 0..count {
        let (start, end, rows) = (numbers.u64()?, numbers.u64()?, numbers.u32()?);
        let types = (0..keys).map(|_| numbers.byte().map(SeenType::of_bits)).collect::<Option<Vec<_>>>()?;
        found.push((start..end, ScannedRun { rows, types, lengths: numbers.list()? }));
    }
    numbers.0.is_empty().then_some(found)
}

/// A column as it is read.
#[derive(Debug, Clone, Copy)]
struct Column {
    is_list: bool,
    dtype: DType,
    null: Option<f64>,
}

/// The type of a column, of all that was seen.
fn type_of(seen: SeenType, null: Option<f64>) -> std::result::Result<Column, String> {
    if seen.has_lists && seen.has_single {
        return Err(
            "it is a list in some lines and a single value in other lines; expected one of them".to_owned()
        );
    }
    if seen.has_null && null.is_none() {
        return Err("a value is null; expected a number in each, or nulls= with a number for it".to_owned());
    }
    if seen.has_truth && (seen.has_whole || seen.has_real) {
        return Err("it holds truth values and numbers; expected one of them".to_owned());
    }
    let is_whole = null.is_none_or(|null| null.fract() == 0.0);
    let dtype = match (seen.has_truth, seen.has_real || !is_whole) {
        (true, _) => DType::Bool,
        (_, true) => DType::F64,
        _ => DType::I64,
    };
    Ok(Column { is_list: seen.has_lists, dtype, null })
}

/// A run of lines as a chunk.
#[derive(Debug)]
struct Run {
    file: usize,
    bytes: Range<u64>,
    rows: u32,
}

/// Samples of lines, a run of lines at a time.
#[derive(Debug)]
pub struct JsonLinesSource {
    files: Arc<[Arc<DataFile>]>,
    names: Vec<String>,
    wanted: WantedKeys,
    columns: Vec<Column>,
    chunks: Vec<Run>,
    lengths: Option<Vec<u32>>,
    row_extent: Option<usize>,
}

/// The values of a column in a run.
struct Values {
    column: Column,
    bytes: Vec<u8>,
    starts: Vec<i64>,
    count: i64,
}

struct Reader(Vec<Values>);

impl Sink for Reader {
    fn begin(&mut self, key: usize, is_list: bool) -> std::result::Result<(), &'static str> {
        let values = &mut self.0[key];
        values.starts.push(values.count);
        match is_list == values.column.is_list {
            true => Ok(()),
            false => Err("the line has changed since it was looked at"),
        }
    }

    #[inline]
    fn number(&mut self, key: usize, number: Number) -> std::result::Result<(), &'static str> {
        let values = &mut self.0[key];
        values.count += 1;
        let null = values.column.null.unwrap_or(0.0);
        match (values.column.dtype, number) {
            (DType::I64, Number::Whole(whole)) => values.bytes.extend_from_slice(&whole.to_le_bytes()),
            #[expect(clippy::cast_precision_loss, reason = "whole numbers among real ones are real")]
            (DType::F64, Number::Whole(whole)) => {
                values.bytes.extend_from_slice(&(whole as f64).to_le_bytes())
            }
            (DType::F64, Number::Real(real)) => values.bytes.extend_from_slice(&real.to_le_bytes()),
            (DType::Bool, Number::Truth(truth)) => values.bytes.push(u8::from(truth)),
            (DType::F64, Number::Null) => values.bytes.extend_from_slice(&null.to_le_bytes()),
            (DType::Bool, Number::Null) => values.bytes.push(u8::from(null != 0.0)),
            #[expect(clippy::cast_possible_truncation, reason = "it was whole when the type was found")]
            (DType::I64, Number::Null) => values.bytes.extend_from_slice(&(null as i64).to_le_bytes()),
            _ => return Err("the line has changed since it was looked at"),
        }
        Ok(())
    }
}

impl FileSource for JsonLinesSource {
    fn chunks(&self) -> Chunks {
        Chunks::new(self.chunks.iter().map(|chunk| u64::from(chunk.rows)))
    }

    fn lengths(&self) -> Option<&[u32]> {
        self.lengths.as_deref().filter(|_| self.row_extent.is_none())
    }

    fn names(&self) -> &[String] {
        &self.names
    }

    fn types(&self) -> Vec<FieldType> {
        let list = self.row_extent.map_or(SampleElements::List, SampleElements::Row);
        let elements = |is_list| if is_list { list } else { SampleElements::One };
        let of = |column: &Column| FieldType { dtype: column.dtype, elements: elements(column.is_list) };
        self.columns.iter().map(of).collect()
    }

    fn read_chunk(&self, chunk: u64) -> Result<Vec<ChunkField>> {
        let missing =
            || FormatError::new(FormatErrorKind::Argument, self.files[0].path(), "there is no such chunk");
        let run = usize::try_from(chunk).ok().and_then(|chunk| self.chunks.get(chunk)).ok_or_else(missing)?;
        let file = &self.files[run.file];
        let bytes = read_run(file, &run.bytes)?;
        let values = |&column: &Column| {
            let room = if column.is_list { bytes.len() * 2 } else { run.rows as usize * 8 };
            Values {
                column,
                bytes: Vec::with_capacity(room),
                starts: Vec::with_capacity(run.rows as usize + 1),
                count: 0,
            }
        };
        let mut reader = Reader(self.columns.iter().map(values).collect());
        for (row, line) in lines_of(&bytes).enumerate() {
            parse_line(line, &self.wanted, &mut reader).map_err(|wrong| {
                let reason = format!("{} (byte {} of the line)", wrong.reason, wrong.place);
                let from = run.bytes.start;
                FormatError::data(file.path(), format!("line {row} of those from byte {from} on: {reason}"))
            })?;
        }
        let fields =
            self.names.iter().zip(reader.0).map(|(name, values)| self.field(name, values, run.rows as usize));
        let wrong =
            |(name, reason): (&String, String)| FormatError::data(file.path(), reason).of_column(name);
        fields.zip(&self.names).map(|(field, name)| field.map_err(|reason| wrong((name, reason)))).collect()
    }
}

impl JsonLinesSource {
    fn field(&self, name: &str, mut values: Values, rows: usize) -> std::result::Result<ChunkField, String> {
        let count = usize::try_from(values.count).unwrap_or(0);
        let dtype = values.column.dtype;
        values.bytes.shrink_to_fit();
        let tensor = |bytes: Vec<u8>, shape: &[usize]| {
            Tensor::from_bytes(bytes.into(), dtype, shape).map_err(|error| error.to_string())
        };
        if !values.column.is_list {
            return Ok(tensor(values.bytes, &[rows])?.into());
        }
        if let Some(extent) = self.row_extent {
            return Ok(tensor(values.bytes, &[rows, extent])?.into());
        }
        values.starts.push(values.count);
        let elements = tensor(values.bytes, &[count])?;
        Sequences::new(name, elements, &values.starts)
            .map(ChunkField::Lists)
            .map_err(|error| error.to_string())
    }
}
