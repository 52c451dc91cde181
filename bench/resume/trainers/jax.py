"""Two processes of ``jax.distributed``, with global arrays; checkpoints are files that the first process writes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jax
import jax._src.distributed
import numpy

from bench.resume import peers
from bench.resume.run import Record, Run, save_json

# grain is what JAX's users resume with.
LOADERS = ("batchloom", "grain")


def skips(loader: str, rule: str) -> bool:
    """Return whether this loader cannot be had here: grain has no batches by tokens."""
    return loader not in LOADERS or (loader == "grain" and rule != "rows")


def work(run: Run, rank: int) -> None:
    """Train one rank."""
    jax.distributed.initialize(
        f"127.0.0.1:{os.environ['MASTER_PORT']}", num_processes=run.world, process_id=rank, initialization_timeout=60
    )
    (_batchloom if run.loader == "batchloom" else _grain)(run, rank)
    # The first process coordinates: the others end with it.
    _wait("done")
    jax.distributed.shutdown()


def _wait(name: str) -> None:
    """Wait for the other processes."""
    jax._src.distributed.global_state.client.wait_at_barrier(name, 60_000)


def _train(weight: Any, batch: Any) -> Any:
    array = batch["x"] if "x" in batch else batch["input_ids"]
    # In NumPy, as JAX would compile it again for each shape.
    return weight - 1e-6 * float(numpy.asarray(array).mean())


def _batchloom(run: Run, rank: int) -> None:
    loader = peers.batchloom(run.rule, output="jax")
    record, path, weight = Record(run, rank), Path(run.folder) / "checkpoint.json", jax.numpy.zeros(())
    if run.resume:
        loader.load_state_dict(json.loads(path.read_text()))
    while (epoch := loader.plan().epoch) < run.epochs:
        for batch in loader:
            weight = _train(weight, batch)
            record.trained(epoch, peers.samples_of(batch))
            if run.save_every and record.steps % run.save_every == 0:
                if rank == 0:
                    save_json(path, loader.state_dict())
                record.checkpoint()
                _wait(f"saved-{record.steps}")
            record.die_if_due()


def _grain(run: Run, rank: int) -> None:
    """Each process reads its shard; the state of its iterator is a file."""
    import grain

    sampler = grain.samplers.IndexSampler(
        num_records=peers.SAMPLES,
        shard_options=grain.sharding.ShardOptions(rank, run.world, drop_remainder=True),
        shuffle=True,
        num_epochs=run.epochs,
        seed=peers.SEED,
    )
    source = [{"x": row} for row in peers.rows().numpy()]
    loader = grain.DataLoader(data_source=source, sampler=sampler, operations=[grain.transforms.Batch(peers.BATCH)])
    batches, record, weight = iter(loader), Record(run, rank), jax.numpy.zeros(())
    held = sorted(Path(run.folder).glob("checkpoint-*.bin"))
    if run.resume:
        batches.set_state(held[rank % len(held)].read_bytes())
    before = int(held[0].with_suffix(".steps").read_text()) if run.resume else 0
    of_epoch = peers.SAMPLES // run.world // peers.BATCH
    for step, batch in enumerate(batches, before):
        weight = _train(weight, batch)
        record.trained(step // of_epoch, peers.samples_of(batch))
        if run.save_every and record.steps % run.save_every == 0:
            path = Path(run.folder) / f"checkpoint-{rank}.bin"
            path.write_bytes(batches.get_state())
            path.with_suffix(".steps").write_text(str(step + 1))
            record.checkpoint()
            _wait(f"saved-{record.steps}")
        record.die_if_due()
