"""Random draws of an epoch against their laws: weights, passes, classes, keys, mixtures, selections, marks and bans.

The plan says which samples a batch has. The laws say what a plan has to hold, and each place of a batch is compared
with the sample that the plan names there; where fields are converted, with what NumPy makes of it. Every configuration
is delivered in several ways: by other threads, on a device that is pretended, as arrays of other frameworks.
"""

import contextlib
import copy
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import batchloom as bl
from campaign.samples import KINDS, Data, framework
from campaign.tally import reported
from oracles.devices import blocks
from oracles.per_class import require_classes
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

    def require_all(self, counted, expected, batches, most):
        """Check that all samples came as often as the epoch draws them, and more often only to fill steps.

        Args:
            counted: How often each sample came with a weight.
            expected: How often the epoch draws it.
            batches: The number of batches that came.
            most: The number of batches of the epoch, and of those that may fill steps.
        """
        assert batches <= most
        if self.options["uneven"] == "pad":
            assert not expected - counted
        else:
            assert counted == expected

    def filling(self, *world_sizes):
        """Return the most batches that fill steps of so many ranks: of each key, if batches of a step hold one."""
        keys = len(set(self.options.get("homogeneous_by", [0])))
        return sum(keys * (world_size - 1) for world_size in world_sizes)

    @property
    def is_marked(self):
        """Tells whether batches say which places count."""
        return self.options["uneven"] == "mask"


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
        [mixed]
        if isinstance(data.dataset, bl.Mixture)
        else [every, weighed, passes, classes, some_of_each, one_key, other_keys, no_shared_keys]
    )
    how = draw.choice(ways_to_draw)(draw, count, data)
    uneven = draw.choice(["pad", "mask", "mask"] if "homogeneous_by" in how.options else ["pad", "short", "mask"])
    options = {"batching": data.rule, "shuffle": True, "seed": draw.getrandbits(64), "uneven": uneven}
    case = Case(data, options | how.options | data.options)
    worlds = [draw.randint(1, 4), draw.randint(1, 4)]
    told.append(f"{data.dataset!r} of {data.values}, {case.options}, worlds {worlds}")
    if how.is_refused:
        keys = Counter(case.options["distinct_by"])
        most = max(keys.values())
        firsts = {str(case.options["distinct_by"].index(key)) for key, times in keys.items() if times == most}
        with refused(bl.ArgumentError, "have the key of sample", firsts, str(most), str(data.rule.batch_size)):
            case.loader()
        tally.add("refusals")
        return
    alone = case.loader()
    epochs = [[batch.tolist() for batch in alone.plan(epoch)] for epoch in range(3)]
    how.law(epochs)
    epoch = draw.randrange(3)
    deliver(draw, case, epoch, epochs[epoch], worlds[0], tally)
    resume(draw, case, epoch, epochs[epoch], worlds, tally)
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
        assert all(sum(map(len, epoch)) == count for epoch in epochs)
        require_passes(epochs, [[sample for sample in range(count) if of[sample] == one] for one in set(of)])

    return Draw({"balanced_by": of}, law)


def some_of_each(draw, count, data):
    """Several samples of each of some classes in a batch."""
    if not isinstance(data.rule, bl.FixedSize):
        return classes(draw, count, data)
    size = data.rule.batch_size
    per_class = draw.choice([number for number in range(1, size + 1) if size % number == 0])
    of = [min(draw.randrange(8), draw.randrange(8)) for _ in range(count)]
    asked = draw.choice([None, size * draw.randint(1, 9)])

    def law(epochs):
        assert all(sum(map(len, epoch)) == (asked or -(-count // size) * size) for epoch in epochs)
        require_classes(epochs, of, per_class, size)

    options = {"balanced_by": of, "per_class": per_class}
    return Draw(options | ({} if asked is None else {"num_samples": asked}), law)


def one_key(draw, count, data):
    """Batches of one key."""
    keys = [draw.choice("abcd"[: draw.randint(1, 4)]) for _ in range(count)]

    def law(epochs):
        for epoch in epochs:
            assert all(len({keys[sample] for sample in batch}) == 1 for batch in epoch)
            assert Counter(itertools.chain(*epoch)) == Counter(range(count))

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


def no_shared_keys(draw, count, data):
    """Batches of samples with two keys each, of which none are shared; samples without room are left out."""
    if not isinstance(data.rule, bl.FixedSize):
        return every(draw, count, data)
    size = data.rule.batch_size
    columns = {name: [draw.randrange(2 * size + 2) for _ in range(count)] for name in "ab"}

    def law(epochs):
        for epoch in epochs:
            for batch in epoch:
                rows = [{keys[sample] for keys in columns.values()} for sample in batch]
                assert len(set().union(*rows)) == sum(map(len, rows))
            assert all(len(batch) == size for batch in epoch[:-1])
            assert max(Counter(itertools.chain(*epoch)).values()) == 1

    return Draw({"distinct_by": bl.DistinctBy(columns, surplus="drop")}, law)


def mixed(draw, count, data):
    """Every source in passes of its own, as often as its weight says, until the epoch is over."""
    mixture = data.dataset
    counts = [len(source) for source in mixture.dataset.datasets]
    ends = list(itertools.accumulate(counts))
    sources = [range(end - size, end) for size, end in zip(counts, ends, strict=True)]
    weights = list((mixture.weights or dict(enumerate(counts))).values())

    def law(epochs):
        require_passes(epochs, sources)
        for epoch in epochs:
            order = list(itertools.chain(*epoch))
            times = [sum(sample in source for sample in order) for source in sources]
            whole = [found == size for found, size in zip(times, counts, strict=True)]
            if mixture.when_exhausted == "renormalise":
                assert all(whole)
                continue
            assert any(whole)
            more = [found > size for found, size in zip(times, counts, strict=True)]
            if mixture.when_exhausted == "stop":
                assert not any(more)
            else:
                assert all(one or other for one, other in zip(whole, more, strict=True))
            for place in range(len(order) + 1):
                for weight, source in zip(weights, sources, strict=True):
                    found = sum(sample in source for sample in order[:place])
                    assert abs(found - place * weight / sum(weights)) < 2, (place, source)

    return Draw({}, law)


def require_passes(epochs, sources):
    """Check that no sample of a source came again before all others of it came."""
    times = Counter(itertools.chain(*itertools.chain(*epochs)))
    for source in sources:
        found = [times[sample] for sample in source]
        assert min(found) > 0 or max(found) <= 1
        assert max(found) - min(found) <= 1


# Deliveries


def deliver(draw, case, epoch, batches, world_size, tally):
    """Compare the batches of all ranks with their samples, and those of other ways, and of replays, with these."""
    ways, counted, count = draw.sample(case.data.ways, 2), Counter(), 0
    for rank in range(world_size):
        ours = case.loader(world_size, rank)
        ours.set_epoch(epoch)
        found, weighed = taken(case, ours)
        counted.update(weighed)
        count += len(found)
        plan = ours.plan(epoch)
        for step, places in enumerate(found):
            weight = sum(weight for _, weight, _ in places)
            assert plan.step(step).counts[rank] == (weight if case.is_marked else len(places))
        for way in ways:
            other = case.loader(world_size, rank, **way)
            other.set_epoch(epoch)
            # Batches in static buffers are overwritten by the next one.
            assert list(map(case.data.places, asked_for(other, case.data, way))) == found, way
        if found:
            step = draw.randrange(len(found))
            assert case.data.places(ours.replay(epoch, step)) == found[step]
        tally.add("batches", 3 * len(found))
    expected = Counter(itertools.chain(*batches))
    case.require_all(counted, expected, count, len(batches) + case.filling(world_size))


def asked_for(loader, data, way):
    """Yield batches, which are of the framework that was asked for."""
    for batch in loader:
        for found in data.named(batch).values():
            assert isinstance(found, int) or framework(found).startswith(way.get("output", "numpy")), way
        yield batch


def resume(draw, case, epoch, batches, worlds, tally):
    """Stop after some steps, and let ranks of another number deliver what is left; some samples may be banned."""
    counted, state, count = Counter(), None, 0
    ban = draw.sample(range(len(case.data.values)), 2) if draw.random() < 0.3 else []
    bans = {"ban": list(map(case.data.name, ban))} if ban else {}
    ways = [way for way in case.data.ways if not (ban and way.get("resident"))]
    for world_size, last in zip(worlds, (False, True), strict=True):
        way = draw.choice(ways)
        ranks = [case.loader(world_size, rank, **way, **bans) for rank in range(world_size)]
        for rank in ranks:
            rank.load_state_dict(json.loads(json.dumps(state))) if state else rank.set_epoch(epoch)
        if ranks[0].epoch != epoch:
            break
        if draw.random() < 0.2 and "device" not in way:
            ranks = list(map(copy.copy, ranks))
        stop = None if last else draw.randint(0, min(rank.remaining for rank in ranks))
        for rank in ranks:
            found, weighed = taken(case, rank, stop, ban)
            counted.update(weighed)
            count += len(found)
        states = [rank.state_dict() for rank in ranks]
        assert last or all(each == states[0] for each in states)
        state = states[0]
        tally.add("resumes")
    expected = Counter(sample for sample in itertools.chain(*batches) if sample not in ban)
    case.require_all(counted, expected, count, len(batches) + case.filling(*worlds))


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


def taken(case, loader, stop=None, ban=()):
    """Take so many batches, ``None`` for all; return the places of each, and the samples that count."""
    plan, found, counted = loader.plan(), [], []
    for samples, batch in zip(plan, itertools.islice(loader, stop), strict=stop is None):
        places = case.data.places(batch)
        case.data.require(samples.tolist(), batch, places, case.is_marked or bool(ban), ban)
        found.append(places)
        counted += [sample for sample, (_, weight, _) in zip(samples.tolist(), places, strict=True) if weight]
    return found, counted
