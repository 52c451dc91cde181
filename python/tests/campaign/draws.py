"""Random draws of an epoch against their laws: weights, passes, classes, keys, mixtures, selections, marks and bans.

The plan says which samples a batch has. The laws say what a plan has to hold, and each place of a batch is compared
with the sample that the plan names there; where fields are converted, with what NumPy makes of it. Every configuration
is delivered in several ways: by other threads, on a device that is pretended, as arrays of other frameworks.
"""

import contextlib
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import batchloom as bl
from campaign.samples import KINDS, Data
from campaign.tally import reported
from oracles.devices import blocks
from oracles.windows import pretended
from refusals import refused


@dataclass(frozen=True)
class Draw:
    """The options by which an epoch draws, and the law of the batches of its first epochs; or a refusal."""

    options: dict[str, Any]
    law: Callable[[list[list[list[int]]]], None]
    is_refused: bool = False


@dataclass(frozen=True)
class Case:
    """Samples and the options of their loaders."""

    data: Data
    options: dict[str, Any]

    def loader(self, world_size=1, rank=0, **more):
        """Make a loader."""
        device = "device" in more or "resident" in more
        with pretended(), blocks(2000) if device else contextlib.nullcontext():
            return bl.DataLoader(self.data.dataset, **self.options | more, rank=rank, world_size=world_size)

    def require_all(self, counted, expected):
        """Check that all samples came as often as the epoch draws them, and more often only to fill steps."""
        if self.options["uneven"] == "pad":
            assert not expected - counted
        else:
            assert counted == expected


def campaign(tally, seed, first=0, most=None):
    """Check draws until time is up, or so many.

    Raises:
        FindingError: A batch, a resume or a refusal is wrong.
    """
    for number in tally.numbers(first, most):
        with reported("draws", seed, number) as told:
            check(random.Random(f"draws/{seed}/{number}"), tally, told)
        tally.add("draws")


def check(draw, tally, told):
    """Draw a configuration, and compare what it plans and delivers."""
    data = draw.choice(KINDS)(draw)
    count = len(data.values)
    ways_to_draw = (
        [mixed] if isinstance(data.dataset, bl.Mixture) else [every, weighed, passes, classes, one_key, other_keys]
    )
    how = draw.choice(ways_to_draw)(draw, count, data)
    uneven = draw.choice(["pad", "mask", "mask"] if "homogeneous_by" in how.options else ["pad", "short", "mask"])
    options = {"batching": data.rule, "shuffle": True, "seed": draw.getrandbits(64), "uneven": uneven}
    case = Case(data, options | how.options | data.options)
    worlds = [draw.randint(1, 4), draw.randint(1, 4)]
    told.append(f"{data.dataset!r} of {data.values}, {case.options}, worlds {worlds}")
    if how.is_refused:
        with refused(bl.ArgumentError, "is that of"):
            case.loader()
        tally.add("refusals")
        return
    alone = case.loader()
    epochs = [[batch.tolist() for batch in alone.plan(epoch)] for epoch in range(3)]
    how.law(epochs)
    epoch = draw.randrange(3)
    expected = Counter(itertools.chain(*epochs[epoch]))
    deliver(draw, case, epoch, expected, worlds[0], tally)
    resume(draw, case, epoch, expected, worlds, tally)
    banned(draw, case, epoch, worlds[0], tally)


# Draws


def every(draw, count, data):
    """Every sample once."""

    def law(epochs):
        assert all(Counter(itertools.chain(*epoch)) == Counter(range(count)) for epoch in epochs)

    return Draw({"shuffle": draw.choice([True, False])}, law)


def weighed(draw, count, data):
    """Samples as often as their weights say."""
    weights = [draw.choice([0, 1, 1, draw.random(), draw.uniform(0, 9)]) for _ in range(count)]
    weights[draw.randrange(count)] = 1.0
    asked = draw.choice([None, draw.randint(1, 3 * count)])
    shares = [weight / sum(weights) * (asked or count) for weight in weights]

    def law(epochs):
        for epoch in epochs:
            times = Counter(itertools.chain(*epoch))
            assert times.total() == (asked or count)
            assert all(abs(times[sample] - share) < 2 for sample, share in enumerate(shares))
            assert all(times[sample] == 0 for sample, share in enumerate(shares) if share == 0)

    return Draw({"weights": weights} | ({} if asked is None else {"num_samples": asked}), law)


def passes(draw, count, data):
    """So many samples an epoch, none of which comes again before all have come."""
    asked = draw.randint(1, 3 * count)

    def law(epochs):
        times = Counter(itertools.chain(*itertools.chain(*epochs)))
        assert times.total() == asked * len(epochs)
        assert max(times.values()) - min(times[sample] for sample in range(count)) <= 1

    return Draw({"num_samples": asked}, law)


def classes(draw, count, data):
    """As many samples of each class in a batch, to one."""
    of = [draw.randrange(draw.randint(1, 4)) for _ in range(count)]

    def law(epochs):
        for batch in itertools.chain(*epochs):
            times = [sum(of[sample] == one for sample in batch) for one in set(of)]
            assert not isinstance(data.rule, bl.FixedSize) or max(times) - min(times) <= 1

    return Draw({"balanced_by": of}, law)


def one_key(draw, count, data):
    """Batches of one key."""
    keys = [draw.choice("abcd"[: draw.randint(1, 4)]) for _ in range(count)]

    def law(epochs):
        for epoch in epochs:
            assert all(len({keys[sample] for sample in batch}) == 1 for batch in epoch)
            assert set(itertools.chain(*epoch)) == set(range(count))

    return Draw({"homogeneous_by": keys}, law)


def other_keys(draw, count, data):
    """Batches of different keys."""
    if not isinstance(data.rule, bl.FixedSize):
        return every(draw, count, data)
    size = data.rule.batch_size
    keys = [draw.randrange(4 * size) for _ in range(count)]
    most = max(Counter(keys).values())
    if count // size < most <= -(-count // size):
        keys = list(range(count))  # the samples of the last batch decide

    def law(epochs):
        assert all(len({keys[sample] for sample in batch}) == len(batch) for batch in itertools.chain(*epochs))
        assert all(Counter(itertools.chain(*epoch)) == Counter(range(count)) for epoch in epochs)

    return Draw({"distinct_by": keys}, law, is_refused=max(Counter(keys).values()) > -(-count // size))


def mixed(draw, count, data):
    """Every source in passes of its own."""
    mixture = data.dataset
    ends = list(itertools.accumulate(len(source) for source in mixture.dataset.datasets))

    def law(epochs):
        times = Counter(itertools.chain(*itertools.chain(*epochs)))
        for first, end in itertools.pairwise([0, *ends]):
            found = [times[sample] for sample in range(first, end)]
            assert max(found) - min(found) <= 1
        if mixture.when_exhausted == "renormalise":
            assert set(times.values()) == {len(epochs)}

    return Draw({}, law)


# Deliveries


def deliver(draw, case, epoch, expected, world_size, tally):
    """Compare the batches of all ranks with their samples, and those of other ways with these."""
    ways, counted = draw.sample(case.data.ways, 2), Counter()
    for rank in range(world_size):
        ours = case.loader(world_size, rank)
        ours.set_epoch(epoch)
        found, weighed = taken(case.data, ours)
        counted.update(weighed)
        plan = ours.plan(epoch)
        for step, places in enumerate(found):
            weight = sum(weight for _, weight, _ in places)
            assert plan.step(step).counts[rank] == (weight if case.options["uneven"] == "mask" else len(places))
        for way in ways:
            other = case.loader(world_size, rank, **way)
            other.set_epoch(epoch)
            # Batches in static buffers are overwritten by the next one.
            assert list(map(case.data.places, other)) == found, way
        tally.add("batches", 3 * len(found))
    case.require_all(counted, expected)


def resume(draw, case, epoch, expected, worlds, tally):
    """Stop after some steps, and let ranks of another number deliver what is left."""
    counted, state = Counter(), None
    for world_size, last in zip(worlds, (False, True), strict=True):
        way = draw.choice(case.data.ways)
        ranks = [case.loader(world_size, rank, **way) for rank in range(world_size)]
        for rank in ranks:
            rank.load_state_dict(json.loads(json.dumps(state))) if state else rank.set_epoch(epoch)
        if ranks[0].epoch != epoch:
            break
        stop = None if last else draw.randint(0, min(rank.remaining for rank in ranks))
        for rank in ranks:
            counted.update(taken(case.data, rank, stop)[1])
        states = [rank.state_dict() for rank in ranks]
        assert last or all(each == states[0] for each in states)
        state = states[0]
        tally.add("resumes")
    case.require_all(counted, expected)


def banned(draw, case, epoch, world_size, tally):
    """Ban samples: their places hold zeros and have no weight, and nothing else changes.

    They are cleared in memory, so that nothing is gathered on a device.
    """
    data, count = case.data, len(case.data.values)
    ban, way = (
        draw.sample(range(count), draw.randint(0, min(count, 9))),
        draw.choice([way for way in data.ways if not way.get("resident")]),
    )
    rank = draw.randrange(world_size)
    whole, ours = (case.loader(world_size, rank, ban=list(map(data.name, chosen)), **way) for chosen in ([], ban))
    for each in (whole, ours):
        each.set_epoch(epoch)
    plan = ours.plan()
    for samples, before, batch in zip(plan, map(data.places, whole), map(data.places, ours), strict=True):
        for sample, (index, weight, values), place in zip(samples.tolist(), before, batch, strict=True):
            cleared = (-1, 0, data.cleared(values))
            assert place == (cleared if sample in ban else (index, weight, values)), (sample, place)
        tally.add("batches")


def taken(data, loader, stop=None):
    """Take so many batches, ``None`` for all; return the places of each, and the samples that count."""
    plan, found, counted = loader.plan(), [], []
    for samples, batch in zip(plan, itertools.islice(loader, stop), strict=stop is None):
        places = data.places(batch)
        data.require(samples.tolist(), places)
        found.append(places)
        counted += [sample for sample, (_, weight, _) in zip(samples.tolist(), places, strict=True) if weight]
    return found, counted
