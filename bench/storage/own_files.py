"""Measure peers on files of their own: rows that the writer of each library wrote, and that its loader reads.

200 000 rows of 1 KB: a vector of 256 float32, a number and a label. MosaicML streaming reads shards of MDS, litData its
chunks, grain records of ArrayRecord, and batchloom the same rows from Parquet (zstd), Arrow and NumPy. Promises:

- Every way makes batches of 64 with the values of the file, each row once: all values are compared first.
- A peer shuffles as it does by default, and litData also so that it mixes the rows of a chunk.
- A peer runs without workers or with two: the faster of both, by the epoch in which its values were compared.
- Files, and a loader over them, are opened anew in each epoch that is timed.
- How far rows are mixed is counted: the mean number of blocks of 1000 rows of the file in a batch, at most 64.
- A peer that is not installed is left out, with a line.
"""

from __future__ import annotations

import copy
import functools
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import batchloom as bl
import numpy
import pyarrow
import pyarrow.parquet

from bench.harness.claims import Claim
from bench.harness.measure import LOOM, Candidate, exhaust, interleave, progress
from bench.harness.processes import elsewhere
from bench.harness.report import report
from bench.storage.peers import BATCH, PER_BATCH, SEED, WIDTH
from bench.storage.tars import seconds_of_processors

ROWS, GROUP, LABELS, PER_FILE = 200_000, 8192, 1000, 2000
MOSAIC, GRAIN = "MosaicML streaming, MDS", "grain, ArrayRecord"
LITDATA, WHOLE_CHUNKS = "litData, blocks of 256 rows shuffled", "litData, chunks of 64 MB shuffled"
ARROW, NUMPY = "batchloom, Arrow", "batchloom, NumPy"
RECORD = numpy.dtype([("x", numpy.float32, WIDTH), ("number", numpy.int64), ("label", numpy.int64)])
BOUND = 30.0

# A loader has ``state_dict`` and ``load_state_dict``, beside batches.
Loader = Any
Make = Callable[[], Loader]


@dataclass(frozen=True)
class Way:
    """A way to keep rows in files, and to read them.

    Attributes:
        name: Its name in the tables.
        write: Writes the rows of ``x.npy`` into a folder, and returns what ``open`` takes.
        open: Makes a loader with a number of workers.
        workers: The numbers of workers to choose from.
    """

    name: str
    write: Callable[[Path], Any]
    open: Callable[[Any, int], Loader]
    workers: tuple[int, ...] = (0, 2)


@functools.cache
def vectors(path: Path) -> Any:
    """Return the vectors of a file, mapped."""
    return numpy.load(path, mmap_mode="r")


def row_of(number: int, path: Path) -> dict[str, Any]:
    """Return a row as libraries take it that are given one at a time."""
    return {"x": numpy.array(vectors(path)[number]), "number": number, "label": number % LABELS}


def columns(folder: Path) -> dict[str, Any]:
    """Return the columns of all rows."""
    x = vectors(folder / "x.npy")
    return {"x": x, "number": numpy.arange(len(x)), "label": numpy.arange(len(x)) % LABELS}


def table(folder: Path) -> pyarrow.Table:
    """Return all rows as a table."""
    x = pyarrow.array(numpy.asarray(vectors(folder / "x.npy")).reshape(-1))
    return pyarrow.table({**columns(folder), "x": pyarrow.FixedSizeListArray.from_arrays(x, WIDTH)})


def write_parquet(folder: Path) -> str:
    """Write a file of Parquet."""
    path = str(folder / "rows.parquet")
    pyarrow.parquet.write_table(table(folder), path, row_group_size=GROUP, compression="zstd", use_dictionary=False)
    return path


def write_arrow(folder: Path) -> str:
    """Write a file of Arrow in many record batches."""
    path, rows = str(folder / "rows.arrow"), table(folder)
    with pyarrow.OSFile(path, "wb") as file, pyarrow.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=PER_BATCH)
    return path


def write_numpy(folder: Path) -> dict[str, str]:
    """Write a file for each column but ``x``, which is there."""
    for name, values in columns(folder).items():
        if name != "x":
            numpy.save(folder / f"{name}.npy", values)
    return {name: str(folder / f"{name}.npy") for name in RECORD.names or ()}


def open_loom(source: Any, _workers: int) -> Loader:
    """Return batchloom's loader."""
    return bl.DataLoader(bl.open(source), BATCH, shuffle=True, output="torch")


def write_mosaic(folder: Path) -> str:
    """Write shards of MDS."""
    from streaming import MDSWriter

    path = folder / "x.npy"
    kinds = {"x": f"ndarray:float32:{WIDTH}", "number": "int", "label": "int"}
    with MDSWriter(out=str(folder / "mds"), columns=kinds) as writer:
        for number in range(len(vectors(path))):
            writer.write(row_of(number, path))
    return str(folder / "mds")


def open_mosaic(source: str, workers: int) -> Loader:
    """Return the loader of MosaicML streaming."""
    from streaming import StreamingDataLoader, StreamingDataset

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about its defaults
        dataset = StreamingDataset(local=source, shuffle=True, batch_size=BATCH)
    return StreamingDataLoader(dataset, batch_size=BATCH, num_workers=workers)


def write_litdata(folder: Path) -> str:
    """Write chunks of litData, in a process of its own: it changes how processes start from then on."""
    import litdata  # noqa: F401  # raised here if it is missing

    if not (folder / "litdata").exists():
        elsewhere(optimize, folder)
    return str(folder / "litdata")


def optimize(folder: Path) -> None:
    """Write chunks of litData by its own processes."""
    import litdata

    path = folder / "x.npy"
    row, numbers = functools.partial(row_of, path=path), list(range(len(vectors(path))))
    litdata.optimize(row, numbers, str(folder / "litdata"), num_workers=1, chunk_bytes="64MB", verbose=False)


def open_litdata(source: str, workers: int, **options: Any) -> Loader:
    """Return litData's loader, by default with its shuffle of blocks of 256 neighbours, and of the rows in each."""
    from litdata import StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(source, shuffle=True, **options)
    return StreamingDataLoader(dataset, batch_size=BATCH, num_workers=workers)


def open_whole_chunks(source: str, workers: int) -> Loader:
    """Return litData's loader with the rows of each chunk shuffled, which is fastest if chunks are decoded whole."""
    return open_litdata(source, workers, item_shuffle_window="full", batch_decode="all")


def write_records(folder: Path) -> list[str]:
    """Write records, each one apart, as grain wants them to be read at random.

    They lie in files of 2000, as a read takes longer the more records its file has.
    """
    from array_record.python.array_record_module import ArrayRecordWriter

    values = columns(folder)
    records = numpy.empty(len(values["x"]), RECORD)
    for name, column in values.items():
        records[name] = column
    paths = []
    for first in range(0, len(records), PER_FILE):
        paths.append(str(folder / f"rows-{first:06}.array_record"))
        writer = ArrayRecordWriter(paths[-1], "group_size:1")
        for record in records[first : first + PER_FILE]:
            writer.write(record.tobytes())
        writer.close()
    return paths


def parse(record: bytes) -> dict[str, Any]:
    """Return the fields of a record."""
    found = numpy.frombuffer(record, RECORD)[0]
    return {"x": found["x"], "number": found["number"], "label": found["label"]}


class GrainLoader:
    """Grain's iterator, which keeps its state itself, as a loader.

    Without workers it has no threads, either, which is faster where files are in memory.
    """

    def __init__(self, source: list[str], workers: int) -> None:
        import grain

        if workers:
            from absl import flags

            flags.FLAGS.mark_as_parsed()  # else grain's workers do not start in a program without absl
        rows = grain.MapDataset.source(grain.sources.ArrayRecordDataSource(source))
        batches = rows.shuffle(seed=SEED).map(parse).batch(BATCH)
        if workers:
            options = grain.MultiprocessingOptions(num_workers=workers)
            self._iterator = iter(batches.to_iter_dataset().mp_prefetch(options))
        else:
            options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
            self._iterator = iter(batches.to_iter_dataset(options))

    def __iter__(self) -> Iterator[Any]:
        """Return the iterator."""
        return self._iterator

    def state_dict(self) -> Any:
        """Return the iterator's state."""
        return self._iterator.get_state()

    def load_state_dict(self, state: Any) -> None:
        """Go to a state."""
        self._iterator.set_state(state)


WAYS = (
    Way(LOOM, write_parquet, open_loom, workers=(0,)),
    Way(ARROW, write_arrow, open_loom, workers=(0,)),
    Way(NUMPY, write_numpy, open_loom, workers=(0,)),
    Way(MOSAIC, write_mosaic, open_mosaic),
    Way(LITDATA, write_litdata, open_litdata),
    Way(WHOLE_CHUNKS, write_litdata, open_whole_chunks),
    Way(GRAIN, write_records, GrainLoader),
)


def write_all(folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Write the files of each way; return what opens them, and the reasons why some peers cannot be measured."""
    sources, missing = {}, {}
    for way in WAYS:
        progress(f"peers: writing {way.name}")
        try:
            sources[way.name] = way.write(folder)
        except ImportError as error:
            missing[way.name] = f"not installed: {error}"
    return sources, missing


def numbers_of(batches: Iterable[Any]) -> Any:
    """Return the numbers of the rows of batches."""
    return numpy.concatenate([numpy.asarray(batch["number"]) for batch in batches])


def require_same(name: str, batches: Iterable[Any], x: Any) -> float:
    """Compare all values of an epoch with the rows; return the mean number of blocks of 1000 rows in a batch.

    Raises:
        AssertionError: A value differs, or a row does not come exactly once.
    """
    found, blocks = numpy.zeros(len(x), numpy.int64), []
    for batch in batches:
        number, label = numpy.asarray(batch["number"]), numpy.asarray(batch["label"])
        assert numpy.array_equal(numpy.asarray(batch["x"]), x[number]), f"{name}: vectors differ"
        assert numpy.array_equal(label, number % LABELS), f"{name}: labels differ"
        found[number] += 1
        blocks.append(len(numpy.unique(number // PER_BATCH)))
    assert (found == 1).all(), f"{name}: {(found == 0).sum()} rows are missing, {(found > 1).sum()} come again"
    return float(numpy.mean(blocks))


def fastest_workers(way: Way, source: Any, x: Any) -> dict[str, Any]:
    """Compare the values of an epoch with each number of workers; return the fastest number, and its facts."""
    seconds: dict[int, float] = {}
    blocks: dict[int, float] = {}
    for workers in way.workers:
        start = time.perf_counter()
        blocks[workers] = require_same(way.name, way.open(source, workers), x)
        seconds[workers] = time.perf_counter() - start
        progress(f"peers: {way.name}, {workers} workers: values are equal, {seconds[workers]:.4g} s")
    fastest = min(seconds, key=lambda workers: seconds[workers])
    return {"workers": fastest, "seconds_by_workers": seconds, "blocks_in_a_batch": round(blocks[fastest], 1)}


def resumed(make: Make, rows: int) -> dict[str, Any]:
    """Stop in the middle of an epoch and continue with another loader; count rows that are lost and repeated."""
    loader = make()
    iterator = iter(loader)
    before = numbers_of(next(iterator) for _ in range(rows // BATCH // 2))
    state = copy.deepcopy(loader.state_dict())
    expected = numbers_of(iterator)
    del iterator, loader

    start = time.perf_counter()
    loader = make()
    opened = time.perf_counter()
    loader.load_state_dict(state)
    iterator = iter(loader)
    first = next(iterator)
    end = time.perf_counter()

    after = numbers_of([first, *iterator])
    times = numpy.bincount(numpy.concatenate([before, after]), minlength=rows)
    return {
        "seconds_to_open": opened - start,
        "seconds_from_state_to_first_batch": end - opened,
        "rows_before": len(before),
        "rows_lost": int((times == 0).sum()),
        "rows_repeated": int((times - 1).clip(0).sum()),
        "same_order": numpy.array_equal(after, expected),
    }


def measure_peers(folder: Path, rounds: int, scale: float) -> dict[str, Any]:
    """Measure rows that each library reads from files of its own."""
    x = numpy.random.default_rng(SEED).standard_normal((round(ROWS * scale), WIDTH), numpy.float32)
    numpy.save(folder / "x.npy", x)
    sources, missing = write_all(folder)
    candidates, makes = [], {}
    for way in WAYS:
        if way.name in missing:
            continue
        facts = fastest_workers(way, sources[way.name], x)
        makes[way.name] = functools.partial(way.open, sources[way.name], facts["workers"])
        candidates.append(candidate(way, makes[way.name], facts))

    timings = interleave("peers", candidates, rounds)
    looms = (LOOM, ARROW, NUMPY)
    claims = [
        Claim.of_ratio(f"peers: time of {name}, times that of {loom}", timings[name], timings[loom], ">=", BOUND)
        for name in timings
        if name not in looms
        for loom in looms
    ]
    resumes = {name: resumed(make, len(x)) for name, make in makes.items()}
    for name, found in resumes.items():
        print(f"resume of {name}: {found}")
    heads = {"workers": "workers", "blocks": "blocks_in_a_batch", "processor s": "processor_seconds"}
    figures = report("peers", timings, claims, heads, missing, bar=(ARROW, ARROW))
    return {"part": "peers", "rows": len(x), "resume": resumes, **figures}


def candidate(way: Way, make: Make, facts: dict[str, Any]) -> Candidate:
    """Return the candidate that opens its files and makes an epoch; a peer was warmed up by its comparison.

    The fewest seconds of processors of an epoch are a fact of it: other processes change them least.
    """

    def run() -> None:
        start = seconds_of_processors()
        exhaust(make())
        spent = seconds_of_processors() - start
        facts["processor_seconds"] = round(min(spent, facts.get("processor_seconds", spent)), 2)

    return Candidate(way.name, run, facts, slow=len(way.workers) > 1)
