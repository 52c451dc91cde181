"""Ray Train's TorchTrainer, whose workers make their loaders; a run of the same name goes on from its checkpoint."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ray
import ray.train
import ray.train.torch
import torch

from bench.resume import peers
from bench.resume.run import Record, Run, save_json

LOADERS = ("batchloom", "torch")


def start(run: Run) -> bool:
    """Run all workers; return whether they ended without an error."""
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    if not ray.is_initialized():
        here = {"PYTHONPATH": os.environ.get("PYTHONPATH", str(Path(__file__).parents[3]))}
        ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": here})
    trainer = ray.train.torch.TorchTrainer(
        loop,
        train_loop_config=asdict(run),
        scaling_config=ray.train.ScalingConfig(num_workers=run.world),
        run_config=ray.train.RunConfig(name="resume", storage_path=run.folder),
        torch_config=ray.train.torch.TorchConfig(backend="gloo"),
    )
    try:
        trainer.fit()
    except Exception as error:
        (Path(run.folder) / f"output-{run.attempt}.txt").write_text(repr(error))
        return False
    return True


def loop(config: dict[str, Any]) -> None:
    """Train one rank."""
    torch.set_num_threads(1)
    run, context = Run(**config), ray.train.get_context()
    rank, ours = context.get_world_rank(), config["loader"] == "batchloom"
    model = ray.train.torch.prepare_model(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    loader = peers.batchloom(run.rule) if ours else peers.of_torch(run.rule, rank, run.world)
    record, first, skip = Record(run, rank), 0, 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            saved = json.loads((Path(folder) / "place.json").read_text())
        if ours:
            loader.load_state_dict(saved["loader"])
            first = loader.plan().epoch
        else:
            first, skip = saved["epoch"], saved["step"]
    for epoch in range(first, run.epochs):
        if not ours:
            peers.set_epoch(loader, epoch)
        for step, batch in enumerate(loader):
            if epoch == first and step < skip:
                continue
            optimizer.zero_grad()
            model(peers.values_of(batch)).sum().backward()
            optimizer.step()
            record.trained(epoch, peers.samples_of(batch))
            if run.save_every and record.steps % run.save_every == 0:
                _save(loader.state_dict() if ours else None, epoch, step, rank)
                _wait_until_listed(Path(run.folder) / "resume" / "checkpoint_manager_snapshot.json")
                record.checkpoint()
            record.die_if_due()


def _wait_until_listed(path: Path) -> None:
    """Wait until Ray's controller lists the first checkpoint; from another no run goes on."""
    while not path.exists():
        time.sleep(0.05)


def _save(state: Any, epoch: int, step: int, rank: int) -> None:
    """Report a checkpoint; rank 0 has it."""
    with tempfile.TemporaryDirectory() if rank == 0 else contextlib.nullcontext() as folder:
        if folder is not None:
            save_json(Path(folder) / "place.json", {"loader": state, "epoch": epoch, "step": step + 1})
        checkpoint = None if folder is None else ray.train.Checkpoint.from_directory(folder)
        ray.train.report({"epoch": epoch}, checkpoint=checkpoint)
