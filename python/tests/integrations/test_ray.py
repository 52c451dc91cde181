"""Ray: a worker that is killed and started again goes on exactly, and sets of Ray Data are read where they lie."""

import json
import subprocess
import sys
from collections import Counter

import pytest

pytest.importorskip("ray", reason="scripts/setup --integrations installs it")

HEAD = """
import json
import os
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

warnings.simplefilter("ignore")
import numpy
import ray
import ray.data
import ray.train
from ray.train.torch import TorchConfig, TorchTrainer

import batchloom as bl
from batchloom.integrations.ray import from_ray, materialize

folder = sys.argv[1]
env = {"env_vars": {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}}
ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, runtime_env=env)
"""

KILLED = (
    HEAD
    + """
def train(config):
    rank = ray.train.get_context().get_world_rank()
    loader = bl.DataLoader(from_ray(config["blocks"]), 10, shuffle=True)
    assert (loader.rank, loader.world_size) == (rank, 2)
    checkpoint = ray.train.get_checkpoint()
    attempt = int(checkpoint is not None)
    if checkpoint:
        with checkpoint.as_directory() as held:
            loader.load_state_dict(json.loads(Path(held, "loader.json").read_text()))
    snapshot = Path(config["folder"], "runs", "killed", "checkpoint_manager_snapshot.json")
    log = open(Path(config["folder"], f"trained-{attempt}-{rank}.jsonl"), "a", buffering=1)
    steps = 0
    while (epoch := loader.plan().epoch) < 2:
        for batch in loader:
            steps += 1
            log.write(json.dumps([epoch, batch["id"].tolist()]) + "\\n")
            if attempt == 0 and steps == 14:
                with tempfile.TemporaryDirectory() as made:
                    Path(made, "loader.json").write_text(json.dumps(loader.state_dict()))
                    saved = ray.train.Checkpoint.from_directory(made) if rank == 0 else None
                    ray.train.report({}, checkpoint=saved)
                log.write("saved\\n")
                while not snapshot.exists():
                    time.sleep(0.05)
            if attempt == 0 and steps == 16:
                os.kill(os.getpid(), signal.SIGKILL)


blocks = materialize(ray.data.range(200, override_num_blocks=4))
run = ray.train.RunConfig(
    name="killed", storage_path=folder + "/runs", failure_config=ray.train.FailureConfig(max_failures=1)
)
TorchTrainer(
    train,
    train_loop_config={"blocks": blocks, "folder": folder},
    scaling_config=ray.train.ScalingConfig(num_workers=2),
    run_config=run,
    torch_config=TorchConfig(backend="gloo"),
).fit()
"""
)


def run(code, folder, *arguments, timeout=115):
    path = folder / "program.py"
    path.write_text(code, encoding="utf-8")
    command = [sys.executable, str(path), str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def test_a_killed_worker_goes_on_where_it_was_saved(tmp_path):
    run(KILLED, tmp_path)
    times = Counter()
    for rank in (0, 1):
        first, second = ((tmp_path / f"trained-{attempt}-{rank}.jsonl").read_text() for attempt in (0, 1))
        kept = first.partition("saved")[0] + second
        batches = [json.loads(line) for line in kept.splitlines()]
        assert len(batches) == 20
        times.update((epoch, sample) for epoch, batch in batches for sample in batch)
    assert times == {(epoch, sample): 1 for epoch in (0, 1) for sample in range(200)}


TURNS = (
    HEAD
    + """
import itertools

import torch

ENDS = ("stop", "repeat", "renormalise")


# Each loader is uneven on two ranks, and one goes round faster than the other.
def made(end, **options):
    rows = {name: bl.TensorDataset(numpy.arange(size)) for name, size in (("a", 22), ("b", 9))}
    parts = {name: bl.DataLoader(part, 4, uneven="mask", shuffle=True, seed=len(part), **options)
             for name, part in rows.items()}
    return bl.interleave(parts, [2, 1], when_exhausted=end)


def told(step):
    name, (row, index, weight) = step
    assert (index[weight > 0] == row[weight > 0]).all() and (index[weight == 0] == -1).all()
    return [name, row[weight > 0].tolist()]


def alike(value):
    \"\"\"Return a value after the ranks have compared it.\"\"\"
    others = [None, None]
    torch.distributed.all_gather_object(others, value)
    assert others == [value, value]
    return value


def fit(train, name, **config):
    return TorchTrainer(
        train,
        train_loop_config={"folder": folder, **config},
        scaling_config=ray.train.ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(name=name, storage_path=folder + "/runs"),
        torch_config=TorchConfig(backend="gloo"),
    ).fit()
"""
)

EVERY_STEP = (
    TURNS
    + """
def train(config):
    rank, found = ray.train.get_context().get_world_rank(), {}
    for end in ENDS:
        whole, seen, states = made(end), [], []
        assert (whole.rank, whole.world_size, torch.distributed.get_backend()) == (rank, 2, "gloo")
        for epoch in range(3):
            whole.set_epoch(epoch)
            for step in whole:
                alike(step[0])
                seen.append(told(step))
                states.append(alike(json.dumps(whole.state_dict())))
        for stop, state in enumerate(states[:-1], 1):
            again, rest = made(end), []
            again.load_state_dict(json.loads(state))
            first, left = again.epoch, again.remaining
            for epoch in range(first, 3):
                again.set_epoch(epoch)
                rest += map(told, again)
                assert epoch > first or len(rest) == left, (end, stop)
            assert rest == seen[stop:], (end, stop)
        found[end] = seen
    Path(config["folder"], f"rank{rank}.json").write_text(json.dumps(found))


fit(train, "every")
"""
)

STOPPED = (
    TURNS
    + """
def train(config):
    rank, runs = ray.train.get_context().get_world_rank(), {end: made(end) for end in ENDS}
    checkpoint = ray.train.get_checkpoint()
    assert (checkpoint is None) == config["is_first"]
    if checkpoint:
        with checkpoint.as_directory() as held:
            for end, state in json.loads(Path(held, "runs.json").read_text()).items():
                runs[end].load_state_dict(state)
    for end, run in runs.items():
        log = open(Path(config["folder"], f"{end}-{rank}.jsonl"), "a", buffering=1)
        for told_step in itertools.islice(steps(run), config["steps"]):
            log.write(json.dumps(told_step) + "\\n")
    with tempfile.TemporaryDirectory() as holding:
        Path(holding, "runs.json").write_text(alike(json.dumps({end: run.state_dict() for end, run in runs.items()})))
        saved = ray.train.Checkpoint.from_directory(holding) if rank == 0 else None
        ray.train.report({}, checkpoint=saved)


def steps(run):
    for epoch in range(run.epoch, 3):
        run.set_epoch(epoch)
        yield from map(told, run)


for place, count in enumerate((4, 3, None)):
    fit(train, "stopped", steps=count, is_first=place == 0)
for end in ENDS:
    for rank in (0, 1):
        lines = Path(folder, f"{end}-{rank}.jsonl").read_text().splitlines()
        whole = made(end, rank=rank, world_size=2)
        assert [json.loads(line) for line in lines] == list(steps(whole)), (end, rank)
"""
)


@pytest.mark.timeout(420)
def test_loaders_that_take_turns_resume_at_every_step(tmp_path):
    """In the workers of one run, which exchange what they have by gloo."""
    run(EVERY_STEP, tmp_path, timeout=400)
    ranks = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1)]
    for end in ("stop", "repeat", "renormalise"):
        for name, size in (("a", 22), ("b", 9)):
            both = zip(*(rank[end] for rank in ranks), strict=True)
            seen = [sample for (each, first), (_, second) in both if each == name for sample in first + second]
            passes = [seen[first : first + size] for first in range(0, len(seen), size)]
            assert len(seen) >= size
            whole = [sorted(samples) for samples in passes if len(samples) == size]
            assert whole == [list(range(size))] * len(whole)
            assert len(set(passes[-1])) == len(passes[-1])


@pytest.mark.timeout(420)
def test_runs_of_loaders_that_take_turns_are_stopped_and_go_on(tmp_path):
    """Stopped twice, with checkpoints of Ray's: in the middle of epochs, and at the end of one of ``"stop"``."""
    run(STOPPED, tmp_path, timeout=400)


def test_a_loader_that_ray_prepares_is_refused_or_stays_as_it_is(tmp_path):
    """By default Ray puts torch's loader, with a sampler, in its place: refused, as it would go another order."""
    run(
        HEAD
        + """
import torch
from ray.train.torch import prepare_data_loader

def train(config):
    rank = ray.train.get_context().get_world_rank()
    made = lambda: bl.DataLoader(bl.TensorDataset(torch.arange(20)), 3, shuffle=True)
    try:
        next(iter(prepare_data_loader(made())))
    except bl.ArgumentError as error:
        assert "expected batches of the loader itself" in str(error), error
    else:
        raise AssertionError
    moved = prepare_data_loader(made(), add_dist_sampler=False)
    assert [batch[0].tolist() for batch in moved] == [batch.tolist() for batch in made().plan(0)]
    Path(config["folder"], f"rank{rank}.json").write_text(json.dumps([batch.tolist() for batch in made().plan(0)]))

TorchTrainer(
    train,
    train_loop_config={"folder": folder},
    scaling_config=ray.train.ScalingConfig(num_workers=2),
    run_config=ray.train.RunConfig(storage_path=folder + "/runs"),
    torch_config=TorchConfig(backend="gloo"),
).fit()
""",
        tmp_path,
    )
    ranks = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1)]
    assert {sample for rank in ranks for batch in rank for sample in batch} == set(range(20))


def test_sets_of_ray_data(tmp_path):
    run(
        HEAD
        + """
def refused(data, *said):
    try:
        from_ray(data)
    except bl.DataError as error:
        assert all(value in str(error) for value in said), error
    else:
        raise AssertionError(said)


pictures = ray.data.range(100, override_num_blocks=3).map_batches(
    lambda batch: {"id": batch["id"], "pixels": numpy.repeat(batch["id"][:, None], 8, 1).astype(numpy.uint8)}
)
dataset = from_ray(materialize(pictures))
for batch in bl.DataLoader(dataset, 7, shuffle=True):
    assert batch["pixels"].shape[1:] == (8,) and (batch["pixels"] == batch["id"][:, None]).all()

documents = ray.data.from_items([{"tokens": [sample] * (1 + sample % 5), "label": sample} for sample in range(50)])
for batch in bl.DataLoader(from_ray(documents), 7):
    assert (batch["tokens"][:, 0] == batch["label"]).all()


@ray.remote
def elsewhere(blocks):
    found = from_ray(blocks)
    return sum(len(batch["id"]) for batch in bl.DataLoader(found, 7))


assert ray.get(elsewhere.remote(materialize(pictures))) == 100
refused(ray.data.from_items([{"name": "a"}]), "name", "string")
refused(ray.data.from_items([{"x": None}, {"x": 1}]), "x", "1")
refused(ray.data.range(9).filter(lambda row: False), "0 rows")
refused([1, 2], "list", "ray.data.Dataset")
""",
        tmp_path,
    )
