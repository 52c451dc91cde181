"""Rows of time: forecasting by the Time-Series-Library, the windows of a paper, sequences of a robot.

No code of the scripts is here.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import numpy
import torch
from batchloom import DataLoader, WindowDataset
from torch import Tensor
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset

from bench.harness.checkouts import need_checkout, need_package, take
from bench.migrations.rows import Pass, Row, Source, expect_equal, same, same_in_order

TSLIB = Source("thuml/Time-Series-Library", "4e938a1", "data_provider/data_loader.py")
PAPER = Source("psinthong/ME_Batch_Formation", "42c289f", "mem_benchmark.py")
ROBOT = Source("real-stanford/diffusion_policy", "5ba07ac", "diffusion_policy/common/sampler.py")


# ---- Time-Series-Library: windows of ETTh1 ---------------------------------------------------------------------------

HOURS, COLUMNS, FORECASTS_A_BATCH = 17_420, ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"), 32
INPUT, LABEL, HORIZON = 96, 48, 96


def prepare_forecasts(folder: Path, scale: float) -> Any:
    """Write a file of the form of ETTh1; load ``Dataset_ETT_hour`` and ``time_features``."""
    checkout, pandas = need_checkout(TSLIB.checkout), need_package("pandas")
    scaler = need_package("sklearn.preprocessing").StandardScaler
    time = pandas.date_range("2016-07-01", periods=HOURS, freq="h").strftime("%Y-%m-%d %H:%M:%S")
    values = numpy.random.default_rng(0).normal(size=(HOURS, len(COLUMNS))).cumsum(axis=0).round(3)
    pandas.DataFrame({"date": time, **dict(zip(COLUMNS, values.T, strict=True))}).to_csv(
        folder / "ETTh1.csv", index=False
    )
    marks: dict[str, Any] = {}
    exec(compile((checkout / "utils" / "timefeatures.py").read_text(), "timefeatures.py", "exec"), marks)
    space = {"os": os, "pd": pandas, "Dataset": Dataset, "StandardScaler": scaler}
    space |= {"time_features": marks["time_features"]}
    return SimpleNamespace(
        folder=folder,
        read_csv=pandas.read_csv,
        dataset=take(checkout / TSLIB.file, ["Dataset_ETT_hour"], space)["Dataset_ETT_hour"],
    )


def forecasts(data: Any, shuffle: bool) -> Pass:
    """Use ``Dataset_ETT_hour`` as ``data_provider`` does; the experiment makes float32 of each batch."""
    options = {"size": [INPUT, LABEL, HORIZON], "features": "M", "data_path": "ETTh1.csv", "timeenc": 1}
    arguments = SimpleNamespace(augmentation_ratio=0)
    dataset = data.dataset(args=arguments, root_path=str(data.folder), flag="train", **options)
    loader = TorchLoader(dataset, batch_size=FORECASTS_A_BATCH, shuffle=shuffle, drop_last=False)
    return lambda: ([field.float() for field in batch] for batch in loader)


def forecasts_loom(data: Any, shuffle: bool) -> Pass:
    """Make windows of the frame, with the borders, the scale and the marks of that library."""
    frame = data.read_csv(data.folder / "ETTh1.csv")
    windows = WindowDataset(frame, INPUT, HORIZON, label_len=LABEL, time="date", targets=list(COLUMNS), marks="tslib")
    train, _, _ = windows.split("ett-hour", scale="standard")
    loader = DataLoader(train, FORECASTS_A_BATCH, shuffle=shuffle, dtype="float32", output="torch")
    return lambda: loader


# ---- the paper: stacked windows, and views ---------------------------------------------------------------------------

TIME, FEATURES, LENGTH, AHEAD, BEFORE, WINDOWS_A_BATCH = 5_000, 100, 500, 60, 40, 100


def prepare_paper(folder: Path, scale: float) -> Any:
    """Make a series; load the datasets and the collation."""
    names = ["DummyPretrainDataset", "DummyPretrainStackDataset", "SlidingWindowView"]
    space = take(
        need_checkout(PAPER.checkout) / PAPER.file, names, {"torch": torch, "Dataset": Dataset, "pred_len": AHEAD}
    )
    time = max(round(TIME * scale), 1000)
    series = numpy.random.default_rng(0).uniform(1, 100, size=(time, FEATURES))
    return SimpleNamespace(series=series, **{name: space[name] for name in names})


def paper_views(data: Any, shuffle: bool) -> Pass:
    """Use its mode ``optimize_in_mem``."""
    options = {"seq_len": LENGTH, "pred_len": AHEAD, "label_len": BEFORE, "bs": WINDOWS_A_BATCH}
    sizes = (FEATURES, len(data.series))
    dataset = data.DummyPretrainDataset(data.series, data.series, *sizes, **options, device="cpu", in_mem=True)
    view = data.SlidingWindowView(LENGTH, 1, AHEAD, BEFORE)
    loader = TorchLoader(dataset, batch_size=None, collate_fn=view.slide_collate_fn)
    # Its loader goes on for ever, as the dataset never ends: __getitem__ accepts every number.
    return lambda: (batch for _, batch in zip(range(len(dataset)), loader, strict=False))


def paper_stacked(data: Any, shuffle: bool) -> Pass:
    """Use its mode ``regular``."""
    sizes, options = (FEATURES, len(data.series)), {"seq_len": LENGTH, "pred_len": AHEAD, "label_len": BEFORE}
    dataset = data.DummyPretrainStackDataset(data.series, data.series, *sizes, **options)
    loader = TorchLoader(dataset, batch_size=WINDOWS_A_BATCH, shuffle=False, drop_last=True)
    return lambda: loader


def paper_loom(data: Any, buffers: str | None = None) -> Pass:
    """Make windows of the series as float32."""
    windows = WindowDataset(torch.from_numpy(data.series).float(), LENGTH, AHEAD, label_len=BEFORE)
    options = {} if buffers is None else {"buffers": buffers}
    loader = DataLoader(windows, WINDOWS_A_BATCH, drop_last=True, **options)
    return lambda: loader


def check_views(row: Row, data: Any) -> int:
    """Compare views: inputs are equal, and targets of the paper are one step early."""
    number = 0
    for number, (theirs, ours) in enumerate(zip(row.script(data, False)(), row.loom(data, False)(), strict=True), 1):
        early, right = theirs[1], ours[1]
        expect_equal(row.name, number, (theirs[0], early[:, 1:]), (ours[0], right[:, :-1]))
        return number


# ---- diffusion_policy: sequences of an episode, whose edges are repeated ---------------------------------------------

EPISODES, STEPS, SEQUENCE, EARLY, LATE, SEQUENCES_A_BATCH = 206, 125, 16, 1, 7, 64


class Replay(dict):  # type: ignore[type-arg]
    """A replay buffer in memory: arrays by name, and the end of each episode."""

    episode_ends: numpy.ndarray[Any, Any]


def prepare_robot(folder: Path, scale: float) -> Any:
    """Make episodes of the size of PushT; load ``SequenceSampler``."""
    numba = need_package("numba")
    random = numpy.random.default_rng(0)
    lengths = random.integers(STEPS - 75, STEPS + 75, max(round(EPISODES * scale), 5))
    rows = int(lengths.sum())
    replay = Replay(state=random.normal(size=(rows, 5)).astype(numpy.float32))
    replay["action"] = random.normal(size=(rows, 2)).astype(numpy.float32)
    replay.episode_ends = numpy.cumsum(lengths)
    space = {"np": numpy, "numba": numba, "Optional": Optional, "ReplayBuffer": Replay}
    file = need_checkout(ROBOT.checkout) / ROBOT.file
    names = ["create_indices", "SequenceSampler"]
    return SimpleNamespace(replay=replay, lengths=lengths, sampler=take(file, names, space)["SequenceSampler"])


class Sequences(Dataset):  # type: ignore[type-arg]
    """Sequences as the datasets of diffusion_policy give them: tensors of what the sampler cuts."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def __len__(self) -> int:
        return len(self._sampler)

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        return {name: torch.from_numpy(part) for name, part in self._sampler.sample_sequence(number).items()}


def robot(data: Any, shuffle: bool) -> Pass:
    """Use ``SequenceSampler`` in torch's loader, with no worker processes."""
    sampler = data.sampler(data.replay, SEQUENCE, pad_before=EARLY, pad_after=LATE)
    loader = TorchLoader(Sequences(sampler), batch_size=SEQUENCES_A_BATCH, shuffle=shuffle)
    return lambda: loader


def robot_loom(data: Any, shuffle: bool) -> Pass:
    """Take the steps around each anchor that the script has; the nearest step is repeated."""
    around = range(-EARLY, SEQUENCE - EARLY)
    episodes = {"episode": numpy.repeat(numpy.arange(len(data.lengths)), data.lengths), **data.replay}
    dataset = WindowDataset(episodes, offsets={"state": around, "action": around}, id="episode", short="pad")
    ends = numpy.repeat(data.lengths, data.lengths)
    steps = numpy.arange(len(ends)) - numpy.repeat(numpy.cumsum(data.lengths) - data.lengths, data.lengths)
    dataset = dataset.select(steps <= ends - SEQUENCE + LATE + EARLY)
    options = {"pad_value": "edge", "output": "torch", "extras": ()}
    loader = DataLoader(dataset, SEQUENCES_A_BATCH, shuffle=shuffle, **options)
    return lambda: ({"state": batch["state"], "action": batch["action"]} for batch in loader)


ROWS = (
    Row("03", "forecasting", TSLIB, prepare_forecasts, forecasts, forecasts_loom, same, changed="3 / 14"),
    Row(
        "04",
        "windows as views",
        PAPER,
        prepare_paper,
        paper_views,
        lambda data, _: paper_loom(data),
        check_views,
        "views",
        changed="87 / 4",
    ),
    Row(
        "04",
        "windows, stacked",
        PAPER,
        prepare_paper,
        paper_stacked,
        lambda data, _: paper_loom(data, "own"),
        same_in_order,
        "stacked",
    ),
    Row("14", "sequences of a robot", ROBOT, prepare_robot, robot, robot_loom, same, changed="52 / 9"),
)
