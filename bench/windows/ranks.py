"""Train in two and in four data-parallel processes, with the stacking pipeline and with batchloom.

Promises:

- The ranks are processes of their own under torch.distributed, with gloo (NCCL where each rank has a GPU), and the
  model is wrapped in ``DistributedDataParallel``. They live as long as the measurement, so no start of a process is in
  a figure, and each computes on its share of the cores.
- Stacking takes the batches of its rank as a list from batchloom's plan, because torch's ``DistributedSampler`` would
  give it another one. So both sides train on the same batches, and their losses must be the same.
- An epoch takes as long as its slower rank. After each, all ranks had as many steps and have the same parameters, or
  the run ends. The plans of the ranks hold each window once, but for those that fill the last step of runs, which may
  begin in the middle of a batch: also checked.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from bench.harness.claims import stated
from bench.harness.measure import Candidate, Timing, interleave
from bench.harness.report import print_disturbed, table
from bench.windows.models import KINDS, PUBLISHED, SMALL, WINDOWS, Kind, Loss, same_losses, train
from bench.windows.peers import MODES, PER_BATCH, PRELOADED, RANDOM, RUNS, STACK, STACK_RANDOM, Slices
from bench.windows.series import Epochs, Series, Shuffle, Sizes
from bench.windows.setting import Setting, wait

WORLDS, STEPS, MOST_ROUNDS = (2, 4), 30, 3
# Each mode, and the stacking pipeline in the same order; that of runs is not measured.
AGAINST = {PER_BATCH: STACK, PRELOADED: STACK, RANDOM: STACK_RANDOM}
ORDER = (STACK, PER_BATCH, PRELOADED, RUNS, STACK_RANDOM, RANDOM)


@dataclass(frozen=True)
class Job:
    """The model, the windows and the device that all ranks train on.

    Attributes:
        kind: The number of the model: models are made of functions, which no process can send to another.
    """

    world: int
    kind: int
    published: bool
    sizes: Sizes
    steps: int
    device: str
    rendezvous: str

    def series(self) -> Series:
        """Draw a series that gives every rank so many full batches."""
        return Series.of_batches(self.sizes, self.steps * self.world)

    def model(self) -> Loss:
        """Make the model."""
        width = PUBLISHED if self.published else SMALL
        return Loss(KINDS[self.kind].make(self.sizes, width), self.sizes.horizon)


def serve(rank: int, connection: Connection, job: Job) -> None:
    """Be a rank: run an epoch in each mode that is asked for, until ``None`` is."""
    torch.set_num_threads(max(len(os.sched_getaffinity(0)) // job.world, 1))
    device, backend = place(job, rank)
    distributed.init_process_group(backend, init_method=f"file://{job.rendezvous}", rank=rank, world_size=job.world)
    series = job.series()
    epochs = {mode: MODES[mode].epochs(series, device) for mode in ORDER}
    for mode in iter(connection.recv, None):
        connection.send(epoch(job, epochs[mode], device))
    distributed.destroy_process_group()


def place(job: Job, rank: int) -> tuple[torch.device, str]:
    """Return the device of a rank, and the backend of its gradients."""
    if torch.device(job.device).type == "cpu":
        return torch.device(job.device), "gloo"
    count = torch.cuda.device_count()
    return torch.device("cuda", rank % count), "nccl" if count >= job.world else "gloo"


def epoch(job: Job, epochs: Epochs, device: torch.device) -> dict[str, Any]:
    """Train for an epoch, beginning with all other ranks; return its seconds, waits, losses and parameters."""
    torch.manual_seed(0)
    model = DistributedDataParallel(job.model().to(device))
    optimizer = torch.optim.Adam(model.parameters())
    distributed.barrier()
    start = time.perf_counter()
    losses, waited = train(model, optimizer, epochs())
    wait(device)
    seconds = time.perf_counter() - start
    parameters = [parameter.detach().double().sum().item() for parameter in model.parameters()]
    return {
        "seconds": seconds,
        "waited": waited,
        "losses": torch.stack(losses).tolist(),
        "parameters": parameters,
    }


@dataclass
class Ranks:
    """The processes, and the losses of each mode that they ran; they end with the context."""

    job: Job
    losses: dict[str, list[list[float]]] = field(default_factory=dict)

    def __enter__(self) -> Ranks:
        context = get_context("spawn")
        pairs = [context.Pipe() for _ in range(self.job.world)]
        self._connections = [ours for ours, _ in pairs]
        self._processes = [
            context.Process(target=serve, args=(rank, theirs, self.job), daemon=True)
            for rank, (_, theirs) in enumerate(pairs)
        ]
        for process, (_, theirs) in zip(self._processes, pairs, strict=True):
            process.start()
            theirs.close()
        return self

    def __exit__(self, *error: object) -> None:
        for connection, process in zip(self._connections, self._processes, strict=True):
            if process.is_alive():
                connection.send(None)
        for process in self._processes:
            process.join(30)

    def run(self, mode: str) -> float:
        """Run an epoch on all ranks; return the seconds of the slowest."""
        for connection in self._connections:
            connection.send(mode)
        try:
            answers = [connection.recv() for connection in self._connections]
        except EOFError as error:
            raise SystemExit(f"a rank died in the mode {mode}") from error
        self._check(mode, answers)
        self.losses[mode] = [answer["losses"] for answer in answers]
        return max(answer["seconds"] for answer in answers)

    def _check(self, mode: str, answers: list[dict[str, Any]]) -> None:
        first = answers[0]
        for answer in answers:
            if len(answer["losses"]) != len(first["losses"]) or answer["parameters"] != first["parameters"]:
                raise SystemExit(f"{mode}: the ranks differ in their steps or in their parameters")


def check_plans(series: Series, shuffle: Shuffle, world: int) -> None:
    """Put the plans of all ranks together; stop unless each window is there once, but for those that fill the end."""
    plans = [series.loader(shuffle=shuffle, rank=rank, world_size=world).plan(0) for rank in range(world)]
    seen = Counter(window for plan in plans for batch in plan for window in batch.tolist())
    again = seen.total() - len(seen)
    if seen.keys() != set(range(len(Slices(series)))) or again != plans[0].stats()["repeated"]:
        raise SystemExit(
            f"shuffle={shuffle!r}: the plans of {world} ranks hold {len(seen)} of {len(Slices(series))} windows, and "
            f"{again} of them again; expected all, and {plans[0].stats()['repeated']} again to fill the last step"
        )


def measure_ranks(setting: Setting) -> dict[str, Any]:
    """Train in every mode, in two and in four processes; return its record for the JSON.

    One model stands for all, unless the published ones are asked for.
    """
    kinds = KINDS if setting.published else KINDS[:1]
    cases = [measure_case(setting, number, world) for number in range(len(kinds)) for world in WORLDS]
    return {"sizes": asdict(setting.sizes(WINDOWS)), "cases": cases}


def measure_case(setting: Setting, number: int, world: int) -> dict[str, Any]:
    """Train one model in every mode, in so many processes; return its record for the JSON."""
    sizes, steps = setting.sizes(WINDOWS), setting.scaled(STEPS)
    with tempfile.TemporaryDirectory() as folder:
        rendezvous = str(Path(folder) / "rendezvous")
        job = Job(world, number, setting.published, sizes, steps, str(setting.device), rendezvous)
        for shuffle in (False, "runs", True):
            check_plans(job.series(), shuffle, world)
        with Ranks(job) as ranks:
            modes = [Candidate(mode, partial(ranks.run, mode), {"steps": steps}, slow=True) for mode in ORDER]
            for mode in ORDER:
                ranks.run(mode)  # to warm up
            timings = interleave(f"{world} ranks", modes, min(setting.rounds, MOST_ROUNDS))
    return {"world_size": world, "model": KINDS[number].name, **report(KINDS[number], world, ranks.losses, timings)}


def report(kind: Kind, world: int, losses: dict[str, list[list[float]]], timings: dict[str, Timing]) -> dict[str, Any]:
    """Print the measurements; return them for the JSON."""
    for mode, timing in timings.items():
        timing.candidate.facts["losses"] = losses[mode]
    differences = {mode: difference(losses[mode], losses[peer]) for mode, peer in AGAINST.items()}
    for mode, most in differences.items():
        timings[mode].candidate.facts["loss_difference"] = most
    heads = ("mode", "median s", "min s", "x stacking", "loss differs by")
    rows = []
    for mode, timing in timings.items():
        differs = f"{differences[mode]:.2g}" if mode in differences else ""
        ratio = timing.ratio(timings[AGAINST.get(mode, STACK)])
        rows.append((mode, f"{timing.median:.3f}", f"{timing.minimum:.3f}", f"{ratio:.3f}", differs))
    title = f"{world} ranks, {kind.name}"
    table(title, heads, rows)
    print_disturbed(title, timings)
    against = {"stacking": timings[STACK], "stacking_random": timings[STACK_RANDOM]}
    candidates = [timing.record(against) for timing in timings.values()]
    return {"candidates": candidates, "claims": stated(same_losses(title, differences))}


def difference(mine: list[list[float]], theirs: list[list[float]]) -> float:
    """Return the largest difference between a rank's losses in two modes."""
    pairs = zip(mine, theirs, strict=True)
    return max(abs(one - other) for each in pairs for one, other in zip(*each, strict=True))
