"""`OpenOptions`: the options of `bl.open`, each documented once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from batchloom.arguments import choice, integer
from batchloom.errors import ArgumentError
from batchloom.formats.kinds import KINDS

# The word for leaving out rows with nulls.
DROP = "drop"

# Options that every format has a use for.
OF_ALL = ("columns", "kind", "format")


@dataclass(frozen=True, kw_only=True)
class OpenOptions:
    """Options about files; :func:`batchloom.open` takes them as keywords.

    Attributes:
        columns: The columns that are fields, for files that have columns: a list of their names, or a dict from the
            name of a field to its column. A pattern such as ``"f*"`` in a list stands for each column that it fits. In
            a dict, a pattern or a list joins columns of one type to a matrix ``[samples, columns]``, which is a copy.
            ``None`` takes all columns.
        kind: The kind of the dataset: ``"rows"`` (:class:`batchloom.TensorDataset`), ``"sequences"``
            (:class:`batchloom.SequenceDataset`), ``"groups"`` (:class:`batchloom.GroupDataset`), ``"tokens"``
            (:class:`batchloom.TokenDataset`) or ``"windows"`` (:class:`batchloom.WindowDataset`). ``None`` decides by
            the columns: a column of lists makes sequences, and rows have none. Files of tokens are tokens.
        format: The name of the format, for files that no suffix and no first bytes give away: ``"tokens"`` for one.
        nulls: Values in place of nulls, by column: ``{"price": 0}``. Of a column of lists, the value stands for nulls
            in lists, and ``[]`` for lists that are null. Other nulls are an error, before the first batch. ``"drop"``
            leaves out rows with a null in a chosen column or in its lists: opening reads the columns in which a file
            counts nulls, or does not count them.
        dtype: The type of the tokens in files that hold nothing else, such as ``"uint16"``.
        header: The bytes before the tokens in each such file; ``None`` for none.
        memory: The bytes of the data that may be in memory, such as ``"256MB"``. Of formats that are mapped, it is the
            bytes of mapped pages (:meth:`batchloom.Dataset.with_memory`); of others, the memory for chunks, which
            decides how many are mixed (:class:`batchloom.ChunkDataset`).
        chunks_open: The number of chunks that are mixed at a time, in place of ``memory``.
        on_error: ``"skip"`` gives samples of a chunk that cannot be read zeros, and a ``weight`` of 0; ``"raise"``, the
            default, makes their batch an error. For formats whose chunks are decoded.
        fn: A function that makes a sample of what a file has of it: of a row of Parquet or Arrow, of a line, or of the
            members of a tar. A row is a dict of plain values, as ``datasets`` gives them: ``str``, ``bytes``, numbers,
            ``None``, lists and dicts. The dataset is a :class:`batchloom.MapDataset`, and takes its ``sizes``, ``key``
            and ``workers``.
        more: The keywords of the dataset class of the kind, such as ``seq_len`` or ``input_len``.

    Raises:
        ArgumentError: An option is no such value.
    """

    columns: Any = None
    kind: str | None = None
    format: str | None = None
    nulls: Mapping[str, Any] | str | None = None
    dtype: Any = None
    header: int | None = None
    memory: int | str | None = None
    chunks_open: int | None = None
    on_error: str | None = None
    fn: Any = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind is not None:
            choice("kind", self.kind, tuple(KINDS))
        if self.nulls is not None and self.nulls != DROP and not isinstance(self.nulls, Mapping):
            raise ArgumentError(
                f"nulls is {self.nulls!r}; expected a dict of values by column, as {{'price': 0}}, or {DROP!r}"
            )
        if self.header is not None:
            object.__setattr__(self, "header", integer("header", self.header))
        if self.on_error is not None:
            choice("on_error", self.on_error, ("raise", "skip"))
        if self.fn is not None and not callable(self.fn):
            raise ArgumentError(f"fn is a {type(self.fn).__name__}; expected a function")

    @property
    def drops_nulls(self) -> bool:
        """``True`` if rows with nulls are left out."""
        return self.nulls == DROP

    @property
    def fills(self) -> Mapping[str, Any]:
        """The values in place of nulls, by column."""
        return self.nulls if isinstance(self.nulls, Mapping) else {}

    @property
    def given(self) -> list[str]:
        """The names of the options that differ from their defaults, but the keywords of the kind."""
        return [name for name in NAMES if getattr(self, name) is not None]


NAMES = tuple(each.name for each in fields(OpenOptions) if each.name != "more")
"""The names of all options."""


def has_window(options: OpenOptions) -> bool:
    """Return whether options say how many chunks are mixed, or what memory there is for them."""
    return options.chunks_open is not None or options.memory is not None
