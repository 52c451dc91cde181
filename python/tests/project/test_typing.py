"""The types of the interface, as a user with a strict checker meets them: mypy checks this file, and it runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any, assert_type, cast

import batchloom as bl
import numpy
import numpy.typing
import torch
import torch.utils.data
from batchloom.batching.rules import Rule


def train(loader: bl.DataLoader, epochs: int, step: Callable[[Any], float]) -> float:
    loss = 0.0
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        for batch in loader:
            loss += step(batch)
    return loss


def test_a_loop() -> None:
    X: numpy.typing.NDArray[numpy.float32] = numpy.ones((10, 2), numpy.float32)
    dataset = bl.TensorDataset(x=X)
    names: tuple[str, ...] | None = dataset.names
    rule: bl.FixedSize = bl.FixedSize(4)
    loader = bl.DataLoader(dataset, batching=rule, shuffle=True, drop_last=False, seed=3, uneven="short", prefetch=1)
    count: int = len(loader)
    total = train(loader, 2, lambda batch: float(batch["x"].sum()))
    state: dict[str, Any] = loader.state_dict()
    loader.load_state_dict(state)
    assert (names, count, total) == (("x",), 3, 40.0)


def test_batches_are_typed_as_they_are() -> None:
    """Tuples or dicts, as the dataset has them; an annotation names the arrays."""
    X = numpy.ones((10, 2), numpy.float32)
    rows, named = bl.TensorDataset(X, X), bl.TensorDataset(x=X, y=X)
    sequences, tokens = bl.SequenceDataset(ids=[X[0]]), bl.TokenDataset(numpy.arange(50), 8)
    for pair in bl.DataLoader(rows, 4, True, seed=3, output="torch"):
        assert_type(pair, tuple[Any, ...])
        assert isinstance(pair, tuple)
        assert isinstance(pair[0], torch.Tensor)
    for batch in bl.DataLoader(named, output="torch", num_workers=0):
        assert_type(batch, dict[str, Any])
        assert isinstance(batch, dict)
        assert isinstance(batch["x"], torch.Tensor)
    for windows in bl.DataLoader(tokens, 4, output="numpy"):
        assert_type(windows, tuple[Any, ...])
        assert isinstance(windows[0], numpy.ndarray)
    for texts in bl.DataLoader(sequences, batching=bl.TokenBudget(9), output="numpy"):
        assert_type(texts, dict[str, Any])
        assert isinstance(texts, dict)
    groups, grouped = bl.GroupDataset([1, 1, 2], X[:3]), bl.GroupDataset([1, 1, 2], x=X[:3], layout="padded")
    assert_type(next(iter(bl.DataLoader(groups, output="torch"))), tuple[Any, ...])
    assert_type(next(iter(bl.DataLoader(grouped, output="numpy"))), dict[str, Any])
    forecasts, known = bl.WindowDataset(X, 3, 1, stride=2), bl.WindowDataset(X, 3, 1, past={"p": X[:, :1]})
    assert_type(next(iter(bl.DataLoader(forecasts, output="torch"))), tuple[Any, ...])
    assert_type(next(iter(bl.DataLoader(known, output="torch"))), dict[str, Any])
    clocked = bl.WindowDataset(X, 3, time=list(range(len(X))), timed={"row": bl.Timed(X, list(range(len(X))), [0])})
    assert_type(next(iter(bl.DataLoader(clocked, output="torch"))), dict[str, Any])
    assert_type(next(iter(bl.DataLoader(named, output="jax"))), dict[str, Any])
    assert_type(next(iter(bl.DataLoader(rows))), tuple[Any, ...])
    assert_type(next(iter(bl.DataLoader(sequences))), dict[str, Any])
    assert_type(next(iter(bl.DataLoader(X))), Any)
    tensors: bl.DataLoader[dict[str, torch.Tensor]] = bl.DataLoader(named, output="torch")
    assert_type(next(iter(tensors)), dict[str, torch.Tensor])
    pairs: bl.DataLoader[tuple[torch.Tensor, torch.Tensor]] = bl.DataLoader(rows, output="torch")
    assert_type(next(iter(pairs)), tuple[torch.Tensor, torch.Tensor])


def test_a_loader_where_that_of_torch_is_typed() -> None:
    def first(loader: torch.utils.data.DataLoader[Any]) -> Any:
        return next(iter(loader))

    def rows(batches: Iterable[tuple[torch.Tensor, ...]]) -> int:
        return sum(len(batch[0]) for batch in batches)

    ours = bl.DataLoader(bl.TensorDataset(numpy.arange(10)), 4, output="torch")
    assert len(first(cast("torch.utils.data.DataLoader[Any]", ours))) == 1
    assert rows(ours) == 10


def test_a_plan() -> None:
    plan: bl.Plan = bl.Plan(10, 4, shuffle=True, rank=0, world_size=1)
    first: numpy.typing.NDArray[numpy.int64] = plan[0]
    some: list[numpy.typing.NDArray[numpy.int64]] = plan[0:2]
    step: bl.Step = plan.step(0)
    places: list[bl.Place] = plan.where(int(first[0]))
    stats: dict[str, Any] = plan.stats()
    fingerprint: str = plan.fingerprint
    tokens: int = step.tokens
    samplers: list[list[int]] = [batch.tolist() for batch in plan]
    assert (len(some), tokens, places[0].step, stats["steps"], len(fingerprint)) == (2, 4, 0, 3, 32)
    assert samplers[0] == first.tolist()


def test_sequences() -> None:
    docs = [numpy.arange(size) for size in (3, 0, 5)]
    dataset: bl.SequenceDataset = bl.SequenceDataset(input_ids=docs, label=numpy.arange(3), sizes=[3, 0, 5])
    names: tuple[str, ...] = dataset.names
    sizes: numpy.typing.NDArray[numpy.uint32] = dataset.sizes
    sample: dict[str, Any] = dataset[0]
    fields: dict[str, Any] = dataset.fields
    loader = bl.DataLoader(
        dataset,
        batching=bl.TokenBudget(
            8, count="padded", max_length_spread=None, max_samples=4, multiple_of=2, oversize="drop"
        ),
        shuffle=True,
        balance=True,
        largest_first=True,
        output="numpy",
        fields={"input_ids": bl.Field(pad=7)},
        pad_side="left",
        labels="input_ids",
        rank=0,
        world_size=1,
    )
    count = 0
    for batch in loader:
        count += len(batch["index"])
    assert (names, sizes.tolist(), count) == (("input_ids", "label"), [3, 0, 5], 3)
    assert (sorted(sample), sorted(fields)) == (["input_ids", "label"], ["input_ids", "label"])


def test_rules() -> None:
    model: bl.CostModel = bl.CostModel(fixed=1, per_token=2.5, per_pair=0)
    cost: float = model.cost(2, 10)
    rules: list[Rule] = [
        bl.FixedSize(2),
        bl.LengthBuckets(2, pool=3, multiple_of=1),
        bl.TokenBudget(9, pool=5),
        bl.CostOptimal(model, max_tokens=9, max_samples=None, multiple_of=1, oversize="alone", pool=5),
        bl.Packing(9, max_samples=2, oversize="split", pool=5),
    ]
    lengths: list[int] = []
    for rule in rules:
        plan: bl.Plan = bl.Plan(sizes=[3, 0, 5], batching=rule, shuffle=True, balance=True, largest_first=True)
        sizes: numpy.typing.NDArray[numpy.uint32] | None = plan.sizes
        flags: tuple[bool | bl.CostModel, bool] = plan.options.balance, plan.options.largest_first
        batching: Rule = plan.batching
        lengths.append(plan.step(0).samples)
        assert sizes is not None
        assert (sizes.tolist(), flags, batching) == ([3, 0, 5], (True, True), rule)
    assert (cost, min(lengths)) == (51.0, 1)
    assert bl.TokenBudget(9).max_samples is None
    assert bl.Packing(9).oversize is None


def test_a_calibration() -> None:
    def step(samples: int, length: int) -> int:
        return sum(range(samples * length))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model: bl.CostModel = bl.calibrate(step, shapes=[(1, 8), (4, 8), (4, 64)], device=None)
    assert model.fit is not None
    shapes: tuple[tuple[int, int], ...] = model.fit.shapes
    error: float = model.fit.error
    rule: bl.CostOptimal = bl.CostOptimal(model)
    assert (len(shapes), error >= 0, rule.cost) == (3, True, model)


def test_results_in_order() -> None:
    outputs: list[list[str]] = [["c", "a"], ["b"]]
    results = bl.restore_order(outputs, [numpy.array([2, 0]), numpy.array([1])])
    assert results == ["a", "b", "c"]


def test_errors() -> None:
    try:
        bl.FixedSize(0)
    except bl.ArgumentError as error:
        caught: ValueError = error
        assert "0" in str(caught)
    else:
        raise AssertionError("a batch size of 0")
