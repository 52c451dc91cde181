"""One row of the table: a public script, its loading as it stands, the same with batchloom, and how both are compared.

Promises:

- ``same_in_order`` lets no row pass unless every batch of both sides is equal in values, shapes, types and names, where
  the order is fixed.
- ``same_samples`` compares a shuffled pass of each side as multisets of samples, and the shapes and types of batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

Pass = Callable[[], Iterable[Any]]
Side = Callable[[Any, bool], Pass]


@dataclass(frozen=True)
class Source:
    """The public code of a row.

    Attributes:
        repository: Its owner and name, or the name and version of a package.
        commit: The commit that the row was written for; empty for a package.
        file: The file with the loading.
    """

    repository: str
    commit: str
    file: str

    @property
    def checkout(self) -> str:
        """Return the name of its folder in ``BENCH_PEERS``."""
        return self.repository.rpartition("/")[2]


@dataclass(frozen=True)
class Row:
    """One migrated script, or one way to migrate it.

    Attributes:
        number: Its number in the table of 21 scripts.
        title: The kind of data.
        source: The public code.
        prepare: Makes the raw data in a folder, of a fraction of the full size, and loads the script's own code. It is
            called in each process, and not timed.
        script: Makes the script's loading of the raw data, shuffled as the script has it or in order.
        loom: Makes the same with batchloom.
        check: Compares both sides; returns the number of compared batches.
        form: The difference from other rows of the same script.
        batches: The most batches of a pass that are timed.
        changed: The lines that the migration removed and added, as far as they were counted.
    """

    number: str
    title: str
    source: Source
    prepare: Callable[[Path, float], Any]
    script: Side
    loom: Side
    check: Callable[[Row, Any], int]
    form: str = ""
    batches: int = 200
    changed: str = ""

    @property
    def name(self) -> str:
        """Return the name for ``--only``."""
        return f"{self.number}-{self.form.replace(' ', '-')}" if self.form else self.number


def fields(batch: Any, name: str = "") -> dict[str, Tensor]:
    """Return the arrays of a batch by name or place; other values are left out."""
    if isinstance(batch, numpy.ndarray):
        batch = torch.from_numpy(batch)
    if isinstance(batch, Tensor):
        return {name: batch}
    if isinstance(batch, (tuple, list)):
        batch = dict(enumerate(batch))
    if not hasattr(batch, "items"):
        return {}
    return {key: array for part, value in batch.items() for key, array in fields(value, f"{name}.{part}").items()}


def expect_equal(row: str, number: int, theirs: Any, ours: Any, tolerance: float = 0) -> None:
    """Compare two batches.

    Raises:
        SystemExit: They differ.
    """
    script, loom = fields(theirs), fields(ours)
    if script.keys() != loom.keys():
        raise SystemExit(f"row {row}, batch {number}: the script has the fields {[*script]}, batchloom {[*loom]}")
    for name, array in script.items():
        other = loom[name]
        if (array.dtype, array.shape) != (other.dtype, other.shape):
            found = f"{array.dtype}{[*array.shape]} and {other.dtype}{[*other.shape]}"
            raise SystemExit(f"row {row}, batch {number}, field {name}: {found} differ")
        close = torch.equal(array, other) or (
            tolerance > 0 and torch.allclose(array.double(), other.double(), rtol=0, atol=tolerance)
        )
        if not close:
            raise SystemExit(f"row {row}, batch {number}, field {name}: values differ")


def same_in_order(row: Row, data: Any, tolerance: float = 0) -> int:
    """Compare every batch of both sides in order; return their number.

    Raises:
        SystemExit: They differ.
    """
    number = 0
    for number, (theirs, ours) in enumerate(zip(row.script(data, False)(), row.loom(data, False)(), strict=True), 1):
        expect_equal(row.name, number, theirs, ours, tolerance)
    return number


def samples(batches: Iterable[Any]) -> tuple[Counter[bytes], Counter[Any]]:
    """Return the samples of a pass, and the shapes and types of its batches."""
    found: Counter[bytes] = Counter()
    forms: Counter[Any] = Counter()
    for batch in batches:
        arrays = fields(batch)
        forms[tuple((name, array.dtype, tuple(array.shape)) for name, array in arrays.items())] += 1
        rows = [array.contiguous().numpy().reshape(len(array), -1) for array in arrays.values()]
        found.update(b"".join(part.tobytes() for part in parts) for parts in zip(*rows, strict=True))
    return found, forms


def same_samples(row: Row, data: Any) -> int:
    """Compare a shuffled pass of both sides as multisets; return the number of batches.

    Raises:
        SystemExit: They differ.
    """
    script, loom = samples(row.script(data, True)()), samples(row.loom(data, True)())
    if script[1] != loom[1]:
        raise SystemExit(f"row {row.name}: batches of the script are {script[1]}, of batchloom {loom[1]}")
    if script[0] != loom[0]:
        raise SystemExit(f"row {row.name}: samples differ")
    return script[1].total()


def same(row: Row, data: Any) -> int:
    """Compare both sides in order and shuffled."""
    return same_in_order(row, data) + same_samples(row, data)
