"""Random configurations against the oracles: every batch of every rank, resumes by other worlds, damaged states."""

import copy
import itertools
import json
import random
from collections import Counter

import batchloom as bl
from campaign import kinds
from campaign.tally import reported
from oracles import batching
from oracles.runs import Run, dealt, unfilled
from refusals import refused

EPOCHS = (0, 1, 5)


def campaign(tally, seed, first=0, most=None):
    """Check configurations until time is up, or so many.

    Raises:
        FindingError: A batch, a resume or a refusal is wrong.
    """
    for number in tally.numbers(first, most):
        draw = random.Random(f"{seed}/{number}")
        with reported("configurations", seed, number) as told:
            configuration = kinds.drawn(draw)
            told.append(configuration.text)
            check(configuration, draw, tally)
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
    check_plan(configuration, epoch, batches)
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
    damage(configuration, draw, epoch, batches, tally)


def require_reason(configuration, error):
    """Check that a configuration is refused for the reason that there is."""
    rule, sizes, message = configuration.counting, configuration.sizes, str(error)
    if configuration.options.get("drop_last") and "drop_last" in message:
        assert len(configuration.dataset) < rule.batch_size
    elif "shard_size" in message:
        assert "shard_size" in configuration.options
    else:
        first, policy = batching.refused(rule, sizes), batching.policy(rule)
        left = [size for size in sizes if not (batching.too_large(rule, size) and policy == "drop")]
        assert (first is not None and f"{first}" in message) or (not left and "oversize" in message), message


def steps_of(configuration, batches, world_size):
    """Return the batches of each step of so many ranks."""
    options = configuration.options
    equal = isinstance(configuration.rule, bl.FixedSize | bl.LengthBuckets)
    return dealt(batches, world_size, options.get("drop_last", False), options["uneven"], equal)


def check_plan(configuration, epoch, batches):
    """Check the batches of an epoch: the order and the rule, by their definitions where these leave no choice."""
    rule, options, count = configuration.rule, configuration.options, len(configuration.dataset)
    shuffle, drop_last = options["shuffle"], options.get("drop_last", False)
    times = Counter(itertools.chain(*batches))
    splits = isinstance(rule, bl.Packing) and batching.policy(rule) == "split"
    if not splits and getattr(rule, "rests", "none") == "none":
        assert set(times.values()) == {1}
    if isinstance(rule, bl.Packing) and rule.rows is not None:
        # The tests of rows say which elements come; here each sample comes.
        large = {sample for sample in range(count) if batching.too_large(rule, configuration.sizes[sample])}
        assert set(times) == set(range(count)) - (large if rule.oversize == "drop" else set())
        return
    if not isinstance(shuffle, bool) or configuration.text.startswith("stream") or "shard_size" in options:
        check_pieces(configuration, epoch, batches, times)
        return
    order, sizes = batching.order(count, shuffle, options["seed"], epoch), configuration.sizes or [1] * count
    pools = batching.pools(rule, order, shuffle, drop_last, sizes)
    for pool, found in zip(pools, by_pool(batches, pools, options.get("balance")), strict=True):
        check_pool(configuration, pool, found, sizes, len(order) if shuffle else None)


def check_pieces(configuration, epoch, batches, times):
    """Check the batches of runs, streams and shards: of equal numbers of samples, all but the last of each."""
    options, size, count = configuration.options, configuration.rule.batch_size, len(configuration.dataset)
    if options["shuffle"] == "runs" and not configuration.text.startswith("stream") and "shard_size" not in options:
        names = ("batch_size", "shuffle", "drop_last", "seed", "uneven")
        run = Run(samples=count, **{name: options[name] for name in names if name in options})
        assert batches == run.batches(epoch)
    shards = -(-count // options.get("shard_size", count))
    partial = [batch for batch in batches if len(batch) != size]
    assert all(len(batch) < size for batch in partial)
    # A run begins at another sample in each epoch, so that the first and the last batch of a shard may be short.
    assert len(partial) <= shards * (2 if options["shuffle"] == "runs" else 1)
    lost = count - len(times)
    assert lost < 2 * size * shards if options.get("drop_last") else lost == 0


def by_pool(batches, pools, balanced):
    """Return the batches of each pool; pools follow each other, unless batches of similar cost were put together."""
    pool_of = {sample: number for number, pool in enumerate(pools) for sample in pool}
    found, last = [[] for _ in pools], 0
    for batch in batches:
        (number,) = {pool_of[sample] for sample in batch}
        assert balanced or number >= last
        last = number
        found[number].append(batch)
    return found


def check_pool(configuration, pool, batches, sizes, together):
    """Check the batches of one pool, of which ``together`` samples are shuffled."""
    rule = configuration.counting
    if isinstance(rule, bl.Packing):
        # Packs that are balanced are filled in another way, such that they cost the same.
        if rule.max_samples is None and not configuration.options.get("balance"):
            bins = batching.best_fit(rule, pool, sizes, together is not None)
            assert len(bins) == len(batches)
            if rule.oversize != "split":
                loads = [sum(batching.taken(rule, sizes[sample]) for sample in batch) for batch in batches]
                assert sorted(loads) == bins
        large = {sample for sample in pool if batching.too_large(rule, sizes[sample])}
        assert set(itertools.chain(*batches)) == set(pool) - (large if rule.oversize == "drop" else set())
    elif isinstance(rule, bl.CostOptimal):
        large = {sample for sample in pool if batching.too_large(rule, sizes[sample])}
        lost = large if rule.oversize == "drop" else set()
        assert set(itertools.chain(*batches)) == set(pool) - lost
        assert batching.cost(rule, batches, sizes) == batching.least_cost(rule, pool, sizes)
    else:
        assert sorted(batches) == sorted(batching.cut(rule, pool, sizes, together))


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


def without(batches, found):
    """Return batches less those that were found, each as often as it was."""
    return list((Counter(map(unfilled, batches)) - Counter(found)).elements())


def verify(configuration, batch, samples, epoch):
    """Compare a batch with its samples."""
    if configuration.text.startswith("stream"):
        configuration.check(batch, samples, epoch)
    else:
        configuration.check(batch, samples)


def resume(configuration, draw, epoch, batches, tally):
    """Stop in mid-epoch, and let other worlds deliver what is left, by other ways."""
    drops = configuration.options.get("drop_last", False)
    state, left, largest = None, [unfilled(batch) for batch in batches], 1
    for last in [*[False] * draw.randint(1, 3), True]:
        # More ranks than batches have no step, if batches that fill none are dropped.
        world_size, way = draw.randint(1, min(4, len(batches)) if drops else 4), draw.choice(configuration.ways)
        largest = max(largest, world_size)
        loaders = [configuration.loader(way, world_size, rank) for rank in range(world_size)]
        for loader in loaders:
            loader.load_state_dict(json.loads(json.dumps(state))) if state else loader.set_epoch(epoch)
        if loaders[0].epoch != epoch:
            break
        most = min(loader.remaining for loader in loaders)
        left = less(configuration, left, taken(configuration, loaders, epoch, None if last else draw.randint(0, most)))
        states = [loader.state_dict() for loader in loaders]
        assert last or all(each == states[0] for each in states)
        state = states[0]
        tally.add("resumes")
    assert len(left) < (largest if drops else 1), f"{len(left)} batches are lost"


def taken(configuration, loaders, epoch, stop):
    """Take so many steps of all ranks, ``None`` for all; return the samples of their batches, step by step."""
    plans, found = [loader.plan() for loader in loaders], []
    for step, ready in enumerate(itertools.islice(itertools.zip_longest(*loaders), stop)):
        for plan, batch in zip(plans, ready, strict=True):
            if batch is None:
                continue
            samples = plan[step].tolist()
            verify(configuration, batch, samples, epoch)
            found.append((unfilled(samples), len(loaders)))
    return found


def less(configuration, left, found):
    """Return batches less those that were taken: the next ones, and no others but to fill the last step."""
    batches, world_size = [batch for batch, _ in found], found[0][1] if found else 1
    filling = len(batches) - len(left)
    assert filling < (world_size if configuration.options["uneven"] == "pad" else 1), "batches come twice"
    if configuration.options.get("balance"):
        rest = Counter(left) - Counter(batches)
        assert rest.total() == max(-filling, 0), "batches come twice, or others"
        return list(rest.elements())
    assert batches[: len(left)] == left[: len(batches)]
    return left[len(batches) :]


def damage(configuration, draw, epoch, batches, tally):
    """Load states in which something was changed: an error, or a run that goes on as the state says."""
    loader = configuration.loader({})
    loader.set_epoch(epoch)
    iterator = iter(loader)
    next(iterator)
    good = json.loads(json.dumps(loader.state_dict()))
    iterator.close()
    for _ in range(3):
        state = damaged(copy.deepcopy(good), draw)
        before = loader.state_dict()
        try:
            loader.load_state_dict(state)
        except bl.Error:
            assert loader.state_dict() == before
        else:
            follow(configuration, loader, epoch, batches)
        tally.add("damaged states")


def follow(configuration, loader, epoch, batches):
    """Check what a loader delivers after it took a state."""
    now, done, plan = loader.epoch, loader.state_dict()["batches"], loader.plan()
    planned = [batch.tolist() for batch in plan]
    options = configuration.options
    if now == epoch and options["uneven"] == "short" and not options.get("balance"):
        assert planned == batches[done:]
    count = 0
    for samples, batch in zip(planned, loader, strict=True):
        verify(configuration, batch, samples, now)
        count += 1
    assert count == len(planned)


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
