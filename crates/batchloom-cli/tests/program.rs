//! The program as people run it: as a process, with files, pipes and closed pipes.
#![cfg(feature = "columns")]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{Array, Int64Array, ListArray, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use tempfile::TempDir;

/// A folder of files that hold the same lengths in every form.
struct Folder(TempDir);

/// Lengths that a formula gives: the same on every machine.
fn lengths() -> Vec<i64> {
    (0..400_i64).map(|place| 5 + (place * place * 7 + place * 13) % 190).collect()
}

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        let lines: Vec<_> = lengths().iter().map(i64::to_string).collect();
        folder.write("lengths.txt", lines.join("\n") + "\n");
        let rows: Vec<_> =
            lines.iter().map(|line| format!("{{\"n\": {line}, \"text\": \"ab c\"}}")).collect();
        folder.write("rows.jsonl", rows.join("\n"));
        let lists = lengths().into_iter().map(|length| Some(vec![Some(1); usize::try_from(length).unwrap()]));
        let columns: [(&str, Arc<dyn Array>); 3] = [
            ("input_ids", Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))),
            ("n", Arc::new(Int64Array::from(lengths()))),
            ("text", Arc::new(StringArray::from(vec!["ab c"; 400]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let file = fs::File::create(folder.path("rows.parquet")).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let file = fs::File::create(folder.path("rows.arrow")).unwrap();
        let mut writer = arrow_ipc::writer::FileWriter::try_new(file, &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Runs the program in the folder.
    fn run(&self, arguments: &str) -> Output {
        command(self.0.path(), arguments).output().unwrap()
    }

    /// The output of a run that has to succeed.
    fn said(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && errors.is_empty(), "{arguments}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The line on standard error of a run that has to fail with code 1.
    fn refused(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments}");
        assert!(output.stdout.is_empty(), "{arguments}");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(errors.lines().count(), 1, "{arguments}: {errors}");
        errors.trim_end().to_owned()
    }
}

fn command(folder: &Path, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_batchloom"));
    command.current_dir(folder).args(arguments.split(' ')).env("NO_COLOR", "1");
    command
}

/// The table without the last column of numbers, which is a time.
fn timeless(text: &str) -> String {
    let cut =
        |line: &str| match line.split_whitespace().next().is_some_and(|word| word.parse::<u64>().is_ok()) {
            true if line.contains(':') => {
                let words: Vec<_> = line.split_whitespace().collect();
                let (rule, numbers) = words.split_last().unwrap();
                format!("{} {rule}", numbers[..numbers.len() - 1].join(" "))
            }
            _ => line.to_owned(),
        };
    text.lines().map(cut).collect::<Vec<_>>().join("\n")
}

#[test]
fn lengths_are_the_same_from_every_form() {
    let folder = Folder::new();
    let expected = folder.said("lengths lengths.txt");
    for form in [
        "rows.jsonl --column n",
        "rows.parquet --column n",
        "rows.parquet --column input_ids",
        "rows.arrow --column n",
        "rows.arrow --column input_ids",
    ] {
        assert_eq!(folder.said(&format!("lengths {form}")), expected, "{form}");
    }
    folder.said("lengths rows.arrow --column n -o lengths.npy");
    assert_eq!(folder.said("lengths lengths.npy"), expected);
    let mut child =
        command(folder.0.path(), "lengths -").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&fs::read(folder.path("lengths.txt")).unwrap()).unwrap();
    assert_eq!(String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap(), expected);
    let texts = folder.said("lengths rows.parquet --column text");
    assert!(texts.starts_with("400 samples, 1,600 tokens"), "{texts}");
    folder.write("prose.txt", "to be or\n\nnot to be\n");
    assert!(folder.said("lengths prose.txt --count words").starts_with("3 samples, 6 tokens"));
    assert!(folder.said("lengths prose.txt --count characters").starts_with("3 samples, 17 tokens"));
}

#[test]
fn output_is_as_it_was() {
    let folder = Folder::new();
    insta::assert_snapshot!("lengths", folder.said("lengths lengths.txt"));
    insta::assert_snapshot!("compare", timeless(&folder.said("compare lengths.txt --world-size 2")));
    let rules = "--rule fixed-size:8 --rule token-budget:1024,multiple_of=64 --cost 0.004,2e-7,1e-11";
    insta::assert_snapshot!("compare_rules", timeless(&folder.said(&format!("compare lengths.txt {rules}"))));
    insta::assert_snapshot!("inspect", folder.said("inspect rows.arrow"));
    let plan = "plan lengths.txt --rule token-budget:2048 --world-size 2 --seed 7";
    insta::assert_snapshot!("plan", folder.said(plan));
    insta::assert_snapshot!("plan_step", folder.said(&format!("{plan} step 3")));
    insta::assert_snapshot!("plan_where", folder.said(&format!("{plan} where 17")));
    let micro = "microbatches lengths.txt --world-size 4 --max-tokens 2048";
    insta::assert_snapshot!("microbatches", folder.said(micro));
    let options =
        "--micro-batches 2 --sync update --equal-samples --order ends --cost 0,1,0.001 --multiple-of 8";
    insta::assert_snapshot!("microbatches_count", folder.said(&format!("{micro} {options}")));
    insta::assert_snapshot!("help_microbatches", folder.said("microbatches --help"));
    insta::assert_snapshot!("help", folder.said("--help"));
    insta::assert_snapshot!("help_compare", folder.said("compare --help"));
    insta::assert_snapshot!("help_plan", folder.said("plan --help"));
}

#[test]
fn json_says_what_text_says() {
    let folder = Folder::new();
    let parsed = |arguments: &str| -> serde_json::Value {
        serde_json::from_str(&folder.said(&format!("{arguments} --json"))).unwrap()
    };
    let comparison = parsed("compare lengths.txt --world-size 2");
    assert_eq!(comparison["samples"], 400);
    assert_eq!(comparison["rules"].as_array().unwrap().len(), 6);
    assert!(comparison["rules"][2]["rule"].as_str().unwrap().starts_with("token-budget:"));
    assert_eq!(parsed("lengths lengths.txt")["samples"], 400);
    let plan = "plan lengths.txt --rule fixed-size:8 --world-size 2";
    assert_eq!(parsed(plan)["steps"], 25);
    let step = parsed(&format!("{plan} step 3"));
    assert_eq!(step.as_array().unwrap().len(), 2);
    let sample = step[1]["samples"][4].as_u64().unwrap();
    let place = parsed(&format!("{plan} where {sample}"));
    assert_eq!((&place[0]["step"], &place[0]["rank"], &place[0]["index"]), (&3.into(), &1.into(), &4.into()));
    assert_eq!(parsed("inspect rows.parquet")[0]["rows"], 400);
    assert_eq!(parsed(&format!("{plan} export -o steps.jsonl"))["steps"], 25);
    assert!(parsed("manual")["roff"].as_str().unwrap().contains(".TH batchloom"));
    assert!(parsed("completions bash")["script"].as_str().unwrap().contains("complete"));
}

#[test]
fn plans_are_saved_compared_and_resumed() {
    let folder = Folder::new();
    let plan = "plan lengths.txt --rule token-budget:2048 --world-size 2";
    folder.said(&format!("{plan} -o plan.json"));
    assert!(folder.said(&format!("{plan} diff plan.json")).starts_with("the plans are the same"));
    let other = folder.said(&format!("{plan} --seed 1 diff plan.json"));
    assert!(other.starts_with("the plans differ from step 0 on"), "{other}");
    let exported = folder.said(&format!("{plan} export"));
    let mut samples: Vec<u64> = exported
        .lines()
        .flat_map(|line| {
            let batch: serde_json::Value = serde_json::from_str(line).unwrap();
            batch["samples"]
                .as_array()
                .unwrap()
                .iter()
                .map(|sample| sample.as_u64().unwrap())
                .collect::<Vec<_>>()
        })
        .collect();
    samples.sort_unstable();
    samples.dedup();
    assert_eq!(samples, (0..400).collect::<Vec<_>>());
    let fingerprint = folder.said(plan).lines().next().unwrap().rsplit(' ').next().unwrap().to_owned();
    let state = format!(
        "{{\"version\": 1, \"fingerprint\": \"{fingerprint}\", \"seed\": 0, \"epoch\": 0, \"batches\": 6, \
         \"worlds\": [[2, 3]]}}"
    );
    folder.write("state.json", &state);
    let steps: u64 = serde_json::from_str::<serde_json::Value>(&folder.said(&format!("{plan} --json")))
        .unwrap()["steps"]
        .as_u64()
        .unwrap();
    let told = folder.said("state state.json --plan plan.json");
    assert!(told.contains("3 steps of this epoch with 2 ranks"), "{told}");
    assert!(told.contains(&format!("left of epoch 0: {} steps with 2 ranks", steps - 3)), "{told}");
    assert!(folder.said("state state.json --plan plan.json --world-size 1").contains("steps with 1 rank\n"));
    folder.said(&format!("{plan} --seed 1 -o seeded.json"));
    let error = folder.refused("state state.json --plan seeded.json");
    assert!(error.contains("a run with seed 0, and the plan has seed 1"), "{error}");
    folder.said("plan lengths.txt --rule token-budget:4096 -o other.json");
    let error = folder.refused("state state.json --plan other.json");
    assert!(error.contains(&fingerprint), "{error}");
    folder.write("lengths.txt", "1\n2\n3\n");
    let error = folder.refused("state state.json --plan plan.json");
    assert!(error.contains("lengths.txt has changed since the plan was written"), "{error}");
}

#[test]
fn buffers_that_tell_of_more_bytes_than_there_are_is_an_error() {
    use arrow_ipc::CompressionType;
    use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};

    let folder = Folder::new();
    let numbers: Arc<dyn Array> = Arc::new(Int64Array::from(vec![7; 400]));
    let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
    let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME)).unwrap();
    let (mut file, mut stream) = (Vec::new(), Vec::new());
    let mut writer = FileWriter::try_new_with_options(&mut file, &batch.schema(), options.clone()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let mut writer = StreamWriter::try_new_with_options(&mut stream, &batch.schema(), options).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    for (mut bytes, name) in [(file, "lies.arrow"), (stream, "lies.arrows")] {
        folder.write("whole.arrow", &bytes);
        assert!(folder.said("lengths whole.arrow --column n").contains("400 samples"));
        let told = 3200_i64.to_le_bytes();
        let place = bytes.windows(8).position(|window| window == told).unwrap();
        bytes[place..place + 8].copy_from_slice(&(1_i64 << 60).to_le_bytes());
        folder.write("lies.arrow", &bytes);
        let error = folder.refused("lengths lies.arrow --column n");
        assert!(error.contains("would take 1152921504606846976 bytes"), "{name}: {error}");
    }
}

#[test]
fn plans_find_their_lengths_from_any_folder() {
    let folder = Folder::new();
    fs::create_dir(folder.path("runs")).unwrap();
    for plan in ["plan.json", "runs/plan.json"] {
        folder.said(&format!("plan lengths.txt --rule fixed-size:8 -o {plan}"));
        let path = folder.path(plan);
        let elsewhere = Folder::new();
        let difference =
            elsewhere.said(&format!("plan lengths.txt --rule fixed-size:8 diff {}", path.display()));
        assert_eq!(difference, "the plans are the same: 50 steps\n");
        elsewhere.write("lengths.txt", "1\n");
        folder.write("lengths.txt", "1\n");
        let error =
            elsewhere.refused(&format!("plan lengths.txt --rule fixed-size:8 diff {}", path.display()));
        assert!(error.contains(folder.path("lengths.txt").to_str().unwrap()), "{error}");
        let lines: Vec<_> = lengths().iter().map(i64::to_string).collect();
        folder.write("lengths.txt", lines.join("\n") + "\n");
    }
}

#[test]
fn plans_of_standard_input_are_compared_with_it() {
    let folder = Folder::new();
    let run = |arguments: &str| {
        let mut child =
            command(folder.0.path(), arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"3\n5\n8\n1\n").unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    };
    run("plan - --rule fixed-size:2 -o plan.json");
    assert_eq!(run("plan - --rule fixed-size:2 diff plan.json"), "the plans are the same: 2 steps\n");
}

#[test]
fn memory_bounds_every_batch() {
    let folder = Folder::new();
    let arguments = "compare lengths.txt --memory 4kB --bytes-per-token 4 --json";
    let comparison: serde_json::Value = serde_json::from_str(&folder.said(arguments)).unwrap();
    for rule in comparison["rules"].as_array().unwrap() {
        assert!(rule["stats"]["largest"].as_u64().unwrap() <= 1000, "{rule}");
    }
}

#[test]
fn any_lengths_can_be_compared() {
    let folder = Folder::new();
    for (lengths, rules) in [("0\n0\n", 5), ("1\n", 6), ("7\n4000000000\n", 5)] {
        folder.write("odd.txt", lengths);
        let table = folder.said("compare odd.txt --world-size 3");
        // A line of packs is marked, and a note explains the mark.
        let notes = usize::from(table.contains("packing:"));
        assert_eq!(table.lines().count(), rules + 4 + notes, "{table}");
        folder.said("report odd.txt --world-size 1000");
        assert!(fs::metadata(folder.path("report.html")).unwrap().len() < 1 << 20);
    }
}

#[test]
fn reports_are_pages() {
    let folder = Folder::new();
    assert_eq!(folder.said("report lengths.txt -o page.html"), "page.html\n");
    let page = fs::read_to_string(folder.path("page.html")).unwrap();
    for title in ["Lengths", "Rules", "What it costs", "Steps", "Order"] {
        assert!(page.contains(&format!("<h2>{title}</h2>")), "{title}");
    }
}

#[test]
fn bad_data_is_one_line_and_exit_code_1() {
    let folder = Folder::new();
    folder.write("empty.txt", "");
    folder.write("words.txt", "3\nfour\n");
    folder.write("negative.txt", "3\n-4\n");
    folder.write("gap.txt", "3\n\n4\n");
    folder.write("large.txt", "4294967296\n");
    folder.write("fake.npy", "not an array");
    folder.write("fake.parquet", "not a table");
    folder.write("fake.arrow", "not a table");
    folder.write("nulls.jsonl", "1\nnull\n");
    folder.write("broken.jsonl", "{\"a\": \n");
    folder.write("objects.jsonl", "{\"a\": 1}\n");
    folder.write("state.json", "{\"version\": 1}");
    for (arguments, reason) in [
        ("lengths missing.txt", "missing.txt: No such file"),
        ("lengths empty.txt", "empty.txt: there are no lengths"),
        ("lengths words.txt", "words.txt: line 2 is \"four\"; expected a number"),
        ("lengths negative.txt", "negative.txt: line 2 is -4; expected a length"),
        ("lengths gap.txt", "gap.txt: line 2 is empty"),
        ("lengths large.txt", "line 1 is 4294967296; expected a length, 0 to 4294967295"),
        ("lengths fake.npy", "fake.npy: the bytes are no .npy file of arrays"),
        ("lengths fake.parquet", "fake.parquet: this is not a Parquet file"),
        ("lengths fake.arrow", "fake.arrow: this is not an Arrow file"),
        ("lengths nulls.jsonl", "line 2 is null"),
        ("lengths broken.jsonl", "line 1 is not JSON"),
        ("lengths objects.jsonl", "line 1 is an object; expected --column, one of a"),
        ("lengths objects.jsonl --column b", "has no column \"b\"; expected one of a"),
        ("lengths rows.parquet", "there are 3 columns; expected --column, one of input_ids, n, text"),
        ("lengths rows.parquet --column input_id", "did you mean \"input_ids\"?"),
        ("lengths rows.arrow --column m", "has no column \"m\""),
        ("lengths lengths.txt --column n", "lengths.txt has no columns"),
        ("lengths table.csv", "table.csv has a name of no known kind"),
        ("inspect lengths.txt", "text has no columns"),
        ("compare lengths.txt --rule packing:64", "sample"),
        ("compare lengths.txt --max-tokens 64", "sample"),
        ("plan lengths.txt --rule packing:64", "oversize"),
        ("compare lengths.txt --memory 400B --bytes-per-token 4", "expected more --memory"),
        ("plan lengths.txt --rule fixed-size:8 step 9999", "9999"),
        ("plan lengths.txt --rule fixed-size:8 step 0 --rank 3", "rank is 3"),
        ("plan lengths.txt --rule fixed-size:8 step 0 --rank 4294967295", "rank is 4294967295"),
        ("plan lengths.txt --rule fixed-size:8 where 400", "400"),
        ("compare lengths.txt --cost 1e308,1e308,1e308", "finite costs"),
        ("plan lengths.txt --rule fixed-size:8 diff words.txt", "this is not the file of a plan"),
        ("state state.json", "this is not the state of a loader"),
        ("report lengths.txt -o missing/page.html", "missing/page.html"),
    ] {
        let error = folder.refused(arguments);
        assert!(error.starts_with("batchloom: ") && error.contains(reason), "{arguments}: {error}");
    }
}

#[test]
fn no_damaged_byte_of_a_table_is_more_than_a_line() {
    let folder = Folder::new();
    let batch = RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(vec![3, 1])) as Arc<dyn Array>)])
        .unwrap();
    let (mut file, mut stream, mut table) = (Vec::new(), Vec::new(), Vec::new());
    let mut writer = arrow_ipc::writer::FileWriter::try_new(&mut file, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let mut writer = arrow_ipc::writer::StreamWriter::try_new(&mut stream, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let mut writer = ArrowWriter::try_new(&mut table, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    batchloom_cli::Files.silence_panics();
    for (name, whole) in [("damaged.arrow", file), ("stream.arrow", stream), ("damaged.parquet", table)] {
        let path = folder.path(name);
        for place in (0..whole.len()).step_by(3) {
            let mut damaged = whole.clone();
            damaged[place] ^= 0x81;
            fs::write(&path, damaged).unwrap();
            let arguments = ["batchloom".into(), "lengths".into(), path.clone().into_os_string()];
            let (mut out, mut errors) = (Vec::new(), Vec::new());
            let code = batchloom_cli::run(arguments, &batchloom_cli::Files, &mut out, &mut errors);
            let errors = String::from_utf8(errors).unwrap();
            let is_line = code == 1 && errors.trim_end().lines().count() == 1;
            assert!(code == 0 || is_line, "{name}, byte {place}: {code}, {errors}");
        }
    }
}

#[test]
fn a_header_that_would_be_gigabytes_is_refused() {
    let folder = Folder::new();
    folder.write("long.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xf0{'descr'");
    let error = folder.refused("lengths long.npy");
    assert!(error.contains("its header would have 4043309055 bytes"), "{error}");
}

#[test]
fn bad_usage_is_exit_code_2() {
    let folder = Folder::new();
    for arguments in [
        "compare",
        "compare lengths.txt --rule token-budget",
        "compare lengths.txt --rule fixed-size:8 --max-tokens 3",
        "compare lengths.txt --memory 40GiB",
        "compare lengths.txt --memory 40XB --bytes-per-token 2",
        "compare lengths.txt --cost 1,2",
        "compare lengths.txt --world-size 0",
        "compare lengths.txt --max-tokens 0",
        "plan lengths.txt",
        "weave",
    ] {
        let output = folder.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments}");
    }
}

#[test]
fn indices_are_kept_beside_files() {
    let folder = Folder::new();
    let total: i64 = lengths().iter().sum();
    let said = folder.said("index rows.parquet rows.jsonl --column n");
    assert_eq!(said, "rows.parquet: 400 rows in 1 chunk; n\nrows.jsonl: 400 rows in 1 chunk; n\n");
    let said = folder.said("--json index rows.parquet");
    assert!(
        said.contains(&format!(
            "\"columns\":[\"input_ids\",\"n\"],\"rows\":400,\"chunks\":1,\"elements\":{total}"
        )),
        "{said}"
    );
    assert_eq!(fs::read_dir(folder.path(".batchloom")).unwrap().count(), 3);
    let output = folder.run("index lengths.txt");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("lengths.txt has a name of no kind that has an index"), "{error}");
    let output = folder.run("index rows.parquet --column text");
    assert!(String::from_utf8(output.stderr).unwrap().contains("column text: it holds texts or bytes"));
}

#[test]
fn a_closed_pipe_ends_the_program_in_silence() {
    let folder = Folder::new();
    let arguments = "plan lengths.txt --rule fixed-size:1 export";
    let mut command = command(folder.0.path(), arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut start = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut start).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.stderr.is_empty());
    assert_eq!(output.status.code(), Some(0));
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_the_program_at_once_and_in_silence() {
    use std::os::unix::process::ExitStatusExt;

    const SIGINT: i32 = 2;
    if is_deaf_to(SIGINT) {
        return;
    }
    let folder = Folder::new();
    let mut command = command(folder.0.path(), "lengths -");
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // More than a pipe holds: once all of it is written, the program is reading.
    let mut input = child.stdin.take().unwrap();
    input.write_all("12345\n".repeat(50_000).as_bytes()).unwrap();
    let process = child.id().to_string();
    assert!(Command::new("sh").args(["-c", &format!("kill -INT {process}")]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(SIGINT));
    assert!(output.stdout.is_empty() && output.stderr.is_empty());
    drop(input);
}

/// Returns true if this process ignores a signal, as a job in the background does an interrupt, and so would its children.
#[cfg(unix)]
fn is_deaf_to(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    ignored >> (signal - 1) & 1 == 1
}

#[test]
fn shells_and_man_get_their_files() {
    let folder = Folder::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(folder.said(&format!("completions {shell}")).contains("batchloom"));
    }
    let manual = folder.said("manual");
    assert!(manual.contains(".TH batchloom 1") && manual.contains("compare"));
}

#[test]
fn files_and_patterns_follow_each_other() {
    let folder = Folder::new();
    for (name, lengths) in [("part-10.txt", "7\n8\n"), ("part-2.txt", "5\n"), ("part-1.txt", "3\n")] {
        folder.write(name, lengths);
    }
    folder.write("given.txt", "7\n8\n3\n");
    folder.write("sorted.txt", "3\n5\n7\n8\n");
    let plan = |paths: &str| folder.said(&format!("plan {paths} --rule token-budget:16 --json step 0"));
    assert_eq!(plan("part-10.txt part-1.txt"), plan("given.txt"));
    for pattern in ["part-*.txt", "p*t-?*.txt", "./part-[1-9]*.txt", "part-[!a].txt part-10.txt"] {
        assert_eq!(plan(pattern), plan("sorted.txt"), "{pattern}");
    }
    for (arguments, reason) in [
        ("lengths part-1.txt part-2.txt part-1.txt", "part-1.txt is given twice; expected every file once"),
        ("inspect rows.parquet ./rows.parquet", "rows.parquet is given twice"),
        ("index rows.parquet rows.parquet", "rows.parquet is given twice"),
        ("convert rows.parquet rows.parquet --out out --to arrow", "rows.parquet is given twice"),
        ("lengths shard-*.txt", "shard-*.txt fits no file"),
        ("lengths part-1.txt -", "expected standard input alone"),
    ] {
        let error = folder.refused(arguments);
        assert!(error.contains(reason), "{arguments}: {error}");
    }
    folder.said("plan part-*.txt --rule fixed-size:2 -o plan.json");
    folder.said("plan part-1.txt part-2.txt part-10.txt --rule fixed-size:2 -o several.json");
    let same = "the plans are the same: 2 steps\n";
    assert_eq!(folder.said("plan sorted.txt --rule fixed-size:2 diff plan.json"), same);
    assert_eq!(folder.said("plan sorted.txt --rule fixed-size:2 diff several.json"), same);
    fs::create_dir(folder.path("data")).unwrap();
    fs::rename(folder.path("rows.parquet"), folder.path("data/rows.parquet")).unwrap();
    assert!(folder.said("index data --column n").starts_with("data/rows.parquet: 400 rows"));
}

#[test]
fn a_folder_is_its_files_in_natural_order() {
    let folder = Folder::new();
    fs::create_dir(folder.path("parts")).unwrap();
    for (name, lengths) in
        [("part-10.txt", "7\n8\n"), ("part-2.txt", "5\n"), ("_hidden.bin", "x"), ("part-1.txt", "3\n")]
    {
        folder.write(&format!("parts/{name}"), lengths);
    }
    folder.write("all.txt", "3\n5\n7\n8\n");
    let plan = |path: &str| folder.run(&format!("plan {path} --rule token-budget:16 --json step 0")).stdout;
    assert!(!plan("all.txt").is_empty());
    assert_eq!(plan("parts"), plan("all.txt"));
    let saved = r#"{"_data_files": [{"filename": "part-10.txt"}, {"filename": "part-1.txt"}]}"#;
    folder.write("parts/state.json", saved);
    folder.write("all.txt", "7\n8\n3\n");
    assert_eq!(plan("parts"), plan("all.txt"));
    folder.write(
        "parts/state.json",
        r#"{"_data_files": [{"filename": "a"}], "_indices_data_files": [{"filename": "i"}]}"#,
    );
    let refused = folder.run("lengths parts");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("flatten_indices()"));
    fs::remove_file(folder.path("parts/state.json")).unwrap();
    folder.write("parts/dataset_dict.json", "{}");
    assert!(String::from_utf8_lossy(&folder.run("lengths parts").stderr).contains("several splits"));
    fs::create_dir(folder.path("empty")).unwrap();
    assert!(String::from_utf8_lossy(&folder.run("lengths empty").stderr).contains("holds no file"));
    let inspected = folder.run("inspect --json parts").stderr;
    assert!(String::from_utf8_lossy(&inspected).contains("several splits"));
}
