//! Files of every format, as the program takes them: the same lengths from each, and what has no lengths is told.
#![cfg(feature = "columns")]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{Array, ListArray, RecordBatch};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use flate2::Compression;
use flate2::write::DeflateEncoder;
use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize};
use tempfile::TempDir;

/// The lengths in every file.
const LENGTHS: [u32; 4] = [3, 1, 4, 2];

fn run(folder: &Path, arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_batchloom"));
    command.current_dir(folder).args(arguments.split(' ')).env("NO_COLOR", "1").output().unwrap()
}

fn said(folder: &Path, arguments: &str) -> String {
    let output = run(folder, arguments);
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(folder: &Path, arguments: &str) -> String {
    let output = run(folder, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments}");
    String::from_utf8(output.stderr).unwrap()
}

fn bytes_of_lengths() -> Vec<u8> {
    LENGTHS.iter().flat_map(|length| length.to_le_bytes()).collect()
}

/// A file of NumPy.
fn npy(kind: &str, shape: &str, values: &[u8]) -> Vec<u8> {
    let mut text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
    text.extend(std::iter::repeat_n(' ', (text.len() + 11).next_multiple_of(64) - 11 - text.len()));
    text.push('\n');
    let length = u16::try_from(text.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], text.as_bytes(), values].concat()
}

/// An archive of NumPy; its directory has its numbers in 64 bits if `is_large`.
fn npz(members: &[(&str, Vec<u8>)], is_packed: bool, is_large: bool) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    let short = |number: usize| u16::try_from(number).unwrap().to_le_bytes();
    let long = |number: usize| u32::try_from(number).unwrap().to_le_bytes();
    for (name, contents) in members {
        let stored = if is_packed {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(contents).unwrap();
            encoder.finish().unwrap()
        } else {
            contents.clone()
        };
        let method = short(if is_packed { 8 } else { 0 });
        let start = file.len();
        let sizes = [long(stored.len()), long(contents.len())].concat();
        let fixed = [&[20, 0, 0, 0], &method[..], &[0; 8], &sizes].concat();
        file.extend(
            [b"PK\x03\x04", &fixed[..], &short(name.len()), &[0, 0], name.as_bytes(), &stored].concat(),
        );
        let (mut sizes, mut place, mut more) = (sizes, long(start).to_vec(), Vec::new());
        if is_large {
            let numbers = [contents.len(), stored.len(), start].map(|number| (number as u64).to_le_bytes());
            more = [&[1, 0, 24, 0], numbers.concat().as_slice()].concat();
            (sizes, place) = (vec![0xff; 8], vec![0xff; 4]);
        }
        let fixed = [&[20, 0, 20, 0, 0, 0], &method[..], &[0; 8], &sizes].concat();
        let lengths = [short(name.len()), short(more.len())].concat();
        directory
            .extend([b"PK\x01\x02", &fixed[..], &lengths, &[0; 10], &place, name.as_bytes(), &more].concat());
    }
    let count = short(members.len());
    let place = [long(directory.len()), long(file.len())].concat();
    [&file[..], &directory, b"PK\x05\x06\0\0\0\0", &count[..], &count, &place, &[0, 0]].concat()
}

/// The index of a Megatron corpus.
fn megatron() -> Vec<u8> {
    let starts = [0_u64, 6, 8, 16].iter().flat_map(|start| start.to_le_bytes());
    let documents = (0_u64..5).flat_map(u64::to_le_bytes);
    let counts = [4_u64, 5].iter().flat_map(|count| count.to_le_bytes());
    let header = [b"MMIDIDX\0\0", &1_u64.to_le_bytes()[..], &[8]].concat();
    let parts = [counts.collect::<Vec<u8>>(), bytes_of_lengths(), starts.collect(), documents.collect()];
    [header, parts.concat()].concat()
}

/// A tar of members.
fn tar(members: &[(&str, usize)]) -> Vec<u8> {
    let mut file = Vec::new();
    for (name, size) in members {
        let mut header = [0_u8; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
        header[148..156].fill(b' ');
        header[156] = b'0';
        header[257..263].copy_from_slice(b"ustar\0");
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        file.extend(header);
        file.extend(vec![7; size.next_multiple_of(512)]);
    }
    file.extend([0; 1024]);
    file
}

/// A folder with the lengths in files of every format.
fn files() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    let lengths = npy("<u4", "(4,)", &bytes_of_lengths());
    let rows = npy("<f4", "(4, 3)", &[0; 48]);
    let members = [("lengths.npy", lengths.clone()), ("x.npy", rows)];
    write("lengths.txt", b"3\n1\n4\n2\n");
    write("lengths.npy", &lengths);
    write("stored.npz", &npz(&members, false, false));
    write("packed.npz", &npz(&members, true, false));
    write("large.npz", &npz(&members, true, true));
    write("one.npz", &npz(&members[..1], true, false));
    let values = bytes_of_lengths();
    let tensors = [
        ("lengths", TensorView::new(Dtype::U32, vec![4], &values).unwrap()),
        ("x", TensorView::new(Dtype::F32, vec![4, 3], &[0; 48]).unwrap()),
    ];
    write("a.safetensors", &serialize(tensors, None).unwrap());
    write("corpus.idx", &megatron());
    write("corpus.bin", &[0; 20]);
    write("raw.bin", &[0; 20]);
    write(
        "a.tar",
        &tar(&[("d/1.jpg", 600), ("d/1.cls", 1), ("d/2.seg.jpg", 5), ("d/3.jpg", 9), ("none", 2)]),
    );
    write("a.jsonl", b"{\"ids\": [1, 2, 3]}\n{\"ids\": [1]}\n{\"ids\": [1, 2, 3, 4]}\n{\"ids\": [1, 2]}\n");
    let lists = LENGTHS.iter().map(|&length| Some(vec![Some(1); length as usize]));
    let lists: Arc<dyn Array> = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists));
    let batch = RecordBatch::try_from_iter([("ids", lists)]).unwrap();
    for (name, compression) in [("plain", None), ("packed", Some(CompressionType::LZ4_FRAME))] {
        let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
        let mut writer =
            FileWriter::try_new_with_options(Vec::new(), &batch.schema(), options.clone()).unwrap();
        writer.write(&batch).unwrap();
        write(&format!("{name}.arrow"), &writer.into_inner().unwrap());
        let mut writer = StreamWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
        writer.write(&batch).unwrap();
        write(&format!("{name}.arrows"), &writer.into_inner().unwrap());
    }
    folder
}

#[test]
fn files_of_every_format_have_the_same_lengths() {
    let folder = files();
    let expected = said(folder.path(), "lengths lengths.txt");
    for form in [
        "lengths.npy",
        "one.npz",
        "stored.npz --column lengths",
        "packed.npz --column lengths",
        "large.npz --column lengths",
        "a.safetensors --column lengths",
        "corpus.idx",
        "corpus.bin",
        "a.jsonl --column ids",
        "plain.arrow --column ids",
        "plain.arrows --column ids",
        "packed.arrow --column ids",
        "packed.arrows --column ids",
    ] {
        assert_eq!(said(folder.path(), &format!("lengths {form}")), expected, "{form}");
    }
    let twice = said(folder.path(), "lengths stored.npz a.safetensors --column lengths");
    assert!(twice.starts_with("8 samples, 20 tokens"), "{twice}");
    said(folder.path(), "compare stored.npz packed.npz --column lengths");
    said(folder.path(), "plan corpus.bin --rule token-budget:8");
    said(folder.path(), "report corpus.idx");
}

#[test]
fn files_of_every_format_are_inspected() {
    let folder = files();
    for (file, expected) in [
        ("stored.npz", ["4 rows in 1 part", "lengths  uint32 [4]", "x        float32 [4, 3]"]),
        ("large.npz", ["4 rows in 1 part", "lengths  uint32 [4]", "x        float32 [4, 3]"]),
        ("a.safetensors", ["4 rows in 1 part", "lengths  U32 [4]", "x        F32 [4, 3]"]),
        ("corpus.bin", ["corpus.idx: ", "4 sequences", "10 uint16, 1 to 4 in a sequence, 4 documents"]),
        ("raw.bin", ["raw.bin: 20 bytes\n", "10 uint16 or 5 uint32 tokens", "a stream of tokens"]),
        ("a.tar", ["3 samples", "jpg      2 members of 9 to 600 bytes", "seg.jpg  1 member of 5 to 5 bytes"]),
        ("a.jsonl", ["4 rows", "ids  List(Int64)", "sequences of any length"]),
        ("plain.arrow", ["4 rows in 1 part", "ids  List(Int64)", "sequences of any length"]),
        ("packed.arrows", ["4 rows\n", "ids  List(Int64)", "sequences of any length"]),
    ] {
        let text = said(folder.path(), &format!("inspect {file}"));
        for part in expected {
            assert!(text.contains(part), "{file}: {part}: {text}");
        }
    }
    let whole: serde_json::Value =
        serde_json::from_str(&said(folder.path(), "inspect corpus.bin corpus.idx a.tar --json")).unwrap();
    assert_eq!(whole.as_array().unwrap().len(), 2);
    assert_eq!(whole[1]["rows"], 3);
}

#[test]
fn what_has_no_lengths_is_told_with_the_way_out() {
    let folder = files();
    fs::write(folder.path().join("cut.npz"), "PK\x03\x04").unwrap();
    fs::write(folder.path().join("cut.safetensors"), "{").unwrap();
    fs::write(folder.path().join("cut.idx"), "MMIDIDX").unwrap();
    fs::write(folder.path().join("cut.tar"), "jpg").unwrap();
    for (arguments, reason) in [
        (
            "lengths raw.bin",
            "raw.bin: tokens without an index beside them are one stream, and have no lengths",
        ),
        (
            "lengths a.tar",
            "members of a tar have no lengths before a function decodes them; expected lengths in",
        ),
        ("lengths stored.npz", "there are 2 arrays; expected --column, one of lengths, x"),
        ("lengths stored.npz --column length", "has no column \"length\"; did you mean \"lengths\"?"),
        ("lengths stored.npz --column x", "array x: the array has shape [4, 3]; expected one dimension"),
        ("lengths a.safetensors --column x", "tensor x: it is of F32; expected integers"),
        ("lengths corpus.idx --column x", "corpus.idx has no columns; expected no --column"),
        ("lengths cut.npz", "cut.npz: this is no archive of NumPy"),
        ("inspect cut.safetensors", "cut.safetensors: this is no file of safetensors"),
        ("lengths cut.idx", "cut.idx: this is no index of Megatron"),
        ("inspect cut.tar", "cut.tar: it ends at byte 3 without its mark of an end"),
        ("convert a.tar --out out --to arrow", "expected files with columns of one kind"),
        ("index stored.npz", "other files need none"),
    ] {
        let error = refused(folder.path(), arguments);
        assert!(error.contains(reason), "{arguments}: {error}");
    }
}

#[test]
fn no_damaged_byte_is_more_than_a_line() {
    let folder = files();
    for name in ["stored.npz", "packed.npz", "large.npz", "a.safetensors", "corpus.idx", "a.tar"] {
        let whole = fs::read(folder.path().join(name)).unwrap();
        let path = folder.path().join(format!("damaged-{name}"));
        for place in (0..whole.len()).step_by(5) {
            let mut damaged = whole.clone();
            damaged[place] ^= 0x81;
            for bytes in [&damaged[..], &whole[..place]] {
                fs::write(&path, bytes).unwrap();
                for command in ["inspect", "lengths"] {
                    let arguments = ["batchloom".into(), command.into(), path.clone().into_os_string()];
                    let (mut out, mut errors) = (Vec::new(), Vec::new());
                    let code = batchloom_cli::run(arguments, &batchloom_cli::Files, &mut out, &mut errors);
                    let errors = String::from_utf8(errors).unwrap();
                    let is_line = code == 1 && errors.trim_end().lines().count() == 1;
                    assert!(code == 0 || is_line, "{name}, byte {place}: {code}, {errors}");
                }
            }
        }
    }
}
