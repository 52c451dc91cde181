"""Time batches of windows with fields that have separate times: rows found when a batch is made, beside peers.

A robot, as sets of demonstrations have it: its state 50 times a second, features of a camera 30 times a second, and a
sensor at times of its own, about seven a second. A sample is 16 steps of the state, the two nearest frames, and the
last value of the sensor.

Promises:

- Peers make the same batches in the same order, epoch 0 of batchloom's plan. Every value of an epoch is compared before
  anything is timed.
- The loader of torch searches by ``numpy.searchsorted`` for each sample, as such data sets are written. By hand, a
  batch is one search in all times, and one gather a field; the row numbers that ``pandas.merge_asof`` would store are
  found before the clock starts in the last candidate, which keeps eight bytes for each row of each sample.
- What is made once for all epochs is made before them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import batchloom
import numpy
import torch
from torch.utils.data import DataLoader, Dataset

from bench.harness.claims import Claim, stated
from bench.harness.measure import LOOM, Candidate, Timing, exhaust, interleave
from bench.harness.report import faster_than, fastest_first, print_disturbed, table
from bench.windows.setting import Setting

Array = numpy.ndarray[Any, Any]
Batch = dict[str, torch.Tensor]

EPISODES, STEPS, STATE, FRAME, SENSOR = 200, 2000, 14, 128, 16
INPUT_LEN, PER_BATCH, BATCHES = 16, 64, 200
STEP, OFFSETS = 20, (-100, 0)  # milliseconds
TORCH, WORKERS = "torch DataLoader", "torch DataLoader, 2 workers"
HAND, STORED = "by hand: one search a batch", "by hand: row numbers stored"


@dataclass(frozen=True)
class Episodes:
    """The series, one episode after the other, with the milliseconds of each row.

    Attributes:
        state: The state, ``[steps, features]``.
        times: The time of each step, from the begin of its episode.
        frames: The features of frames.
        frame_times: The time of each frame.
        frame_series: The first frame of each episode, and the end of the last one.
        sensor: The values of the sensor.
        sensor_times: The time of each value.
        sensor_series: The first value of each episode, and the end of the last one.
    """

    state: torch.Tensor
    times: Array
    frames: torch.Tensor
    frame_times: Array
    frame_series: Array
    sensor: torch.Tensor
    sensor_times: Array
    sensor_series: Array


def make_episodes(episodes: int) -> Episodes:
    """Make episodes of one length, whose frames and values of the sensor begin with them."""
    random, length = numpy.random.default_rng(0), STEPS * STEP
    frames = numpy.arange(0, length, 1000 / 30).astype(numpy.int64)
    count = 7 * length // 1000
    values = [
        numpy.append(0, numpy.sort(random.choice(length - 1, count - 1, replace=False)) + 1) for _ in range(episodes)
    ]
    torch.manual_seed(0)
    return Episodes(
        torch.randn(episodes * STEPS, STATE),
        numpy.tile(numpy.arange(STEPS) * STEP, episodes),
        torch.randn(episodes * len(frames), FRAME),
        numpy.tile(frames, episodes),
        numpy.arange(episodes + 1) * len(frames),
        torch.randn(episodes * count, SENSOR),
        numpy.concatenate(values),
        numpy.arange(episodes + 1) * count,
    )


def find_last(times: Array, at: Any) -> Any:
    """Return the number of the last time that is not after each of the given ones."""
    return numpy.searchsorted(times, at, "right") - 1


def find_nearest(times: Array, at: Any) -> Any:
    """Return the number of the time nearest to each of the given ones; the earlier one of two."""
    after = numpy.minimum(numpy.searchsorted(times, at, "left"), len(times) - 1)
    before = numpy.maximum(after - 1, 0)
    return numpy.where(at - times[before] <= numpy.abs(times[after] - at), before, after)


class Demonstrations(Dataset[Batch]):
    """The data set as it is usually written: one sample at a time, with two searches."""

    def __init__(self, data: Episodes) -> None:
        self.data, self.windows = data, STEPS - INPUT_LEN + 1

    def __getitem__(self, sample: int) -> Batch:
        """Return the window, the frames and the value of the sensor of a sample."""
        data, (episode, step) = self.data, divmod(sample, self.windows)
        start = episode * STEPS + step
        now = data.times[start + INPUT_LEN - 1]
        first, end = data.frame_series[episode : episode + 2]
        frames = first + find_nearest(data.frame_times[first:end], now + numpy.array(OFFSETS))
        low, high = data.sensor_series[episode : episode + 2]
        value = low + find_last(data.sensor_times[low:high], now)
        return {
            "x": data.state[start : start + INPUT_LEN],
            "frame": data.frames[frames],
            "sensor": data.sensor[value : value + 1],
        }


class ByHand:
    """Whole batches by a search in the times of all episodes. Each episode lies after the one before."""

    def __init__(self, data: Episodes, *, stores: bool) -> None:
        self._data, self._windows, self._span = data, STEPS - INPUT_LEN + 1, 2 * STEPS * STEP
        episodes = len(data.frame_series) - 1
        shift = numpy.arange(episodes) * self._span
        self._frames = data.frame_times + numpy.repeat(shift, numpy.diff(data.frame_series))
        self._sensor = data.sensor_times + numpy.repeat(shift, numpy.diff(data.sensor_series))
        self._steps, self._rows = torch.arange(INPUT_LEN), None
        if stores:
            self._rows = self._search(numpy.arange(episodes * self._windows))

    def _search(self, samples: Array) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the frames and the values of the sensor of samples."""
        episode, step = numpy.divmod(samples, self._windows)
        now = (step + INPUT_LEN - 1) * STEP + episode * self._span
        # A frame before the episode is the last one of the episode before.
        frames = find_nearest(self._frames, now[:, None] + numpy.array(OFFSETS))
        frames = numpy.maximum(frames, self._data.frame_series[episode][:, None])
        return torch.from_numpy(frames), torch.from_numpy(find_last(self._sensor, now)[:, None])

    def batch(self, samples: Array) -> Batch:
        """Return the batch of some samples."""
        episode, step = numpy.divmod(samples, self._windows)
        starts = torch.from_numpy(episode * STEPS + step)
        if self._rows is None:
            frames, sensor = self._search(samples)
        else:
            chosen = torch.from_numpy(samples)
            frames, sensor = self._rows[0][chosen], self._rows[1][chosen]
        data = self._data
        return {
            "x": data.state[starts[:, None] + self._steps],
            "frame": data.frames[frames],
            "sensor": data.sensor[sensor],
        }


def make_loader(data: Episodes) -> batchloom.DataLoader[Any]:
    """Make the loader of batchloom."""
    episodes = len(data.frame_series) - 1
    timed = {
        "frame": batchloom.Timed(
            (data.frames, data.frame_series), (data.frame_times, data.frame_series), OFFSETS, match="nearest"
        ),
        "sensor": batchloom.Timed((data.sensor, data.sensor_series), (data.sensor_times, data.sensor_series), [0]),
    }
    series = numpy.arange(episodes + 1) * STEPS
    dataset = batchloom.WindowDataset((data.state, series), INPUT_LEN, time=(data.times, series), timed=timed)
    return batchloom.DataLoader(dataset, PER_BATCH, shuffle=True, seed=0)


def measure_timed(setting: Setting) -> dict[str, Any]:
    """Time epochs of batches with fields that have separate times; return the record for the JSON."""
    data = make_episodes(max(round(EPISODES * setting.scale), 4))
    loader = make_loader(data)
    order = [numpy.asarray(samples) for samples in islice(loader.plan(0), BATCHES)]
    runs: dict[str, Callable[[], Iterator[Any]]] = {LOOM: lambda: islice(loader, len(order))}
    for name, workers in ((TORCH, 0), (WORKERS, 2)):
        lists = [samples.tolist() for samples in order]
        peer = DataLoader(
            Demonstrations(data), batch_sampler=lists, num_workers=workers, persistent_workers=workers > 0
        )
        runs[name] = partial(iter, peer)
    for name, stores in ((HAND, False), (STORED, True)):
        hand = ByHand(data, stores=stores)
        runs[name] = partial(map, hand.batch, order)
    compare(runs)
    candidates = [
        Candidate(name, partial(take, run), {"batches": len(order)}, slow=name in (TORCH, WORKERS))
        for name, run in runs.items()
    ]
    timings = interleave("timed", candidates, setting.rounds)
    print_timed(len(order), timings)
    claims = [
        Claim.of_ratio(f"timed: {name}, times batchloom", timings[name], timings[LOOM], ">=", 1)
        for name in runs
        if name != LOOM
    ]
    return {
        "samples": len(loader.dataset),
        "per_batch": PER_BATCH,
        "batches": len(order),
        "candidates": [timing.record({LOOM: timings[LOOM]}) for timing in timings.values()],
        "claims": stated(claims),
        "faster_than_batchloom": faster_than(LOOM, timings),
    }


def take(run: Callable[[], Iterator[Any]]) -> None:
    """Take all batches of an epoch."""
    exhaust(run())


def compare(runs: dict[str, Callable[[], Iterator[Any]]]) -> None:
    """Compare every value of the first epoch.

    Raises:
        AssertionError: A batch differs from batchloom's.
    """
    for number, batches in enumerate(zip(*(run() for run in runs.values()), strict=True)):
        for name, batch in zip(runs, batches, strict=True):
            if not all(torch.equal(batches[0][field], batch[field]) for field in ("x", "frame", "sensor")):
                raise AssertionError(f"batch {number} of {name} differs from batchloom's")


def print_timed(batches: int, timings: dict[str, Timing]) -> None:
    """Print one line for each candidate, the fastest first."""
    lines = [
        (
            timing.name,
            f"{timing.median / batches * 1e6:.0f}",
            f"{timing.minimum / batches * 1e6:.0f}",
            f"{timing.ratio(timings[LOOM]):.2f}",
        )
        for timing in fastest_first(timings)
    ]
    heads = ("candidate", "median us a batch", "min us", "x batchloom")
    table(f"windows with two fields of separate times, batches of {PER_BATCH}", heads, lines)
    print_disturbed("timed", timings)
