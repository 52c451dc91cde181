"""A loop by hand under torchrun's variables, two processes of gloo."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import torch.distributed

from bench.resume import peers
from bench.resume.processes import launch
from bench.resume.run import Record, Run, save_json

LOADERS = ("batchloom", "torch", "stateful", "litdata")
# Rules of two loaders.
PARTS = ("turns",)


def skips(loader: str, rule: str) -> bool:
    """Return whether this loader cannot be had here: litData has no batches by tokens."""
    return loader == "litdata" and rule != "rows"


def start(run: Run) -> bool:
    """Run all ranks; return whether they ended without an error."""
    if run.loader == "litdata" and not _chunks(run).exists():
        peers.chunks_of_litdata(str(_chunks(run)))
    return launch(run, work)


def _chunks(run: Run) -> Path:
    """Return the folder of litData's chunks: its states refuse another."""
    return Path(run.folder).parent / "chunks"


def work(run: Run, rank: int) -> None:
    """Train one rank."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    if run.loader == "batchloom":
        _batchloom(run, rank)
    else:
        _torch(run, rank)
    torch.distributed.destroy_process_group()


def _step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: object) -> None:
    optimizer.zero_grad()
    model(peers.values_of(batch)).sum().backward()
    optimizer.step()


def _batchloom(run: Run, rank: int) -> None:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    loader, record, path = peers.batchloom(run.rule), Record(run, rank), Path(run.folder) / "checkpoint.json"
    if run.resume:
        loader.load_state_dict(json.loads(path.read_text()))
    for epoch in range(loader.epoch, run.epochs):
        for batch in loader:
            _step(model, optimizer, batch)
            record.trained(epoch, peers.samples_of(batch))
            if run.save_every and record.steps % run.save_every == 0:
                if rank == 0:
                    save_json(path, loader.state_dict())
                record.checkpoint()
                torch.distributed.barrier()
            record.die_if_due()


def _torch(run: Run, rank: int) -> None:
    """Save the epoch and the step, and skip so many batches, as people do; torchdata's loader has a state a rank."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    stateful = run.loader in ("stateful", "litdata")
    if run.loader == "litdata":
        loader = peers.of_litdata(str(_chunks(run)))
    else:
        loader = peers.of_torch(run.rule, rank, run.world, stateful)
    record, start, skip = Record(run, rank), 0, 0
    if run.resume:
        held = sorted(Path(run.folder).glob("checkpoint-*.json"))
        saved = json.loads(held[rank % len(held)].read_text())
        start, skip = saved["epoch"], saved["step"]
        if stateful:
            loader.load_state_dict(saved["loader"])
            skip = 0
    for epoch in range(start, run.epochs):
        peers.set_epoch(loader, epoch)
        for step, batch in enumerate(loader):
            if epoch == start and step < skip:
                continue
            if run.loader == "litdata":
                # It counts epochs itself, and may go on with the next one.
                epoch = loader.current_epoch - 1
                if epoch == run.epochs:
                    return
            _step(model, optimizer, batch)
            record.trained(epoch, peers.samples_of(batch))
            if run.save_every and record.steps % run.save_every == 0:
                loader_state = loader.state_dict() if stateful else None
                place = {"epoch": epoch, "step": step + 1}
                save_json(Path(run.folder) / f"checkpoint-{rank}.json", {**place, "loader": loader_state})
                record.checkpoint()
                torch.distributed.barrier()
            record.die_if_due()
