"""Accelerate: each sample in a metric once, accumulation that ends with the epoch, checkpoints, skipped batches."""

import pytest

pytest.importorskip("accelerate", reason="scripts/setup --integrations installs it")

HEAD = """
import json
import os
import sys
import warnings

warnings.simplefilter("ignore")
if "RANK" in os.environ:
    os.environ["LOCAL_RANK"] = os.environ["RANK"]
import accelerate
import numpy
import torch

import batchloom as bl
from batchloom.integrations.accelerate import prepare, skip_first_batches

accelerator = accelerate.Accelerator(cpu=True)
rank, world_size = accelerator.process_index, accelerator.num_processes
"""

GATHER = (
    HEAD
    + """
samples, uneven, rule = int(sys.argv[2]), sys.argv[3], sys.argv[4]
documents = [numpy.full(1 + sample % 16, sample) for sample in range(samples)]
rules = {"rows": bl.FixedSize(10), "buckets": bl.LengthBuckets(10, pool=2), "budget": bl.TokenBudget(64)}
dataset = bl.SequenceDataset(tokens=documents) if rule != "rows" else bl.TensorDataset(index=torch.arange(samples))
loader = prepare(accelerator, bl.DataLoader(dataset, batching=rules[rule], uneven=uneven, output="torch"))
seen, named, last = [], [], []
for batch in loader:
    index = batch["index"]
    seen += accelerator.gather_for_metrics(index).tolist()
    named += accelerator.gather_for_metrics([str(sample) for sample in index.tolist()])
    last.append(accelerator.gradient_state.end_of_dataloader)
assert last == [False] * (len(loader) - 1) + [True]
assert not accelerator.gradient_state.in_dataloader
try:
    prepare(accelerator, bl.DataLoader(dataset, 10, uneven="short"))
    assert world_size == 1
except bl.ArgumentError as error:
    assert "short" in str(error) and world_size > 1, error
print(json.dumps([seen, named]))
accelerator.wait_for_everyone()
accelerator.end_training()
"""
)


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize(("samples", "uneven", "rule"), [
    (103, "pad", "rows"), (103, "mask", "buckets"), (50, "mask", "buckets"), (7, "mask", "buckets"),
    (61, "mask", "budget"), (61, "pad", "budget"),
])  # fmt: skip
def test_a_metric_counts_each_sample_once(ranks, world_size, samples, uneven, rule, tmp_path, monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    for seen, named in ranks(GATHER, world_size, tmp_path, samples, uneven, rule):
        assert sorted(seen) == list(range(samples))
        assert named == [str(sample) for sample in seen]


RESUME = (
    HEAD
    + """
def made():
    loader = bl.DataLoader(bl.TensorDataset(torch.arange(96.0)), 4, shuffle=True, seed=1)
    return prepare(accelerator, loader)


path, stop = sys.argv[1], int(sys.argv[2])
model, optimizer = torch.nn.Linear(1, 1), None
model = accelerator.prepare(model)
loader, seen = made(), []
for epoch in range(2):
    for (x,) in loader:
        seen.append(x.tolist())
        if len(seen) == stop:
            accelerator.save_state(path)
            accelerator.wait_for_everyone()
accelerator._dataloaders.clear()
again, rest = made(), []
accelerator.load_state(path)
while again.plan().epoch < 2:
    rest += [x.tolist() for (x,) in again]
assert rest == seen[stop:], (stop, len(rest), len(seen))

skipped = made()
steps = len(skipped)
for epoch in range(2):
    skipped.set_epoch(epoch)
    place = stop - epoch * steps
    if 0 < place < steps:
        for skip in (accelerator.skip_first_batches, skip_first_batches):
            skipped.set_epoch(epoch + 1)
            skipped.set_epoch(epoch)
            there = [x.tolist() for (x,) in skip(skipped, place)]
            assert there == seen[stop : (epoch + 1) * steps]
print(json.dumps(True))
accelerator.wait_for_everyone()
accelerator.end_training()
"""
)


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("stop", [7, 24, 12])
def test_states_and_skipped_batches(ranks, world_size, stop, tmp_path, monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    assert ranks(RESUME, world_size, tmp_path / "state", stop) == [True] * world_size


TURNS = (
    HEAD
    + """
# Each loader of the run is uneven on two ranks, and one goes round faster than the other.
def made(end):
    parts = {name: bl.DataLoader(bl.TensorDataset(torch.arange(size)), 4, uneven="mask", seed=size, shuffle=True)
             for name, size in (("a", 46), ("b", 21))}
    return prepare(accelerator, bl.interleave(parts, [2, 1], when_exhausted=end))

def gathered(batch):
    name, (x, index, weight) = batch
    return [name, accelerator.gather_for_metrics(x).tolist()]

path, end = sys.argv[1], sys.argv[2]
whole, seen, last = made(end), [], []
for epoch in range(3):
    whole.set_epoch(epoch)
    for step, batch in enumerate(whole):
        seen.append([epoch, step, *gathered(batch)])
        last.append(accelerator.gradient_state.end_of_dataloader)
        accelerator.save_state(f"{path}/{len(seen)}")
        accelerator.wait_for_everyone()
lengths = [sum(epoch == each[0] for each in seen) for epoch in range(3)]
assert sum(last) == 3 and all(last[sum(lengths[:epoch]) - 1] for epoch in (1, 2, 3))
for stop in range(1, len(seen)):
    accelerator._dataloaders.clear()
    again = made(end)
    accelerator.load_state(f"{path}/{stop}")
    first, rest = again.epoch, []
    for epoch in range(first, 3):
        again.set_epoch(epoch)
        rest += [gathered(batch) for batch in again]
    assert rest == [each[2:] for each in seen[stop:]], stop
    if seen[stop][1]:
        skipped = made(end)
        skipped.set_epoch(seen[stop][0])
        accelerator.skip_first_batches(skipped, seen[stop][1])
        there = [gathered(batch) for batch in skipped]
        assert there == [each[2:] for each in seen[stop:] if each[0] == seen[stop][0]], stop
print(json.dumps([each[2:] for each in seen]))
accelerator.wait_for_everyone()
accelerator.end_training()
"""
)


@pytest.mark.timeout(200)
@pytest.mark.parametrize("end", ["stop", "repeat", "renormalise"])
@pytest.mark.parametrize("world_size", [1, 2])
def test_loaders_that_take_turns_resume_at_every_step(ranks, world_size, end, tmp_path, monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    found = ranks(TURNS, world_size, tmp_path / "state", end, timeout=180)
    for name, size in (("a", 46), ("b", 21)):
        seen = [sample for each, samples in found[0] if each == name for sample in samples]
        passes = [seen[first : first + size] for first in range(0, len(seen), size)]
        assert len(seen) >= size
        assert all(sorted(samples) == list(range(size)) for samples in passes if len(samples) == size)
        assert len(set(passes[-1])) == len(passes[-1])


COUNTS = (
    HEAD
    + """
# Accelerate counts the iterations of a loader of torch's in each process, from 0, and tells its sampler.
def made():
    sampler = bl.BatchSampler(46, 4, shuffle=True, seed=1, distributed=False)
    return sampler, accelerator.prepare(torch.utils.data.DataLoader(range(46), batch_sampler=sampler))

sampler, loader = made()
whole = [batch.tolist() for epoch in range(3) for batch in loader]
for stop in range(1, len(whole)):
    sampler, loader = made()
    epoch, steps = divmod(stop, 12)
    sampler.load_state_dict(bl.Plan(46, 4, shuffle=True, seed=1).at_epoch(epoch)._native.state(steps))
    rest = [batch.tolist() for epoch in range(3 - epoch) for batch in loader]
    assert rest == whole[stop:], stop
print(json.dumps(True))
"""
)


def test_a_sampler_is_not_sent_back_by_counts_of_the_process(script):
    script(COUNTS)


def test_accumulation_ends_with_the_epoch_and_bad_input_is_refused(script):
    script(
        HEAD
        + """
accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=4)
plain = bl.DataLoader(bl.TensorDataset(torch.arange(100.0)[:, None]), 10)
assert accelerator.prepare(plain) is plain
loader, model = prepare(accelerator, plain), accelerator.prepare(torch.nn.Linear(1, 1))
synchronised = []
for epoch in range(2):
    for (x,) in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(x).mean())
            synchronised.append(accelerator.sync_gradients)
assert synchronised == [False, False, False, True, False, False, False, True, False, True] * 2
assert next(iter(loader))[0].device == accelerator.device

def refused(kind, work, *said):
    try:
        work()
    except kind as error:
        assert all(value in str(error) for value in said), error
    else:
        raise AssertionError(said)

refused(bl.LoaderError, lambda: prepare(accelerate.Accelerator(cpu=True), plain), "Accelerator")
refused(bl.ArgumentError, lambda: prepare(accelerator, torch.utils.data.DataLoader([1])), "DataLoader", "prepare")
other = bl.DataLoader(bl.TensorDataset(torch.arange(9.0)), 3, rank=1, world_size=2)
refused(bl.ArgumentError, lambda: prepare(accelerator, other), "rank 1 of 2", "process 0 of 1")
refused(bl.RangeError, lambda: skip_first_batches(plain, 10), "10", "9")
fresh = bl.DataLoader(bl.TensorDataset(torch.arange(90.0)), 10)
skip_first_batches(fresh, 4)
assert fresh.remaining == 5
refused(bl.StateError, lambda: skip_first_batches(fresh, 5), "4", "5")
assert skip_first_batches(fresh, 4).remaining == 5
shuffled = bl.DataLoader(bl.TensorDataset(torch.arange(95.0)), 10, shuffle=True)
for (x,) in prepare(accelerator, shuffled):
    assert len(accelerator.gather_for_metrics(x)) == len(x)
"""
    )


def free_port():
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
