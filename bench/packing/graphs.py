"""Batches of small graphs, beside PyG and loops by hand.

100 000 graphs as molecules are: 5 to 60 nodes with 9 features, a tree of bonds with a few rings, each bond two directed
edges with 3 features, and one target; float32, batches of 128, shuffled, loop body ``pass``. Promises:

- All candidates make the same batches. Before anything is timed each value of a whole epoch was compared, bit by bit:
  batchloom's with PyG's ``Batch``, and loops by hand with batchloom's. These are ``x``, ``edge_index``, ``edge_attr``,
  ``y``, ``batch`` and ``ptr``.
- Peers are told the batches; batchloom also plans them in its time. They hold each graph as an object made before.
- PyG runs with one thread of torch or with all, whichever was faster on a few batches before, on a fifth of the
  batches, and its time is scaled (``measured_share``); and on all of them with two workers, which take time to start.
- ``batchloom as Batch`` makes a ``Batch`` of PyG of each batch, as a model that reads attributes wants it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import batchloom
import numpy
import torch
from torch import Tensor

from bench.harness.claims import all_slower
from bench.harness.command import LEAST_ROUNDS
from bench.harness.measure import LOOM, Candidate, exhaust, fastest_threads, interleave, with_threads
from bench.harness.report import report

GRAPHS, BATCH = 100_000, 128
LEAST_NODES, MOST_NODES = 5, 60
NODE_FEATURES, EDGE_FEATURES = 9, 3
# Of PyG's batches in one process, one of so many is measured.
PART = 5
TUNING_BATCHES = 20
PYG, WORKERS, AS_BATCH = "PyG DataLoader", "PyG DataLoader, 2 workers", "batchloom as Batch"
CAT, TAKE = "torch.cat, by hand", "NumPy take, by hand"
CLAIMS = {PYG: 10.0, WORKERS: 10.0}

Batches = Sequence[list[int]]
Epochs = Callable[[], Iterable[Any]]


@dataclass(frozen=True)
class Graphs:
    """Graphs, the arrays of all one after the other.

    Attributes:
        nodes: The number of nodes of each.
        edges: The number of edges of each.
        x: The features of all nodes.
        ends: The ends of all edges, ``[2, edges]``.
        edge_attr: The features of all edges.
        y: The target of each.
    """

    nodes: numpy.ndarray
    edges: numpy.ndarray
    x: Tensor
    ends: Tensor
    edge_attr: Tensor
    y: Tensor

    @classmethod
    def draw(cls, count: int) -> Graphs:
        """Draw graphs: a tree of random bonds, and a ring for about every eighth node."""
        random = numpy.random.default_rng(0)
        nodes = random.integers(LEAST_NODES, MOST_NODES, count, endpoint=True)
        bonds = nodes - 1 + nodes // 8
        last = numpy.repeat(nodes, bonds)
        place = numpy.arange(bonds.sum()) - numpy.repeat(numpy.cumsum(bonds) - bonds, bonds)
        # The bonds of the tree lead from each node but the first to one before it; the others join any two.
        child = numpy.where(place < last - 1, place + 1, random.integers(0, last))
        parent = numpy.where(place < last - 1, (random.random(len(place)) * child).astype(numpy.int64), place % last)
        ends = numpy.stack([numpy.stack([child, parent], 1).reshape(-1), numpy.stack([parent, child], 1).reshape(-1)])
        torch.manual_seed(0)
        x, edge_attr = torch.rand(int(nodes.sum()), NODE_FEATURES), torch.rand(ends.shape[1], EDGE_FEATURES)
        return cls(nodes, 2 * bonds, x, torch.from_numpy(ends), edge_attr, torch.rand(count, 1))

    def each(self) -> dict[str, list[Tensor]]:
        """Return the arrays of each graph, by the names that PyG has for them."""
        nodes, edges = self.nodes.tolist(), self.edges.tolist()
        return {
            "x": list(self.x.split(nodes)),
            "edge_index": [ends.contiguous() for ends in self.ends.split(edges, 1)],
            "edge_attr": list(self.edge_attr.split(edges)),
            "y": list(self.y.split(1)),
        }


def loom(graphs: Graphs) -> Any:
    """Return a loader of batchloom: the first epoch of a plan, again each time."""
    each = graphs.each()
    dataset = batchloom.SequenceDataset(
        **{name: arrays for name, arrays in each.items() if name != "y"},
        y=torch.cat(each["y"]),
        own_lengths={"edges": ("edge_index", "edge_attr")},
        layout="concatenated",
    )
    fields = {"edge_index": batchloom.Field(offset_by="x")}
    return batchloom.DataLoader(dataset, BATCH, shuffle=True, fields=fields, extras=("batch", "ptr"))


def first_epoch(loader: Any) -> Iterable[Any]:
    """Return the batches of the first epoch."""
    loader.set_epoch(0)
    return loader


def pyg(graphs: Graphs, batches: Batches, **options: Any) -> Epochs:
    """Use the ``DataLoader`` of PyG over a list of its graphs."""
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader

    each = graphs.each()
    data = [Data(**dict(zip(each, arrays, strict=True))) for arrays in zip(*each.values(), strict=True)]
    loader = DataLoader(data, batch_sampler=batches, **options)
    return lambda: loader


def concatenate(graphs: Graphs, batches: Batches) -> Epochs:
    """By hand: ``torch.cat`` of each array of the graphs of a batch."""
    each, nodes = graphs.each(), torch.from_numpy(graphs.nodes)
    edges = torch.from_numpy(graphs.edges)

    def epoch() -> Iterator[dict[str, Tensor]]:
        for batch in batches:
            index = torch.tensor(batch)
            ptr = torch.zeros(len(batch) + 1, dtype=torch.int64)
            torch.cumsum(nodes[index], 0, out=ptr[1:])
            made = {
                name: torch.cat([arrays[graph] for graph in batch])
                for name, arrays in each.items()
                if name[5:] != "index"
            }
            ends = torch.cat([each["edge_index"][graph] for graph in batch], 1)
            ends += ptr[:-1].repeat_interleave(edges[index])
            yield {
                **made,
                "edge_index": ends,
                "batch": torch.arange(len(batch)).repeat_interleave(nodes[index]),
                "ptr": ptr,
            }

    return epoch


def take(graphs: Graphs, batches: Batches) -> Epochs:
    """By hand: NumPy, all rows of a batch taken at once."""
    x, edge_attr, y = graphs.x.numpy(), graphs.edge_attr.numpy(), graphs.y.numpy()
    ends = graphs.ends.numpy()
    first_node, first_edge = (numpy.cumsum(counts) - counts for counts in (graphs.nodes, graphs.edges))

    def places(first: numpy.ndarray, counts: numpy.ndarray, stops: numpy.ndarray) -> numpy.ndarray:
        return numpy.arange(stops[-1]) + numpy.repeat(first - stops + counts, counts)

    def epoch() -> Iterator[dict[str, Any]]:
        for batch in batches:
            index = numpy.array(batch)
            nodes, edges = graphs.nodes[index], graphs.edges[index]
            ptr = numpy.zeros(len(batch) + 1, numpy.int64)
            nodes.cumsum(out=ptr[1:])
            rows = places(first_edge[index], edges, edges.cumsum())
            yield {
                "x": x.take(places(first_node[index], nodes, ptr[1:]), 0),
                "edge_index": ends.take(rows, 1) + numpy.repeat(ptr[:-1], edges),
                "edge_attr": edge_attr.take(rows, 0),
                "y": y[index],
                "batch": numpy.repeat(numpy.arange(len(batch)), nodes),
                "ptr": ptr,
            }

    return epoch


def check(expected: Iterable[Any], found: Iterable[Any], name: str) -> int:
    """Compare two epochs in every value; return the number of their batches.

    Raises:
        AssertionError: They differ.
    """
    number = 0
    for number, (theirs, ours) in enumerate(zip(expected, found, strict=True), 1):
        for key in ("x", "edge_index", "edge_attr", "y", "batch", "ptr"):
            mine, other = torch.as_tensor(ours[key]), theirs[key]
            assert mine.dtype == other.dtype, f"{name}: {key} of batch {number} is {mine.dtype}, not {other.dtype}"
            assert torch.equal(mine, other), f"{name}: another {key} in batch {number}"
    assert number, "no batch was compared"
    return number


def candidate(name: str, epochs: Epochs, threads: int, factor: float) -> Candidate:
    """Return a peer that runs with so many of torch's threads, and its time multiplied by a factor."""
    facts = {"torch_threads": threads, "measured_share": 1 / factor}
    return Candidate(name, lambda: with_threads(threads, epochs) * factor, facts, slow=name in (PYG, WORKERS))


def measure_graphs(rounds: int = LEAST_ROUNDS, scale: float = 1.0) -> dict[str, Any]:
    """Measure an epoch of batches of graphs.

    Raises:
        ImportError: PyG is not installed.
    """
    from torch_geometric.data import Batch

    graphs = Graphs.draw(max(round(GRAPHS * scale), 40 * BATCH))
    loader = loom(graphs)
    batches = [batch.tolist() for batch in loader.plan(0)]
    part = batches[: len(batches) // PART]
    peers = {
        PYG: pyg(graphs, part),
        WORKERS: pyg(graphs, batches, num_workers=2),
        CAT: concatenate(graphs, batches),
        TAKE: take(graphs, batches),
    }
    few = {PYG: pyg(graphs, batches[:TUNING_BATCHES]), CAT: concatenate(graphs, batches[:TUNING_BATCHES])}
    threads = {name: fastest_threads(epochs) for name, epochs in few.items()}
    facts = {
        "graphs": len(graphs.nodes),
        "batches": len(batches),
        "batches that were bit-equal to PyG's": check(pyg(graphs, batches)(), first_epoch(loader), LOOM),
    }
    candidates = [
        Candidate(LOOM, lambda: exhaust(first_epoch(loader))),
        Candidate(AS_BATCH, lambda: exhaust(Batch(**batch) for batch in first_epoch(loader))),
    ]
    for name, epochs in peers.items():
        if name in (CAT, TAKE):
            check(first_epoch(loader), epochs(), name)
        candidates.append(
            candidate(name, epochs, threads.get(name, 1), len(batches) / len(part) if name == PYG else 1.0)
        )
    timings = interleave("graphs", candidates, rounds)
    claims = all_slower("graphs", timings, CLAIMS)
    return {**facts, **report("graphs", timings, claims, {"torch threads": "torch_threads"}, bar=("PyG", PYG))}
