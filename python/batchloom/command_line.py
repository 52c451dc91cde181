"""The program ``batchloom``: what ``python -m batchloom`` and the console script run.

It is the same program as the Rust crate's. Parquet and Arrow files are read by pyarrow.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import batchloom._native as _native


def main() -> None:
    """Run the program with the arguments of this process, and end the process with its exit code."""
    # The program runs without the interpreter, which could not raise KeyboardInterrupt in it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.stdout is not None:  # it is closed
        sys.stdout.flush()
    sys.exit(_native.run_command(["batchloom", *sys.argv[1:]], open_table))


def open_table(path: Path, column: str | None) -> tuple[Any, int | None, int | None]:
    """Open a Parquet or an Arrow file.

    Args:
        path: The file.
        column: The column to read; ``None`` for all.

    Returns:
        The batches of rows, the number of rows, and the number of parts in which the file holds them.

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
    columns = None if column is None else [column]
    if path.suffix.lower() in (".parquet", ".pq"):
        try:
            file = parquet.ParquetFile(path)
        except pyarrow.ArrowInvalid:
            raise ValueError("this is not a Parquet file") from None
        schema = _schema(pyarrow, file.schema_arrow, columns)
        batches = pyarrow.RecordBatchReader.from_batches(schema, file.iter_batches(columns=columns))
        return batches, file.metadata.num_rows, file.num_row_groups
    source = pyarrow.memory_map(str(path))
    try:
        reader = pyarrow.ipc.open_file(source)
        parts: int | None = reader.num_record_batches
        read = (reader.get_batch(part) for part in range(reader.num_record_batches))
    except pyarrow.ArrowInvalid:
        source.seek(0)
        try:
            reader, parts = pyarrow.ipc.open_stream(source), None
        except pyarrow.ArrowInvalid:
            raise ValueError("this is not an Arrow file") from None
        read = iter(reader)
    schema = _schema(pyarrow, reader.schema, columns)
    chosen = (batch if columns is None else batch.select(columns) for batch in read)
    return pyarrow.RecordBatchReader.from_batches(schema, chosen), None, parts


def _schema(pyarrow: Any, schema: Any, columns: list[str] | None) -> Any:
    return schema if columns is None else pyarrow.schema([schema.field(name) for name in columns])
