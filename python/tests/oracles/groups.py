"""Batches of groups, by definition: the rows of each group, one group after the other or beside padding."""

import itertools
from dataclasses import dataclass, replace

import batchloom as bl
import numpy
from hypothesis import strategies as st
from oracles import batching


def members(ids):
    """The rows of each group, in order; groups in order of their first row."""
    groups = {}
    for row, name in enumerate(ids):
        groups.setdefault(name, []).append(row)
    return list(groups.values())


def concatenated(rows):
    """The offsets of the groups, and all rows."""
    return [0, *itertools.accumulate(map(len, rows))], list(itertools.chain(*rows))


def padded(rows, side="right", multiple_of=1, value=-1):
    """The rows of each group beside ``value``, and where there are rows."""
    length = batching.rounded(max(map(len, rows)), multiple_of)
    places, mask = numpy.full((len(rows), length), value), numpy.zeros((len(rows), length), bool)
    for number, group in enumerate(rows):
        place = slice(0, len(group)) if side == "right" else slice(length - len(group), length)
        places[number, place], mask[number, place] = group, True
    return places, mask


@dataclass(frozen=True)
class Case:
    """Rows that say which they are, the id of each, and how groups of them are batched."""

    ids: tuple[int, ...]
    rule: object = bl.FixedSize(3)
    layout: str = "concatenated"
    max_rows: int | None = None
    oversize: str = "truncate"
    shuffle: bool = True
    seed: int = 0
    uneven: str = "pad"

    @property
    def members(self):
        return members(self.ids)

    @property
    def sizes(self):
        """The rows of each group that there are to take."""
        return [min(len(rows), self.max_rows or len(rows)) for rows in self.members]

    @property
    def counting(self):
        """The rule that says the same of sequences: without padding, every row counts and nothing else."""
        budget = isinstance(self.rule, bl.TokenBudget) and self.layout == "concatenated"
        return replace(self.rule, count="real") if budget else self.rule

    @property
    def ordinary(self):
        """Tells whether the rule takes every group, and whole."""
        return not any(batching.too_large(self.counting, size) for size in self.sizes)

    def dataset(self, ids=None, **arrays):
        ids = numpy.array(self.ids) if ids is None else ids
        rows = numpy.arange(len(self.ids))
        arrays = arrays or {"row": rows, "wide": numpy.stack([rows, -rows, rows * 7], 1).astype(numpy.float32)}
        options = {"layout": self.layout, "max_rows": self.max_rows, "oversize": self.oversize}
        return bl.GroupDataset(ids, **arrays, **options)

    def options(self):
        return {"batching": self.rule, "shuffle": self.shuffle, "seed": self.seed, "uneven": self.uneven}

    def loader(self, world_size=1, rank=0, dataset=None, **more):
        more = self.options() | {"pad_value": -1} | more
        return bl.DataLoader(dataset or self.dataset(), **more, world_size=world_size, rank=rank)

    def loaders(self, world_size, **more):
        return [self.loader(world_size, rank, **more) for rank in range(world_size)]

    def plan(self, **more):
        """The batches as lists of groups, asked of sizes alone."""
        more = self.options() | {"batching": self.counting} | more
        return [batch.tolist() for batch in bl.Plan(sizes=self.sizes, **more)]

    def rows(self, groups):
        """The first rows of each group, as many as a batch takes."""
        members, sizes = self.members, self.sizes
        return [members[group][: batching.taken(self.counting, sizes[group])] for group in groups]


def held(batch):
    """The rows of each group of a batch."""
    if "offsets" in batch:
        rows = numpy.asarray(batch["row"]).tolist()
        return [rows[start:end] for start, end in itertools.pairwise(numpy.asarray(batch["offsets"]).tolist())]
    row, mask = numpy.asarray(batch["row"]), numpy.asarray(batch["mask"])
    return [line[here].tolist() for line, here in zip(row, mask, strict=True)]


def seen(batches):
    return [held(batch) for batch in batches]


def assert_batch(case, batch, groups, side="right"):
    """Every field of a batch is what the definition says of these groups."""
    rows = case.rows(groups)
    if case.layout == "concatenated":
        offsets, places = concatenated(rows)
        assert list(batch) == ["group_ids", "row", "wide", "offsets"]
        assert (batch["offsets"].tolist(), batch["offsets"].dtype) == (offsets, numpy.int64)
        assert batch["group_ids"].tolist() == [case.ids[row] for row in places]
        assert batch["row"].tolist() == places
        assert batch["wide"].tolist() == [[row, -row, row * 7] for row in places]
        return
    places, mask = padded(rows, side, batching.multiple(case.rule))
    assert list(batch) == ["group_ids", "row", "wide", "mask"]
    assert (batch["mask"].tolist(), batch["mask"].dtype) == (mask.tolist(), bool)
    assert batch["group_ids"].tolist() == [case.ids[group[0]] for group in rows]
    assert batch["row"].tolist() == places.tolist()
    wide = numpy.where(mask[..., None], numpy.stack([places, -places, places * 7], -1), -1)
    assert (batch["wide"].tolist(), batch["wide"].dtype) == (wide.tolist(), numpy.float32)


runs = st.lists(st.tuples(st.integers(-5, 6), st.integers(1, 6)), min_size=1, max_size=22)
scattered = runs.map(lambda runs: tuple(itertools.chain(*([name] * count for name, count in runs))))
together = scattered.map(lambda ids: tuple(sorted(ids)))
ids = scattered | together | st.integers(1, 25).map(lambda count: tuple(range(count, 0, -1)))
layouts = st.sampled_from(["concatenated", "padded"])
padding_rules = batching.fixed | batching.buckets | batching.budgets | batching.optimals
packings = batching.packings.filter(lambda rule: rule.oversize != "split")


def cases(**fixed):
    """Cases of either layout, with rules that these take; what a rule refuses is left out."""
    choices = {
        "ids": ids,
        "rule": padding_rules | packings,
        "layout": layouts,
        "max_rows": st.none() | st.integers(1, 7),
        "shuffle": st.booleans(),
        "seed": st.integers(0, 2**64 - 1),
        "uneven": st.sampled_from(["pad", "short"]),
    }
    given = {name: value if isinstance(value, st.SearchStrategy) else st.just(value) for name, value in fixed.items()}
    return st.builds(Case, **(choices | given)).filter(_allowed)


def _allowed(case):
    if isinstance(case.rule, bl.Packing) and case.layout == "padded":
        return False
    sizes, rule = case.sizes, case.counting
    everything = all(batching.too_large(rule, size) for size in sizes) and batching.policy(rule) == "drop"
    return batching.refused(rule, sizes) is None and not everything
