"""`bl.open`: files as a dataset.

Promise: whatever is wrong with an argument is an error before a file is read. What can be known to be wrong with a file
is one before the first batch.
"""

from __future__ import annotations

from typing import Any

from batchloom.dataset.base import Dataset
from batchloom.formats.files import find_files
from batchloom.formats.kinds import require_keywords
from batchloom.formats.options import NAMES, OF_ALL, OpenOptions
from batchloom.formats.registry import FOLDER, find_format, name_format, require_taken


def open(source: Any, **keywords: Any) -> Dataset[Any]:
    """Return the dataset of files, as they are.

        rows = bl.open("data/*.npy")
        tensors = bl.open("features.safetensors", columns=["x", "y"])
        tokens = bl.open("shards/{000..019}.bin", dtype="uint16", seq_len=1024)
        texts = bl.open("data/*.parquet", fn=tokenize, memory="1GB")  # tokenize({"text": ..., "label": ...})
        loader = bl.DataLoader(rows, batch_size=64, shuffle=True)

    Several files are one dataset, in natural order (``shard-2`` before ``shard-10``): their columns have one type, and
    rows of one shape. The format follows from the names of files, or from their first bytes. A sample is what the kind
    of dataset has for one: a row, a sequence of any length, a piece of a stream of tokens, a window.

    Files whose values have places that are known are mapped: nothing is read before its batch is formed, samples are
    shuffled over all files, and opening takes the time of headers. So are arrays of NumPy, archives that are not
    compressed, safetensors and tokens. Other files are read a chunk at a time, in the order of a plan.

    Args:
        source: A path, a pattern (``"data/*.npy"``, with ``**`` for folders in folders and ``{000..011}`` for
            numbers), a folder, or a list of these. A dict of these by field is for arrays of NumPy in files apart. Or a
            ``datasets.Dataset``: its rows and columns are what it shows.
        **keywords: Options by name.

            *Which files, columns and samples* (:class:`~batchloom.formats.options.OpenOptions`): ``columns``, ``kind``,
            ``format``, ``nulls``, ``dtype``, ``header``, ``memory``, ``chunks_open``,
            ``on_error``, ``fn``.

            *The dataset* (the class of the kind): its own keywords, as ``seq_len`` of a
            :class:`batchloom.TokenDataset` or ``input_len`` of a :class:`batchloom.WindowDataset`. Kind ``"groups"``
            takes the column of group ids as ``id``.

    Raises:
        ArgumentError: An argument makes no sense, a column does not exist, or a format has no use for an option.
        DataError: A file that does not exist, is damaged, or differs from the files before it; nulls.
        DTypeError: A type that makes no tensor, or columns of several types in one matrix.
        TypeError: A keyword that neither files nor the kind have.
    """
    options = OpenOptions(
        **{name: value for name, value in keywords.items() if name in NAMES},
        more={name: value for name, value in keywords.items() if name not in NAMES},
    )
    if options.kind is not None:
        require_keywords(options.kind, options.more, NAMES)
    if is_of_datasets(source):
        require_taken(name_format(FOLDER), options.given, OF_ALL)
        from batchloom.formats.hugging_face import open_object

        return open_object(source, options)
    if isinstance(source, dict):
        require_taken(name_format("npy"), options.given, OF_ALL)
        from batchloom.formats.by_field import open_fields

        return open_fields(source, options)
    found = find_format(find_files(source), options.format)
    require_taken(found.format, options.given, OF_ALL)
    dataset: Dataset[Any] = found.format.open_files(found.files, options)
    return dataset


def is_of_datasets(source: Any) -> bool:
    """Return whether an object is a dataset of `datasets`, or a dict of its splits."""
    values = source.values() if isinstance(source, dict) else ()
    return hasattr(type(source), "with_format") or any(hasattr(type(each), "with_format") for each in values)
