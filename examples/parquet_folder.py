"""Trains over a folder of Parquet larger than the memory it may have, is killed, and goes on with other ranks.

A folder of documents is written: lists of tokens with a label each, 400 MB once they are decoded. Two processes then
read an epoch of it in batches of a token budget, each under a limit of private memory smaller than the data: the loader
holds 64 MB of chunks. Each writes its state and the documents it has used after every tenth step, and is killed
in the middle. Three processes go on from the last state. Every document of the epoch is used exactly once.

    python examples/parquet_folder.py
"""

import json
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
from pathlib import Path

import batchloom as bl
import numpy
import pyarrow as pa
import pyarrow.parquet as pq

FILES, DOCUMENTS, MOST_TOKENS = 8, 4000, 6000
MEMORY, LIMIT = "64MB", 256 << 20
RANKS_BEFORE, RANKS_AFTER, KEPT_EVERY, KILLED_AT = 2, 3, 10, 65


def write_folder(folder: Path) -> int:
    """Write the folder; return the bytes of its tokens."""
    order, total = numpy.random.default_rng(0), 0
    for file in range(FILES):
        lengths = order.integers(1, MOST_TOKENS, DOCUMENTS)
        tokens = order.integers(0, 50_257, int(lengths.sum()), dtype=numpy.int32)
        offsets = numpy.concatenate([[0], numpy.cumsum(lengths)]).astype(numpy.int32)
        documents = pa.ListArray.from_arrays(pa.array(offsets), pa.array(tokens))
        numbers = numpy.arange(file * DOCUMENTS, (file + 1) * DOCUMENTS)
        table = pa.table({"input_ids": documents, "number": numbers})
        pq.write_table(table, folder / f"part-{file}.parquet", compression="zstd")
        total += tokens.nbytes
    return total


def read(folder: Path, rank: int, world_size: int, dies: bool) -> None:
    """Read what a rank has of an epoch, from the state that was kept, if there is one."""
    status = Path("/proc/self/status").read_text()
    used = int(status.partition("VmData:")[2].split()[0]) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (used + LIMIT, resource.RLIM_INFINITY))
    dataset = bl.open(folder / "*.parquet", columns=["input_ids", "number"], memory=MEMORY)
    rule = bl.TokenBudget(65_536)
    loader = bl.DataLoader(
        dataset,
        batching=rule,
        shuffle=True,
        uneven="short",
        world_size=world_size,
        rank=rank,
        num_threads=1,
        prefetch=1,
    )
    kept = folder / "state.json"
    if kept.exists():
        loader.load_state_dict(json.loads(kept.read_text()))
    seen: list[int] = []
    for step, batch in enumerate(loader, 1):
        seen += batch["number"].tolist()
        if dies and step == KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        if dies and step % KEPT_EVERY == 0:
            keep(folder / f"seen-{world_size}-{rank}.json", seen)
            keep(folder / f"state-{rank}.json", loader.state_dict())
    if not dies:
        keep(folder / f"seen-{world_size}-{rank}.json", seen)


def keep(path: Path, value: object) -> None:
    """Write a value that is whole wherever the process is killed."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value))
    part.replace(path)


def run(folder: Path, world_size: int, dies: bool) -> list[int]:
    """Run the ranks of a world, each a process of its own; return the documents that they have used."""
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=read, args=(folder, rank, world_size, dies)) for rank in range(world_size)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
        if rank.exitcode != (-signal.SIGKILL if dies else 0):
            raise SystemExit(f"a rank ended with {rank.exitcode}")
    kept = [folder / f"seen-{world_size}-{rank}.json" for rank in range(world_size)]
    return [number for path in kept for number in json.loads(path.read_text())]


def main() -> None:
    """Write, read, die, and go on."""
    if sys.platform != "linux":
        raise SystemExit("the limit of memory is that of Linux")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        total = write_folder(folder)
        before = run(folder, RANKS_BEFORE, dies=True)
        (folder / "state-0.json").replace(folder / "state.json")
        after = run(folder, RANKS_AFTER, dies=False)
    count = FILES * DOCUMENTS
    print(f"{count} documents of {total >> 20} MiB, in processes of at most {LIMIT >> 20} MiB more")
    print(f"  {RANKS_BEFORE} ranks used {len(before)} and were killed, {RANKS_AFTER} ranks used the other {len(after)}")
    if sorted(before + after) != list(range(count)):
        raise SystemExit("an epoch is every document once")


if __name__ == "__main__":
    main()
