"""The program ``batchloom``: what ``python -m batchloom`` and the console script run.

It is the same program as the Rust crate's. Parquet and Arrow files are read by pyarrow.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import batchloom._native as _native

# The most rows of a batch of Parquet, and the most bytes, about.
BATCH_ROWS, BATCH_BYTES = 65_536, 32 << 20


def main() -> None:
    """Run the program with the arguments of this process, and end the process with its exit code."""
    # The program runs without the interpreter, which could not raise KeyboardInterrupt in it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.stdout is not None:  # it is closed
        sys.stdout.flush()
    sys.exit(_native.run_command(["batchloom", *sys.argv[1:]], open_table))


def open_table(path: Path, columns: list[str] | None) -> tuple[Any, int | None, int | None]:
    """Open a Parquet or an Arrow file.

    Args:
        path: The file.
        columns: The columns to read; ``None`` for all.

    Returns:
        The batches of rows, the number of rows where the file tells it, and the number of parts in which it holds them.

    Raises:
        ValueError: The file is of another kind, or pyarrow is missing.
    """
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise ValueError(
            "Parquet and Arrow files are read by pyarrow, which is not installed: pip install pyarrow"
        ) from None
    if path.suffix.lower() in (".parquet", ".pq"):
        try:
            file = parquet.ParquetFile(path)
        except pyarrow.ArrowInvalid:
            raise ValueError("this is not a Parquet file") from None
        schema = _schema(pyarrow, file.schema_arrow, columns)
        read = file.iter_batches(_count_batch_rows(file.metadata), columns=columns)
        return pyarrow.RecordBatchReader.from_batches(schema, read), file.metadata.num_rows, file.num_row_groups
    return _open_arrow(pyarrow, pyarrow.memory_map(str(path)), columns)


def _open_arrow(pyarrow: Any, source: Any, columns: list[str] | None) -> tuple[Any, int | None, int | None]:
    """Open an Arrow file or stream. What is not chosen is not decompressed."""
    invalid, opened = pyarrow.ArrowInvalid, pyarrow.ipc.open_file
    try:
        reader = opened(source)
    except invalid:
        source.seek(0)
        opened = pyarrow.ipc.open_stream
        try:
            reader = opened(source)
        except invalid:
            raise ValueError("this is not an Arrow file") from None
    schema = _schema(pyarrow, reader.schema, columns)
    if columns is not None:
        places = [reader.schema.get_field_index(name) for name in columns]
        source.seek(0)
        reader = opened(source, options=pyarrow.ipc.IpcReadOptions(included_fields=places))
    if opened is pyarrow.ipc.open_stream:
        parts, read = None, iter(reader)
    else:
        parts = reader.num_record_batches
        read = (reader.get_batch(part) for part in range(reader.num_record_batches))
    chosen = (batch if columns is None else batch.select(columns) for batch in read)
    return pyarrow.RecordBatchReader.from_batches(schema, chosen), None, parts


def _count_batch_rows(metadata: Any) -> int:
    """Return the rows of a batch: fewer where rows are large, so that it takes about `BATCH_BYTES` at most."""
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    largest = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return max(1, min(BATCH_ROWS, BATCH_BYTES // max(largest, 1)))


def _schema(pyarrow: Any, schema: Any, columns: list[str] | None) -> Any:
    return schema if columns is None else pyarrow.schema([schema.field(name) for name in columns], schema.metadata)
