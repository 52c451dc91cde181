"""Batches in rows of one shape, read back by their boundaries, and what holds for each of them."""

import itertools

import numpy

IGNORED = -100


def parts(batch, name="x"):
    """The samples of each row: the number of each, and its elements there."""
    values, ends, index = (numpy.asarray(batch[each]) for each in (name, "cu_seqlens", "index"))
    rows = []
    for row, bounds, samples in zip(values, ends.tolist(), index.tolist(), strict=True):
        held = [(start, end, sample) for (start, end), sample in zip(itertools.pairwise(bounds), samples, strict=True)]
        rows.append([(sample, row[start:end].tolist()) for start, end, sample in held if sample >= 0])
    return rows


def check(batch, rule, names=("x",), value=0):
    """Everything that says where samples lie in rows says the same, and the rest is padding: ``value`` in fields."""
    rows, tokens, samples = rule.rows, rule.max_tokens, capacity(rule)
    ends, index = numpy.asarray(batch["cu_seqlens"]), numpy.asarray(batch["index"])
    positions, segments = numpy.asarray(batch["position_ids"]), numpy.asarray(batch["segment_ids"])
    assert (ends.dtype, index.dtype, positions.dtype, segments.dtype) == ("int32", "int64", "int64", "int32")
    assert (ends.shape, index.shape) == ((rows, samples + 1), (rows, samples))
    assert positions.shape == segments.shape == (rows, tokens)
    assert all(batch[name].shape[:2] == (rows, tokens) for name in names)
    assert batch["max_seqlen"] == tokens
    for row in range(rows):
        bounds = ends[row].tolist()
        assert bounds[0] == 0
        assert bounds == sorted(bounds)
        assert bounds[-1] <= tokens
        lengths = numpy.diff(bounds)
        numbers = [number for number, length in enumerate(lengths, 1) for _ in range(length)]
        assert segments[row].tolist() == numbers + [0] * (tokens - bounds[-1])
        assert not positions[row, bounds[-1] :].any()
        assert all((numpy.asarray(batch[name])[row, bounds[-1] :] == value).all() for name in names)
        for number, (start, end) in enumerate(itertools.pairwise(bounds)):
            steps = positions[row, start:end]
            assert steps.tolist() == [int(steps[0]) + step for step in range(end - start)] if end > start else True
            assert rule.rests == "continue" or end == start or steps[0] == 0
            assert index[row, number] >= 0 or start == end == bounds[-1]


def capacity(rule):
    """The number of samples that a row has places for."""
    tokens = rule.max_tokens
    return min(rule.max_samples or max(-(-tokens // 16), 64), tokens)


def elements(batches, name="x"):
    """The elements of each sample, in the order in which its parts come."""
    found = {}
    for batch in batches:
        for sample, values in itertools.chain.from_iterable(parts(batch, name)):
            found.setdefault(sample, []).extend(values)
    return found


def check_labels(batch, wholes, name="x", labels="labels"):
    """A label is the next element of its sample, in this row or not; -100 after the last, and at padding."""
    expected = numpy.full(batch[labels].shape, IGNORED)
    positions = numpy.asarray(batch["position_ids"])
    for row, held in enumerate(parts(batch, name)):
        place = 0
        for sample, values in held:
            first = int(positions[row, place]) if values else 0
            following = wholes[sample][first + 1 : first + 1 + len(values)]
            expected[row, place : place + len(following)] = following
            place += len(values)
    assert numpy.asarray(batch[labels]).tolist() == expected.tolist()
