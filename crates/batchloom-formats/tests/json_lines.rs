//! Lines of JSON: numbers as another parser reads them, whatever stands around them.

use std::fmt::Write;
use std::fs;

use batchloom::DType;
use batchloom::dataset::{ChunkField, MapDataset};
use batchloom_formats::json_lines::line_places;
use batchloom_formats::{FileChunks, FileSource, FormatErrorKind, JsonLines, Result};
use proptest::prelude::*;
use serde_json::{Value, json};

fn open(text: &str, keys: &[&str], nulls: &[Option<f64>]) -> (tempfile::TempDir, Result<impl FileSource>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("0.jsonl");
    fs::write(&path, text).unwrap();
    let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
    let cache = folder.path().join("cache");
    let source = JsonLines::open([&path]).and_then(|lines| {
        // What was kept is what was found.
        drop(lines.source(&keys, &keys, nulls, false, Some(&cache), &|_, _| true));
        lines.source(&keys, &keys, nulls, false, Some(&cache), &|_, _| true)
    });
    (folder, source)
}

fn message(text: &str, keys: &[&str]) -> String {
    let (_folder, source) = open(text, keys, &[]);
    let error = source.err().unwrap();
    assert_eq!(error.kind(), FormatErrorKind::Data);
    error.to_string()
}

/// Values that are not wanted: anything that JSON has.
fn others() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("JSON has no such number", |real| real.is_finite()).prop_map(Value::from),
        "[\\PC\"\\\\\\n]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-z\"\\\\{}:,]{1,4}", inner), 0..4)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

/// A line: a list, a real and a whole number in an object, with something else around them.
fn lines() -> impl Strategy<Value = (Vec<i64>, f64, i64, Value, Value)> {
    let whole = prop_oneof![any::<i64>(), -9_i64..100];
    (prop::collection::vec(whole.clone(), 0..20), -1e12_f64..1e12, whole, others(), others())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn numbers_are_those_of_another_parser(lines in prop::collection::vec(lines(), 1..30), style in 0_u8..4) {
        let mut text = String::new();
        for (list, real, whole, one, other) in &lines {
            let value = json!({"other": one, "list": list, "real": real, "in": {"other": other, "whole": whole}, "z": one});
            match style {
                0 => writeln!(text, "{value}").unwrap(),
                1 => write!(text, "  {value} \r\n\n").unwrap(),
                2 => writeln!(text, "{}", value.to_string().replace("\"list\":[", "\"l\\u0069st\" : [ ").replace("\"real\":", "\"real\" :\t")).unwrap(),
                _ => writeln!(text, "{}", serde_json::to_string(&value).unwrap()).unwrap(),
            }
        }
        if style == 3 {
            text.insert(0, '\u{feff}');
            text.truncate(text.trim_end().len());
        }
        let (_folder, source) = open(&text, &["list", "real", "in.whole"], &[]);
        let source = source.unwrap();
        let lengths: Vec<u32> = lines.iter().map(|line| line.0.len() as u32).collect();
        prop_assert_eq!(source.lengths(), Some(&lengths[..]));
        let chunks = source.chunks();
        let dataset = MapDataset::in_chunks(chunks, FileChunks::new(source)).chunks_open(1).sizes(lengths).variable(["list"]);
        let dataset = batchloom::dataset::Dataset::from(dataset.build().unwrap());
        for (number, (list, real, whole, ..)) in lines.iter().enumerate() {
            let fields = dataset.sample(number as u64).unwrap();
            let bytes = |field: usize| fields[field].1.bytes().to_vec();
            let list: Vec<u8> = list.iter().flat_map(|value| value.to_le_bytes()).collect();
            // A list that is empty in all lines has whole numbers.
            prop_assert_eq!(bytes(0), list);
            prop_assert_eq!(bytes(1), real.to_le_bytes());
            prop_assert_eq!(bytes(2), whole.to_le_bytes());
        }
    }

    /// Any text is samples or an error, and no panic.
    #[test]
    fn damage_is_an_error(
        lines in prop::collection::vec(lines(), 1..6), changes in prop::collection::vec((any::<u32>(), any::<u8>()), 1..5),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.jsonl");
        let mut text = String::new();
        for (list, real, whole, one, _) in &lines {
            writeln!(text, "{}", json!({"one": one, "list": list, "real": real, "whole": whole})).unwrap();
        }
        let mut bytes = text.into_bytes();
        let length = bytes.len();
        for (place, value) in changes {
            bytes[place as usize % length] = value;
        }
        fs::write(&path, bytes).unwrap();
        let keys = ["list".to_owned(), "whole".to_owned()];
        if let Ok(lines) = JsonLines::open([&path])
            && let Ok(source) = lines.source(&keys, &keys, &[], false, None, &|_, _| true)
        {
            for chunk in 0..source.chunks().len() {
                source.read_chunk(chunk).unwrap();
            }
        }
    }
}

#[test]
fn errors_name_sample_key_and_place() {
    let cases = [
        ("{\"a\": 1}\n{\"b\": 2}\n", "column a: sample 1: the line has no such key"),
        ("{\"a\": 1}\n{\"a\": \"x\"}\n", "sample 1: a text is no number (byte 6 of the line)"),
        (
            "{\"a\": [1]}\n{\"a\": 2}\n",
            "column a: sample 1: it is a list in some lines and a single value in other lines",
        ),
        ("{\"a\": [1]}\n{\"a\": [[2]]}\n", "sample 1: a list in a list is no number"),
        (
            "{\"a\": 1}\n\n{\"a\": null}\n",
            "column a: sample 1: a value is null; expected a number in each, or nulls=",
        ),
        ("{\"a\": 1}\n{\"a\": 2\n", "sample 1: it ends within a value"),
        ("{\"a\": 1}\n{\"a\": 2} 3\n", "sample 1: there is more behind its object"),
        ("{\"a\": 1}\n{\"a\": 2, \"a\": 3}\n", "sample 1: a key comes twice"),
        ("{\"a\": 1}\n{\"a\": 9223372036854775808}\n", "sample 1: a whole number takes more than 64 bits"),
        ("{\"a\": 1}\n{\"a\": true}\n", "column a: sample 1: it holds truth values and numbers"),
        ("[1]\n", "its first line is no object of JSON"),
        ("\n\n", "it has no lines"),
    ];
    for (text, expected) in cases {
        let found = message(text, &["a"]);
        assert!(found.contains(expected), "{text:?}: {found}");
    }
    let found = message("{\"a\": [1], \"b\": [1]}\n{\"a\": [1, 2], \"b\": [1]}\n", &["a", "b"]);
    assert!(found.contains("column b: sample 1: its list has 1 elements, and another one 2"), "{found}");
}

#[test]
fn whole_numbers_among_real_ones_are_real_and_nulls_have_a_value() {
    let (_folder, source) =
        open("{\"a\": 1, \"b\": [3]}\n{\"a\": 2.5, \"b\": [null, -4]}\n", &["a", "b"], &[None, Some(-1.0)]);
    let fields = source.unwrap().read_chunk(0).unwrap();
    let ChunkField::Rows(rows) = &fields[0] else { unreachable!("rows") };
    assert_eq!((rows.dtype(), rows.as_slice::<f64>()), (DType::F64, Some(&[1.0, 2.5][..])));
    let ChunkField::Lists(lists) = &fields[1] else { unreachable!("lists") };
    assert_eq!(lists.values().as_slice::<i64>(), Some(&[3, -1, -4][..]));
}

#[test]
fn long_lines_and_long_files_are_cut_at_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("0.jsonl");
    let mut text = String::new();
    for row in 0..20_000 {
        let length = if row == 700 { 400_000 } else { row % 60 };
        let list: Vec<usize> = (0..length).map(|place| row + place).collect();
        writeln!(text, "{}", json!({"list": list, "row": row})).unwrap();
    }
    fs::write(&path, &text).unwrap();
    let keys = ["list".to_owned(), "row".to_owned()];
    let source =
        JsonLines::open([&path]).unwrap().source(&keys, &keys, &[], false, None, &|_, _| true).unwrap();
    assert!(source.chunks().len() > 4);
    let mut rows = Vec::new();
    for chunk in 0..source.chunks().len() {
        let fields = source.read_chunk(chunk).unwrap();
        let ChunkField::Rows(found) = &fields[1] else { unreachable!("rows") };
        rows.extend_from_slice(found.as_slice::<i64>().unwrap());
    }
    assert_eq!(rows, (0..20_000).collect::<Vec<i64>>());
    let places = line_places(&path).unwrap();
    assert_eq!(places.len(), 20_000);
    let [start, bytes] = places[701];
    let line = &text[start as usize..(start + bytes) as usize];
    assert_eq!(serde_json::from_str::<Value>(line).unwrap()["row"], 701);
}
