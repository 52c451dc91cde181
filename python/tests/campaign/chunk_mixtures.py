"""Random mixtures of sources that are read a chunk at a time.

Each run draws one to three sources, read by a function or from files, with a window or memory for each, shares by
samples or by tokens, weights, the end of an epoch, a rule, threads, ranks and bans. Every batch is compared with the
samples that the plan names, and the plan with the laws of mixtures. Of a source that a function reads, the chunks that
are read are those of which the epoch draws a sample.
"""

import itertools
import json
import random
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import batchloom as bl
import numpy
from campaign import draws
from campaign.chunks import LONGEST, OF_ROWS, lists_in_chunks, rows_in_chunks
from campaign.files import in_files
from campaign.tally import reported


@dataclass(frozen=True)
class Source:
    """A source: its dataset, the size of each chunk, the values of each sample, and the chunks that were read.

    The latter are ``None`` where files are read, which nobody watches.
    """

    dataset: Any
    sizes: list[int]
    values: list[list[int]]
    read: list[int] | None

    def chunk_of(self, sample):
        """Return the chunk of a sample."""
        return int(numpy.searchsorted(numpy.cumsum(self.sizes), sample, side="right"))


@dataclass(frozen=True)
class Case:
    """A mixture, its sources in order, the options of its loaders, and the samples that are banned."""

    mixture: bl.Mixture
    sources: list[Source]
    options: dict[str, Any]
    ban: list[int]

    def loader(self, **more):
        """Make a loader."""
        names = [(self.mixture.names[source], number) for source, number in map(self.origin, self.ban)]
        return bl.DataLoader(self.mixture, **self.options, **({"ban": names} if names else {}), **more)

    def origin(self, sample):
        """Return the source of a sample, and its number there."""
        ends = numpy.cumsum([len(each.values) for each in self.sources])
        source = int(numpy.searchsorted(ends, sample, side="right"))
        return source, sample - int(ends[source]) + len(self.sources[source].values)

    def require(self, samples, batch):
        """Check that a batch holds samples, and nothing at the places of banned ones."""
        found = fields_of(batch)
        wanted = []
        for sample in samples:
            source, number = self.origin(sample)
            values = self.sources[source].values[number]
            wanted.append((source, [0] * len(values) if sample in self.ban else values))
        rows = [row[: len(values)] for row, (_, values) in zip(found, wanted, strict=True)]
        assert rows == [values for _, values in wanted], samples
        assert batch["source"].tolist() == [source for source, _ in wanted], samples


def fields_of(batch):
    """Return the values of each place of a batch."""
    if "cu_seqlens" in batch:
        return [batch["x"][first:end].tolist() for first, end in itertools.pairwise(batch["cu_seqlens"].tolist())]
    return batch["x"].tolist()


def campaign(tally, seed, first=0, most=None):
    """Run until time is up, or for ``most`` runs.

    Raises:
        FindingError: A batch or a share is wrong, a sample is missing, or a chunk is read in vain.
    """
    for number in tally.numbers(first, most):
        with reported("chunk_mixtures", seed, number) as told, tempfile.TemporaryDirectory() as folder:
            check(random.Random(f"chunk_mixtures/{seed}/{number}"), tally, told, Path(folder))
        tally.add("runs")


def check(draw, tally, told, folder):
    """Draw a mixture, whose files lie in a folder, and check three epochs of it, and one that several worlds share."""
    case = draw_case(draw, folder)
    told.append(
        f"{case.mixture!r} {case.mixture.when_exhausted}, weights {case.mixture.weights}, sizes "
        f"{[each.sizes for each in case.sources]}, memory {case.mixture.dataset.memory}, ban {case.ban}, {case.options}"
    )
    loader = case.loader()
    epochs = []
    for number in range(3):
        plan = [batch.tolist() for batch in loader.plan(number)]
        for each in case.sources:
            if each.read is not None:
                each.read.clear()
        for samples, batch in zip(plan, loader, strict=True):
            case.require(samples, batch)
            tally.add("batches")
        require_reads(case, plan)
        epochs.append(plan)
    if case.options["shuffle"]:
        require_shares(case, epochs)
    change_ranks(draw, case, tally)


def draw_case(draw, folder):
    """Draw sources, their mixture and the options of its loaders."""
    has_lists, in_memory = draw.random() < 0.5, draw.random() < 0.3
    sources = [draw_source(draw, folder / str(place), has_lists, in_memory) for place in range(draw.randint(1, 3))]
    by = draw.choice(["samples", "tokens"]) if has_lists else "samples"
    weights = {f"s{place}": draw.choice([1, 1, draw.randint(1, 5), 0.01]) for place in range(len(sources))}
    mixture = bl.Mixture(
        {f"s{place}": each.dataset for place, each in enumerate(sources)},
        draw.choice([None, weights]),
        by=by,
        when_exhausted=draw.choice(["stop", "stop", "renormalise"] if min(weights.values()) < 1 else WHEN),
    )
    sized = [bl.TokenBudget(40), bl.LengthBuckets(4), bl.Packing(20), bl.FixedSize(5)]
    options = {
        "batching": draw.choice(sized) if has_lists else bl.FixedSize(draw.randint(1, 11)),
        "shuffle": draw.random() < 0.8,
        "seed": draw.randrange(100),
        "uneven": "short",
        "num_threads": draw.randint(1, 4),
        "prefetch": draw.choice([None, 0, 1, 3]),
    }
    count = sum(len(each.values) for each in sources)
    ban = draw.sample(range(count), min(count - 1, 3)) if draw.random() < 0.3 else []
    return Case(mixture, sources, options, ban)


WHEN = ["stop", "repeat", "renormalise"]


def draw_source(draw, folder, has_lists, in_memory):
    """Draw a source: with memory for its chunks, or a number of them."""
    sizes = [draw.choice([0, 1, 2, draw.randrange(30)]) for _ in range(draw.randint(1, 20))]
    sizes = sizes if any(sizes) else [1]
    largest = max(sizes) * (OF_ROWS + 8 if not has_lists else 8 * LONGEST + 8) + 16  # with the ends of lists
    window = {"memory": largest * draw.randint(5, 11)} if in_memory else {"chunks_open": draw.randint(1, 19)}
    known, values = (lists_in_chunks if has_lists else rows_in_chunks)(draw, sizes)
    if not in_memory and draw.random() < 0.4:
        folder.mkdir()
        return Source(in_files(draw, folder, sizes, values, has_lists, False), sizes, values, None)
    read = []

    def watched(chunk):
        read.append(chunk)
        return {"x": known.read(chunk)["x"]}

    columns = ["x"] if has_lists else None  # as files have them
    dataset = bl.ChunkDataset(sizes, watched, lengths=known.lengths, columns=columns, **window)
    return Source(dataset, sizes, values, read)


def require_reads(case, plan):
    """Check that the chunks that hold the samples of an epoch were read, and no further chunk."""
    drawn = [case.origin(sample) for sample in itertools.chain(*plan)]
    # A batch whose samples are all banned is laid out as the first sample that can be read.
    more = int(any({*batch} <= {*case.ban} for batch in plan))
    for place, each in enumerate(case.sources):
        if each.read is not None:
            needed = {each.chunk_of(number) for source, number in drawn if source == place}
            assert {*each.read} >= needed or case.ban, (place, each.read, needed)
            assert len({*each.read} - needed) <= more, (place, each.read, needed)


def require_shares(case, epochs):
    """Check the passes over each source, and the shares that its weight promises."""
    law = draws.mixed(None, None, SimpleNamespace(dataset=case.mixture)).law
    if case.mixture.by == "samples" and isinstance(case.options["batching"], bl.FixedSize):
        law(epochs)
        return
    ends = numpy.cumsum([len(each.values) for each in case.sources]).tolist()
    ranges = [range(end - len(each.values), end) for end, each in zip(ends, case.sources, strict=True)]
    draws.require_passes(epochs, ranges)
    if case.mixture.by == "tokens" and case.mixture.weights and case.mixture.when_exhausted != "renormalise":
        weights = [*case.mixture.weights.values()]
        for epoch in epochs:
            tokens = Counter()
            for sample in itertools.chain(*epoch):
                source, number = case.origin(sample)
                tokens[source] += len(case.sources[source].values[number])
            for source, weight in enumerate(weights):
                share = tokens.total() * weight / sum(weights)
                assert abs(tokens[source] - share) <= 2 * LONGEST, (tokens, weights)


def change_ranks(draw, case, tally):
    """Check that ranks which share an epoch, of several world sizes, take the samples of its plan."""
    epoch = draw.randrange(3)
    wanted = Counter(sample for batch in case.loader().plan(epoch) for sample in batch.tolist())
    state, seen = None, Counter()
    for is_last in [*[False] * draw.randint(1, 2), True]:
        world = 1 if is_last else draw.randint(1, 5)
        loaders = [case.loader(rank=rank, world_size=world) for rank in range(world)]
        for loader in loaders:
            loader.load_state_dict(json.loads(json.dumps(state))) if state else loader.set_epoch(epoch)
        if loaders[0].epoch != epoch:
            break
        steps = None if is_last else draw.randint(0, min(loader.remaining for loader in loaders))
        for loader in loaders:
            plan = loader.plan()
            for samples, batch in zip(plan, itertools.islice(loader, steps), strict=steps is None):
                case.require(samples.tolist(), batch)
                seen.update(samples.tolist())
                tally.add("batches")
        state = loaders[0].state_dict()
        tally.add("resumes")
    assert seen == wanted, (seen - wanted, wanted - seen)
