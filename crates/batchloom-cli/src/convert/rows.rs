//! `SourceRows`: the rows of some files, one file after the other, as record batches of one schema.
//!
//! Promises: every column is there, or those that were chosen; a file with other columns or other types than the first
//! one is an error that names both, before any row is read. An error in a file names it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use arrow_array::RecordBatch;
use arrow_schema::{Field, Schema, SchemaRef};

use crate::read::{FileFormat, JsonTable, Tables, count_rows, describe_missing};

/// Rows as a file holds them, part by part.
pub(crate) type Batches<'a> = Box<dyn Iterator<Item = Result<RecordBatch>> + 'a>;

/// The rows of some files.
pub(crate) struct SourceRows<'a> {
    files: Vec<PathBuf>,
    tables: &'a dyn Tables,
    /// Files of lines of JSON, and the types of their keys.
    lines: Option<JsonTable>,
    schema: SchemaRef,
    rows: u64,
}

impl<'a> SourceRows<'a> {
    /// Looks at files of one kind: Parquet, Arrow or lines of JSON.
    pub(crate) fn open(files: Vec<PathBuf>, columns: &[String], tables: &'a dyn Tables) -> Result<Self> {
        let kinds = files.iter().map(|file| FileFormat::of(file)).collect::<Result<Vec<_>>>()?;
        let are_all = |kind| kinds.iter().all(|&found| found == kind);
        if are_all(FileFormat::JsonLines) {
            let lines = JsonTable::open(&files, columns)?;
            let (schema, rows) = (lines.schema().clone(), lines.rows());
            require_names(&schema, &files[0])?;
            return Ok(Self { files, tables, lines: Some(lines), schema, rows });
        }
        ensure!(
            are_all(FileFormat::Columns),
            "files are neither all Parquet or Arrow nor all .jsonl; expected files with columns of one kind: bl.open \
             reads arrays and tokens as they are"
        );
        let mut schemas = Vec::new();
        let mut rows = 0;
        for file in &files {
            let named = || file.display().to_string();
            let schema = tables.open(file, None).with_context(named)?.schema;
            require_names(&schema, file)?;
            schemas.push(choose(&schema, columns).with_context(named)?);
            rows += count_rows(tables, file).with_context(named)?;
        }
        let schema = join(&files, &schemas, !columns.is_empty())?;
        Ok(Self { files, tables, lines: None, schema, rows })
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The rows of a file. Types are as in the schema.
    pub(crate) fn batches(&self, file: usize) -> Result<Batches<'_>> {
        let path = &self.files[file];
        if let Some(lines) = &self.lines {
            return Ok(Box::new(lines.batches(path)?));
        }
        let names: Vec<String> = self.schema.fields().iter().map(|field| field.name().clone()).collect();
        let table = self.tables.open(path, Some(&names)).with_context(|| path.display().to_string())?;
        let in_order = move |batch: Result<RecordBatch>| -> Result<RecordBatch> {
            let batch = batch.with_context(|| path.display().to_string())?;
            let columns = names.iter().map(|name| batch.column_by_name(name).cloned());
            let columns: Option<Vec<_>> = columns.collect();
            let columns = columns.with_context(|| {
                format!("{}: a column is missing from a part of the file", path.display())
            })?;
            RecordBatch::try_new(self.schema.clone(), columns).with_context(|| path.display().to_string())
        };
        Ok(Box::new(table.batches.map(in_order)))
    }
}

/// Refuses names that stand for several columns.
fn require_names(schema: &Schema, file: &Path) -> Result<()> {
    let mut names: Vec<_> = schema.fields().iter().map(|field| field.name()).collect();
    ensure!(!names.is_empty(), "{} has no column; expected at least one", file.display());
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => bail!("{} has several columns {:?}; expected every name once", file.display(), pair[0]),
        None => Ok(()),
    }
}

/// The columns that were named, in the order of their names; all without a name.
fn choose(schema: &Schema, columns: &[String]) -> Result<Schema> {
    if columns.is_empty() {
        return Ok(schema.clone());
    }
    let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let find = |name: &String| {
        let place = names.iter().position(|found| found == name);
        place.with_context(|| format!("the file {}", describe_missing(name, &names)))
    };
    Ok(schema.project(&columns.iter().map(find).collect::<Result<Vec<_>>>()?)?)
}

/// The schema of all files, in the order of the first one.
fn join(files: &[PathBuf], schemas: &[Schema], is_chosen: bool) -> Result<SchemaRef> {
    let (first, schema) = (files[0].display(), &schemas[0]);
    let mut fields: Vec<Field> = schema.fields().iter().map(|field| Field::clone(field)).collect();
    for (file, other) in files.iter().zip(schemas).skip(1) {
        let file = file.display();
        let more = other.fields().iter().find(|field| schema.column_with_name(field.name()).is_none());
        if let Some(more) = more.filter(|_| !is_chosen) {
            bail!(
                "{file} has column {:?}, and {first} has none of this name; expected the same columns, or --column \
                 with each one that is wanted",
                more.name()
            );
        }
        for field in &mut fields {
            let Some((_, found)) = other.column_with_name(field.name()) else {
                bail!(
                    "{file} lacks column {:?}, which {first} has; expected the same columns, or --column with each \
                     one that is wanted",
                    field.name()
                );
            };
            if found.data_type() != field.data_type() {
                bail!(
                    "column {} holds {} in {file} and {} in {first}; expected one type in all files",
                    field.name(),
                    found.data_type(),
                    field.data_type()
                );
            }
            field.set_nullable(field.is_nullable() || found.is_nullable());
        }
    }
    Ok(Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())))
}
