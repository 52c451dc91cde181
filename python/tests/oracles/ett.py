"""The usual ETT pipeline of the Informer lineage, by definition: scale, cut at the borders, slice a window, stack."""

import itertools
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy
import torch
from torch import nn
from torch.nn import functional

ETTH1 = Path(__file__).parents[3] / "shared" / "data" / "ETTh1.csv"
PARTS = ("train", "val", "test")


@dataclass(frozen=True)
class Shape:
    """The steps that a window spans. The lineage has no gap: with one, y comes that much later."""

    input_len: int
    horizon: int
    label_len: int = 0
    gap: int = 0

    def options(self):
        """As batchloom's arguments."""
        return {**self.__dict__}

    def inside(self, steps):
        """The number of windows that fit into so many steps."""
        return steps - self.input_len - self.gap - self.horizon + 1


@dataclass(frozen=True, eq=False)
class Table:
    """Several columns over time, the target last."""

    times: numpy.ndarray
    values: numpy.ndarray
    month: int  # how many steps thirty days are

    def ends(self):
        """The ends of the parts: after 12, 16 and 20 months."""
        return dict(zip(PARTS, (12 * self.month, 16 * self.month, 20 * self.month), strict=True))

    def steps(self, part):
        """The steps whose values are forecast in a part."""
        ends = [0, *self.ends().values()]
        place = PARTS.index(part)
        return range(ends[place], ends[place + 1])

    @cache  # noqa: B019 (tables live as long as the tests)
    def scaled(self, features="M"):
        """The columns that a model sees, less their mean over their deviation, both of the training steps alone."""
        values = self.values[:, -1:] if features == "S" else self.values
        known = values[: 12 * self.month]
        return (values - known.mean(0)) / known.std(0)

    @cache  # noqa: B019
    def marks(self, timeenc=0):
        """The calendar: integers, or the same four ideas each between -0.5 and 0.5."""
        dates = self.times.astype("datetime64[s]").tolist()
        if timeenc == 0:
            return numpy.array([[date.month, date.day, date.weekday(), date.hour] for date in dates])
        days = [date.timetuple().tm_yday for date in dates]
        parts = [
            (date.hour / 23, date.weekday() / 6, (date.day - 1) / 30, (day - 1) / 365)
            for date, day in zip(dates, days, strict=True)
        ]
        return numpy.array(parts) - 0.5


@cache
def etth1():
    times, *columns = numpy.loadtxt(ETTH1, delimiter=",", skiprows=1, dtype=str, unpack=True)
    return Table(times.astype("datetime64[s]"), numpy.array(columns, float).T.copy(), 30 * 24)


@cache
def synthetic(hours=1, columns=3):
    """Twenty months and some more, so that what comes after the last border must stay out."""
    month = 30 * 24 // hours
    steps = 20 * month + month // 2
    times = numpy.datetime64("2019-11-03T05:00:00") + hours * 3600 * numpy.arange(steps)
    random = numpy.random.default_rng(hours)
    values = random.normal(size=(steps, columns)).cumsum(0) + random.normal(size=(steps, columns))
    return Table(times, values, month)


class Windows(torch.utils.data.Dataset):
    """One part of the lineage's hourly dataset: a window is four arrays, and every one is cut when it is asked for."""

    def __init__(self, table, part, shape, features="M", timeenc=0):
        steps, context = table.steps(part), shape.input_len + shape.gap
        first = max(steps.start - context, 0)
        self.shape = shape
        self.data = table.scaled(features)[first : steps.stop]
        self.stamps = table.marks(timeenc)[first : steps.stop]
        self.target = slice(-1, None) if features == "MS" else slice(None)

    def __len__(self):
        return self.shape.inside(len(self.data))

    def __getitem__(self, index):
        seen = slice(index, index + self.shape.input_len)
        begin = seen.stop + self.shape.gap - self.shape.label_len
        asked = slice(begin, begin + self.shape.label_len + self.shape.horizon)
        # In the lineage the training loop takes the target out of y for MS; here the window holds no more than that.
        return self.data[seen], self.data[asked, self.target], self.stamps[seen], self.stamps[asked]


class Forecaster(nn.Module):
    """A small DLinear: trend and remainder of each column, each with a linear layer over time."""

    def __init__(self, shape):
        super().__init__()
        self.trend = nn.Linear(shape.input_len, shape.horizon)
        self.rest = nn.Linear(shape.input_len, shape.horizon)

    def forward(self, x):
        series = x.mT
        trend = functional.avg_pool1d(functional.pad(series, (2, 2), mode="replicate"), 5, 1)
        return (self.trend(trend) + self.rest(series - trend)).mT


def trained(epochs, shape):
    """The bits of a model's weights after training on batches, which may come in float64 as the lineage's do."""
    torch.manual_seed(5)
    model = Forecaster(shape)
    descent = torch.optim.Adam(model.parameters(), lr=0.01)
    for x, y, *_ in itertools.chain.from_iterable(epochs):
        # A kernel may add in another order where memory lies otherwise, so both sides train on compact memory.
        x, y = x.float().contiguous(), y[:, shape.label_len :].float().contiguous()
        descent.zero_grad()
        functional.mse_loss(model(x)[..., -y.shape[-1] :], y).backward()
        descent.step()
    return [weight.detach().numpy().tobytes() for weight in model.parameters()]
