"""Ray Data: what Ray reads and preprocesses, on any number of machines, as a dataset of batchloom in each worker.

    blocks = materialize(ray.data.read_parquet("s3://...").map_batches(tokenize))   # in the driver
    trainer = TorchTrainer(loop, train_loop_config={"blocks": blocks}, ...)

    def loop(config):
        loader = bl.DataLoader(from_ray(config["blocks"]), batch_size=64, shuffle=True)

The set is materialised: Ray joins its blocks to one Arrow table in the object store, where no process of ours holds a
copy. The workers of a machine map that memory; nothing goes through the driver. In Ray Train a loader needs nothing
else: each worker makes its own loader, with the rank of the worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from batchloom.dataset.sequences import SequenceDataset
from batchloom.dataset.tensors import TensorDataset
from batchloom.errors import DataError
from batchloom.integrations.requirement import require

require("ray", "2.40")

import ray  # noqa: E402


@dataclass(frozen=True)
class Blocks:
    """A set in Ray's object store: a reference, which travels to workers in place of the data."""

    table: Any
    rows: int


def materialize(dataset: Any) -> Blocks:
    """Have Ray compute a set, and join it to one table in its object store.

    Raises:
        DataError: It is no set of Ray Data, or has no rows.
    """
    if not hasattr(dataset, "to_arrow_refs"):
        raise DataError(f"found a {type(dataset).__name__}; expected a ray.data.Dataset")
    joined = dataset.repartition(1).materialize()
    rows = joined.count()
    if rows == 0:
        raise DataError("the set of Ray Data has 0 rows; expected at least 1")
    tables = list(joined.to_arrow_refs())
    if len(tables) > 1:
        tables = [_join.remote(*tables)]
    return Blocks(tables[0], rows)


def from_ray(data: Any) -> TensorDataset | SequenceDataset:
    """Return the dataset of a set of Ray Data, or of what :func:`materialize` returned.

    Columns of numbers and of arrays of one shape become a ``TensorDataset`` with dicts as batches. If there are
    columns of lists, they become a ``SequenceDataset``. Its memory is the object store, read-only.

    Raises:
        DataError: A column is neither, or holds missing values.
    """
    blocks = data if isinstance(data, Blocks) else materialize(data)
    table = ray.get(blocks.table)
    columns = {name: _column(name, table.column(name)) for name in table.column_names}
    if any(not hasattr(column, "dtype") for column in columns.values()):
        return SequenceDataset(**columns)
    return TensorDataset(**columns)


@ray.remote  # type: ignore[untyped-decorator, unused-ignore]
def _join(*tables: Any) -> Any:
    import pyarrow

    return pyarrow.concat_tables(tables).combine_chunks()


def _column(name: str, column: Any) -> Any:
    """Return one column, without a copy: a NumPy array, or an Arrow array of lists."""
    import pyarrow

    if column.null_count:
        missing = column.null_count
        raise DataError(f"column {name} holds {missing} missing values; expected none: drop or fill them")
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    kind = array.type
    if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
        return array
    if isinstance(kind, pyarrow.BaseExtensionType) and hasattr(array, "to_numpy"):
        return array.to_numpy(zero_copy_only=False)
    if pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind):
        return array.to_numpy(zero_copy_only=True)
    raise DataError(f"column {name} is of type {kind}; expected numbers, arrays of one shape, or lists of numbers")
