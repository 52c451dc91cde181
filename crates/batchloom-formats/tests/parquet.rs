//! Parquet: chunks hold the rows that were written, whatever the pages, the encodings and the files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use batchloom::dataset::{ChunkField, MapDataset};
use batchloom_formats::parquet::{FieldColumns, ParquetFiles, ParquetIndex, ParquetSource};
use batchloom_formats::{FileChunks, FileSource, FormatErrorKind, Result};
use proptest::prelude::*;

use crate::written::{Table, Writing, tables, write, writings};

const NAMES: [&str; 8] = ["wide", "narrow", "fixed", "number", "real", "short", "byte", "flag"];

fn open(paths: &[PathBuf], names: &[&str], cache: Option<&Path>) -> Result<ParquetSource> {
    let files = ParquetFiles::open(paths)?;
    let fields: Vec<FieldColumns> = names.iter().map(|&name| FieldColumns::single(name)).collect();
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let index = ParquetIndex::make(&files, &names, &[], cache, &|_, _| true)?;
    ParquetSource::new(files, index, &fields)
}

/// The bytes of the rows of a field, row by row.
fn rows_of(field: &ChunkField) -> Vec<Vec<u8>> {
    let ChunkField::Rows(rows) = field else { return Vec::new() };
    let tensor = rows.chunks().next().unwrap();
    let bytes = tensor.bytes();
    let count = tensor.shape()[0];
    let width = bytes.len().checked_div(count).unwrap_or(0);
    (0..count).map(|row| bytes[row * width..(row + 1) * width].to_vec()).collect()
}

/// All samples of a source by the engine, which reads a chunk for each.
fn samples(source: ParquetSource) -> Vec<Vec<(String, Vec<u8>)>> {
    let chunks = source.chunks();
    let lengths = source.lengths().map(<[u32]>::to_vec);
    let dataset = MapDataset::in_chunks(chunks.clone(), FileChunks::new(source)).chunks_open(1);
    let dataset = match lengths {
        Some(lengths) => dataset.sizes(lengths).variable(["wide", "narrow"]),
        None => dataset,
    };
    let dataset = batchloom::dataset::Dataset::from(dataset.build().unwrap());
    let sample = |number| {
        let fields = dataset.sample(number).unwrap();
        fields.into_iter().map(|(name, tensor)| (name, tensor.bytes().to_vec())).collect()
    };
    (0..chunks.samples()).map(sample).collect()
}

fn bytes_of<T: Copy, const N: usize>(values: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&value| bytes(value)).collect()
}

fn expected(table: &Table, row: usize) -> Vec<(String, Vec<u8>)> {
    let (list, number) = (table.list(row), table.number(row));
    let values: [Vec<u8>; 8] = [
        bytes_of(&list, i64::to_le_bytes),
        bytes_of(&list, |value| (value as i32).to_le_bytes()),
        bytes_of(&table.fixed(row), f32::to_le_bytes),
        number.to_le_bytes().to_vec(),
        (number as f64).to_le_bytes().to_vec(),
        (number as i16).to_le_bytes().to_vec(),
        vec![number as u8],
        vec![u8::from(number % 2 == 1)],
    ];
    NAMES.iter().map(|&name| name.to_owned()).zip(values).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]

    /// Samples of several files are the rows that were written, one file after the other; the lengths of lists are known
    /// before a value is read; a kept index gives the same.
    #[test]
    fn samples_are_the_rows_that_were_written(
        tables in prop::collection::vec((tables(), writings()), 1..3), extent in 1_usize..5,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let tables: Vec<(Table, Writing)> =
            tables.into_iter().map(|(table, writing)| (Table { extent, ..table }, writing)).collect();
        let paths: Vec<PathBuf> = (0..tables.len()).map(|file| folder.path().join(format!("{file}.parquet"))).collect();
        for ((table, writing), path) in tables.iter().zip(&paths) {
            write(path, &table.batch(), writing);
        }
        let cache = folder.path().join("cache");
        for _ in 0..2 {
            let source = open(&paths, &NAMES, Some(&cache)).unwrap();
            let lengths: Vec<u32> = tables.iter().flat_map(|(table, _)| table.lengths.iter().map(|&length| length as u32)).collect();
            prop_assert_eq!(source.lengths(), Some(&lengths[..]));
            let rows = tables.iter().flat_map(|(table, _)| (0..table.lengths.len()).map(move |row| expected(table, row)));
            let found = samples(source);
            prop_assert_eq!(found.len(), lengths.len());
            for (row, (found, expected)) in found.into_iter().zip(rows).enumerate() {
                prop_assert_eq!(found, expected, "row {}", row);
            }
        }
    }

    /// Bytes that change anywhere in a file give an error or other values, and no panic.
    #[test]
    fn damage_is_an_error(
        table in tables(), writing in writings(), changes in prop::collection::vec((any::<u32>(), any::<u8>()), 1..6), cut in any::<u16>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.parquet");
        write(&path, &table.batch(), &writing);
        let mut bytes = fs::read(&path).unwrap();
        let length = bytes.len();
        for (place, value) in changes {
            bytes[place as usize % length] ^= value;
        }
        if cut % 4 == 0 {
            bytes.truncate(length - cut as usize % length);
        }
        fs::write(&path, bytes).unwrap();
        if let Ok(source) = open(std::slice::from_ref(&path), &NAMES, None) {
            for chunk in 0..source.chunks().len() {
                drop(source.read_chunk(chunk));
            }
        }
    }
}

/// A table with so many rows that row groups are cut into several chunks.
fn large() -> (tempfile::TempDir, PathBuf, Table, Writing) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.parquet");
    let table = Table { lengths: (0..60_000).map(|row| row % 41).collect(), extent: 16, distinct: 1 << 40 };
    let writing = Writing {
        compression: 1,
        has_dictionary: false,
        is_new: false,
        page_rows: 2000,
        page_bytes: 1 << 20,
        group_rows: 1 << 20,
        encoding: 0,
        has_statistics: true,
        dictionary_bytes: 512,
    };
    write(&path, &table.batch(), &writing);
    (folder, path, table, writing)
}

#[test]
fn a_row_group_is_cut_at_pages() {
    let (_folder, path, table, _) = large();
    let source = open(&[path], &["wide", "fixed", "byte"], None).unwrap();
    let chunks = source.chunks();
    // Of 240 bytes a row; the column of bytes has few pages.
    assert!((3..=8).contains(&chunks.len()), "{} chunks", chunks.len());
    let mut row = 0;
    for chunk in 0..chunks.len() {
        let fields = source.read_chunk(chunk).unwrap();
        let range = chunks.range(chunk);
        let (fixed, bytes) = (rows_of(&fields[1]), rows_of(&fields[2]));
        assert_eq!(fixed.len() as u64, range.end - range.start);
        for (fixed, byte) in fixed.into_iter().zip(bytes) {
            assert_eq!(fixed, bytes_of(&table.fixed(row), f32::to_le_bytes));
            assert_eq!(byte, [table.number(row) as u8]);
            row += 1;
        }
    }
    assert_eq!(row, 60_000);
}

/// The chunks of a window are gone at the end of an epoch, and the next epoch takes their memory.
#[test]
fn chunks_take_the_memory_of_chunks_before() {
    let (folder, _, table, writing) = large();
    let path = folder.path().join("wide.parquet");
    let table = Table { lengths: (0..200_000).map(|row| row % 41).collect(), ..table };
    write(&path, &table.batch(), &writing);
    let source = open(&[path], &["wide"], None).unwrap();
    let hold_all = || {
        let held: Vec<ChunkField> = (0..source.chunks().len())
            .map(|chunk| source.read_chunk(chunk).unwrap().swap_remove(0))
            .collect();
        let address = |field: &ChunkField| match field {
            ChunkField::Lists(lists) => lists.values().chunks().next().unwrap().bytes().as_ptr().addr(),
            _ => panic!("expected lists"),
        };
        held.iter().map(address).collect::<BTreeSet<usize>>()
    };
    let first = hold_all();
    assert!(first.len() > 5, "{} chunks", first.len());
    assert_eq!(hold_all(), first);
}

/// Levels of a page may be longer than what is read of it at first, and numbers in a dictionary may have many bits.
#[test]
fn pages_may_be_large() {
    let (folder, _, table, writing) = large();
    let path = folder.path().join("pages.parquet");
    let table = Table { lengths: table.lengths[..30_000].to_vec(), ..table };
    for compression in 0..3 {
        for (is_new, has_dictionary) in [(false, false), (false, true), (true, true)] {
            let pages =
                Writing { page_rows: 1 << 20, page_bytes: 8 << 20, dictionary_bytes: 1 << 20, ..writing };
            write(&path, &table.batch(), &Writing { compression, is_new, has_dictionary, ..pages });
            let source = open(std::slice::from_ref(&path), &["wide"], None).unwrap();
            let lengths: Vec<usize> = source.lengths().unwrap().iter().map(|&it| it as usize).collect();
            assert_eq!(lengths, table.lengths);
            let mut row = 0;
            for chunk in 0..source.chunks().len() {
                let fields = source.read_chunk(chunk).unwrap();
                let ChunkField::Lists(lists) = &fields[0] else { panic!("expected lists") };
                let expected: Vec<i64> = (row..row + lists.len()).flat_map(|row| table.list(row)).collect();
                let values = lists.values().chunks().next().unwrap();
                assert!(values.bytes()[..] == bytes_of(&expected, i64::to_le_bytes)[..], "row {row}");
                row += lists.len();
            }
            assert_eq!(row, 30_000);
        }
    }
}

#[test]
fn files_have_their_columns_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = (0..2).map(|file| folder.path().join(format!("{file}.parquet"))).collect();
    let table = Table { lengths: (0..200).map(|row| row % 7).collect(), extent: 3, distinct: 1 << 40 };
    let (_, _, _, writing) = large();
    let batch = table.batch();
    let turned: Vec<usize> = (0..batch.num_columns()).rev().collect();
    write(&paths[0], &batch, &writing);
    write(&paths[1], &batch.project(&turned).unwrap(), &writing);
    let found = samples(open(&paths, &NAMES, None).unwrap());
    for (row, found) in found.into_iter().enumerate() {
        assert_eq!(found, expected(&table, row % 200), "row {row}");
    }
}

#[test]
fn columns_are_joined_to_a_matrix() {
    let (_folder, path, table, _) = large();
    let files = ParquetFiles::open([&path]).unwrap();
    let names = vec!["number".to_owned(), "number".to_owned()];
    let index = ParquetIndex::make(&files, &names[..1], &[], None, &|_, _| true).unwrap();
    let field = FieldColumns { name: "x".into(), columns: names, are_joined: true, null: None };
    let source = ParquetSource::new(files, index, &[field]).unwrap();
    let mut row = 0;
    for chunk in 0..source.chunks().len() {
        for found in rows_of(&source.read_chunk(chunk).unwrap()[0]) {
            assert_eq!(found, bytes_of(&[table.number(row); 2], i64::to_le_bytes));
            row += 1;
        }
    }
    assert_eq!(row, 60_000);
}

#[test]
fn a_file_that_changed_is_refused_and_an_index_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("0.parquet");
    let cache = folder.path().join("cache");
    let (one, two) = (
        Table { lengths: vec![1; 300], extent: 2, distinct: 9 },
        Table { lengths: vec![2; 300], extent: 2, distinct: 9 },
    );
    let writing = Writing {
        compression: 0,
        has_dictionary: false,
        is_new: false,
        page_rows: 50,
        page_bytes: 4000,
        group_rows: 100,
        encoding: 0,
        has_statistics: true,
        dictionary_bytes: 512,
    };
    write(&path, &one.batch(), &writing);
    let source = open(std::slice::from_ref(&path), &["wide"], Some(&cache)).unwrap();
    assert_eq!(source.lengths().unwrap()[0], 1);
    write(&path, &two.batch(), &writing);
    let error = source.read_chunk(0).unwrap_err();
    assert_eq!((error.kind(), error.file()), (FormatErrorKind::Data, &*path));
    assert!(error.to_string().contains("expected the"), "{error}");
    let source = open(std::slice::from_ref(&path), &["wide"], Some(&cache)).unwrap();
    assert_eq!(source.lengths().unwrap(), vec![2; 300]);
    // A damaged index is no index.
    for kept in fs::read_dir(&cache).unwrap() {
        let kept = kept.unwrap().path();
        let mut bytes = fs::read(&kept).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(kept, bytes).unwrap();
    }
    let source = open(std::slice::from_ref(&path), &["wide"], Some(&cache)).unwrap();
    assert_eq!(source.lengths().unwrap(), vec![2; 300]);
}
