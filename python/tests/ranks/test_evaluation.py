"""Evaluation and losses on ranks that are processes: collectives in the loop, metrics and gradients of one process."""

import numpy
import pytest

START = """
    import json
    import os
    import sys
    import numpy
    import torch
    import torch.distributed as distributed
    import batchloom as bl

    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    distributed.init_process_group(
        "gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=world_size
    )
    torch.set_num_threads(1)
"""

EVALUATION = (
    START
    + """
    samples, batch_size, rule = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    x = numpy.random.default_rng(0).normal(size=(samples, 4)).astype(numpy.float32)
    y = (x.sum(1) > 0.3).astype(numpy.int64)
    if rule == "rows":
        dataset, batching = bl.TensorDataset(x=x, y=y), bl.FixedSize(batch_size)
    else:
        documents = [numpy.arange(k % 7 + 1) for k in range(samples)]
        dataset = bl.SequenceDataset(t=documents, x=x, y=y)
        batching = {"buckets": bl.LengthBuckets(batch_size), "budget": bl.TokenBudget(40)}[rule]
    loader = bl.DataLoader(dataset, batching=batching, uneven="mask", output="torch")
    plan, right, weight, gathered, steps = loader.plan(), 0.0, 0.0, [], 0
    for step, batch in enumerate(loader):
        hits = ((batch["x"][:, 0] > 0) == batch["y"]).float() * batch["weight"]
        totals = torch.stack([hits.sum(), batch["weight"].sum()])
        distributed.all_reduce(totals)  # every rank has this step
        right, weight, steps = right + totals[0].item(), weight + totals[1].item(), steps + 1
        assert totals[1].item() == plan.step(step).samples
        if rule == "budget":
            sizes = [len(samples) for samples in plan.step(step).batches]
            index = torch.full((max(sizes),), -1)
            index[: len(batch["index"])] = batch["index"]
        else:
            index = batch["index"]
        parts = [torch.empty_like(index) for _ in range(world_size)]
        distributed.all_gather(parts, index)  # every rank has as many samples
        gathered += torch.cat(parts).tolist()
    print(json.dumps({"accuracy": right / weight, "gathered": gathered, "steps": steps}))
    distributed.barrier()
    distributed.destroy_process_group()
"""
)


def accuracy(samples):
    """The accuracy of one process."""
    x = numpy.random.default_rng(0).normal(size=(samples, 4)).astype(numpy.float32)
    return float(((x[:, 0] > 0) == (x.sum(1) > 0.3)).mean())


@pytest.mark.law("L1")
@pytest.mark.parametrize("rule", ["rows", "buckets", "budget"])
@pytest.mark.parametrize(("world_size", "samples", "batch_size"), [(2, 103, 10), (2, 1, 4), (3, 100, 7)])
def test_collectives_work_and_metrics_are_those_of_one_process(ranks, tmp_path, rule, world_size, samples, batch_size):
    found = ranks(EVALUATION, world_size, tmp_path / "store", samples, batch_size, rule, timeout=100)
    assert {rank["steps"] for rank in found} == {found[0]["steps"]}
    for rank in found:
        assert sorted(sample for sample in rank["gathered"] if sample >= 0) == list(range(samples))
        assert rank["accuracy"] == pytest.approx(accuracy(samples), abs=1e-7)


GRADIENTS = (
    START
    + """
    kind, uneven = sys.argv[2:]
    rng = numpy.random.default_rng(1)
    lengths = rng.integers(1, 20, 60)
    tokens = [rng.integers(0, 30, length) for length in lengths]
    masked = [numpy.where(rng.random(len(row)) < 0.4, -100, row) for row in tokens]
    rules = {"padded": bl.TokenBudget(80), "packed": bl.Packing(80), "buckets": bl.LengthBuckets(7)}
    batching = rules[kind.split()[0]]
    options = {"batching": batching, "shuffle": True, "seed": 4, "output": "torch", "uneven": uneven}
    if kind.endswith("field"):
        dataset = bl.SequenceDataset(t=tokens, labels=masked)
        options |= {"label_counts": dataset.count_labels("labels"), "fields": {"labels": bl.Field(pad=-100)}}
    else:
        dataset = bl.SequenceDataset(t=tokens)
        options |= {"labels": "t"}

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(30, 8), torch.nn.Linear(8, 30)).double()

    def loss_and_labels(batch):
        labels = batch["labels"].clone()
        if "weight" in batch and labels.ndim == 2:
            labels[batch["weight"] == 0] = -100  # of a field of the data; those that a loader makes are -100 already
        elif "weight" in batch and not batch["weight"].any():
            labels[:] = -100
        scores = model(batch["t"]).flatten(end_dim=-2)
        loss = torch.nn.functional.cross_entropy(scores, labels.flatten(), ignore_index=-100, reduction="sum")
        return loss, int((labels != -100).sum())

    def gradient():
        found = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        model.zero_grad()
        return found

    every = [bl.DataLoader(dataset, rank=other, world_size=world_size, **options) for other in range(world_size)]
    loader, largest, wrong = bl.DataLoader(dataset, **options), 0.0, 0
    plan = loader.plan()
    for step, (batch, *whole) in enumerate(zip(loader, *every)):
        (loss_and_labels(batch)[0] / plan.step(step).labels).backward()
        found = gradient()
        distributed.all_reduce(found)
        # One large batch: the mean over all labels of the step.
        losses, labels = zip(*map(loss_and_labels, whole))
        assert sum(labels) == plan.step(step).labels
        (sum(losses) / sum(labels)).backward()
        largest = max(largest, float((found - gradient()).abs().max()))
        wrong += plan.step(step).tokens != plan.step(step).labels
    print(json.dumps({"largest": largest, "steps": len(plan), "wrong": wrong}))
    distributed.barrier()
    distributed.destroy_process_group()
"""
)


@pytest.mark.law("L3")
@pytest.mark.parametrize("kind", ["padded", "packed", "buckets", "padded field", "packed field", "buckets field"])
@pytest.mark.parametrize(("world_size", "uneven"), [(2, "pad"), (3, "mask")])
def test_gradients_of_several_ranks_are_those_of_one_large_batch(ranks, tmp_path, kind, world_size, uneven):
    found = ranks(GRADIENTS, world_size, tmp_path / "store", kind, uneven, timeout=100)
    assert all(rank["largest"] < 1e-12 for rank in found)
    # The tokens of a step, by which the guide once divided, are more.
    assert all(rank["wrong"] == rank["steps"] > 2 for rank in found)


ALONE = """
    import json
    import os
    import sys
    import numpy
    import torch.distributed as distributed
    import batchloom as bl

    rank = int(os.environ["RANK"])
    distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)
    if rank == 0:
        evaluation = bl.DataLoader(numpy.arange(9), 4, shuffle=True, seed=None, distributed=False)
        assert sum(len(batch) for batch in evaluation) == 9
    train = bl.DataLoader(numpy.arange(9), 4, shuffle=True, seed=None)
    print(json.dumps(train.state_dict()["seed"]))
    distributed.barrier()
    distributed.destroy_process_group()
"""


def test_a_loader_for_one_rank_shares_no_seed(ranks, tmp_path):
    """Otherwise the other ranks would wait for the number of a seed that they do not draw."""
    first, second = ranks(ALONE, 2, tmp_path / "store")
    assert first == second
