"""Measure rows with texts that a function makes samples of, from Parquet: as a run of fine-tuning reads them.

Promises:

- All ways call one function for each row, in one process, and make batches of torch.
- batchloom mixes 16 row groups at a time, and so does the loop by hand; the buffer of
  ``datasets`` holds the rows of 16 row groups.
- Rows of batchloom come once each: their numbers are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import batchloom as bl
import datasets
import numpy
import pyarrow
import torch
from pyarrow import parquet
from torch.utils.data import DataLoader

from bench.harness.claims import Claim
from bench.harness.measure import LOOM, Candidate, interleave
from bench.harness.report import report
from bench.storage.peers import BATCH, SEED

ROWS, PER_GROUP, OPEN, LENGTH, WORDS = 200_000, 2000, 16, 256, 40
BY_HAND, STREAMING, TEXTS = "pyarrow by hand", "datasets streaming", "batchloom, texts without a function"


def tokenize(row: dict[str, Any]) -> dict[str, Any]:
    """Return the bytes of a text as tokens, cut and padded to a length."""
    text = row["text"].encode()[:LENGTH]
    return {"ids": numpy.frombuffer(text.ljust(LENGTH, b"\0"), numpy.uint8), "number": row["number"]}


def write(path: Path, count: int) -> None:
    """Write texts of words of six letters, and their numbers."""
    letters = numpy.random.default_rng(SEED).integers(97, 123, (count, WORDS, 7), dtype=numpy.uint8)
    letters[:, :, 6] = 32
    texts = [row.tobytes().decode() for row in letters.reshape(count, -1)]
    table = pyarrow.table({"text": texts, "number": range(count), "source": ["somewhere"] * count})
    parquet.write_table(table, path, row_group_size=PER_GROUP, compression="zstd")


def of_rows(path: str) -> Iterable[Any]:
    """Return an epoch of batchloom with a function."""
    dataset = bl.open(path, fn=tokenize, columns=["text", "number"], chunks_open=OPEN)
    return bl.DataLoader(dataset, BATCH, shuffle=True, output="torch")


def of_texts(path: str) -> Iterable[Any]:
    """Return an epoch of batchloom of texts as they are."""
    dataset = bl.open(path, columns=["text", "number"], chunks_open=OPEN)
    return bl.DataLoader(dataset, BATCH, shuffle=True, output="torch")


def of_datasets(path: str) -> Iterable[Any]:
    """Return an epoch of ``datasets``, streaming."""
    stream = datasets.load_dataset("parquet", data_files=path, split="train", streaming=True)
    samples = stream.select_columns(["text", "number"]).shuffle(SEED, buffer_size=OPEN * PER_GROUP)
    return DataLoader(samples.map(tokenize, remove_columns=["text"]).with_format("torch"), BATCH)


def of_pools(path: str) -> Iterator[Any]:
    """Yield the batches of pools of row groups, which are shuffled one after the other."""
    order = numpy.random.default_rng(SEED)
    file = parquet.ParquetFile(path)
    groups = order.permutation(file.num_row_groups)
    for pool in numpy.array_split(groups, max(len(groups) // OPEN, 1)):
        table = pyarrow.Table.from_batches(file.iter_batches(PER_GROUP, pool.tolist(), ["text", "number"]))
        rows = table.to_pylist()
        numbers = order.permutation(len(rows))
        for start in range(0, len(rows), BATCH):
            samples = [tokenize(rows[number]) for number in numbers[start : start + BATCH]]
            yield {
                "ids": torch.from_numpy(numpy.stack([sample["ids"] for sample in samples])),
                "number": torch.tensor([sample["number"] for sample in samples]),
            }


def measure_texts(folder: Path, rounds: int, scale: float) -> dict[str, Any]:
    """Measure rows of texts."""
    datasets.disable_progress_bars()
    count, path = round(ROWS * scale), folder / "texts.parquet"
    write(path, count)
    makers = {LOOM: of_rows, TEXTS: of_texts, STREAMING: of_datasets, BY_HAND: of_pools}
    for name, make in makers.items():
        numbers = numpy.sort(numpy.concatenate([numpy.asarray(batch["number"]) for batch in make(str(path))]))
        assert numpy.array_equal(numbers, numpy.arange(count)), f"{name}: a row is missing, or comes twice"

    def candidate(name: str, make: Any) -> Candidate:
        return Candidate(name, lambda: [None for _ in make(str(path))] and None, slow=True)

    timings = interleave("texts", [candidate(name, make) for name, make in makers.items()], rounds)
    claims = [
        Claim.of_ratio(f"texts: {STREAMING}, times batchloom", timings[STREAMING], timings[LOOM], ">=", 5),
        Claim.of_ratio(f"texts: {BY_HAND}, times batchloom", timings[BY_HAND], timings[LOOM], ">=", 1),
    ]
    return {"part": "texts", "rows": count, **report("texts", timings, claims, {}, bar=(BY_HAND, BY_HAND))}
