"""Files and streams of Arrow IPC (`.arrow`): thousands of batches and many files are one array.

Promises:

- What is not compressed is mapped: nothing is copied, and nothing is read before a batch is formed.
- What is compressed is read a record batch at a time, in the order of the plan, as a `ChunkDataset` reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batchloom.dataset.base import Dataset
from batchloom.formats.arrow_selections import open_some
from batchloom.formats.arrow_tables import map_whole, read_table, refuse_chunk_options, require_pyarrow
from batchloom.formats.items import FileReader
from batchloom.formats.options import OpenOptions


def open_files(files: Sequence[str], options: OpenOptions) -> Dataset[Any]:
    """Return the dataset of files, with a field for each column."""
    require_pyarrow(files[0])
    from batchloom.formats.arrow_batches import is_compressed
    from batchloom.formats.arrow_chunks import open_compressed

    sources = [FileReader([file]) for file in files]
    memories = [map_whole(file) for file in files]
    compressed = [is_compressed(file, memory) for file, memory in zip(files, memories, strict=True)]
    if any(compressed):
        return open_compressed(files, sources, memories, options)
    if options.fn is not None:
        from batchloom.formats.arrow_rows import open_mapped_rows

        return open_mapped_rows(files, options)
    refuse_chunk_options(options, files[0], ("chunks_open", "on_error"))
    tables = [read_table(file, memory) for file, memory in zip(files, memories, strict=True)]
    return open_some(tables, None, options)
