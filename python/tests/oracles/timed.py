"""Rows with separate times, by definition: for each sample and each offset, a look at every row."""

import itertools
from dataclasses import dataclass, field, replace

import batchloom as bl
import numpy
from hypothesis import assume
from hypothesis import strategies as st
from oracles.windows import Shape, shapes

DAY = numpy.datetime64("2024-03-01", "ns")


@dataclass(frozen=True)
class Clock:
    """Rows of each series with separate times, in ticks, and what a sample takes of them.

    Attributes:
        times: The ticks of the rows of each series.
        kind: The way in which ticks are given: ``"int"``, ``"float"`` (quarters), ``"ns"`` or ``"mixed"`` (datetimes).
    """

    times: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]
    match: str = "last"
    tolerance: int | None = None
    missing: str = "pad"
    kind: str = "int"
    width: tuple[int, ...] = ()

    def values(self):
        """The rows: each holds its number, counted from 1 over all series."""
        rows = sum(map(len, self.times))
        numbers = numpy.arange(1, rows + 1).reshape(-1, *(1 for _ in self.width)) * numpy.ones(self.width, int)
        return numbers.reshape(rows, *self.width)

    def timed(self, values=None, as_list=True):
        """The field as users give it."""
        ends = numpy.cumsum([0, *map(len, self.times)])
        values = self.values() if values is None else values
        times = [shown(each, self.kind, fine=False) for each in self.times]
        whole = numpy.concatenate(times) if times else times
        if as_list and isinstance(values, numpy.ndarray):
            given = [values[a:b] for a, b in itertools.pairwise(ends)], times
        else:
            given = (values, ends), (whole, ends)
        tolerance = None if self.tolerance is None else distance(self.tolerance, self.kind)
        return bl.Timed(
            *given, [distance(each, self.kind) for each in self.offsets], self.match, tolerance, self.missing
        )

    def row(self, series, now, first=None, end=None, pad=0):
        """The number of the row for each offset of a sample at a time, of the rows from ``first`` to before ``end``."""
        before = sum(map(len, self.times[:series]))
        found = []
        for offset in self.offsets:
            best = None
            for row, time in enumerate(self.times[series]):
                if now is None or (first is not None and time < first) or (end is not None and time >= end):
                    continue
                wanted = now + offset
                if self.match == "last" and time > wanted:
                    continue
                if best is None or abs(wanted - time) < abs(wanted - self.times[series][best]):
                    best = row
            if best is not None and self.tolerance is not None:
                best = best if abs(now + offset - self.times[series][best]) <= self.tolerance else None
            found.append(pad if best is None else before + best + 1)
        return found


def shown(ticks, kind, fine=True):
    """Ticks as times of a kind; of ``"mixed"``, fine or coarse ones."""
    ticks = numpy.array(ticks, numpy.int64)
    if kind == "int":
        return ticks
    if kind == "float":
        return ticks * 0.25
    unit = "s" if kind == "mixed" and not fine else "ns"
    return DAY.astype(f"datetime64[{unit}]") + (ticks * 10**9).astype("timedelta64[ns]").astype(f"timedelta64[{unit}]")


def distance(ticks, kind):
    """A distance of some ticks."""
    if kind in ("int", "float"):
        return ticks if kind == "int" else ticks * 0.25
    return numpy.timedelta64(ticks, "s")


@dataclass(frozen=True)
class Clocked:
    """Windows over series, with a clock beside them.

    Attributes:
        shape: The windows.
        steps: The tick of each step of each series.
        clock: The rows beside them.
    """

    shape: Shape
    steps: tuple[tuple[int, ...], ...]
    clock: Clock = field(repr=True, default=None)

    def dataset(self, values=None, as_list=True, **more):
        time = numpy.concatenate([shown(each, self.clock.kind) for each in self.steps])
        timed = {"row": self.clock.timed(values, as_list)}
        return self.shape.dataset(time=time, timed=timed, **more)

    def rows(self, place, bounds=None, pad=0):
        """The rows of the window at a place: its series, its first step, and its zeros before that."""
        series, start, missing = place
        anchor = start - missing + self.shape.input_len - 1
        steps = self.steps[series]
        now = steps[anchor] if anchor >= start else None
        first, end = (None, None) if bounds is None else bounds[series]
        return self.clock.row(series, now, first, end, pad)

    def batch(self, places, bounds=None, pad=0):
        """The rows of a batch, and its mask."""
        rows = numpy.array([self.rows(place, bounds, pad) for place in places], numpy.int64)
        wide = rows.reshape(*rows.shape, *(1 for _ in self.clock.width)) * numpy.ones(self.clock.width, numpy.int64)
        exists = numpy.array([self.rows(place, bounds, -(10**6)) for place in places]) > 0
        return wide, exists

    def missing(self):
        """The number of rows that windows lack."""
        different = dict.fromkeys(self.shape.windows())
        return sum(self.rows(place).count(0) for place in different)

    def replaced(self, **changes):
        return replace(self, clock=replace(self.clock, **changes))


def growing(least, most):
    return st.lists(st.integers(-25, 25), min_size=least, max_size=most, unique=True).map(
        lambda all: tuple(sorted(all))
    )


@st.composite
def clocked(draw, missing="pad", **fixed):
    """Windows of any shape over series with gaps in their times, and rows of another rate, or none."""
    shape = draw(shapes(most=14, series=3, **fixed))
    steps = tuple(draw(growing(length, length)) for length in shape.lengths)
    clock = Clock(
        tuple(draw(growing(0, 9)) for _ in shape.lengths),
        tuple(draw(st.lists(st.integers(-20, 20), min_size=1, max_size=4))),
        draw(st.sampled_from(["last", "nearest"])),
        draw(st.one_of(st.none(), st.integers(0, 6))),
        missing,
        draw(st.sampled_from(["int", "float", "ns", "mixed"])),
        draw(st.sampled_from([(), (2,), (2, 3)])),
    )
    case = Clocked(shape, steps, clock)
    assume(missing == "pad" or not case.missing())
    return case
