"""Trains a small language model on a stream of bytes: two processes, killed in mid-epoch, and one that resumes.

The text is Shakespeare's if ../shared/data holds it, otherwise the help topics that ship with Python. Its speeches (or
paragraphs) are documents. They come whole and in random order, one after the other, and the stream of them is cut into
pieces of equal length, which are shuffled again. Two processes (gloo) share an epoch until they are killed. Then one
process loads their checkpoint and takes exactly what they left. At the end every byte was an input exactly once, on
whichever rank, and the loss has gone on falling.

    python examples/tokens.py
"""

import argparse
import multiprocessing
import os
import signal
import tempfile
import threading
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import batchloom as bl
import numpy
import torch
import torch.distributed as distributed
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

SHAKESPEARE = Path(__file__).parents[2] / "shared" / "data" / "tinyshakespeare.txt"
SEQ_LEN, BATCH, WORLD = 128, 8, 2
WIDTH, HEADS, LAYERS, LEARNING_RATE = 64, 4, 2, 3e-3
SHOWN = 10  # steps that a printed loss is averaged over

Numbers = numpy.ndarray[Any, numpy.dtype[Any]]


@dataclass
class Text:
    """Bytes, and the offsets of the documents in them."""

    tokens: Numbers
    offsets: Numbers

    @classmethod
    def load(cls, characters: int) -> "Text":
        """Return the beginning of the text."""
        if SHAKESPEARE.exists():
            text = SHAKESPEARE.read_text(encoding="utf-8")
        else:
            from pydoc_data.topics import topics

            text = "\n\n".join(topics.values())
        documents = [f"{part}\n\n".encode() for part in text[:characters].split("\n\n") if part.strip()]
        offsets = numpy.cumsum([0] + [len(document) for document in documents])
        return cls(numpy.frombuffer(b"".join(documents), numpy.uint8), offsets)

    def loaders(self) -> tuple[bl.DataLoader, bl.DataLoader]:
        """Return a loader of the bytes, and one of their positions, which follows the same plan."""
        numbers = numpy.arange(len(self.tokens), dtype=numpy.int32)
        # With "short" no piece is repeated to fill the last step, so each comes exactly once.
        options: dict[str, Any] = {"batch_size": BATCH, "shuffle": True, "seed": 1, "uneven": "short"}
        # For training: the end of the stream, too short for a piece, is left out.
        stream: dict[str, Any] = {"documents": self.offsets, "tail": "drop"}
        datasets = (bl.TokenDataset(values, SEQ_LEN, **stream) for values in (self.tokens, numbers))
        tokens, places = (bl.DataLoader(dataset, output="torch", **options) for dataset in datasets)
        return tokens, places


class Model(nn.Module):
    """A small transformer that guesses the next byte."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(256, WIDTH), nn.Embedding(SEQ_LEN, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.out = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256))
        self.register_buffer("hidden", nn.Transformer.generate_square_subsequent_mask(SEQ_LEN), persistent=False)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of guessing ``labels``, both ``[batch, SEQ_LEN]``."""
        x = self.token(tokens) + self.place.weight
        logits = self.out(self.layers(x, mask=self.hidden, is_causal=True))
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Run:
    """A model in training, the loader that feeds it, and a count of the bytes that it saw."""

    def __init__(self, text: Text, wrap: bool) -> None:
        torch.manual_seed(0)
        # So small a model gains little from a second core, and loses much where something else runs on it.
        torch.set_num_threads(1)
        self.plain = Model()
        self.model = DistributedDataParallel(self.plain) if wrap else self.plain
        self.optimizer = torch.optim.AdamW(self.model.parameters(), LEARNING_RATE)
        self.loader, self.places = text.loaders()
        self.losses: list[float] = []
        self.seen = numpy.zeros(len(text.tokens), numpy.int64)

    def load(self, saved: dict[str, Any]) -> None:
        """Resume from the checkpoint of another run."""
        self.plain.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        for loader in (self.loader, self.places):
            loader.load_state_dict(saved["loader"])

    def save(self) -> dict[str, Any]:
        """Return a checkpoint; the loader's state is the same on every rank."""
        models = {"model": self.plain.state_dict(), "optimizer": self.optimizer.state_dict()}
        return {**models, "loader": self.loader.state_dict()}

    def train(self, name: str, steps: int | None, quiet: bool = False) -> None:
        """Train for some steps, or to the end of the epoch."""
        pairs = islice(zip(self.loader, self.places, strict=True), steps)
        bar = tqdm(pairs, desc=name, total=steps or len(self.loader), leave=False, disable=True if quiet else None)
        for (x, y), (numbers, _) in bar:
            loss = self.model(x, y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.item())
            self.seen += numpy.bincount(numbers.flatten().numpy(), minlength=len(self.seen))
            bar.set_postfix(loss=f"{self.losses[-1]:.2f}")


def be_killed(rank: int, folder: Path, text: Text, steps: int) -> None:
    """Train as one of several processes, save, and be killed before the epoch ends."""
    tqdm.set_lock(threading.RLock())  # the default is a semaphore of the system, which the kill would leave behind
    rendezvous = f"file://{folder / 'rendezvous'}"
    distributed.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=WORLD)
    run = Run(text, wrap=True)
    run.train(f"{WORLD} processes", steps, quiet=rank != 0)
    if rank == 0:
        torch.save(run.save(), folder / "checkpoint")
    torch.save((run.seen, run.losses), folder / f"seen {rank}")
    distributed.barrier()  # until both have saved
    os.kill(os.getpid(), signal.SIGKILL)


def train_and_kill(folder: Path, text: Text, steps: int) -> tuple[list[Numbers], list[float]]:
    """Let processes train until they are killed; return how often each saw each token, and the losses."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=be_killed, args=(rank, folder, text, steps)) for rank in range(WORLD)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if [process.exitcode for process in processes] != [-signal.SIGKILL] * WORLD:
        raise SystemExit("a process ended before it was killed")
    found = [torch.load(folder / f"seen {rank}", weights_only=False) for rank in range(WORLD)]
    return [seen for seen, _ in found], numpy.mean([losses for _, losses in found], axis=0).tolist()


def main() -> None:
    """Train in two processes, kill them, go on in one, and count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--characters", type=int, default=300_000, help="how much of the text to use")
    text = Text.load(parser.parse_args().characters)
    stats = bl.TokenDataset(text.tokens, SEQ_LEN, documents=text.offsets).stats()
    print(f"{stats.tokens} bytes in {stats.documents} documents: {stats.samples} pieces of {SEQ_LEN}")
    steps = stats.samples // (2 * BATCH * WORLD)
    with tempfile.TemporaryDirectory() as folder:
        parts, losses = train_and_kill(Path(folder), text, steps)
        run = Run(text, wrap=False)
        run.load(torch.load(Path(folder) / "checkpoint"))
    run.train("1 process resumes", None)
    for rank, seen in enumerate(parts):
        print(f"rank {rank} of {WORLD}, killed after step {steps}: {seen.sum():7} bytes")
    print(f"rank 0 of 1, to the end of the epoch: {run.seen.sum():7} bytes")
    times = numpy.bincount(sum(parts) + run.seen)
    print(f"seen once: {times[1]}, seen again: {times[2:].sum()}, not seen: {times[0]} (the tail: {stats.tail})")
    if (times[1], times[0], times[2:].sum()) != (stats.inputs, stats.tail, 0):
        raise SystemExit("an epoch is each byte once, less the tail")
    first, killed, last = (numpy.mean(part) for part in (losses[:SHOWN], losses[-SHOWN:], run.losses[-SHOWN:]))
    print(f"loss: {first:.2f} in the first {SHOWN} steps, {killed:.2f} before the kill, {last:.2f} at the end")
    if not last < killed < first:
        raise SystemExit("the loss did not go down")


if __name__ == "__main__":
    main()
