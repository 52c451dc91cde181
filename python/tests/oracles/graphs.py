"""Batches of graphs as they are defined: each array concatenated, and the nodes before added to the ends of edges."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st


@dataclass(frozen=True)
class Graph:
    """One graph, with the names that models of graphs have for its arrays."""

    x: torch.Tensor
    edge_index: torch.Tensor
    edge_attr: torch.Tensor
    y: torch.Tensor

    @classmethod
    def draw(cls, nodes, edges, seed):
        """A graph with random features, all of them different; without nodes it has no edges."""
        generator = torch.Generator().manual_seed(seed)
        ends = torch.randint(max(nodes, 1), (2, edges if nodes else 0), generator=generator)
        x = torch.rand(nodes, 3, generator=generator)
        return cls(x, ends, torch.rand(ends.shape[1], 2, generator=generator), torch.rand(1, 4, generator=generator))


def drawn_graphs(most):
    """Lists of graphs: some without nodes, without edges, or with one node."""
    sizes = st.tuples(st.integers(0, 6), st.integers(0, 8))
    return st.lists(sizes, min_size=1, max_size=most).map(
        lambda sizes: [Graph.draw(*size, seed) for seed, size in enumerate(sizes)]
    )


def fields_of(graphs):
    """The fields of a dataset of graphs."""
    fields = {name: [getattr(graph, name) for graph in graphs] for name in ("x", "edge_index", "edge_attr")}
    return {**fields, "y": torch.cat([graph.y for graph in graphs])}


def batch_of(graphs):
    """The batch of some graphs."""
    nodes = torch.tensor([len(graph.x) for graph in graphs])
    before = torch.cat([torch.zeros(1, dtype=torch.int64), nodes.cumsum(0)])
    edges = torch.tensor([graph.edge_index.shape[1] for graph in graphs])
    return {
        "x": torch.cat([graph.x for graph in graphs]),
        "edge_index": torch.cat([graph.edge_index + start for graph, start in zip(graphs, before, strict=False)], 1),
        "edge_attr": torch.cat([graph.edge_attr for graph in graphs]),
        "y": torch.cat([graph.y for graph in graphs]),
        "batch": torch.arange(len(graphs)).repeat_interleave(nodes),
        "ptr": before,
        "edges_offsets": torch.cat([torch.zeros(1, dtype=torch.int64), edges.cumsum(0)]),
    }
