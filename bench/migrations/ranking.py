"""Rows of ranking and clicks: the slates of allRank, and the layout of DLRM. No code of the scripts is here."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import torch
from batchloom import DataLoader, Field, GroupDataset, SequenceDataset, TensorDataset
from scipy import sparse
from torch import Tensor
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset

from bench.harness.checkouts import need_checkout, need_package, take
from bench.migrations.rows import Pass, Row, Source, same, same_in_order

RANKING = Source("allegro/allRank", "c884756", "allrank/data/dataset_loading.py")
DLRM = Source("facebookresearch/dlrm", "090956e", "dlrm_data_pytorch.py")


# ---- allRank: slates of one length -----------------------------------------------------------------------------------

QUERIES, RANKED, SLATE, SLATES_A_BATCH = 2000, 136, 240, 64


def prepare_slates(folder: Path, scale: float) -> Any:
    """Make queries of up to 200 documents, as a file of LETOR is read; load the dataset and its transforms."""
    random = numpy.random.default_rng(0)
    lengths = random.integers(20, 200, max(round(QUERIES * scale), 130))
    rows = int(lengths.sum())
    x = sparse.csr_array(random.random((rows, RANKED)).round(3))
    queries = numpy.repeat(numpy.arange(len(lengths)), lengths)
    space = {"np": numpy, "torch": torch, "Dataset": Dataset, "logger": logging.getLogger("allrank")}
    space |= {"PADDED_Y_VALUE": -1, "PADDED_INDEX_VALUE": -1, "DataLoader": TorchLoader, "Tuple": tuple}
    names = ["ToTensor", "FixLength", "LibSVMDataset", "create_data_loaders"]
    found = take(need_checkout(RANKING.checkout) / RANKING.file, names, space)
    compose = need_package("torchvision").transforms.Compose
    y = random.integers(0, 5, rows).astype(numpy.float64)
    return SimpleNamespace(x=x, y=y, queries=queries, compose=compose, **{name: found[name] for name in names})


def slates(data: Any, shuffle: bool) -> Pass:
    """Use ``LibSVMDataset`` and ``create_data_loaders``, which shuffles its first loader alone."""
    dataset = data.LibSVMDataset(data.x, data.y, data.queries, data.compose([data.FixLength(SLATE), data.ToTensor()]))
    if shuffle:
        loader, _ = data.create_data_loaders(dataset, dataset, num_workers=0, batch_size=SLATES_A_BATCH)
    else:
        loader = TorchLoader(dataset, batch_size=SLATES_A_BATCH)
    return lambda: loader


def slates_loom(data: Any, shuffle: bool) -> Pass:
    """Make groups of the rows, with the place of each row in its slate."""
    _, first, counts = numpy.unique(data.queries, return_index=True, return_counts=True)
    place = numpy.arange(len(data.y)) - numpy.repeat(first, counts)
    dense = data.x.toarray().astype(numpy.float32)
    options = {"layout": "padded", "max_rows": SLATE, "oversize": "subsample"}
    dataset = GroupDataset(data.queries, dense, data.y.astype(numpy.float32), place, **options)
    padding = {2: Field(pad=-1), 3: Field(pad=-1)}
    loader = DataLoader(dataset, SLATES_A_BATCH, shuffle=shuffle, pad_to=SLATE, fields=padding, output="torch")
    return lambda: ((x, y, places) for _, x, y, places, _ in loader)


# ---- DLRM: clicks, and bags with offsets -----------------------------------------------------------------------------

CLICKS, DENSE, CATEGORIES, CLICKS_A_BATCH = 200_000, 13, 26, 128
BAGS, BAGS_OF = 8, 20_000


def prepare_clicks(folder: Path, scale: float) -> Any:
    """Make clicks in the layout of Criteo; load the collation."""
    random, rows = numpy.random.default_rng(0), max(round(CLICKS * scale), 1000)
    x_int = random.integers(0, 1000, (rows, DENSE)).astype(numpy.int32)
    x_cat = random.integers(0, 10_000, (rows, CATEGORIES)).astype(numpy.int32)
    y = random.integers(0, 2, rows).astype(numpy.int32)
    name = "collate_wrapper_criteo_offset"
    collate = take(need_checkout(DLRM.checkout) / DLRM.file, [name], {"torch": torch})[name]
    return SimpleNamespace(x_int=x_int, x_cat=x_cat, y=y, collate=collate)


class Clicks(Dataset):  # type: ignore[type-arg]
    """Clicks as ``CriteoDataset`` gives them."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data.y)

    def __getitem__(self, number: int) -> tuple[Any, Any, Any]:
        return self._data.x_int[number], self._data.x_cat[number], self._data.y[number]


def clicks(data: Any, shuffle: bool) -> Pass:
    """Use ``collate_wrapper_criteo_offset`` in torch's loader."""
    loader = TorchLoader(Clicks(data), batch_size=CLICKS_A_BATCH, shuffle=shuffle, collate_fn=data.collate)
    return lambda: loader


def clicks_loom(data: Any, shuffle: bool) -> Pass:
    """Make rows, and what the collation adds of each batch."""
    types = {0: Field(dtype="float32"), 1: Field(dtype="int64"), 2: Field(dtype="float32")}
    dataset = TensorDataset(data.x_int, data.x_cat, data.y)
    loader = DataLoader(dataset, CLICKS_A_BATCH, shuffle=shuffle, fields=types, output="torch")

    def epoch() -> Iterator[tuple[Tensor, ...]]:
        for x_int, x_cat, y in loader:
            offsets = torch.arange(len(y)).expand(CATEGORIES, -1)
            yield torch.log(x_int + 1), offsets, x_cat.t(), y.view(-1, 1)

    return epoch


def prepare_bags(folder: Path, scale: float) -> Any:
    """Make samples of some bags of ids, of any length."""
    random, rows = numpy.random.default_rng(0), max(round(BAGS_OF * scale), 1000)
    bags = {
        f"bag{number}": [random.integers(0, 10_000, length) for length in random.integers(1, 10, rows)]
        for number in range(BAGS)
    }
    dense, y = random.random((rows, DENSE)).astype(numpy.float32), random.integers(0, 2, rows).astype(numpy.float32)
    return SimpleNamespace(bags=bags, dense=dense, y=y)


def bags(data: Any, shuffle: bool) -> Pass:
    """Concatenate the ids of each bag over the batch, with the offset of each sample, in the layout of DLRM."""

    def collate(numbers: list[int]) -> tuple[Any, ...]:
        offsets, ids = [], []
        for bag in data.bags.values():
            parts = [torch.from_numpy(bag[number]) for number in numbers]
            lengths = torch.tensor([0] + [len(part) for part in parts[:-1]])
            offsets.append(lengths.cumsum(0))
            ids.append(torch.cat(parts))
        dense, y = torch.from_numpy(data.dense[numbers]), torch.from_numpy(data.y[numbers])
        return dense, torch.stack(offsets), ids, y.view(-1, 1)

    loader = TorchLoader(range(len(data.y)), batch_size=CLICKS_A_BATCH, shuffle=shuffle, collate_fn=collate)  # type: ignore[arg-type, var-annotated]
    return lambda: loader


def bags_loom(data: Any, shuffle: bool) -> Pass:
    """Make sequences with a length for each bag, concatenated."""
    names = list(data.bags)
    dataset = SequenceDataset(
        **data.bags, dense=data.dense, y=data.y, own_lengths=tuple(names[1:]), layout="concatenated"
    )
    loader = DataLoader(dataset, CLICKS_A_BATCH, shuffle=shuffle, output="torch")
    keys = ["cu_seqlens", *(f"{name}_offsets" for name in names[1:])]

    def epoch() -> Iterator[tuple[Any, ...]]:
        for batch in loader:
            offsets = torch.stack([batch[key][:-1] for key in keys]).long()
            yield batch["dense"], offsets, [batch[name] for name in names], batch["y"].view(-1, 1)

    return epoch


ROWS = (
    Row("06", "slates", RANKING, prepare_slates, slates, slates_loom, same, changed="187 / 22"),
    Row("18", "clicks", DLRM, prepare_clicks, clicks, clicks_loom, same_in_order, "clicks"),
    Row("18", "bags with offsets", DLRM, prepare_bags, bags, bags_loom, same_in_order, "bags", changed="11 / 12"),
)
