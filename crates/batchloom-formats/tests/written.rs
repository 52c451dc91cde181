//! Parquet files for tests: random tables, written in many ways, and their rows by the general reader.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{FixedSizeListBuilder, Float32Builder, Int32Builder, Int64Builder, ListBuilder};
use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int16Array, Int64Array, RecordBatch, UInt8Array};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use proptest::prelude::*;

/// The values of a table: rows of lists and numbers that follow from the number of a row.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) lengths: Vec<usize>,
    pub(crate) extent: usize,
    /// Values repeat, so that dictionaries are short.
    pub(crate) distinct: i64,
}

/// The way in which a table is written.
#[derive(Debug, Clone)]
pub(crate) struct Writing {
    pub(crate) compression: u8,
    pub(crate) has_dictionary: bool,
    pub(crate) is_new: bool,
    pub(crate) page_rows: usize,
    pub(crate) page_bytes: usize,
    pub(crate) group_rows: usize,
    pub(crate) encoding: u8,
    pub(crate) has_statistics: bool,
    /// The bytes after which no more values go into a dictionary.
    pub(crate) dictionary_bytes: usize,
}

pub(crate) fn tables() -> impl Strategy<Value = Table> {
    let lengths = prop::collection::vec(prop_oneof![3 => 0_usize..6, 1 => 0_usize..90], 1..400);
    (lengths, 1_usize..9, prop_oneof![Just(1_i64), 2_i64..9, Just(1 << 40)])
        .prop_map(|(lengths, extent, distinct)| Table { lengths, extent, distinct })
}

pub(crate) fn writings() -> impl Strategy<Value = Writing> {
    let pages = (1_usize..80, 16_usize..2000, 1_usize..300);
    let dictionaries = prop_oneof![Just(512_usize), Just(1 << 20)];
    (0_u8..5, any::<bool>(), any::<bool>(), pages, 0_u8..3, any::<bool>(), dictionaries).prop_map(
        |(
            compression,
            has_dictionary,
            is_new,
            (page_rows, page_bytes, group_rows),
            encoding,
            has_statistics,
            dictionary_bytes,
        )| Writing {
            compression,
            has_dictionary,
            is_new,
            page_rows,
            page_bytes,
            group_rows,
            encoding,
            has_statistics,
            dictionary_bytes,
        },
    )
}

impl Table {
    fn value(&self, row: usize, place: usize) -> i64 {
        ((row as i64) * 1_000_003 + (place as i64) * 7_919) % self.distinct
    }

    /// The lists of a row.
    pub(crate) fn list(&self, row: usize) -> Vec<i64> {
        (0..self.lengths[row]).map(|place| self.value(row, place)).collect()
    }

    /// The row of a fixed list.
    pub(crate) fn fixed(&self, row: usize) -> Vec<f32> {
        (0..self.extent).map(|place| self.value(row, place) as f32).collect()
    }

    pub(crate) fn number(&self, row: usize) -> i64 {
        self.value(row, 5)
    }

    /// All columns, as Arrow has them.
    pub(crate) fn batch(&self) -> RecordBatch {
        let rows = 0..self.lengths.len();
        let mut wide = ListBuilder::new(Int64Builder::new());
        let mut narrow = ListBuilder::new(Int32Builder::new());
        let mut fixed = FixedSizeListBuilder::new(Float32Builder::new(), self.extent as i32);
        for row in rows.clone() {
            for value in self.list(row) {
                wide.values().append_value(value);
                narrow.values().append_value(value as i32);
            }
            wide.append(true);
            narrow.append(true);
            self.fixed(row).into_iter().for_each(|value| fixed.values().append_value(value));
            fixed.append(true);
        }
        let numbers: Vec<i64> = rows.map(|row| self.number(row)).collect();
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("wide", Arc::new(wide.finish())),
            ("narrow", Arc::new(narrow.finish())),
            ("fixed", Arc::new(fixed.finish())),
            ("number", Arc::new(Int64Array::from(numbers.clone()))),
            ("real", Arc::new(Float64Array::from_iter_values(numbers.iter().map(|&number| number as f64)))),
            ("short", Arc::new(Int16Array::from_iter_values(numbers.iter().map(|&number| number as i16)))),
            ("byte", Arc::new(UInt8Array::from_iter_values(numbers.iter().map(|&number| number as u8)))),
            ("flag", Arc::new(BooleanArray::from_iter(numbers.iter().map(|&number| Some(number % 2 == 1))))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }
}

/// Writes a table.
pub(crate) fn write(path: &Path, batch: &RecordBatch, writing: &Writing) {
    let compression = match writing.compression {
        0 => Compression::UNCOMPRESSED,
        1 => Compression::SNAPPY,
        2 => Compression::ZSTD(ZstdLevel::default()),
        3 => Compression::LZ4_RAW,
        _ => Compression::GZIP(parquet::basic::GzipLevel::default()),
    };
    let mut properties = WriterProperties::builder()
        .set_compression(compression)
        .set_dictionary_enabled(writing.has_dictionary)
        .set_writer_version(if writing.is_new {
            WriterVersion::PARQUET_2_0
        } else {
            WriterVersion::PARQUET_1_0
        })
        .set_data_page_row_count_limit(writing.page_rows)
        .set_data_page_size_limit(writing.page_bytes)
        .set_dictionary_page_size_limit(writing.dictionary_bytes)
        .set_write_batch_size(7)
        .set_max_row_group_row_count(Some(writing.group_rows));
    if !writing.has_statistics {
        properties =
            properties.set_statistics_enabled(EnabledStatistics::None).set_offset_index_disabled(true);
    }
    if writing.encoding == 1 {
        properties = properties.set_column_encoding("real".into(), Encoding::BYTE_STREAM_SPLIT);
    }
    if writing.encoding == 2 {
        properties = properties.set_column_encoding("number".into(), Encoding::DELTA_BINARY_PACKED);
    }
    let mut writer =
        ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties.build())).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}
