"""Measure files as people have them: Parquet of rows, of columns and of documents, and lines of JSON.

An epoch is measured from opening the files to the last batch, with batches of torch. Candidates are measured twice in
one run: by the time on the clock, and by the time of processors, of all threads. Promises:

- Indices are not kept: each epoch of batchloom looks at the files anew, but for the epochs of a dataset that is open.
- Batches of batchloom hold every row once: their numbers are compared before anything is timed.
- What is held is the private memory that an epoch adds in a process of its own, which has imported everything.
- The Arrow reader of the crate ``parquet`` and batchloom's reader of pages decode a file in turns, in a program of Rust
  (``examples/readers.rs`` of ``crates/batchloom-formats``), each on one thread.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import batchloom as bl
import numpy
import pyarrow
import pyarrow.parquet
import torch

from bench.harness.claims import Claim, stated
from bench.harness.measure import LOOM, Candidate, exhaust, interleave
from bench.harness.processes import elsewhere, most_private
from bench.harness.record import BENCH
from bench.harness.report import report
from bench.storage.peers import BATCH, SEED, peer

ROWS, WIDTH, GROUP = 250_000, 256, 8192
COLUMNS, COLUMN_ROWS, COLUMN_GROUP = 64, 1_000_000, 65_536
DOCUMENTS, MEAN, BUDGET = 250_000, 250, 16_384
LINES = 125_000
POOLS, TABLE, STREAM = "pyarrow in pools of 8 row groups, by hand", "the table in memory", "datasets, streaming"
IN_MEMORY = "datasets, torch tensors, padded"
OPEN = "batchloom, of a dataset that is open"
PROCESSOR = "processor time"
# A quarter of what the whole table takes is to be held at most.
QUARTER = 0.25

Batches = Iterable[Any]


def open_rows(path: str) -> Batches:
    """Return an epoch of batchloom over a file of rows."""
    return bl.DataLoader(bl.open(path, chunks_open=8), BATCH, shuffle=True, output="torch")


def rows_in_pools(path: str) -> Batches:
    """Yield batches of pools of eight row groups, shuffled, as a user writes it."""
    file = pyarrow.parquet.ParquetFile(path)
    order = numpy.random.default_rng(SEED)
    groups = order.permutation(file.num_row_groups)
    for first in range(0, len(groups), 8):
        table = file.read_row_groups(groups[first : first + 8].tolist())
        x = table["x"].combine_chunks().flatten().to_numpy().reshape(-1, WIDTH)
        y = table["y"].to_numpy()
        places = order.permutation(len(y))
        for start in range(0, len(y), BATCH):
            chosen = places[start : start + BATCH]
            yield torch.from_numpy(x[chosen]), torch.from_numpy(y[chosen])


def open_columns(path: str) -> Batches:
    """Return an epoch of batchloom over columns, joined to a matrix."""
    dataset = bl.open(path, columns={"x": "f*", "y": "y"}, chunks_open=4)
    return bl.DataLoader(dataset, BATCH, shuffle=True, output="torch")


def columns_in_memory(path: str) -> Batches:
    """Return an epoch over a table that was read whole, and stacked."""
    table = pyarrow.parquet.read_table(path)
    x = numpy.column_stack([table[f"f{number}"].to_numpy() for number in range(COLUMNS)])
    dataset = bl.TensorDataset(x=x, y=table["y"].to_numpy())
    return bl.DataLoader(dataset, BATCH, shuffle=True, output="torch")


def open_documents(path: str) -> Batches:
    """Return an epoch of batchloom over documents, under a budget of tokens."""
    dataset = bl.open(path, columns=["input_ids"])
    return bl.DataLoader(dataset, batching=bl.TokenBudget(BUDGET), shuffle=True, output="torch")


def documents_in_memory(path: str) -> Batches:
    """Return an epoch over documents that were read whole."""
    table = pyarrow.parquet.read_table(path, columns=["input_ids"])
    dataset = bl.SequenceDataset(input_ids=table["input_ids"])
    return bl.DataLoader(dataset, batching=bl.TokenBudget(BUDGET), shuffle=True, output="torch")


def open_lines(path: str) -> Batches:
    """Return an epoch of batchloom over lists in lines of JSON."""
    dataset = bl.open(path, columns=["input_ids"])
    return bl.DataLoader(dataset, batching=bl.TokenBudget(BUDGET), shuffle=True, output="torch")


def lines_on_demand(path: str) -> Batches:
    """Return an epoch over lines that a function parses, one by one."""
    dataset = bl.open(path, fn=_ids, sizes=numpy.load(path + ".lengths.npy"))
    return bl.DataLoader(dataset, batching=bl.TokenBudget(BUDGET), shuffle=True, output="torch")


def _ids(sample: dict[str, Any]) -> dict[str, Any]:
    return {"input_ids": numpy.array(sample["input_ids"])}


WAYS: dict[str, Callable[[str], Batches]] = {
    each.__name__: each
    for each in (open_rows, rows_in_pools, open_columns, columns_in_memory, open_documents, documents_in_memory)
}


def timed(name: str, make: Callable[[], Batches]) -> list[Candidate]:
    """Return a candidate for the time on the clock, and one for the time of processors."""

    def run() -> None:
        exhaust(make())

    def run_by_processor() -> float:
        start = time.process_time()
        exhaust(make())
        return time.process_time() - start

    return [Candidate(name, run), Candidate(f"{name}, {PROCESSOR}", run_by_processor)]


def held(way: str, path: str) -> float:
    """Return the most MiB of private memory that an epoch adds to this process, which should be a new one."""
    table = pyarrow.table({"x": [[1.0]], "y": [1]})
    table["y"].to_numpy()
    table["x"].combine_chunks().flatten().to_numpy()
    bl.DataLoader(bl.TensorDataset(torch.zeros(8)), 2)
    return most_private(lambda: WAYS[way](path)) / 2**20


def of_streams(path: str, options: dict[str, Any], batches: int, collate: Any = None) -> Candidate:
    """Return torch's loader with two workers over a stream of ``datasets``, shuffled in a buffer of 10 000."""
    import datasets

    stream = datasets.load_dataset(options["format"], data_files=path, split="train", streaming=True)
    loader = torch.utils.data.DataLoader(
        stream.shuffle(seed=SEED, buffer_size=10_000).with_format("torch"), BATCH, num_workers=2, collate_fn=collate
    )
    return peer(STREAM, loader, batches, 100)


def require_once(batches: Batches, count: int, number: Callable[[Any], Any]) -> None:
    """Compare the numbers of all samples of an epoch."""
    found = numpy.sort(numpy.concatenate([number(batch) for batch in batches]))
    assert numpy.array_equal(found, numpy.arange(count)), "a sample is missing, or comes twice"


def report_part(
    part: str,
    path: str,
    ways: tuple[str, str],
    rounds: int,
    bars: dict[str, float],
    peers: list[Candidate],
    other: str,
) -> dict[str, Any]:
    """Measure batchloom beside another way, and peers."""
    loom, theirs = (partial(WAYS[way], path) for way in ways)
    is_open = loom()
    candidates = [*timed(LOOM, loom), *timed(OPEN, lambda: is_open), *timed(other, theirs), *peers]
    timings = interleave(part, candidates, rounds)
    mine, its = (timings[f"{name}, {PROCESSOR}"] for name in (LOOM, other))
    claims = [
        Claim.of_ratio(f"{part}: processor time, times that of {other}", mine, its, "<=", bars["processor"]),
        Claim.of_ratio(
            f"{part}: time of {other}, times batchloom's", timings[other], timings[LOOM], ">=", bars["epoch"]
        ),
    ]
    claims += [
        Claim.of_ratio(
            f"{part}: time of {each.name}, times batchloom's", timings[each.name], timings[LOOM], ">=", bars["stream"]
        )
        for each in peers
    ]
    if other == POOLS:
        # They open the file in each epoch too, which takes them a millisecond.
        opened, its = (timings[f"{name}, {PROCESSOR}"] for name in (OPEN, other))
        title = f"{part}: processor time of an open dataset, times that of {other}"
        claims.append(Claim.of_ratio(title, opened, its, "<=", bars["processor"]))
    facts: dict[str, Any] = {"part": part}
    facts["held"], facts["held_by_other"] = (elsewhere(held, way, path) for way in ways)
    claims.append(Claim(f"{part}: MiB held", facts["held"], "<=", bars["held"]))
    if "part_held" in bars:
        share = facts["held"] / facts["held_by_other"]
        claims.append(Claim(f"{part}: what is held, times what {other} holds", share, "<=", bars["part_held"]))
    return {**facts, **report(part, timings, claims, {}, bar=(other, other))}


def measure_parquet(folder: Path, rounds: int, scale: float) -> dict[str, Any]:
    """Measure rows of 1 KB, compressed by zstd."""
    count = round(ROWS * scale)
    x = numpy.random.default_rng(SEED).standard_normal((count, WIDTH), numpy.float32)
    table = pyarrow.table(
        {"x": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(x.reshape(-1)), WIDTH), "y": numpy.arange(count)}
    )
    path = str(folder / "rows.parquet")
    pyarrow.parquet.write_table(table, path, row_group_size=GROUP, compression="zstd", use_dictionary=False)
    require_once(open_rows(path), count, lambda batch: batch["y"].numpy())
    peers = [of_streams(path, {"format": "parquet"}, count // BATCH)]
    bars = {"processor": 0.4, "epoch": 2, "stream": 50, "held": 150}
    measured = report_part("parquet", path, ("open_rows", "rows_in_pools"), rounds, bars, peers, POOLS)
    pages = Claim(
        "parquet: reading, times that of the crate's Arrow reader", read_beside_arrow(path, rounds), "<=", 0.5
    )
    pages.print()
    return {**measured, "reading": pages.record()}


def read_beside_arrow(path: str, rounds: int) -> float:
    """Return how many times the seconds of the crate's Arrow reader batchloom takes to read: the median over rounds."""
    program = ["cargo", "run", "--release", "--locked", "--quiet", "--example", "readers", "-p", "batchloom-formats"]
    done = subprocess.run(
        [*program, "--", path, str(rounds)], cwd=BENCH.parent, check=True, capture_output=True, text=True
    )
    seconds = [[float(each) for each in line.split()] for line in done.stdout.splitlines()]
    return statistics.median(pages / arrow for pages, arrow in seconds)


def measure_columns(folder: Path, rounds: int, scale: float) -> dict[str, Any]:
    """Measure 64 columns that become a matrix."""
    count = round(COLUMN_ROWS * scale)
    order = numpy.random.default_rng(SEED)
    columns = {f"f{number}": order.standard_normal(count, numpy.float32) for number in range(COLUMNS)}
    path = str(folder / "columns.parquet")
    pyarrow.parquet.write_table(
        pyarrow.table({**columns, "y": numpy.arange(count)}),
        path,
        row_group_size=COLUMN_GROUP,
        compression="snappy",
        use_dictionary=False,
    )
    require_once(open_columns(path), count, lambda batch: batch["y"].numpy())
    bars = {"processor": 0.35, "epoch": 2.5, "held": 200}
    return report_part("columns", path, ("open_columns", "columns_in_memory"), rounds, bars, [], TABLE)


def documents(scale: float, count: int) -> tuple[Any, Any]:
    """Return documents whose first token is their number: tokens and offsets."""
    order = numpy.random.default_rng(SEED)
    count = round(count * scale)
    lengths = numpy.clip(order.lognormal(numpy.log(MEAN) - 0.32, 0.8, count), 4, 4096).astype(numpy.int64)
    offsets = numpy.concatenate([[0], numpy.cumsum(lengths)])
    tokens = order.integers(0, 50_000, offsets[-1], dtype=numpy.int32)
    tokens[offsets[:-1]] = numpy.arange(count)
    return tokens, offsets


def measure_token_lists(folder: Path, rounds: int, scale: float) -> dict[str, Any]:
    """Measure documents under a budget, compressed by zstd and as pyarrow writes them by default."""
    tokens, offsets = documents(scale, DOCUMENTS)
    lists = pyarrow.ListArray.from_arrays(pyarrow.array(offsets.astype(numpy.int32)), pyarrow.array(tokens))
    table = pyarrow.table({"input_ids": lists})
    cases = {}
    for name, options, epoch in (
        ("zstd", {"compression": "zstd", "use_dictionary": False, "row_group_size": GROUP}, 2.5),
        ("default", {}, 1.5),
    ):
        path = str(folder / f"{name}.parquet")
        pyarrow.parquet.write_table(table, path, **options)
        require_once(open_documents(path), len(offsets) - 1, lambda batch: batch["input_ids"][:, 0].numpy())
        ways = ("open_documents", "documents_in_memory")
        bars = {"processor": 0.5, "epoch": epoch, "stream": 25, "held": 200, "part_held": QUARTER}
        peers = [padded(path, len(offsets) - 1)] if name == "default" else []
        cases[name] = report_part(f"token_lists, {name}", path, ways, rounds, bars, peers, TABLE)
        cases[name]["index"] = stated(openings(f"token_lists, {name}", path))
    return {"part": "token_lists", "documents": len(offsets) - 1, "tokens": len(tokens), **cases}


def openings(part: str, path: str) -> list[Claim]:
    """Measure a first opening, which makes the index of a file and keeps it, and a second one, which finds it."""
    with tempfile.TemporaryDirectory() as cache, mock.patch.dict(os.environ, BATCHLOOM_CACHE=cache):
        start = time.process_time()
        bl.open(path, columns=["input_ids"])
        first = time.process_time() - start
        start = time.perf_counter()
        bl.open(path, columns=["input_ids"])
        second = time.perf_counter() - start
    return [
        Claim(f"{part}: seconds of processors for an index", first, "<=", 0.3),
        Claim(f"{part}: seconds for a second opening", second, "<=", 0.05),
    ]


def padded(path: str, count: int) -> Candidate:
    """Return torch's loader with two workers over documents of ``datasets`` as tensors, padded by ``pad_sequence``."""
    import datasets

    documents = datasets.Dataset.from_parquet(path, cache_dir=f"{path}.datasets").with_format("torch")
    loader = torch.utils.data.DataLoader(documents, BATCH, shuffle=True, num_workers=2, collate_fn=_pad)
    return peer(IN_MEMORY, loader, count // BATCH)


def measure_lines(folder: Path, rounds: int, scale: float) -> dict[str, Any]:
    """Measure lists of tokens in lines of JSON."""
    tokens, offsets = documents(scale, LINES)
    path = str(folder / "lines.jsonl")
    with open(path, "w") as file:
        for number, (first, end) in enumerate(itertools.pairwise(offsets)):
            file.write(json.dumps({"id": number, "input_ids": tokens[first:end].tolist()}) + "\n")
    numpy.save(path + ".lengths.npy", numpy.diff(offsets))
    require_once(open_lines(path), len(offsets) - 1, lambda batch: batch["input_ids"][:, 0].numpy())
    on_demand = "lines parsed one by one on demand"
    candidates = [
        Candidate(LOOM, lambda: exhaust(open_lines(path))),
        Candidate(on_demand, lambda: exhaust(lines_on_demand(path)), slow=True),
        of_streams(path, {"format": "json"}, (len(offsets) - 1) // BATCH, _pad),
    ]
    timings = interleave("lines", candidates, rounds)
    claims = [
        Claim.of_ratio("lines: on demand, times batchloom's", timings[on_demand], timings[LOOM], ">=", 10),
        Claim.of_ratio("lines: datasets streaming, times batchloom's", timings[STREAM], timings[LOOM], ">=", 20),
    ]
    facts = {"part": "lines", "lines": len(offsets) - 1, "bytes": os.path.getsize(path)}
    return {**facts, **report("lines", timings, claims, {}, bar=(on_demand, on_demand))}


def _pad(samples: list[Any]) -> Any:
    lists = [torch.as_tensor(sample["input_ids"]) for sample in samples]
    return torch.nn.utils.rnn.pad_sequence(lists, batch_first=True)
