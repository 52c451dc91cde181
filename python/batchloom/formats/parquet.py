"""Parquet files: pages are decoded a chunk at a time, in the order of a plan, by threads of the loader.

Promises:

- Opening reads footers and the headers of pages, and of lists their levels; never a value. What it finds is kept as an
  index, which is made again when a file has changed.
- Where a file needs another reader, or the kind needs all rows in memory, its columns are read whole by pyarrow.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import batchloom._native as _native
import numpy
from batchloom.arguments import caller
from batchloom.dataset.base import Dataset
from batchloom.dataset.map.chunk_window import window_size
from batchloom.dataset.map.file_dataset import FileDataset
from batchloom.dataset.samples import MAPPED
from batchloom.dataset.tables import ATTENTION
from batchloom.errors import ArgumentError, DataError, DTypeError, UnsupportedFileError
from batchloom.formats.arrays import choose_for_kind
from batchloom.formats.arrow_tables import hold_table, require_pyarrow
from batchloom.formats.cache import cache_folder
from batchloom.formats.columns import ChosenColumn, make_unknown_column_error
from batchloom.formats.kinds import ROWS, SEQUENCES, WINDOWS, require_keywords
from batchloom.formats.lists import Lengths
from batchloom.formats.options import NAMES, OpenOptions, has_window
from batchloom.formats.progress import ShownProgress
from batchloom.formats.several import require_rows

# Words for the samples of columns that are read by chunks.
NUMBER, FIXED, LIST, BINARY = "number", "fixed", "list", "binary"
# The parts of a struct that is a file, as `datasets` has images, and their words.
FILE_PARTS = {"bytes": BINARY, "path": "text"}


class ColumnOfFile(NamedTuple):
    """A column as the footer has it.

    Attributes:
        name: Its name.
        word: The word for its samples: ``"number"``, ``"fixed"``, ``"list"``, ``"text"``, ``"binary"`` or ``"other"``.
        dtype: The type of their elements; ``None`` for ``"other"``.
        extent: The number of elements of each sample of ``"fixed"``.
        reason: The contents of a column of ``"other"``.
    """

    name: str
    word: str
    dtype: str | None
    extent: int | None
    reason: str | None


class ChosenField(NamedTuple):
    """A field: its name, its columns, whether they are joined, and the bytes of an element in place of a null.

    No bytes stand for lists without elements in place of lists that are null.
    """

    name: str
    columns: list[str]
    joined: bool
    null: bytes | None


def open_files(files: Sequence[str], options: OpenOptions) -> Dataset[Any]:
    """Return the dataset of files.

    Raises:
        ArgumentError: A column does not exist, or options exclude each other.
        DataError: A file is damaged, differs from the first one, or holds nulls; or lists of one row differ in length.
        DTypeError: A column makes no tensor.
    """
    if options.fn is not None:
        require_pyarrow(files[0])
        from batchloom.formats.parquet_rows import open_rows

        return open_rows(files, options)
    opened = _native.ParquetFiles(list(files))
    require_rows(sum(opened.rows()), files[0])
    listed = _join_files([ColumnOfFile(*column) for column in opened.columns()])
    chosen = choose_for_kind([column.name for column in listed], options, files[0])
    columns = {column.name: column for column in listed}
    if options.columns is None:
        opened.require_same_columns()
    used = {name for column in chosen.values() for name in column.names}
    _require_nulls(options, columns, used, files[0])
    in_chunks = options.kind in (None, ROWS, SEQUENCES)
    are_numbers = all(columns[name].word in (NUMBER, FIXED, LIST) for name in used)
    has_lists = any(columns[name].word == LIST for name in used)
    if options.drops_nulls and in_chunks and any(columns[name].word in (LIST, FIXED) for name in used):
        # Pages are read with a number in place of a null, which stands for no list.
        if has_window(options) and not has_lists:
            return _open_groups(files, chosen, options, None)
        return read_whole(files, used, options, "lists are read whole where nulls is 'drop'")
    if not in_chunks or not (are_numbers or has_window(options)):
        other = next((name for name in sorted(used) if columns[name].word not in (NUMBER, FIXED, LIST)), None)
        reason = f"kind={options.kind!r} needs all rows" if other is None else f"column {other!r} holds no numbers"
        return read_whole(files, used, options, reason)
    kind = options.kind or (SEQUENCES if has_lists else ROWS)
    require_keywords(kind, options.more, NAMES)
    sizes = options.more.get("sizes")
    # Chunks have the lengths of lists, and numbers beside them.
    beyond = [name for name in options.more if name != "sizes" or not isinstance(sizes, Mapping)]
    if beyond:
        return read_whole(files, used, options, f"{beyond[0]} needs all rows in memory")
    chosen = dict(_leave_out_attention(opened, columns, chosen, files))
    if not are_numbers:
        try:
            lengths = _read_lengths(opened, columns, chosen, options, kind)
        except UnsupportedFileError as error:
            return read_whole(files, used, options, str(error))
        if sizes is not None:
            raise ArgumentError("sizes is given, and columns hold texts; expected fn=, whose samples take any sizes")
        return _open_groups(files, chosen, options, lengths)
    fields = [_choose_field(name, column, columns, options) for name, column in chosen.items()]
    are_lists = {field.name: columns[field.columns[0]].word == LIST for field in fields}
    window = window_size(options.chunks_open, options.memory)
    open_chunks = OpenParquet(tuple(files), tuple(fields), kind == ROWS)
    try:
        dataset = FileDataset(files, open_chunks, are_lists, window, options.on_error or "raise", sizes)
        return _leave_out_nulls(dataset, files, sorted(used)) if options.drops_nulls else dataset
    except UnsupportedFileError as error:
        if has_window(options) and kind == ROWS:
            return _open_groups(files, chosen, options, None)
        return read_whole(files, used, options, str(error))


def _leave_out_nulls(dataset: Dataset[Any], files: Sequence[str], used: Sequence[str]) -> Dataset[Any]:
    """Return the rows of a dataset without a null. The dataset holds zeros in place of nulls.

    Raises:
        ArgumentError: pyarrow, which reads the columns that have nulls, is not installed.
        DataError: All rows have nulls.
    """
    require_pyarrow(files[0], "nulls is 'drop'")
    from batchloom.formats.kept_rows import keep
    from batchloom.formats.parquet_rows import find_kept_in_groups
    from batchloom.formats.row_groups import open_groups

    return keep(dataset, find_kept_in_groups([open_groups(file) for file in files], used))


def _join_files(columns: Sequence[ColumnOfFile]) -> list[ColumnOfFile]:
    """Return columns, with one column of bytes in place of the contents and the path of files."""
    words: dict[str, dict[str, str]] = {}
    for column in columns:
        struct, _, part = column.name.rpartition(".")
        words.setdefault(struct, {})[part] = column.word
    joined = {f"{name}.{part}": name for name, parts in words.items() if parts == FILE_PARTS for part in FILE_PARTS}
    contents = [column for column in columns if column.word == BINARY or column.name not in joined]
    return [column._replace(name=joined.get(column.name, column.name)) for column in contents]


def _open_groups(
    files: Sequence[str], chosen: Mapping[str, ChosenColumn], options: OpenOptions, lengths: Lengths | None
) -> Dataset[Any]:
    """Return the dataset of rows that pyarrow reads a row group at a time.

    Raises:
        ArgumentError: pyarrow is not installed, or memory holds too few row groups.
        DataError: A file is damaged, differs from the first one, or has nulls.
        DTypeError: A column makes no tensor, or differs in type.
    """
    require_pyarrow(files[0])
    from batchloom.formats.parquet_rows import open_groups_of_fields

    return open_groups_of_fields(files, chosen, options, lengths)


class OpenParquet:
    """Opens the chunks of Parquet files; it pickles, and other processes open them again.

    Args:
        files: The paths.
        fields: The fields.
        as_rows: ``True`` if lists have to have one length, and are rows then.
    """

    def __init__(self, files: tuple[str, ...], fields: tuple[ChosenField, ...], as_rows: bool) -> None:
        self._files, self._fields, self._as_rows = files, fields, as_rows

    def __call__(self) -> _native.FileChunks:
        """Return the chunks of the files."""
        with ShownProgress(f"looking at {self._files[0]}", "row groups") as progress:
            opened = _native.ParquetFiles(list(self._files))
            fields = [(each.name, each.columns, each.joined, each.null) for each in sorted(self._fields)]
            return opened.open(fields, self._as_rows, cache_folder(), progress)


def _read_lengths(
    opened: _native.ParquetFiles,
    columns: Mapping[str, ColumnOfFile],
    chosen: Mapping[str, ChosenColumn],
    options: OpenOptions,
    kind: str,
) -> Lengths | None:
    """Return the lengths of lists beside columns of objects, by the levels of pages; ``None`` for rows of one shape."""
    lists = {name: column for name, column in chosen.items() if columns[column.name].word == LIST}
    if kind == ROWS or not lists:
        return None
    fields = [_choose_field(name, column, columns, options) for name, column in lists.items()]
    listed = [(each.name, each.columns, each.joined, each.null) for each in sorted(fields)]
    found = opened.open(listed, False, cache_folder(), None).lengths()
    assert found is not None, "lists have lengths"
    return Lengths([*lists], numpy.from_dlpack(found))


def _choose_field(
    name: str, column: ChosenColumn, columns: Mapping[str, ColumnOfFile], options: OpenOptions
) -> ChosenField:
    nulls = dict.fromkeys(column.names, 0) if options.drops_nulls else options.fills
    given = {_element(name, nulls[name], columns[name]) for name in column.names if name in nulls}
    if len(given) > 1:
        raise ArgumentError(f"nulls has several values for the columns of field {name}; expected one for a field")
    return ChosenField(name, list(column.names), column.joined, given.pop() if given else None)


def _element(name: str, value: Any, column: ColumnOfFile) -> bytes:
    """Return the bytes of an element that stands in place of nulls; none for lists without elements.

    Raises:
        ArgumentError: The column does not hold such a value.
    """
    if isinstance(value, list) and not value and column.word == LIST:
        return b""
    kind = numpy.dtype(column.dtype)
    try:
        element = numpy.array(value, kind)
        fits = element.ndim == 0 and (kind.kind == "f" or bool(element == value))
    except (OverflowError, TypeError, ValueError):
        fits = False
    if not fits:
        of = "elements of lists" if column.word == LIST else "samples"
        hint = ", or [] for lists that are null" if column.word == LIST else ""
        raise ArgumentError(f"nulls has {value!r} for column {name!r}; expected a {column.dtype} for its {of}{hint}")
    return element.tobytes()


def _require_nulls(options: OpenOptions, columns: Mapping[str, ColumnOfFile], used: set[str], where: str) -> None:
    """Refuse values in place of nulls of columns that are not there, and columns that no reader makes tensors of.

    Raises:
        ArgumentError: There is no such column.
        DTypeError: A column is a map.
    """
    for name in options.fills:
        if name not in columns:
            raise make_unknown_column_error(name, list(columns), where)
    for name in sorted(used):
        if columns[name].reason == "a map":
            raise DTypeError(
                f"column {name!r} of {where} is a map, which makes no tensor; expected columns= without it"
            )


def _leave_out_attention(
    opened: _native.ParquetFiles,
    columns: Mapping[str, ColumnOfFile],
    chosen: Mapping[str, ChosenColumn],
    files: Sequence[str],
) -> Mapping[str, ChosenColumn]:
    """Return fields without an attention mask of ones, which batches have anyway, with a warning.

    Raises:
        DataError: The mask marks padding, or the file does not say that it marks none.
    """
    mask = chosen.get(ATTENTION)
    if mask is None or mask.joined or columns[mask.name].word != LIST or len(chosen) == 1:
        return chosen
    if not opened.is_always(mask.name, 1):
        if not _have_statistics(files, mask.name):
            raise DataError(
                f"column {ATTENTION!r} of {files[0]} has no statistics, by which it is known to be all ones; expected "
                "columns= without it, for sequences without padding, or files that are written with statistics"
            )
        raise DataError(
            f"column {ATTENTION!r} of {files[0]} is not all ones, as far as the footer says; expected columns= without "
            "it, for sequences without padding: bl.SequenceDataset takes padded ones with their mask"
        )
    warnings.warn(
        f"column {ATTENTION!r} of {files[0]} is all ones and is left out, as batches have such a mask anyway; "
        "columns= without it says the same",
        stacklevel=caller(),
    )
    return {name: column for name, column in chosen.items() if name != ATTENTION}


def _have_statistics(files: Sequence[str], name: str) -> bool:
    """Return whether footers have the least and the greatest value of a column of lists in every row group with rows.

    They are taken to have them where pyarrow, which reads footers, is not installed.

    Raises:
        DataError: A footer cannot be read.
    """
    if find_spec("pyarrow") is None:
        return True
    from batchloom.formats.row_groups import open_groups

    return all(open_groups(file).has_bounds(name) for file in files)


def read_whole(files: Sequence[str], names: set[str], options: OpenOptions, reason: str) -> Dataset[Any]:
    """Return the dataset of some columns of files, read whole by pyarrow.

    Raises:
        ArgumentError: Options are for chunks alone.
        DataError: pyarrow is not installed, or cannot read a file.
        DTypeError: A column makes no tensor.
    """
    for name in ("memory", "chunks_open", "on_error"):
        if getattr(options, name) is not None:
            others = "" if options.kind == WINDOWS else f", or {MAPPED}"  # series are held, whatever their files
            raise ArgumentError(f"{name} is given, and {files[0]} is read whole: {reason}; expected no {name}{others}")
    require_pyarrow(files[0], reason)
    from pyarrow import parquet

    tables = []
    for file in files:
        try:
            stored = parquet.read_schema(file).names
            # Columns of a struct are read with it: alone, they would lose its name.
            roots = sorted({name if name in stored else name.partition(".")[0] for name in names})
            tables.append(hold_table(file, parquet.read_table(file, columns=roots)))
        except Exception as error:  # whatever pyarrow makes of a file that it does not read
            reason = str(error).partition("\n")[0]
            raise DataError(f"{file} cannot be read: {reason}; expected other columns=, or a whole file") from error
    from batchloom.formats.arrow_selections import open_some

    return open_some(tables, None, options)
