"""Windows of time series, by definition: every start that fits, and a slice of the steps from there."""

import contextlib
import itertools
from dataclasses import dataclass, replace

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import assume
from hypothesis import strategies as st
from oracles.runs import Run, runs

FEATURES = 3


@dataclass(frozen=True)
class Shape:
    """Series of some lengths, and the windows over them."""

    lengths: tuple[int, ...]
    input_len: int
    horizon: int = 0
    label_len: int = 0
    gap: int = 0
    stride: int = 1
    anchor: str = "start"
    short: str = "error"
    sampled_by: str = "windows"
    lead: int = 0
    whole: bool = False

    def options(self):
        given = {name: value for name, value in self.__dict__.items() if name not in ("lengths", "lead", "whole")}
        least = self.input_len - self.lead
        return given | ({"input_len": (least, self.input_len)} if self.lead or self.whole else {})

    @property
    def context(self):
        return self.input_len + self.gap

    @property
    def span(self):
        return self.context + self.horizon

    @property
    def least(self):
        """The steps that a series must have for a window that does not begin with zeros without being asked."""
        return self.span - self.lead

    @property
    def least_len(self):
        """The steps that a series must have for a window whose targets are all real, and some step of its input."""
        if self.lead or self.whole:
            return self.least
        has_all = [
            steps
            for steps in range(1, self.span)
            if self.span - steps <= self.context - self.label_len and self.span - steps < self.input_len
        ]
        return min([*has_all, self.span])

    def starts(self, begin, end, part=0):
        """Each step that a window in steps ``begin`` to ``end`` of a series starts with, and its zeros in front.

        Horizons begin at step ``part`` or later.
        """
        first = max(begin - self.lead, part - self.context) if part > begin else begin - self.lead
        fits = [start for start in range(first, end) if start + self.span <= end]
        if not fits and end - begin >= (1 if self.short == "pad" else self.least_len):
            return [(begin, self.span - (end - begin))]
        first = fits[:1] if self.anchor == "start" else fits[-1:]
        found = [start for start in fits if (start - first[0]) % self.stride == 0]
        return [(max(start, begin), max(begin - start, 0)) for start in found]

    def windows(self, within=None):
        """The series, start and zeros of every sample of an epoch."""
        within = within or [(0, length) for length in self.lengths]
        found = [[(k, *place) for place in self.starts(*steps)] for k, steps in enumerate(within)]
        most = max(map(len, found))
        if self.sampled_by == "series":
            found = [list(itertools.islice(itertools.cycle(places), most if places else 0)) for places in found]
        return list(itertools.chain(*found))

    def arrays(self):
        """Each series: a value tells the series, the step and the column; none is zero."""
        return [self._codes(k, length)[:, None] * 10 + numpy.arange(FEATURES) for k, length in enumerate(self.lengths)]

    def _codes(self, series, steps):
        return (series + 1) * 1000 + numpy.arange(steps) + 1

    def offsets(self):
        return numpy.cumsum([0, *self.lengths])

    def dataset(self, kind=numpy.asarray, **more):
        series = (kind(numpy.concatenate(self.arrays())), self.offsets())
        return bl.WindowDataset(series, **self.options(), **more)

    def window(self, place):
        """The fields of one sample: x and y, mask and target_mask."""
        series, start, missing = place
        values = self.arrays()[series][start:]
        padded = numpy.concatenate([numpy.zeros((missing, FEATURES), values.dtype), values])
        x = padded[: self.input_len]
        y = padded[self.context - self.label_len : self.span]
        exists = numpy.arange(self.span) >= missing
        mask, target_mask = exists[: self.input_len], exists[self.context - self.label_len :]
        return (x, y, mask, target_mask) if self.horizon else (x, mask)

    def stack(self, samples, windows=None):
        """The fields of a batch, its masks last."""
        windows = windows or self.windows()
        return [numpy.stack(part) for part in zip(*(self.window(windows[k]) for k in samples), strict=True)]

    def stack_places(self, places):
        """The inputs and the targets of windows at places."""
        fields = [self.window(place) for place in places]
        return [numpy.stack(part) for part in zip(*(parts[: len(parts) // 2] for parts in fields), strict=True)]

    def data(self, samples, windows=None):
        """The fields of a batch, with masks only where short series are padded."""
        found = self.stack(samples, windows)
        return found if self.short == "pad" else found[: len(found) // 2]

    def is_view(self, samples):
        """Tells whether these samples are neighbours in one series, without zeros."""
        places = [self.windows()[k] for k in samples]
        steps = [b[1] - a[1] for a, b in itertools.pairwise(places)]
        whole = not any(missing for _, _, missing in places)
        return len({place[0] for place in places}) == 1 and whole and set(steps) <= {self.stride}


@st.composite
def shapes(draw, most=30, series=4, **fixed):
    horizon, gap, input_len = draw(st.integers(0, 4)), draw(st.integers(0, 3)), draw(st.integers(1, 6))
    label_len = draw(st.integers(0, input_len + gap)) if horizon else 0
    short = fixed.get("short") or draw(st.sampled_from(["pad", "drop"]))
    most_lead = input_len - 1 if short == "pad" or not horizon else min(input_len - 1, input_len + gap - label_len)
    choices = {
        "lengths": draw(st.lists(st.integers(0, most), min_size=1, max_size=series).map(tuple)),
        "input_len": input_len,
        "horizon": horizon,
        "label_len": label_len,
        "gap": gap if horizon else 0,
        "stride": draw(st.integers(1, 4)),
        "anchor": draw(st.sampled_from(["start", "end"])),
        "short": short,
        "sampled_by": draw(st.sampled_from(["windows", "series"])),
        "lead": draw(st.integers(0, most_lead)),
        "whole": draw(st.booleans()),
    }
    shape = Shape(**(choices | fixed))
    assume(shape.windows())
    return shape


MODES = ("views", "copy", "rows", "shards", "torch", "torch rows", "device", "device rows", "device copy", "jax")


def modes(*without):
    return st.sampled_from([mode for mode in MODES if mode not in without])


@contextlib.contextmanager
def pretended():
    """A device that loaders take for another one than the CPU, and that yet holds values."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("batchloom.arrays.torch.accelerator", lambda device: torch.device("cpu"))
        yield "meta"


def loader_of(dataset, mode, batch_size=64, **options):
    """A loader that hands over batches in one of the ways that there are."""
    given = {
        "views": {},
        "copy": {"buffers": "own"},
        "rows": {"resident": False},
        "shards": {"resident": 2 * dataset.stats(batch_size).viewed_bytes},
        "torch": {"output": "torch"},
        "torch rows": {"output": "torch", "resident": False},
        "device": {"device": "meta"},
        "device rows": {"device": "meta", "resident": False},
        "device copy": {"device": "meta", "buffers": "own"},
        "jax": {"output": "jax"},
    }
    with pretended():
        return bl.DataLoader(dataset, batch_size, **options | given[mode])


def equal(batch, expected):
    """Tells whether arrays of any framework are these, element by element."""
    found = [numpy.asarray(part) for part in (batch.values() if isinstance(batch, dict) else batch)]
    return len(found) == len(expected) and all(map(numpy.array_equal, found, expected))


@dataclass(frozen=True)
class Slid(Run):
    """A run over the windows of two series; the first value of a window is the number of its sample."""

    mode: str = "views"

    def loader(self, world_size=1, rank=0, **more):
        first = self.samples // 2
        series = [numpy.arange(first + 3), numpy.arange(first, self.samples + 3)]
        dataset = bl.WindowDataset(series, 3, 1)
        return loader_of(dataset, self.mode, **self.options(), world_size=world_size, rank=rank, **more)

    def over(self, mode):
        return replace(self, mode=mode)


def seen(batches):
    """The samples of each batch of a loader of :class:`Slid`."""
    return [numpy.asarray(batch[0])[:, 0].tolist() for batch in batches]


def slid(most=40, batch_size=12, **fixed):
    return st.builds(
        lambda run, mode: Slid(**run.__dict__, mode=mode), runs(most=most, batch_size=batch_size, **fixed), modes()
    ).filter(lambda run: run.samples > 1)
