"""Random configurations against the oracles: every batch of every rank, resumes by other worlds, damaged states."""

import copy
import itertools
import json
import random
import traceback
from collections import Counter

import batchloom as bl
from campaign import kinds
from campaign.tally import FindingError
from oracles import batching
from oracles.runs import dealt, unfilled
from refusals import refused

EPOCHS = (0, 1, 5)


def campaign(tally, seed, first=0, most=None):
    """Check configurations until time is up, or so many."""
    numbers = itertools.count(first) if most is None else range(first, first + most)
    for number in numbers:
        if tally.is_over and most is None:
            return
        one(tally, seed, number)


def one(tally, seed, number):
    """Check one configuration.

    Raises:
        FindingError: A batch, a resume or a refusal is wrong.
    """
    draw = random.Random(f"{seed}/{number}")
    text = "not drawn yet"
    try:
        configuration = kinds.drawn(draw)
        text = configuration.text
        check(configuration, draw, tally)
    except Exception as error:
        raise FindingError(
            f"configuration {number}: {text}\n{traceback.format_exc()}\n"
            f"repeat it: scripts/campaign --only configurations --seed {seed} --first {number} --most 1"
        ) from error
    tally.add("configurations")


def check(configuration, draw, tally):
    """Compare the batches of all ranks with those of one, by definition, and resume them."""
    try:
        single = configuration.loader({})
    except bl.Error as error:
        tally.add("refusals")
        require_reason(configuration, error)
        return
    epoch = draw.choice(EPOCHS)
    batches = [batch.tolist() for batch in single.plan(epoch)]
    check_plan(configuration, batches)
    world_size = draw.randint(1, 4)
    expected = steps_of(configuration, batches, world_size)
    if not expected:
        with refused(bl.ArgumentError, "drop_last"):
            configuration.loader({}, world_size)
        tally.add("refusals")
        return
    for way in draw.sample(configuration.ways, 2):
        compare(configuration, way, epoch, batches, expected, world_size, tally)
    resume(configuration, draw, epoch, batches, tally)
    damage(configuration, draw, epoch, tally)


def require_reason(configuration, error):
    """Check that a configuration was refused for one of the reasons that there are."""
    rule, sizes = configuration.rule, configuration.sizes or []
    given = getattr(rule, "count", None)
    is_padded = given == "real" or not configuration.text.startswith("groups") or "padded" in configuration.text
    large = is_padded and any(batching.too_large(rule, size) for size in sizes)
    known = ("drop_last", "max_tokens", "oversize", "multiple_of", "shard_size", "batch_size", "fixed")
    assert large or any(word in str(error) for word in known), error


def steps_of(configuration, batches, world_size):
    """Return the batches of each step of so many ranks."""
    options = configuration.options
    equal = isinstance(configuration.rule, bl.FixedSize | bl.LengthBuckets)
    return dealt(batches, world_size, options.get("drop_last", False), options["uneven"], equal)


def check_plan(configuration, batches):
    """Check the batches of an epoch: every sample once, in batches that the rule allows."""
    rule, sizes = configuration.rule, configuration.sizes
    times = Counter(itertools.chain(*batches))
    lossy = configuration.options.get("drop_last") or batching.policy(rule) == "drop"
    if not isinstance(rule, bl.Packing):
        assert set(times.values()) <= {1}
    assert lossy or set(times) == set(range(len(configuration.dataset)))
    if isinstance(rule, bl.FixedSize):
        assert all(len(batch) <= rule.batch_size for batch in batches)
    elif isinstance(rule, bl.TokenBudget | bl.CostOptimal) and not configuration.text.startswith("groups"):
        whole = [batch for batch in batches if not any(batching.too_large(rule, sizes[sample]) for sample in batch)]
        assert all(batching.fits(rule, batch, sizes) for batch in whole)


def compare(configuration, way, epoch, batches, expected, world_size, tally):
    """Check all batches of all ranks, made in one way: an epoch of ``batches``, whose steps are ``expected``."""
    balanced, seen = configuration.options.get("balance"), []
    for rank in range(world_size):
        loader = configuration.loader(way, world_size, rank)
        loader.set_epoch(epoch)
        plan = [batch.tolist() for batch in loader.plan(epoch)]
        mine = [step[rank] for step in expected if rank < len(step)]
        assert balanced or plan == mine, (way, world_size, rank)
        assert len(plan) == len(mine) == len(loader)
        for samples, batch in zip(plan, loader, strict=True):
            verify(configuration, batch, samples, epoch)
            tally.add("batches")
        seen += plan
        assert loader.epoch == epoch + 1
    if balanced:
        # Which batches come again depends on the order of steps, which balance changes.
        assert len(seen) == sum(map(len, expected))
        assert not without(batches, map(unfilled, seen))


def verify(configuration, batch, samples, epoch):
    """Compare a batch with its samples."""
    if configuration.text.startswith("stream"):
        configuration.check(batch, samples, epoch)
    else:
        configuration.check(batch, samples)


def resume(configuration, draw, epoch, batches, tally):
    """Stop in mid-epoch, and let other worlds deliver what is left, by other ways."""
    state, left = None, list(batches)
    if configuration.options.get("drop_last"):
        return
    for _ in range(draw.randint(1, 3)):
        world_size, way = draw.randint(1, 4), draw.choice(configuration.ways)
        loaders = [configuration.loader(way, world_size, rank) for rank in range(world_size)]
        for loader in loaders:
            loader.load_state_dict(json.loads(json.dumps(state))) if state else loader.set_epoch(epoch)
        if loaders[0].epoch != epoch:
            assert not left
            return
        stop = draw.randint(0, min(loader.remaining for loader in loaders))
        found = []
        plans = [loader.plan() for loader in loaders]
        for step, ready in enumerate(itertools.islice(zip(*loaders, strict=False), stop)):
            for plan, batch in zip(plans, ready, strict=True):
                samples = plan[step].tolist()
                verify(configuration, batch, samples, epoch)
                found.append(unfilled(samples))
        left = without(left, found)
        states = [loader.state_dict() for loader in loaders]
        assert all(each == states[0] for each in states)
        state = states[0]
        tally.add("resumes")
    world_size = draw.randint(1, 4)
    found = []
    for rank in range(world_size):
        loader = configuration.loader(draw.choice(configuration.ways), world_size, rank)
        loader.load_state_dict(json.loads(json.dumps(state)))
        if loader.epoch != epoch:
            assert not left
            continue
        plan = [batch.tolist() for batch in loader.plan()]
        for samples, batch in zip(plan, loader, strict=True):
            verify(configuration, batch, samples, epoch)
        found += map(unfilled, plan)
    assert not without(left, found), "samples are lost"
    if configuration.options["uneven"] == "short":
        assert Counter(found) == Counter(map(unfilled, left)), "batches come twice"
    tally.add("resumes")


def without(batches, taken):
    """Return batches less those that were taken, which may hold others that come again."""
    left = Counter(map(unfilled, batches)) - Counter(taken)
    return [list(batch) for batch in left.elements()]


def damage(configuration, draw, epoch, tally):
    """Load states in which something was changed: an error, or a run that goes on."""
    loader = configuration.loader({})
    loader.set_epoch(epoch)
    batches = iter(loader)
    next(batches)
    good = json.loads(json.dumps(loader.state_dict()))
    batches.close()
    for _ in range(3):
        state = damaged(copy.deepcopy(good), draw)
        before = loader.state_dict()
        try:
            loader.load_state_dict(state)
        except bl.Error:
            assert loader.state_dict() == before
        else:
            assert json.loads(json.dumps(loader.state_dict()))["fingerprint"] == good["fingerprint"]
            left = loader.remaining
            assert sum(1 for _ in loader) == left
        tally.add("damaged states")


def damaged(state, draw):
    """Change one thing of a state."""
    values = [None, -1, 0, 1, 2**31, 2**63, 2**64 - 1, 2**64, 1.5, "", "x", [], {}, [[1, 1]], [[0, 0]], True]
    name = draw.choice([*state, "unknown"])
    if draw.random() < 0.2:
        state.pop(name, None)
    elif name == "worlds" and draw.random() < 0.5:
        state["worlds"] = [[draw.choice([1, 2, 3]), draw.choice([0, 1, 2, 10**9])] for _ in range(draw.randint(0, 3))]
    else:
        state[name] = draw.choice(values)
    return state
