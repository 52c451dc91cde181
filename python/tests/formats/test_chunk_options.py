"""The table of docs/data-on-disk.md: what each option does over chunks, and that what it names instead does it."""

import re
import subprocess
import sys
from pathlib import Path

import batchloom as bl
import numpy
import pyarrow
import pyarrow.parquet
import pytest
from refusals import refused

PAGE = Path(__file__).parents[3] / "docs" / "data-on-disk.md"
ROWS = 60
KINDS = numpy.arange(ROWS) % 3
CONVERT = ("batchloom convert", "--to arrow")
LISTS = [list(range(number % 9 + 1)) for number in range(ROWS)]


def read_table():
    """The outcome of each row of the table, and what it names instead, by the option."""
    _, text = PAGE.read_text(encoding="utf-8").split("### What goes with chunks")
    rows = re.findall(r"^\| (.+?) \| (works|refused) \| (.*?) ?\|$", text.split("\n### ")[0], re.MULTILINE)
    return {option: (outcome, instead) for option, outcome, instead in rows}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A file that is read by chunks, and the mapped files that the program writes of it."""
    folder = tmp_path_factory.mktemp("options")
    x = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(numpy.zeros(4 * ROWS)), 4)
    table = pyarrow.table({"ids": LISTS, "kind": KINDS, "price": numpy.arange(60.0), "x": x})
    pyarrow.parquet.write_table(table, folder / "all.parquet", row_group_size=10)
    for kind in range(3):
        part = table.filter(pyarrow.array(kind == KINDS))
        pyarrow.parquet.write_table(part, folder / f"kind-{kind}.parquet", row_group_size=10)
    arguments = ["convert", str(folder / "all.parquet"), "--out", str(folder / "mapped"), "--to", "arrow"]
    subprocess.run([sys.executable, "-m", "batchloom", *arguments], check=True, capture_output=True)
    return folder


def load(dataset, **options):
    """Load an epoch."""
    options = {"shuffle": True, **({} if "batching" in options else {"batch_size": 3}), **options}
    batches = list(bl.DataLoader(dataset, **options))
    assert batches
    return batches


def mix(sources, **options):
    return load(bl.Mixture(sources, weights=dict.fromkeys(sources, 1)), **options)


def resize(sample, slot):
    slot[: len(sample)] = sample[: len(slot)]


COST = bl.CostModel(per_token=1.0)
RULES = (bl.TokenBudget(20), bl.Packing(20), bl.LengthBuckets(4), bl.CostOptimal(COST, max_tokens=20))

# By the row of the table: what uses the option, for the path of the files; and the values that its refusal names.
CASES = {
    "`batching=`, by sizes or by costs": (
        lambda path: [load(bl.open(path, columns=["ids"]), batching=rule) for rule in RULES],
        (),
    ),
    "`shuffle=True`, `shuffle=False`": (
        lambda path: [load(bl.open(path), shuffle=shuffle) for shuffle in (True, False)],
        (),
    ),
    "`ban=`": (lambda path: load(bl.open(path), ban=[3]), ()),
    "`uneven=`, `accumulate=`": (
        lambda path: [
            load(bl.open(path), uneven=uneven, world_size=3, rank=1, accumulate=2) for uneven in ("pad", "mask")
        ],
        (),
    ),
    "`labels=`, `label_counts=`": (
        lambda path: [
            load(bl.open(path, columns=["ids"]), batching=bl.Packing(20), labels="ids"),
            load(bl.open(path, columns=["ids"]), label_counts=KINDS),
        ],
        (),
    ),
    "`fields=` with `bl.Pad`, `bl.Crop` or `bl.Resize`": (
        lambda path: load(bl.open(path, columns=["x"]), fields={"x": bl.Field(slot=bl.Pad((9,)))}),
        (),
    ),
    "`split()`, `stratify=` with keys": (
        lambda path: [load(part) for part in bl.open(path).split(train=0.8, val=0.2, stratify=KINDS)],
        (),
    ),
    "`select()`, numbers in order": (lambda path: load(bl.open(path).select([1, 3, 5])), ()),
    "`select()`, numbers in another order": (
        lambda path: load(bl.open(path).select([3, 1])),
        ("1", "3", "sort", *CONVERT),
    ),
    "`concat()` of chunks": (lambda path: load(bl.open(path).concat(bl.open(path))), ()),
    "`concat()` with arrays in memory": (
        lambda path: load(bl.open(path, columns=["price"]).concat(bl.TensorDataset(price=numpy.arange(9.0)))),
        ("TensorDataset", "bl.ChunkDataset"),
    ),
    "`bl.Mixture`, its weights and `num_samples=`": (
        lambda path: mix({"a": bl.open(path), "b": bl.open(path)}, num_samples=30),
        (),
    ),
    "`weights=`": (lambda path: load(bl.open(path), weights=numpy.ones(ROWS)), ("weights", *CONVERT)),
    "`num_samples=`": (lambda path: load(bl.open(path), num_samples=30), ("num_samples", *CONVERT)),
    "`balanced_by=`, `per_class=`": (
        lambda path: load(bl.open(path), balanced_by=KINDS, per_class=1),
        ("balanced_by", *CONVERT),
    ),
    "`homogeneous_by=`": (lambda path: load(bl.open(path), homogeneous_by=KINDS), ("homogeneous_by", *CONVERT)),
    "`distinct_by=`": (lambda path: load(bl.open(path), distinct_by=numpy.arange(ROWS)), ("distinct_by", *CONVERT)),
    "`balance=`": (lambda path: load(bl.open(path), balance=True, world_size=2, rank=0), ("balance", *CONVERT)),
    "`largest_first=`": (
        lambda path: load(bl.open(path, columns=["ids"]), batching=bl.TokenBudget(20), largest_first=True),
        ("largest_first", *CONVERT),
    ),
    "`shard_size=`": (lambda path: load(bl.open(path), shard_size=12), ("shard_size", *CONVERT)),
    '`shuffle="runs"`': (lambda path: load(bl.open(path, columns=["price"]), shuffle="runs"), ("runs", *CONVERT)),
    "`batching=bl.Listed(...)`": (
        lambda path: load(bl.open(path), batching=bl.Listed([[0, 1], [2, 3]]), shuffle=False),
        ("a list of batches", *CONVERT),
    ),
    "keys by the name of a field": (
        lambda path: bl.open(path, columns=["kind"]).split(train=0.8, val=0.2, stratify="kind"),
        ("stratify", "'kind'", "an array", *CONVERT),
    ),
    "`collate=`, and a function as a slot": (
        lambda path: [
            load(bl.open(path), collate=lambda samples: {"n": numpy.array([len(samples)])}),
            load(bl.open(path, columns=["x"]), fields={"x": bl.Field(slot=bl.Slot((9,), resize))}),
        ],
        ("collate", "read()", *CONVERT),
    ),
    '`fn=` with `workers="processes"`': (
        lambda path: load(bl.open(path, fn=len, workers="processes")),
        ("processes", "threads", *CONVERT),
    ),
    "`with_memory()`": (lambda path: bl.open(path).with_memory("64MB"), ("64MB", "memory=")),
    '`kind="windows"`, `"groups"` or `"tokens"` of Parquet': (
        lambda path: [
            load(bl.open(path, kind="windows", columns=["price"], input_len=4)),
            load(bl.open(path, kind="groups", columns=["price"], id="kind")),
            load(bl.open(path, kind="tokens", columns=["ids"], seq_len=4)),
        ],
        (),
    ),
    '`kind="windows"`, with `memory=`': (
        lambda path: load(bl.open(path, kind="windows", columns=["price"], input_len=4, memory="64MB")),
        ("memory", "no memory"),
    ),
    '`kind="groups"`, with `memory=`': (
        lambda path: load(bl.open(path, kind="groups", columns=["price"], id="kind", memory="64MB")),
        ("memory", "no memory", *CONVERT),
    ),
    '`mode="continuous"` of tokens, with `memory=`': (
        lambda path: load(
            bl.open(path, kind="tokens", columns=["ids"], seq_len=4, mode="continuous", memory="64MB"), shuffle=False
        ),
        ("memory", "no memory", *CONVERT),
    ),
}
# By the row of the table: what does it over chunks, for the folder of the files.
INSTEAD = {
    "`select()`, numbers in another order": lambda folder: load(bl.open(folder / "all.parquet").select([1, 3])),
    "`concat()` with arrays in memory": lambda folder: load(
        bl.open(folder / "all.parquet", columns=["price"], chunks_open=2).concat(
            bl.ChunkDataset([9], lambda chunk: {"price": numpy.arange(9.0)}, chunks_open=2)
        )
    ),
    "`weights=`": lambda folder: mix({str(kind): bl.open(folder / f"kind-{kind}.parquet") for kind in range(3)}),
    "`num_samples=`": lambda folder: mix({"all": bl.open(folder / "all.parquet")}, num_samples=30),
    "`balanced_by=`, `per_class=`": lambda folder: mix(
        {str(kind): bl.open(folder / f"kind-{kind}.parquet") for kind in range(3)}
    ),
    "`shard_size=`": lambda folder: load(bl.open(folder / "all.parquet")),
    '`shuffle="runs"`': lambda folder: load(bl.open(folder / "all.parquet"), shuffle=True),
    "`batching=bl.Listed(...)`": lambda folder: load(bl.open(folder / "all.parquet"), batching=bl.FixedSize(2)),
    "keys by the name of a field": lambda folder: bl.open(folder / "all.parquet").split(train=0.8, stratify=KINDS),
    "`collate=`, and a function as a slot": lambda folder: load(
        bl.ChunkDataset([30, 30], lambda chunk: {"x": numpy.sqrt(numpy.arange(30.0))})
    ),
    '`fn=` with `workers="processes"`': lambda folder: load(bl.open(folder / "all.parquet", fn=len, workers="threads")),
    "`with_memory()`": lambda folder: load(bl.open(folder / "all.parquet", memory="64MB")),
    '`kind="windows"`, with `memory=`': lambda folder: load(
        bl.open(folder / "all.parquet", kind="windows", columns=["price"], input_len=4)
    ),
    '`kind="groups"`, with `memory=`': lambda folder: load(
        bl.open(folder / "all.parquet", kind="groups", columns=["price"], id="kind")
    ),
    '`mode="continuous"` of tokens, with `memory=`': lambda folder: load(
        bl.open(folder / "all.parquet", kind="tokens", columns=["ids"], seq_len=4, mode="continuous"), shuffle=False
    ),
}


def test_the_table_has_all_of_these_options_and_no_others():
    table = read_table()
    assert list(table) == list(CASES)
    for option, (outcome, instead) in table.items():
        assert (outcome == "refused") == bool(CASES[option][1]), option
        assert (outcome == "refused" and not instead.startswith("mapped files")) == (option in INSTEAD), option


@pytest.mark.parametrize("option", CASES)
def test_options_do_over_chunks_what_the_table_has(option, folder):
    (use, named), (outcome, _) = CASES[option], read_table()[option]
    path = str(folder / "all.parquet")
    if outcome == "works":
        use(path)
        return
    with refused(bl.ArgumentError, *named):
        use(path)


@pytest.mark.parametrize("option", [option for option, (_, named) in CASES.items() if named])
def test_what_is_refused_works_as_the_table_has_it(option, folder):
    _, instead = read_table()[option]
    if option in INSTEAD:
        INSTEAD[option](folder)
    if "mapped files" in instead and option != "`concat()` with arrays in memory":
        CASES[option][0](str(folder / "mapped"))
