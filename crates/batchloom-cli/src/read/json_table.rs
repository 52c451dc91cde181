//! `JsonTable`: lines of JSON as a table of Arrow, texts and nulls included.
//!
//! Promises: every key of every line is a column, in the order in which keys first appear; keys of an object in an object
//! follow after a dot. A key that a line lacks is null. Values of several kinds under one key are an error that names
//! file, line and key.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, ListArray, NullArray, RecordBatch, StringArray,
    StructArray, UInt64Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};

use super::describe_missing;
use super::json_value::{Json, Kind};

/// The most rows of a batch, and the bytes of lines after which one ends.
const BATCH: usize = 8192;
const BATCH_BYTES: usize = 16 << 20;

/// The types of the keys of some files.
#[derive(Debug)]
pub(crate) struct JsonTable {
    schema: SchemaRef,
    /// The kind of the values of each column.
    kinds: Vec<Kind>,
    rows: u64,
}

impl JsonTable {
    /// Reads all lines once, for their keys and types.
    pub(crate) fn open(files: &[PathBuf], columns: &[String]) -> Result<Self> {
        let mut found: Vec<(String, Kind)> = Vec::new();
        let mut rows = 0;
        for file in files {
            for line in Lines::open(file)? {
                let Line { place, fields, .. } = line?;
                for (name, value) in fields {
                    let known = found.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
                        found.push((name.clone(), Kind::Null));
                        found.len() - 1
                    });
                    if !columns.is_empty() && !columns.contains(&name) {
                        continue;
                    }
                    let before = std::mem::replace(&mut found[known].1, Kind::Null);
                    found[known].1 = Kind::of(&value).and_then(|kind| before.and(kind)).map_err(|kinds| {
                        let file = file.display();
                        anyhow!(
                            "{file}: line {place}: key {name:?} holds {kinds}; expected one kind in all lines"
                        )
                    })?;
                }
                rows += 1;
            }
        }
        // A key that is null in some lines and an object in others is the keys of the object.
        let is_object = |name: &str| found.iter().any(|(other, _)| is_key_of(other, name));
        let (names, kinds): (Vec<String>, Vec<Kind>) = match columns {
            [] => {
                let is_column =
                    |(name, kind): &&(String, Kind)| !matches!(kind, Kind::Null) || !is_object(name);
                found.iter().filter(is_column).cloned().unzip()
            }
            columns => {
                let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
                let choose = |name: &String| {
                    let place = names.iter().position(|found| found == name);
                    let place = place.with_context(|| {
                        format!("{} {}", files[0].display(), describe_missing(name, &names))
                    })?;
                    Ok(found[place].clone())
                };
                columns.iter().map(choose).collect::<Result<Vec<_>>>()?.into_iter().unzip()
            }
        };
        let fields = names.iter().zip(&kinds).map(|(name, kind)| Field::new(name, type_of(kind), true));
        Ok(Self { schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())), kinds, rows })
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// The rows of a file.
    pub(crate) fn batches(&self, file: &Path) -> Result<impl Iterator<Item = Result<RecordBatch>>> {
        let mut lines = Lines::open(file)?;
        let named = file.display().to_string();
        Ok(std::iter::from_fn(move || self.next_batch(&mut lines).with_context(|| named.clone()).transpose()))
    }

    fn next_batch(&self, lines: &mut Lines) -> Result<Option<RecordBatch>> {
        let mut columns: Vec<Vec<Option<Json>>> = vec![Vec::new(); self.kinds.len()];
        let (mut rows, mut bytes) = (0, 0);
        while rows < BATCH && bytes < BATCH_BYTES {
            let Some(line) = lines.next() else { break };
            let line = line?;
            columns.iter_mut().for_each(|column| column.push(None));
            for (name, value) in line.fields {
                if let Some((place, _)) = self.schema.column_with_name(&name) {
                    columns[place][rows] = Some(value);
                }
            }
            rows += 1;
            bytes += line.bytes;
        }
        if rows == 0 {
            return Ok(None);
        }
        let build = |(column, kind): (&Vec<Option<Json>>, &Kind)| {
            build_array(&column.iter().map(Option::as_ref).collect::<Vec<_>>(), kind)
        };
        let arrays = columns.iter().zip(&self.kinds).map(build).collect::<Result<Vec<_>>>()?;
        Ok(Some(RecordBatch::try_new(self.schema.clone(), arrays)?))
    }
}

/// Returns true if `name` is a key of the object `object`.
fn is_key_of(name: &str, object: &str) -> bool {
    name.strip_prefix(object).is_some_and(|rest| rest.starts_with('.'))
}

/// A line: its number, its bytes, and its values by name.
struct Line {
    place: u64,
    bytes: usize,
    fields: Vec<(String, Json)>,
}

/// The lines of a file that are not empty.
struct Lines {
    file: BufReader<File>,
    named: String,
    place: u64,
    text: String,
}

impl Lines {
    fn open(path: &Path) -> Result<Self> {
        let named = path.display().to_string();
        let file = File::open(path).with_context(|| named.clone())?;
        Ok(Self { file: BufReader::with_capacity(1 << 20, file), named, place: 0, text: String::new() })
    }

    fn read(&mut self) -> Result<Option<Line>> {
        loop {
            self.text.clear();
            let bytes = self.file.read_line(&mut self.text)?;
            if bytes == 0 {
                return Ok(None);
            }
            self.place += 1;
            let text = self.text.trim_start_matches('\u{feff}').trim();
            if text.is_empty() {
                continue;
            }
            let value = serde_json::from_str(text).map_err(|error| anyhow!("it is not JSON: {error}"))?;
            let Json::Object(object) = value else {
                bail!("it is no object; expected one, with a key for each column");
            };
            let mut fields = Vec::new();
            flatten("", object, &mut fields)?;
            return Ok(Some(Line { place: self.place, bytes, fields }));
        }
    }
}

impl Iterator for Lines {
    type Item = Result<Line>;

    fn next(&mut self) -> Option<Result<Line>> {
        let read = self.read();
        read.with_context(|| format!("{}: line {}", self.named, self.place)).transpose()
    }
}

/// Adds the values of an object; keys of objects in it follow after a dot.
fn flatten(before: &str, object: Vec<(String, Json)>, fields: &mut Vec<(String, Json)>) -> Result<()> {
    for (key, value) in object {
        let name = format!("{before}{key}");
        match value {
            Json::Object(inner) => flatten(&format!("{name}."), inner, fields)?,
            _ if fields.iter().any(|(other, _)| *other == name) => {
                bail!("the key {name:?} is there twice: by itself, and in an object; expected every key once")
            }
            value => fields.push((name, value)),
        }
    }
    Ok(())
}

/// The type of a column. Lists that are all empty are lists of whole numbers.
fn type_of(kind: &Kind) -> DataType {
    match kind {
        Kind::Null => DataType::Null,
        Kind::Truth => DataType::Boolean,
        Kind::Whole(_, most) if *most > i64::MAX.into() => DataType::UInt64,
        Kind::Whole(..) => DataType::Int64,
        Kind::Real => DataType::Float64,
        Kind::Text => DataType::Utf8,
        Kind::List(inner) => DataType::new_list(type_of_items(inner), true),
        Kind::Object(fields) => DataType::Struct(fields_of(fields)),
    }
}

fn type_of_items(kind: &Kind) -> DataType {
    if *kind == Kind::Null { DataType::Int64 } else { type_of(kind) }
}

fn fields_of(fields: &[(String, Kind)]) -> Fields {
    fields.iter().map(|(name, kind)| Field::new(name, type_of(kind), true)).collect()
}

/// The array of values of a kind.
fn build_array(values: &[Option<&Json>], kind: &Kind) -> Result<ArrayRef> {
    let whole = |value: &Option<&Json>| match value {
        Some(Json::Whole(number)) => Some(*number),
        _ => None,
    };
    Ok(match kind {
        Kind::Null => Arc::new(NullArray::new(values.len())),
        Kind::Truth => {
            let truths = values.iter().map(|value| match value {
                Some(Json::Truth(truth)) => Some(*truth),
                _ => None,
            });
            Arc::new(truths.collect::<BooleanArray>())
        }
        Kind::Whole(_, most) if *most > i64::MAX.into() => {
            let numbers = values.iter().map(|value| whole(value).and_then(|number| number.try_into().ok()));
            Arc::new(numbers.collect::<UInt64Array>())
        }
        Kind::Whole(..) => {
            let numbers = values.iter().map(|value| whole(value).and_then(|number| number.try_into().ok()));
            Arc::new(numbers.collect::<Int64Array>())
        }
        Kind::Real => {
            let numbers = values.iter().map(|value| match value {
                Some(Json::Real(number)) => Some(*number),
                // As a reader of real numbers has them.
                value => whole(value).map(|number| number as f64),
            });
            Arc::new(numbers.collect::<Float64Array>())
        }
        Kind::Text => {
            let texts = values.iter().map(|value| match value {
                Some(Json::Text(text)) => Some(text.as_str()),
                _ => None,
            });
            Arc::new(texts.collect::<StringArray>())
        }
        Kind::List(inner) => build_lists(values, inner)?,
        Kind::Object(fields) => build_objects(values, fields)?,
    })
}

fn build_lists(values: &[Option<&Json>], inner: &Kind) -> Result<ArrayRef> {
    let (mut lengths, mut items, mut valid) = (Vec::new(), Vec::new(), Vec::new());
    for value in values {
        let before = items.len();
        if let Some(Json::List(list)) = value {
            items.extend(list.iter().map(Some));
        }
        valid.push(matches!(value, Some(Json::List(_))));
        lengths.push(items.len() - before);
    }
    // Lists that are all empty, or hold nulls alone, are lists of whole numbers.
    let inner = if *inner == Kind::Null { &Kind::Whole(0, 0) } else { inner };
    let field = Arc::new(Field::new_list_field(type_of(inner), true));
    let nulls = Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0);
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(field, offsets, build_array(&items, inner)?, nulls)?))
}

fn build_objects(values: &[Option<&Json>], fields: &[(String, Kind)]) -> Result<ArrayRef> {
    let find = |name: &String| -> Vec<Option<&Json>> {
        let values = values.iter().map(|value| match value {
            Some(Json::Object(found)) => found.iter().find(|(key, _)| key == name).map(|(_, value)| value),
            _ => None,
        });
        values.collect()
    };
    let arrays = fields.iter().map(|(name, kind)| build_array(&find(name), kind));
    let arrays = arrays.collect::<Result<Vec<_>>>()?;
    let valid: NullBuffer = values.iter().map(|value| matches!(value, Some(Json::Object(_)))).collect();
    let nulls = Some(valid).filter(|nulls| nulls.null_count() > 0);
    Ok(Arc::new(StructArray::try_new_with_length(fields_of(fields), arrays, nulls, values.len())?))
}
