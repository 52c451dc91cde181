"""Micro-batches by definition: what a valid plan is, and the least time of tiny inputs by looking at every plan."""

import itertools


def rounded(lengths, multiple_of=1):
    """The lengths as they count."""
    return [-(-length // multiple_of) * multiple_of for length in lengths]


def price(cost, lengths):
    """The cost of a micro-batch of samples of these lengths."""
    return cost.fixed + cost.per_token * sum(lengths) + cost.per_pair * sum(length**2 for length in lengths)


def by_rank(planned):
    """The samples of each micro-batch of each rank, with weights, cut by hand."""
    numbers = range(len(planned.offsets) - 1)
    pairs = list(zip(planned.index.tolist(), planned.weight.tolist(), strict=True))
    cut = [pairs[planned.offsets[number] : planned.offsets[number + 1]] for number in numbers]
    return [cut[rank * planned.count : (rank + 1) * planned.count] for rank in range(planned.world_size)]


def real(micro_batch):
    """The samples of a micro-batch that count."""
    return [sample for sample, weight in micro_batch if weight]


def require_valid(planned, lengths, max_tokens, options):
    """Check every promise of a plan."""
    multiple_of, most = options.get("multiple_of", 1), options.get("max_samples") or len(lengths) + 1
    counted = rounded(lengths, multiple_of)
    ranks = by_rank(planned)
    assert [len(rank) for rank in ranks] == [planned.count] * planned.world_size
    taken = [sample for rank in ranks for each in rank for sample in real(each)]
    elsewhere = planned.dropped.tolist() + planned.left.tolist()
    assert sorted(taken + elsewhere) == list(range(len(lengths)))
    assert planned.dropped.tolist() == sorted(planned.dropped)
    assert planned.left.tolist() == sorted(planned.left)
    for each in itertools.chain(*ranks):
        samples = [sample for sample, _ in each]
        assert samples
        assert samples == sorted(samples)
        assert all(weight == 1 for _, weight in each) or (len(each) == 1 and each[0][1] == 0)
        is_alone = options.get("oversize") == "alone" and is_one_whole(samples, options)
        assert is_alone or (sum(counted[sample] for sample in samples) <= max_tokens and len(samples) <= most)
    require_fillers(ranks, counted, options)
    require_way_back(planned, lengths, elsewhere)
    require_groups_and_classes(ranks, options)
    if options.get("equal_samples"):
        assert len({sum(len(real(each)) for each in rank) for rank in ranks}) <= 1
    if planned.count:
        assert planned.count >= options.get("least", 1)
        assert planned.count % options.get("count_multiple_of", 1) == 0
        assert options.get("count") in (None, planned.count)


def is_one_whole(samples, options):
    """Tell whether samples are one sample, or one group that a micro-batch takes whole."""
    groups = options.get("groups")
    if options.get("whole") != "micro_batch":
        return len(samples) == 1
    return len({groups[sample] for sample in samples}) == 1


def require_fillers(ranks, counted, options):
    """A rank that lacks a sample has the cheapest of the class, and no micro-batch could spare one."""
    classes = options.get("classes") or [0] * len(counted)
    for slot in zip(*ranks, strict=True):
        held = [sample for each in slot for sample in real(each)]
        if not options.get("groups") and not options.get("equal_samples"):
            # Where a sample is missing, no other micro-batch of the class has one to spare.
            same = [each for rank in ranks for each in rank if classes[each[0][0]] == classes[slot[0][0][0]]]
            assert all(map(real, slot)) or all(len(each) == 1 for each in same)
        for each in slot:
            if not real(each):
                same = [sample for sample in range(len(counted)) if classes[sample] == classes[each[0][0]]]
                planned = [
                    sample for sample in same if any(sample in map(first, mine) for rank in ranks for mine in rank)
                ]
                assert (counted[each[0][0]], each[0][0]) == min((counted[sample], sample) for sample in planned)
        assert held or options.get("least", 1) > 1 or options.get("count") or options.get("count_multiple_of", 1) > 1


def first(pair):
    return pair[0]


def require_way_back(planned, lengths, elsewhere):
    """``inverse`` finds each sample where it counts."""
    for sample in range(len(lengths)):
        place = planned.inverse[sample]
        if sample in elsewhere:
            assert place == -1
        else:
            assert planned.index[place] == sample
            assert planned.weight[place] == 1


def require_groups_and_classes(ranks, options):
    """Groups stay whole, and a slot has one class."""
    groups, classes = options.get("groups"), options.get("classes")
    if groups:
        places = {}
        for rank, micro_batches in enumerate(ranks):
            for number, each in enumerate(micro_batches):
                for sample in real(each):
                    place = rank if options["whole"] == "rank" else (rank, number)
                    places.setdefault(groups[sample], set()).add(place)
        assert all(len(found) == 1 for found in places.values())
    if classes:
        for slot in zip(*ranks, strict=True):
            assert len({classes[sample] for each in slot for sample, _ in each}) == 1


def describe(planned, lengths, cost, options):
    """The tokens, padded tokens, costs and labels of each micro-batch, and the share of time spent waiting."""
    counted = rounded(lengths, options.get("multiple_of", 1))
    ranks = by_rank(planned)
    labels = options.get("labels") or [0] * len(lengths)
    tokens = [[sum(lengths[sample] for sample, _ in each) for each in rank] for rank in ranks]
    padded = [[sum(counted[sample] for sample, _ in each) for each in rank] for rank in ranks]
    costs = [[price(cost, [counted[sample] for sample, _ in each]) for each in rank] for rank in ranks]
    counts = [[sum(labels[sample] for sample in real(each)) for each in rank] for rank in ranks]
    return tokens, padded, costs, counts, waiting(costs, options.get("sync", "micro_batch"))


def waiting(costs, sync):
    """The share of the time of all ranks that is spent waiting, for costs ``[rank][micro_batch]``."""
    time, busy = duration(costs, sync), sum(map(sum, costs))
    return 1 - busy / (len(costs) * time) if time else 0.0


def duration(costs, sync):
    """The time of all micro-batches."""
    if sync == "update":
        return max(map(sum, costs))
    return sum(max(slot) for slot in zip(*costs, strict=True))


def least_duration(lengths, world_size, count, max_tokens, cost, sync):
    """The least time of any plan without an empty micro-batch, by looking at all of them; ``None`` without a plan."""
    best = None
    for places in itertools.product(range(world_size * count), repeat=len(lengths)):
        bins = [[] for _ in range(world_size * count)]
        for length, place in zip(lengths, places, strict=True):
            bins[place].append(length)
        if all(bins) and all(sum(held) <= max_tokens for held in bins):
            costs = [[price(cost, bins[rank * count + slot]) for slot in range(count)] for rank in range(world_size)]
            found = duration(costs, sync)
            best = found if best is None or found < best else best
    return best
