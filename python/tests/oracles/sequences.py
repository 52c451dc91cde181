"""Padded batches of sequences, by definition."""

import numpy
from oracles import batching
from oracles.elements import arbitrary, raw


def varying(samples):
    """The dimensions in which samples differ; the first where all are alike."""
    shapes = numpy.array([sample.shape for sample in samples])
    return [place for place in range(shapes.shape[1]) if len(set(shapes[:, place])) > 1] or [0]


def padded(samples, chosen, value=0, side="right", multiple_of=1):
    """One field of a batch, its mask and its lengths."""
    places = varying(samples)
    union = list(samples[0].shape)
    for place in places:
        union[place] = batching.rounded(max(samples[sample].shape[place] for sample in chosen), multiple_of)
    batch = numpy.full((len(chosen), *union), value, samples[0].dtype)
    mask = numpy.zeros((len(chosen), *[union[place] for place in places]), bool)
    for row, sample in enumerate(chosen):
        shape = samples[sample].shape
        corner = [
            slice(0, len) if side == "right" else slice(most - len, most)
            for len, most in zip(shape, union, strict=True)
        ]
        batch[row][tuple(corner)] = samples[sample]
        mask[row][tuple(corner[place] for place in places)] = True
    lengths = numpy.array([[samples[sample].shape[place] for place in places] for sample in chosen], numpy.int64)
    return batch, mask, lengths[:, 0] if len(places) == 1 else lengths


def shifted(samples, chosen, length, side="right"):
    """Next tokens."""
    labels = numpy.full((len(chosen), length), -100, numpy.int64)
    for row, sample in enumerate(chosen):
        start = 0 if side == "right" else length - len(samples[sample])
        for place in range(len(samples[sample]) - 1):
            labels[row, start + place] = samples[sample][place + 1].astype(numpy.int64)
    return labels


def assert_padded(loader, samples, name="x", value=0, side="right", multiple_of=1):
    """Every batch is what the oracle says of the samples that the plan names."""
    plan = loader.plan()
    delivered = []
    for chosen, batch in zip(plan, loader, strict=True):
        expected, mask, lengths = padded(samples, chosen, value, side, multiple_of)
        assert raw(batch[name]) == raw(expected)
        assert raw(batch["attention_mask"]) == raw(mask)
        assert raw(batch["lengths"]) == raw(lengths)
        assert raw(batch["index"]) == raw(chosen)
        delivered += chosen.tolist()
    return delivered


def lines(sizes, name="int64", inner=()):
    """Samples of these sizes along their first dimension, all of them different."""
    values = arbitrary(name, (sum(sizes), *inner), seed=len(sizes))
    return numpy.split(values, numpy.cumsum(sizes)[:-1]) if len(sizes) else []


SIZES = [3, 0, 7, 1, 12, 5, 0, 2, 9, 4, 4, 11]


def placed(samples, before=0, after=0):
    """Samples one after the other between values that belong to no sample, and their offsets."""
    margins = [numpy.full((count, *samples[0].shape[1:]), 77, samples[0].dtype) for count in (before, after)]
    offsets = numpy.cumsum([before, *map(len, samples)])
    return numpy.concatenate([margins[0], *samples, margins[1]]), offsets


def boxes(kind, count=9, seed=0):
    """Samples of several dimensions, some without elements."""
    random = numpy.random.default_rng(seed)
    shapes = {
        "vectors": lambda: (random.integers(0, 9), 5),
        "spectrograms": lambda: (5, random.integers(0, 9)),
        "middle": lambda: (2, random.integers(0, 9), 3),
        "maps": lambda: (random.integers(0, 6), random.integers(0, 6)),
        "images": lambda: (random.integers(1, 6), random.integers(1, 6), 3),
        "volumes": lambda: tuple(random.integers(0, 4, 3)),
        "first and last": lambda: (random.integers(1, 5), 2, random.integers(1, 5)),
        "equal": lambda: (4, 3),
        "empty vectors": lambda: (random.integers(0, 9), 0),
        "no rows": lambda: (0, 3),
        "deep": lambda: (1, 2, random.integers(0, 4), 1, 2, 1),
    }[kind]
    samples = [random.integers(0, 2**15, shapes()).astype(numpy.int16) for _ in range(count)]
    return samples
