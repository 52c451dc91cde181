//! `convert` as people run it: nothing is left out without a word, and what was done is gone on with.
#![cfg(feature = "columns")]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int64Type};
use arrow_array::{
    Array, BinaryArray, Decimal128Array, DictionaryArray, FixedSizeListArray, Int64Array, RecordBatch,
    StringArray, StructArray,
};
use arrow_ipc::CompressionType;
use arrow_ipc::reader::FileReader;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_schema::{DataType, Field};
use parquet::arrow::ArrowWriter;
use tempfile::TempDir;

/// The rows of the table.
const ROWS: i64 = 1000;

/// A folder with a table of many types.
struct Folder(TempDir);

/// A table in which every column follows from the number of its row.
fn table() -> RecordBatch {
    let numbers = || 0..ROWS;
    let texts = StringArray::from_iter(numbers().map(|row| (row % 7 > 0).then(|| format!("text {row}"))));
    let bytes = BinaryArray::from_iter_values(numbers().map(|row| row.to_le_bytes()));
    let decimals = Decimal128Array::from_iter_values(numbers().map(i128::from));
    let groups: DictionaryArray<Int8Type> =
        numbers().map(|row| ["a", "b", "c"][usize::try_from(row % 3).unwrap()]).collect();
    let mut lists = ListBuilder::new(StringBuilder::new());
    numbers().for_each(|row| lists.append_value((0..row % 4).map(|place| Some(place.to_string()))));
    let pairs = Arc::new(Int64Array::from_iter_values(0..4 * ROWS));
    let field = Arc::new(Field::new_list_field(DataType::Int64, false));
    let pairs = Arc::new(FixedSizeListArray::new(field, 2, pairs, None));
    let field = Arc::new(Field::new_list_field(pairs.data_type().clone(), false));
    let squares = FixedSizeListArray::new(field, 2, pairs, None);
    let inner: Arc<dyn Array> = Arc::new(Int64Array::from_iter_values(numbers()));
    let objects = StructArray::try_from(vec![("inner", inner)]).unwrap();
    let columns: [(&str, Arc<dyn Array>); 8] = [
        ("n", Arc::new(Int64Array::from_iter_values(numbers()))),
        ("text", Arc::new(texts)),
        ("bytes", Arc::new(bytes)),
        ("decimal", Arc::new(decimals.with_precision_and_scale(10, 2).unwrap())),
        ("group", Arc::new(groups)),
        ("lists", Arc::new(lists.finish())),
        ("squares", Arc::new(squares)),
        ("object", Arc::new(objects)),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        let table = table();
        let file = fs::File::create(folder.path("rows.parquet")).unwrap();
        let mut writer = ArrowWriter::try_new(file, table.schema(), None).unwrap();
        writer.write(&table).unwrap();
        writer.close().unwrap();
        for (name, compression) in [("plain", None), ("packed", Some(CompressionType::ZSTD))] {
            let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
            let file = fs::File::create(folder.path(&format!("{name}.arrow"))).unwrap();
            let mut writer =
                FileWriter::try_new_with_options(file, &table.schema(), options.clone()).unwrap();
            writer.write(&table).unwrap();
            writer.finish().unwrap();
            let file = fs::File::create(folder.path(&format!("{name}.arrows"))).unwrap();
            let mut writer = StreamWriter::try_new_with_options(file, &table.schema(), options).unwrap();
            writer.write(&table).unwrap();
            writer.finish().unwrap();
        }
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.path(name), text).unwrap();
    }

    fn run(&self, arguments: &str) -> Output {
        command(self.0.path(), arguments).output().unwrap()
    }

    /// Runs the program, which has to succeed.
    fn done(&self, arguments: &str) {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// The line on standard error of a run that has to fail with code 1.
    fn refused(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments}");
        String::from_utf8(output.stderr).unwrap().trim_end().to_owned()
    }

    /// The rows of a folder that was written, part by part.
    fn read(&self, out: &str) -> Vec<RecordBatch> {
        let names = self.names(out);
        let parts = names.iter().filter(|name| name.starts_with("part-"));
        let read = |name: &String| {
            let file = fs::File::open(self.path(out).join(name)).unwrap();
            FileReader::try_new(file, None).unwrap().map(Result::unwrap).collect::<Vec<_>>()
        };
        parts.flat_map(read).collect()
    }

    /// The names in a folder, in order.
    fn names(&self, out: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(out)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The bytes of the files of a folder, by their names.
    fn contents(&self, out: &str) -> BTreeMap<String, Vec<u8>> {
        let names = self.names(out).into_iter();
        names.map(|name| (name.clone(), fs::read(self.path(out).join(name)).unwrap())).collect()
    }
}

fn command(folder: &Path, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_batchloom"));
    command.current_dir(folder).args(arguments.split(' ')).env("NO_COLOR", "1");
    command
}

/// Rows of the table, in the order of column n.
fn assert_rows(found: &[RecordBatch], is_shuffled: bool) {
    let table = table();
    let mut order = Vec::new();
    for batch in found {
        assert_eq!(batch.schema().fields(), table.schema().fields());
        for row in 0..batch.num_rows() {
            let number = batch.column(0).as_primitive::<Int64Type>().value(row);
            let place = usize::try_from(number).unwrap();
            for (column, expected) in batch.columns().iter().zip(table.columns()) {
                assert_eq!(
                    column.slice(row, 1).to_data(),
                    expected.slice(place, 1).to_data(),
                    "row {number}"
                );
            }
            order.push(number);
        }
    }
    assert_eq!(order != (0..ROWS).collect::<Vec<_>>(), is_shuffled);
    order.sort_unstable();
    assert_eq!(order, (0..ROWS).collect::<Vec<_>>());
}

#[test]
fn columns_of_every_type_are_kept_from_every_file() {
    let folder = Folder::new();
    for file in ["rows.parquet", "plain.arrow", "plain.arrows", "packed.arrow", "packed.arrows"] {
        folder.done(&format!("convert {file} --out {file}-a --to arrow"));
        assert_rows(&folder.read(&format!("{file}-a")), false);
        folder.done(&format!("convert {file} --out {file}-b --to arrow --shuffle 3"));
        assert_rows(&folder.read(&format!("{file}-b")), true);
    }
}

#[test]
fn a_table_of_texts_alone_is_converted() {
    let folder = Folder::new();
    folder.done("convert rows.parquet --out a --to arrow --column text");
    let texts = folder.read("a");
    assert_eq!((texts[0].num_columns(), texts[0].column(0).null_count()), (1, 143));
}

#[test]
fn lines_of_json_keep_texts_nulls_and_lists_of_anything() {
    let folder = Folder::new();
    folder.write(
        "a.jsonl",
        "{\"text\": \"x\", \"n\": 1, \"in\": {\"real\": 2.5, \"none\": []}}\n\n\
         {\"n\": null, \"in\": null, \"more\": [{\"a\": 1}, {\"b\": \"y\"}], \"text\": \"z\"}\n",
    );
    folder.write("b.jsonl", "{\"in\": {\"real\": 3}, \"n\": 18, \"text\": null}\n");
    folder.done("convert a.jsonl b.jsonl --out a --to arrow");
    let rows = &folder.read("a")[0];
    let names: Vec<_> = rows.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["text", "n", "in.real", "in.none", "more"]);
    let texts: Vec<_> = rows.column(0).as_string::<i32>().iter().collect();
    assert_eq!(texts, [Some("x"), Some("z"), None]);
    let numbers: Vec<_> = rows.column(1).as_primitive::<Int64Type>().iter().collect();
    assert_eq!(numbers, [Some(1), None, Some(18)]);
    assert_eq!(rows.column(2).data_type(), &DataType::Float64);
    assert_eq!(rows.column(4).as_list::<i32>().value_length(1), 2);
    folder.write("dots.jsonl", "{\"id\": 1, \"score\": 1, \"score.std\": 0.5}\n{\"id\": {\"of\": 2}}\n");
    folder.done("convert dots.jsonl --out dots --to arrow");
    let schema = folder.read("dots")[0].schema();
    let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["id", "score", "score.std", "id.of"]);
    folder.write("mixed.jsonl", "{\"a\": 1}\n{\"a\": \"x\"}\n");
    let error = folder.refused("convert mixed.jsonl --out b --to arrow");
    assert!(error.contains("mixed.jsonl: line 2: key \"a\" holds a number and a text"), "{error}");
    folder.done("convert a.jsonl b.jsonl --out c --to arrow --column n");
    assert_eq!(folder.read("c")[0].num_columns(), 1);
    let error = folder.refused("convert a.jsonl --out d --to arrow --column texts");
    assert!(error.contains("a.jsonl has no column \"texts\"; did you mean \"text\"?"), "{error}");
}

#[test]
fn what_a_format_cannot_hold_is_refused_before_anything_is_written() {
    let folder = Folder::new();
    folder.write("nulls.jsonl", "{\"n\": 3}\n{\"n\": null}\n");
    for (arguments, reason) in [
        ("rows.parquet --to safetensors", "column text holds Utf8"),
        (
            "rows.parquet --to safetensors",
            "--to arrow, which keeps every column, or --column n --column squares",
        ),
        (
            "rows.parquet --to safetensors --column lists",
            "column lists holds lists that may differ in length",
        ),
        ("rows.parquet --to bin", "expected one of them, as --column n"),
        ("rows.parquet --to bin --column text", "column text holds Utf8; expected whole numbers"),
        ("rows.parquet --to arrow --column number", "has no column \"number\""),
        ("rows.parquet nulls.jsonl --to arrow", "expected files with columns of one kind"),
        ("nulls.jsonl --to bin", "nulls.jsonl: row 1 of column n is null"),
        ("nulls.jsonl --to safetensors", "--to arrow, which keeps nulls"),
    ] {
        let error = folder.refused(&format!("convert {arguments} --out out"));
        assert!(error.contains(reason), "{arguments}: {error}");
        assert!(!folder.path("out").exists() || folder.names("out").is_empty(), "{arguments}");
    }
}

#[test]
fn files_with_other_columns_are_refused() {
    let folder = Folder::new();
    folder.done("convert rows.parquet --out two --to arrow --column n --column text");
    let error = folder.refused("convert two/part-00000.arrow plain.arrow --out out --to arrow");
    assert!(error.contains("plain.arrow has column \"bytes\", and two/part-00000.arrow has none"), "{error}");
    let error = folder.refused("convert plain.arrow two/part-00000.arrow --out out --to arrow");
    assert!(error.contains("two/part-00000.arrow lacks column \"bytes\""), "{error}");
    folder.done("convert plain.arrow two/part-00000.arrow --out out --to arrow --column text --column n");
    assert_eq!(folder.read("out").iter().map(RecordBatch::num_rows).sum::<usize>(), 2000);
}

#[test]
fn nested_rows_become_a_tensor() {
    let folder = Folder::new();
    folder.done("convert rows.parquet --out a --to safetensors --column squares --column n");
    let bytes = fs::read(folder.path("a/part-00000.safetensors")).unwrap();
    let found = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let squares = found.tensor("squares").unwrap();
    assert_eq!(squares.shape(), [1000, 2, 2]);
    let expected: Vec<u8> = (0..4 * ROWS).flat_map(i64::to_le_bytes).collect();
    assert_eq!(squares.data(), expected);
}

#[test]
fn a_second_conversion_into_one_folder_is_refused_while_the_first_runs() {
    let folder = Folder::new();
    fs::create_dir(folder.path("out")).unwrap();
    let held = fs::File::create(folder.path("out/.lock")).unwrap();
    held.lock().unwrap();
    fs::write(folder.path("out/.lock"), "1234").unwrap();
    let error = folder.refused("convert rows.parquet --out out --to arrow");
    assert!(error.contains("process 1234 is converting into out; expected one conversion"), "{error}");
    assert_eq!(folder.names("out"), [".lock"]);
    // A process that was killed leaves the file, and no lock.
    drop(held);
    folder.done("convert rows.parquet --out out --to arrow");
    assert_eq!(folder.names("out"), ["manifest.json", "part-00000.arrow"]);
}

#[test]
fn conversions_that_start_together_leave_one_whole_folder() {
    let folder = Folder::new();
    folder.done("convert rows.parquet --out alone --to arrow --shuffle 3");
    for _ in 0..5 {
        let start = || command(folder.0.path(), "convert rows.parquet --out out --to arrow --shuffle 3");
        let spawn = |_| start().stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let children: Vec<_> = (0..4).map(spawn).collect();
        let outputs: Vec<_> = children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
        assert!(outputs.iter().any(|output| output.status.success()));
        for output in outputs.iter().filter(|output| !output.status.success()) {
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(error.contains("is converting into out"), "{error}");
        }
        assert_eq!(folder.contents("out"), folder.contents("alone"));
        fs::remove_dir_all(folder.path("out")).unwrap();
    }
}

#[test]
fn files_that_are_gone_or_damaged_are_made_again() {
    let folder = Folder::new();
    let arguments = "convert rows.parquet --out out --to arrow --shuffle 3";
    folder.done(arguments);
    let whole = folder.contents("out");
    let part = folder.path("out/part-00000.arrow");
    let mut damaged = whole["part-00000.arrow"].clone();
    damaged[5000] ^= 1;
    fs::write(&part, damaged).unwrap();
    folder.done(arguments);
    assert_eq!(folder.contents("out"), whole);
    fs::remove_file(&part).unwrap();
    folder.done(arguments);
    assert_eq!(folder.contents("out"), whole);
    // Buckets of an interrupt that lost bytes are read anew too.
    fs::remove_file(&part).unwrap();
    fs::create_dir(folder.path("out/.buckets")).unwrap();
    folder.write("out/.buckets/whole", "");
    folder.write("out/.buckets/00000", "cut");
    assert!(folder.refused(arguments).contains("run the same command again"));
    folder.done(arguments);
    assert_eq!(folder.contents("out"), whole);
}

#[test]
fn a_folder_with_other_files_is_refused() {
    let folder = Folder::new();
    let before = folder.names("");
    let error = folder.refused("convert rows.parquet --out . --to arrow");
    assert!(error.contains(". holds ") && error.contains("expected an empty folder"), "{error}");
    assert_eq!(folder.names(""), before);
}
