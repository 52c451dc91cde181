"""Measure data in several chunks beside the same data in one array, and beside the ways of today.

    python -m bench storage [--only PART] [--rounds 5] [--scale 0.1]

``rows``: 400 000 rows of 256 float32 (1 KB), shuffled over all chunks, 64 a batch: one array; Arrow in 31 and in
10 000 record batches; a folder of ``datasets`` as its Arrow table; 31 datasets put together. ``documents``: 300 000
lists of 10 to 109 tokens under a token budget. ``shards``: 100 million uint16 tokens in twenty files of NumPy, pieces
of 1024, beside one file: without a limit of memory, with one, and with one where parts of 8 MiB are shuffled one after
the other (``shard_size``). ``taken``: the time in which a dataset takes 10 million rows in 10 000 record batches, and
the memory that it holds for them.
``limits``: rows in mapped files with a limit of memory and without (limits.py). ``chunks``, ``hdf5`` and ``zarr``:
the rows of 1 KB in a file of NumPy, mapped 4000 at a time, of HDF5 (compressed by gzip) and of Zarr, read 1000 at a
time, and mixed in windows of 16 chunks (chunks.py). ``window``: the order of 100 000 chunks, how it mixes, what ranks
read, the memory held and a resume (window.py). ``parquet``, ``columns``, ``token_lists`` and ``lines``: files as people
have them, opened by ``bl.open`` (files.py). ``texts``: texts of Parquet that a function makes samples of, beside
``datasets`` streaming and a loop by hand (texts.py). ``tars``: JPEG files in tars beside webdataset, and ``folder``: 10
million documents in a folder of ``datasets``, from opening it to the first pack (tars.py). ``peers``: rows of 1 KB,
which MosaicML streaming, litData and grain read from files of their own (own_files.py). It draws the window
(pictures.py). Each part has a file of results. Promises:

- Batches of all candidates of batchloom are equal: all were compared, batch by batch, before anything is timed.
- Files were written just before, so that all of them lie in the system's cache, for every candidate.
- torch's loaders make the first batches of an epoch only; their time is scaled to all. They have two workers.
- ``shards`` also reports the most bytes of files that were in memory during an epoch.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import batchloom as bl
import datasets
import numpy
import pyarrow
import torch
from torch.utils.data import DataLoader

from bench.harness.claims import Claim
from bench.harness.command import PICTURES, arguments, is_whole, wanted
from bench.harness.measure import LOOM, Candidate, Timing, interleave
from bench.harness.processes import elsewhere, most_private, resident
from bench.harness.record import pictures_folder, write
from bench.harness.report import report
from bench.storage.chunks import measure_hdf5, measure_numpy, measure_zarr
from bench.storage.files import measure_columns, measure_lines, measure_parquet, measure_token_lists
from bench.storage.limits import LIMIT, measure_limits, most_resident
from bench.storage.own_files import measure_peers
from bench.storage.peers import BATCH, PER_BATCH, ROWS, SEED, WIDTH, epoch, peer
from bench.storage.pictures import draw
from bench.storage.tars import measure_folder, measure_tars
from bench.storage.texts import measure_texts
from bench.storage.window import measure_window

DOCUMENTS, BUDGET = 300_000, 8192
TOKENS, SHARDS, SEQ_LEN = 100_000_000, 20, 1024
# The pieces in a part of the epoch that is shuffled by itself, 8 MiB, and a limit of memory that holds two parts.
IN_PART, PARTS_LIMIT = 4096, 48 << 20
TAKEN = 10_000_000
FEW, MANY = 31, 10_000
# What others are compared with: batchloom over one array.
ONE_ARRAY = ("one array", LOOM)


def require_same(loaders: dict[str, bl.DataLoader[Any]]) -> None:
    """Compare all batches of an epoch."""
    for expected, *others in itertools.zip_longest(*loaders.values()):
        values = expected.values() if isinstance(expected, dict) else expected
        for found in others:
            pairs = zip(values, found.values() if isinstance(found, dict) else found, strict=True)
            if not all(numpy.array_equal(first, second) for first, second in pairs):
                raise AssertionError(f"batches of {', '.join(loaders)} differ")


def looms(make: Callable[[Any], Any], data: dict[str, Any], **options: Any) -> list[Candidate]:
    """Return a candidate for each form of the data; the first one is named as tables want it."""
    loaders = {name: bl.DataLoader(make(each), shuffle=True, **options) for name, each in data.items()}
    require_same(loaders)
    return [Candidate(name, epoch(loader)) for name, loader in loaders.items()]


def at_most(title: str, timings: dict[str, Timing], bounds: dict[str, float]) -> list[Claim]:
    """Claim how many times the seconds of one array some candidates take at most."""
    return [
        Claim.of_ratio(f"{title}: {name}, times one array", timings[name], timings[LOOM], "<=", bound)
        for name, bound in bounds.items()
    ]


def cut(array: pyarrow.Array, chunks: int) -> pyarrow.ChunkedArray:
    """Return an Arrow array in a number of chunks, over the same memory."""
    ends = numpy.linspace(0, len(array), chunks + 1).astype(int).tolist()
    return pyarrow.chunked_array([array.slice(first, end - first) for first, end in itertools.pairwise(ends)])


def measure_rows(folder: Path, rounds: int, scale: float) -> dict[str, Any]:
    """Measure rows."""
    rows = round(ROWS * scale)
    x = numpy.random.default_rng(SEED).random((rows, WIDTH), numpy.float32)
    column = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(x.reshape(-1)), WIDTH)
    features = datasets.Features({"x": datasets.Sequence(datasets.Value("float32"), length=WIDTH)})
    table = pyarrow.table({"x": cut(column, rows // PER_BATCH)})
    datasets.Dataset(table, datasets.DatasetInfo(features=features)).save_to_disk(folder / "hf")
    kept = datasets.load_from_disk(str(folder / "hf"))
    few, many, hugging = "Arrow in 31 batches", "Arrow in 10 000 batches", "a folder of datasets"
    data = {LOOM: x, few: cut(column, FEW), many: cut(column, MANY), hugging: kept.with_format("arrow")[:]["x"]}
    candidates = looms(lambda each: bl.TensorDataset(x=each), data, batch_size=BATCH)
    private = {name: private_of_rows(each) for name, each in data.items()}
    first, *others = (bl.TensorDataset(x=part) for part in numpy.array_split(x, FEW))
    joined = {LOOM: bl.TensorDataset(x=x), "31 datasets put together": first.concat(*others)}
    candidates += looms(lambda each: each, joined, batch_size=BATCH)[1:]
    by_row = DataLoader(kept.with_format("torch"), BATCH, shuffle=True, num_workers=2)  # type: ignore[arg-type]
    by_torch = "torch DataLoader over datasets, two workers"
    candidates.append(peer(by_torch, by_row, -(-rows // BATCH)))
    timings = interleave("rows", candidates, rounds)
    claims = at_most("rows", timings, {few: 1.3, many: 1.3, hugging: 1.3})
    claims.append(
        Claim.of_ratio("rows: torch, times a folder of datasets", timings[by_torch], timings[hugging], ">=", 50)
    )
    claims += [
        Claim(
            f"rows: {name}: MiB of private memory beyond one array's",
            private[name] - private[LOOM],
            "<=",
            x.nbytes / 20 / 2**20,
        )
        for name in (few, many, hugging)
    ]
    facts = {"part": "rows", "rows": rows, "width": WIDTH, "private_mebibytes": private}
    return {**facts, **report("rows", timings, claims, {}, bar=ONE_ARRAY)}


def private_of_rows(data: Any) -> float:
    """Return the most MiB of private memory that a dataset of rows and an epoch over it add."""

    def make() -> bl.DataLoader[Any]:
        return bl.DataLoader(bl.TensorDataset(x=data), BATCH, shuffle=True)

    return most_private(make) / 2**20


def measure_documents(folder: Path, rounds: int, scale: float) -> dict[str, Any]:
    """Measure lists of tokens."""
    lengths = numpy.random.default_rng(SEED).integers(10, 110, round(DOCUMENTS * scale))
    offsets = numpy.concatenate([[0], numpy.cumsum(lengths)])
    values = numpy.random.default_rng(SEED).integers(0, 50_257, offsets[-1])
    column = pyarrow.LargeListArray.from_arrays(pyarrow.array(offsets), pyarrow.array(values))
    few, many = "Arrow in 31 batches", "Arrow in 10 000 batches"
    data = {LOOM: (values, offsets), few: cut(column, FEW), many: cut(column, MANY)}
    candidates = looms(lambda each: bl.SequenceDataset(ids=each), data, batching=bl.TokenBudget(BUDGET))
    timings = interleave("documents", candidates, rounds)
    claims = at_most("documents", timings, {few: 1.3})
    return {"part": "documents", "documents": len(lengths), **report("documents", timings, claims, {}, bar=ONE_ARRAY)}


def measure_shards(folder: Path, rounds: int, scale: float) -> dict[str, Any]:
    """Measure shards of tokens in files."""
    drawn = numpy.random.default_rng(SEED).integers(0, 50_257, round(TOKENS * scale), dtype=numpy.uint16)
    numpy.save(folder / "whole.npy", drawn)
    for number, shard in enumerate(numpy.array_split(drawn, SHARDS)):
        numpy.save(folder / f"{number}.npy", shard)
    del drawn

    def open_map(name: str) -> Any:
        return numpy.load(folder / f"{name}.npy", mmap_mode="r")

    def open_shards() -> Any:
        return bl.ChunkedArray([open_map(str(number)) for number in range(SHARDS)])

    def pieces(tokens: Any) -> bl.TokenDataset[Any]:
        return bl.TokenDataset(tokens, SEQ_LEN)

    def limited(name: str) -> bl.DataLoader[Any]:
        data = pieces(open_shards()).with_memory(LIMIT if name == whole else PARTS_LIMIT)
        return bl.DataLoader(data, 8, shuffle=True, shard_size=None if name == whole else IN_PART)

    shards, whole, in_parts = "twenty shards", "twenty shards, 64 MiB", "twenty shards in parts of 8 MiB, 48 MiB"
    # With maps of their own, of which no page was read before.
    resident = {name: most_resident(epoch(limited(name))) / 2**20 for name in (whole, in_parts)}
    data = {LOOM: pieces(open_map("whole")), shards: pieces(open_shards())}
    loaders = {name: bl.DataLoader(each, 8, shuffle=True) for name, each in data.items()}
    require_same(loaders | {whole: limited(whole)})
    parts = bl.DataLoader(pieces(open_map("whole")), 8, shuffle=True, shard_size=IN_PART)
    require_same({LOOM: parts, in_parts: limited(in_parts)})
    loaders |= {name: limited(name) for name in (whole, in_parts)}
    timings = interleave("shards", [Candidate(name, epoch(loader)) for name, loader in loaders.items()], rounds)
    claims = at_most("shards", timings, {shards: 1.2, whole: 1.2, in_parts: 1.2})
    claims += [Claim(f"shards: {name}: MiB of files in memory", most, "<=", 64) for name, most in resident.items()]
    return {"part": "shards", "tokens": round(TOKENS * scale), **report("shards", timings, claims, {}, bar=ONE_ARRAY)}


def measure_taken(folder: Path, rounds: int, scale: float) -> dict[str, Any]:
    """Measure how long a dataset takes for many record batches, and the memory that it holds for them."""
    batches = round(TAKEN * scale) // PER_BATCH
    in_batches = {f"{kind} in record batches": many_batches(kind, batches) for kind in ("rows", "lists")}
    whole = numpy.tile(numpy.arange(1.0 * PER_BATCH), batches)
    candidates = [Candidate(LOOM, lambda: _take(bl.TensorDataset(x=whole)))]
    candidates += [Candidate(name, lambda make=make: _take(make())) for name, make in in_batches.items()]
    timings = interleave("taken", candidates, rounds)
    claims = [Claim(f"taken: seconds for {name}", timings[name].median, "<=", 1) for name in in_batches]
    for kind in ("rows", "lists"):
        bytes_a_row = elsewhere(bytes_held, kind, batches) / (batches * PER_BATCH)
        claims.append(Claim(f"taken: bytes a row held for {kind} in record batches", bytes_a_row, "<=", 40))
    return {"part": "taken", "rows": batches * PER_BATCH, **report("taken", timings, claims, {}, bar=ONE_ARRAY)}


def many_batches(kind: str, batches: int) -> Callable[[], Any]:
    """Return what makes a dataset of rows or of lists in record batches that lie in memory."""
    values = pyarrow.array(numpy.arange(3.0 * PER_BATCH))
    if kind == "rows":
        whole = pyarrow.array(numpy.arange(1.0 * PER_BATCH * batches))
        rows = pyarrow.chunked_array([whole.slice(PER_BATCH * number, PER_BATCH) for number in range(batches)])
        return lambda: bl.TensorDataset(x=rows)
    ends = pyarrow.array(numpy.arange(0, 3 * PER_BATCH + 1, 3), pyarrow.int32())
    lists = pyarrow.chunked_array([pyarrow.ListArray.from_arrays(ends, values) for _ in range(batches)])
    return lambda: bl.SequenceDataset(x=lists)


def bytes_held(kind: str, batches: int) -> int:
    """Return the bytes that a dataset and its loader add to the memory of this process, which should be a new one."""
    bl.DataLoader(many_batches(kind, 1)(), 2)
    make = many_batches(kind, batches)
    before = resident()
    loader = bl.DataLoader(make(), BATCH, shuffle=True)
    next(iter(loader))
    return resident() - before


def _take(dataset: Any) -> None:
    bl.DataLoader(dataset, BATCH, shuffle=True)


PARTS = {
    "rows": measure_rows,
    "documents": measure_documents,
    "shards": measure_shards,
    "taken": measure_taken,
    "limits": measure_limits,
    "chunks": measure_numpy,
    "hdf5": measure_hdf5,
    "zarr": measure_zarr,
    "window": measure_window,
    "parquet": measure_parquet,
    "columns": measure_columns,
    "token_lists": measure_token_lists,
    "lines": measure_lines,
    "texts": measure_texts,
    "tars": measure_tars,
    "folder": measure_folder,
    "peers": measure_peers,
}


def main() -> None:
    """Run the chapter."""
    chosen = arguments(__doc__, PARTS, pictures=PICTURES)
    whole = is_whole(chosen)
    print("drawn:", draw(pictures_folder(chosen, whole)))
    torch.manual_seed(SEED)
    # Each epoch over files looks at them anew.
    os.environ["BATCHLOOM_CACHE"] = ""
    for name, part in wanted(chosen, PARTS).items():
        with tempfile.TemporaryDirectory() as folder:
            figures = part(Path(folder), chosen.rounds, chosen.scale)
        write(f"storage-{name}", chosen, figures, is_whole(chosen, [name]))


if __name__ == "__main__":
    main()
