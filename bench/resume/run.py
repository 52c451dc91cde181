"""Describe one run: which loader, which trainer, where it saves, where it dies; and keep what it trained."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

# What happens to a run: (name, share of the second epoch that is saved, ranks that go on)
EVENTS = (
    ("mid-epoch", 0.5, 2),
    ("mid-epoch, half the ranks", 0.5, 1),
    ("mid-epoch, twice the ranks", 0.5, 4),
    ("last batch", 1.0, 2),
    ("last batch, half the ranks", 1.0, 1),
    ("last batch, twice the ranks", 1.0, 4),
)


@dataclass(frozen=True)
class Run:
    """One attempt of a run: all ranks of it have the same."""

    trainer: str
    loader: str
    rule: str
    folder: str
    world: int
    epochs: int = 3
    # The steps of a rank after which a checkpoint is saved; every so often, as trainers count.
    save_every: int | None = None
    # The checkpoint after which this attempt dies, by SIGKILL, so many steps later.
    kill_after: int | None = None
    kill_steps: int = 1
    resume: bool = False

    @property
    def attempt(self) -> int:
        """0 for a run from the beginning, 1 for the one that goes on."""
        return int(self.resume)


class Record:
    """Writes down what a rank trained: a line a batch, at once, so that a killed process leaves it complete."""

    def __init__(self, run: Run, rank: int) -> None:
        self.run, self.rank, self.steps, self.saved = run, rank, 0, None
        path = Path(run.folder) / f"trained-{run.attempt}-{rank}.jsonl"
        # Open until the process dies.
        self._file = path.open("a", buffering=1)

    def trained(self, epoch: int, samples: Iterable[int]) -> None:
        """Note a batch that was trained; die if this is where the run dies."""
        self.steps += 1
        self._file.write(json.dumps([epoch, [int(sample) for sample in samples]]) + "\n")

    def checkpoint(self) -> None:
        """Note that everything so far is in a checkpoint."""
        self.saved = self.steps
        self._file.write(json.dumps("saved") + "\n")

    def die_if_due(self) -> None:
        """Send SIGKILL to this process, if the checkpoint and the steps after it are done."""
        due = self.run.kill_after
        if due is not None and self.steps >= due + self.run.kill_steps:
            os.kill(os.getpid(), signal.SIGKILL)


def trained(folder: str, attempt: int, saved_only: bool) -> list[list[tuple[int, list[int]]]]:
    """Return the batches of each rank, as (epoch, samples); up to the last checkpoint, if only saved ones count."""
    found = []
    for path in sorted(Path(folder).glob(f"trained-{attempt}-*.jsonl"), key=lambda path: int(path.stem.split("-")[2])):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        if saved_only:
            lines = lines[: max((place for place, line in enumerate(lines) if line == "saved"), default=0)]
        found.append([(line[0], line[1]) for line in lines if line != "saved"])
    return found


@dataclass(frozen=True)
class Verdict:
    """The samples that a resumed run trained, beside those that it should have."""

    lost: int
    repeated: int
    # None where the number of ranks changed: then no order is promised.
    same_order: bool | None
    finished: bool = True

    def __str__(self) -> str:
        if not self.finished:
            return "fails"
        order = {None: "", True: ", same order", False: ", another order"}[self.same_order]
        return f"{self.lost} lost, {self.repeated} repeated{order}"


def counted(ranks: Iterable[list[tuple[int, list[int]]]], wanted: numpy.ndarray, epochs: int) -> tuple[int, int]:
    """Return the samples that were lost and repeated, of those that are wanted so often in each epoch.

    One that comes twice in an epoch and not at all in the next is repeated and lost.
    """
    counts = numpy.zeros((epochs, len(wanted)), dtype=int)
    for rank in ranks:
        for epoch, batch in rank:
            numpy.add.at(counts[min(epoch, epochs - 1)], batch, 1)
    return int(numpy.maximum(wanted - counts, 0).sum()), int(numpy.maximum(counts - wanted, 0).sum())


def verdict(whole: str, resumed: str, wanted: numpy.ndarray, epochs: int) -> Verdict:
    """Count what a run that was killed and resumed trained; compare it with one that was not."""
    before, after = trained(resumed, 0, saved_only=True), trained(resumed, 1, saved_only=False)
    same = None
    if len(before) == len(after):
        same = [a + b for a, b in zip(before, after, strict=True)] == trained(whole, 0, saved_only=False)
    return Verdict(*counted((*before, *after), wanted, epochs), same, bool(after))


def free_port() -> int:
    """Return a port that nobody listens on."""
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def environment(rank: int, world: int, port: int) -> dict[str, str]:
    """Return what torchrun sets for a rank."""
    return {
        **{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)},
        **{"GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "resume"},
    }


def save_json(path: Path, value: Any) -> None:
    """Write a checkpoint as one that a kill leaves whole: to another name first."""
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(value))
    part.replace(path)
