"""The planners of verl, TRL, slime and UniRL as they are, brought to one form. No code of theirs is here.

``pip install --no-deps verl==0.9.1 trl==1.16.0`` is enough, in any folder on the path. slime and UniRL are no packages
of an index: ``BENCH_PEERS`` names a folder with checkouts ``slime`` and ``UniRL``. Empty modules stand for packages
that the planners import and do not use. A planner returns the slot of each sample, ``micro_batch * world + rank``, and
the number of micro-batches of a rank.
"""

from __future__ import annotations

import ast
import importlib.util
import logging
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy
import torch

from bench.balance.lengths import EQUAL_AT
from bench.harness.checkouts import find_checkout

Plan = tuple[numpy.ndarray[Any, Any], int]


def find_package(name: str) -> Path | None:
    """Return the folder of an installed package; ``None`` where there is none."""
    spec = importlib.util.find_spec(name)
    return None if spec is None or not spec.submodule_search_locations else Path(spec.submodule_search_locations[0])


@contextmanager
def _stand_ins(parts: dict[str, dict[str, Any]]) -> Iterator[None]:
    """Put modules with these attributes in the place of what a planner imports; packages have a ``__path__``."""
    package = next(iter(parts)).partition(".")[0]
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == package}
    for name, attributes in parts.items():
        module = types.ModuleType(name)
        vars(module).update({"__path__": []} | attributes)
        sys.modules[name] = module
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            del sys.modules[name]
        sys.modules.update(before)


def load_verl() -> Any:
    """Return ``verl.utils.seqlen_balancing`` as it is installed; ``None`` where verl is not."""
    folder = find_package("verl")
    if folder is None:
        return None
    tensors = types.SimpleNamespace(index_select_tensor_dict=lambda batch, partition: partition)
    parts: dict[str, dict[str, Any]] = {
        "verl": {},
        "verl.utils": {"tensordict_utils": tensors},
        "verl.protocol": {"DataProto": object},
        "verl.utils.tensordict_utils": vars(tensors),
        "verl.utils.device": {"get_device_name": lambda: "cpu"},
    }
    with _stand_ins(parts):
        spec = importlib.util.spec_from_file_location("verl_planner", folder / "utils" / "seqlen_balancing.py")
        if spec is None or spec.loader is None:
            return None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def load_slime() -> Any:
    """Return ``slime.utils.dp_schedule`` of a checkout, or ``None`` without a checkout."""
    folder = find_checkout("slime")
    if folder is None:
        return None
    with _stand_ins({"slime": {}, "slime.utils": {"__path__": [str(folder / "slime" / "utils")]}}):
        return importlib.import_module("slime.utils.dp_schedule")


def load_unirl() -> Any:
    """Return UniRL's ``TokenBudgetPlanner`` of a checkout, with ``planner/packed.py`` or before; ``None`` without one.

    The classes that the planner names in annotations alone are empty here.
    """
    folder = find_checkout("UniRL")
    if folder is None:
        return None
    stack = folder / "unirl" / "train" / "stack"
    names = ("StageAlgorithm", "RolloutTrack", "Part", "AlgorithmStepResult", "FSDPBackend", "Remote")
    empty: dict[str, Any] = {
        **dict.fromkeys(names, object),
        "Dispatch": Mock(),
        "distributed": lambda **_: lambda function: function,
        "_move_value": None,
        "aggregate_numeric_metrics": None,
    }
    used = (
        "algorithms", "algorithms.base", "distributed", "distributed.group", "distributed.group.dispatch",
        "distributed.group.remote", "distributed.tensor", "distributed.tensor.batch", "train.backend",
        "train.backend.fsdp", "types", "types.rollout_resp", "types.sample", "utils", "utils.misc",
    )  # fmt: skip
    parts: dict[str, dict[str, Any]] = {"unirl": {}, "unirl.train": {"__path__": [str(stack.parent)]}}
    parts |= {f"unirl.{name}": empty for name in used}
    if stack.is_dir():
        parts |= {"unirl.train.stack": {"__path__": [str(stack)]}}
        parts |= {"unirl.train.stack.planner": {"__path__": [str(stack / "planner")]}}
    module = "unirl.train.stack.planner.packed" if stack.is_dir() else "unirl.train.stack"
    with _stand_ins(parts):
        return importlib.import_module(module).TokenBudgetPlanner


def load_trl() -> Any:
    """Return TRL's ``TokenBudgetBatcher``, over rows that only count; ``None`` where TRL is not installed.

    The planner is TRL's own. Its row builds a tree of tokens; the row here has the attributes that the planner looks
    at, and the cost of a tree without sharing, the sum of depths.
    """
    folder = find_package("trl")
    file = None if folder is None else folder / "experimental" / "async_grpo" / "async_grpo_trainer.py"
    if file is None or not file.exists():
        return None
    name = "TokenBudgetBatcher"
    chosen: list[ast.stmt] = [
        node for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef) and node.name == name
    ]
    space = {"torch": torch, "Any": Any, "logger": logging.getLogger("trl"), "TreeRow": CountingRow}
    exec(compile(ast.Module(chosen, []), str(file), "exec"), space)
    return space[name]


class CountingRow:
    """A row of TRL's planner that counts tokens and depths, and keeps no tree."""

    def __init__(self) -> None:
        self.samples: list[dict[str, Any]] = []
        self.groups: set[int] = set()
        self.tokens = self.load = 0

    def fits(self, sample: dict[str, Any], budget: int) -> bool:
        """Tell whether a row has room."""
        return bool(self.tokens + sample["n"] <= budget)

    def add(self, sample: dict[str, Any]) -> None:
        """Put a sample in the row."""
        length = sample["n"]
        self.samples.append(sample)
        self.tokens += length
        self.load += length * (length + 1) // 2


def make_sample(number: int, length: int) -> dict[str, Any]:
    """Return a sample of TRL with a length and nothing else."""
    return {"n": length, "number": number, "group_id": number, "input_ids": range(length)}


def plan_by_verl(verl: Any, lengths: list[int], world: int, most: int) -> Plan | None:
    """Plan as verl's trainers do: ranks of equal numbers, then as many micro-batches as the neediest rank wants.

    ``None`` where verl has no answer: a rank with fewer samples than micro-batches.
    """
    work = [EQUAL_AT * length + length * length for length in lengths]
    ranks = verl.get_seqlen_balanced_partitions(work, world, equal_size=True)
    count = max(-(-sum(lengths[sample] for sample in rank) // most) for rank in ranks)
    while True:
        plans = []
        for rank in ranks:
            if count > len(rank):
                return None
            parts = verl.get_seqlen_balanced_partitions([work[sample] for sample in rank], count, equal_size=False)
            plans.append([[rank[place] for place in part] for part in parts])
        if all(sum(lengths[sample] for sample in part) <= most for plan in plans for part in plan):
            return _number(plans, work), count
        count += 1


def _number(plans: list[list[list[int]]], work: list[int]) -> numpy.ndarray[Any, Any]:
    """Return the slot of each sample, the costliest micro-batch of a rank first."""
    slots = numpy.empty(len(work), numpy.int64)
    for rank, parts in enumerate(plans):
        ordered = sorted(parts, key=lambda part: (sum(work[sample] for sample in part), part[0]), reverse=True)
        for place, part in enumerate(ordered):
            slots[part] = place * len(plans) + rank
    return slots


def plan_by_first_fit(verl: Any, lengths: list[int], world: int, most: int) -> Plan | None:
    """Plan by first fit decreasing, the largest bins split until ranks get equally many, and verl's differencing.

    That is the idea of slime, miles and prime-rl. ``None`` where no bin can be split.
    """
    bins: list[list[int]] = []
    sums: list[int] = []
    for sample in sorted(range(len(lengths)), key=lambda sample: -lengths[sample]):
        place = next((place for place, held in enumerate(sums) if held + lengths[sample] <= most), len(bins))
        if place == len(bins):
            bins.append([])
            sums.append(0)
        bins[place].append(sample)
        sums[place] += lengths[sample]
    while len(bins) % world:
        splittable = [place for place, held in enumerate(bins) if len(held) > 1]
        if not splittable:
            return None
        place = max(splittable, key=lambda place: (sum(lengths[sample] for sample in bins[place]), place))
        halves: list[list[int]] = [[], []]
        for sample in sorted(bins[place], key=lambda sample: -lengths[sample]):
            min(halves, key=lambda half: sum(lengths[other] for other in half)).append(sample)
        bins[place], more = halves
        bins.append(more)
    work = [EQUAL_AT * length + length * length for length in lengths]
    of_bins = [sum(work[sample] for sample in held) for held in bins]
    ranks = verl.get_seqlen_balanced_partitions(of_bins, world, equal_size=True)
    return _number([[bins[place] for place in rank] for rank in ranks], work), len(bins) // world


def plan_by_trl(batcher: Any, lengths: list[int], world: int, most: int) -> Plan:
    """Plan as TRL does; the micro-batch that is open at the end of its stream counts too."""
    stream = [make_sample(number, length) for number, length in enumerate(lengths)]
    closing = [make_sample(-1, most) for _ in range(2 * world)]
    slots = numpy.full(len(lengths), -1, numpy.int64)
    for place, rows in enumerate(batcher([*stream, *closing], world, most, {})):
        for rank, row in enumerate(rows):
            for sample in row.samples:
                if sample["number"] >= 0:
                    slots[sample["number"]] = place * world + rank
    return slots, int(slots.max() // world) + 1
