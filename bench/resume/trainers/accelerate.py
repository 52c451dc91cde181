"""A loop of Accelerate: ``prepare``, ``save_state``, ``load_state``, ``skip_first_batches``, as its guide has it."""

from __future__ import annotations

import json
from pathlib import Path

import accelerate

# Accelerate imports it when it prepares a loader of torch's, for seconds: once here, rather than in every process.
import datasets  # noqa: F401
import torch

from bench.resume import peers
from bench.resume.run import Record, Run, save_json

LOADERS = ("batchloom", "torch", "stateful")


def work(run: Run, rank: int) -> None:
    """Train one rank."""
    torch.set_num_threads(1)
    ours, stateful = run.loader == "batchloom", run.loader == "stateful"
    settings = accelerate.DataLoaderConfiguration(use_stateful_dataloader=stateful, use_seedable_sampler=True)
    accelerator = accelerate.Accelerator(cpu=True, dataloader_config=settings)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    if ours:
        from batchloom.integrations.accelerate import prepare

        model, optimizer = accelerator.prepare(model, optimizer)
        loader = prepare(accelerator, peers.batchloom(run.rule))
    else:
        given = peers.of_torch(run.rule, rank, run.world, stateful, sharded_by_trainer=True)
        model, optimizer, loader = accelerator.prepare(model, optimizer, given)
    record, folder, start, skip = Record(run, rank), Path(run.folder), 0, 0
    if run.resume:
        accelerator.load_state(str(folder / "saved"))
        place = json.loads((folder / "place.json").read_text())
        start, skip = place["epoch"], place["step"]
        if ours:
            start, skip = loader.plan().epoch, 0
        elif skip == len(loader):
            start, skip = start + 1, 0
    for epoch in range(start, run.epochs):
        loader.set_epoch(epoch)
        taken = skip if epoch == start else 0
        rest = accelerator.skip_first_batches(loader, taken) if taken and not stateful else loader
        for step, batch in enumerate(rest, taken):
            optimizer.zero_grad()
            accelerator.backward(model(peers.values_of(batch)).sum())
            optimizer.step()
            record.trained(epoch, peers.samples_of(batch))
            if run.save_every and record.steps % run.save_every == 0:
                accelerator.save_state(str(folder / "saved"))
                if rank == 0:
                    save_json(folder / "place.json", {"epoch": epoch, "step": step + 1})
                record.checkpoint()
                accelerator.wait_for_everyone()
            record.die_if_due()
    accelerator.end_training()
