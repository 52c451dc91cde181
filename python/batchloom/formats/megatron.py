"""Corpora of Megatron (`.bin` with `.idx`): tokens, mapped, and the lengths of sequences that their index has.

Promise: an index is checked whole against the size of the file of its tokens, before a token is read.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy
from batchloom.dataset.base import Dataset
from batchloom.errors import ArgumentError, DataError, DTypeError
from batchloom.formats.arrays import dataset_of
from batchloom.formats.kinds import SEQUENCES, TOKENS
from batchloom.formats.lists import Lists
from batchloom.formats.mapped import map_bytes
from batchloom.formats.options import OpenOptions
from batchloom.formats.places import Places
from batchloom.formats.several import join_arrays

Array = numpy.ndarray[Any, Any]

# An index: a mark, a version, a code of the type, the numbers of sequences and of documents; then, one after the other,
# the length of each sequence, the place of its first byte, and the first sequence of each document.
MAGIC, VERSION = b"MMIDIDX\x00\x00", 1
HEADER = struct.Struct("<9sQBQQ")
LENGTHS, PLACES, DOCUMENTS, MODES = "<i4", "<i8", "<i8", "<i1"

# The types of tokens by their codes.
DTYPES = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float64",
    7: "float32",
    8: "uint16",
}

# The ends of the names of both files, and the field of a dataset of sequences.
TOKENS_SUFFIX, INDEX_SUFFIX = ".bin", ".idx"
FIELD = "input_ids"


class Corpus(NamedTuple):
    """A corpus: its tokens, and the offsets of sequences and of documents in them."""

    path: str
    tokens: Array
    sequences: Array
    documents: Array


def open_files(files: Sequence[str], options: OpenOptions) -> Dataset[Any]:
    """Return the dataset of corpora: of sequences, or with ``seq_len`` of a stream.

    Raises:
        ArgumentError: Columns are chosen, or the kind is another one.
        DataError: An index does not fit its tokens.
        DTypeError: Tokens are no integers, or differ in type.
    """
    if options.columns is not None:
        raise ArgumentError(f"columns is given, and {files[0]} holds tokens alone; expected columns=None")
    kind = options.kind or (TOKENS if "seq_len" in options.more else SEQUENCES)
    if kind not in (SEQUENCES, TOKENS):
        raise ArgumentError(
            f"kind is {kind!r}, and {files[0]} holds sequences of tokens; expected 'sequences' or 'tokens'"
        )
    # A pattern may fit both files of a corpus.
    stems = dict.fromkeys(os.path.splitext(file)[0] for file in files)
    corpora = [read_corpus(stem) for stem in stems]
    first = corpora[0]
    for each in corpora[1:]:
        if each.tokens.dtype != first.tokens.dtype:
            raise DTypeError(
                f"tokens are {each.tokens.dtype} in {each.path} and {first.tokens.dtype} in {first.path}; expected one "
                "type in all files"
            )
    tokens = join_arrays([each.tokens for each in corpora])
    places = Places([each.path for each in corpora], [len(each.sequences) - 1 for each in corpora])
    if kind == TOKENS:
        more = {"documents": _join_offsets([each.documents for each in corpora])} | dict(options.more)
        return dataset_of(tokens, _with(options, kind, more), places)
    lists = Lists(tokens, _join_offsets([each.sequences for each in corpora]))
    return dataset_of({FIELD: lists}, _with(options, kind, options.more), places)


def read_corpus(stem: str) -> Corpus:
    """Return a corpus, mapped.

    Args:
        stem: The path of its files without ``.bin`` and ``.idx``.

    Raises:
        DataError: One of its files is missing, or the index does not fit the tokens.
        DTypeError: Tokens are no integers.
    """
    index, path = stem + INDEX_SUFFIX, stem + TOKENS_SUFFIX
    for file, other in ((index, path), (path, index)):
        if not os.path.isfile(file):
            raise DataError(f"{other} lies without {file}; expected both files of a corpus")
    dtype, lengths, starts, documents = read_index(index)
    bounds = numpy.concatenate([numpy.zeros(1, numpy.int64), numpy.cumsum(lengths, dtype=numpy.int64)])
    if not numpy.array_equal(starts, bounds[:-1] * dtype.itemsize):
        wrong = int((starts != bounds[:-1] * dtype.itemsize).argmax())
        raise DataError(
            f"sequence {wrong} begins at byte {starts[wrong]} in {index}; expected {bounds[wrong] * dtype.itemsize}, "
            "where the sequence before it ends"
        )
    size, expected = os.stat(path).st_size, int(bounds[-1]) * dtype.itemsize
    if size != expected:
        raise DataError(f"{path} has {size} bytes; expected {expected}, as its index {index} counts them")
    tokens = map_bytes(path, 0, size, dtype, (int(bounds[-1]),), "the tokens")
    return Corpus(path, tokens, bounds, bounds[documents])


def read_index(path: str) -> tuple[numpy.dtype[Any], Array, Array, Array]:
    """Return what an index has: the type, the lengths and the places of sequences, and the bounds of documents.

    Raises:
        DataError: It is damaged.
        DTypeError: Tokens are no integers.
    """
    found = os.stat(path).st_size
    if found < HEADER.size:
        raise DataError(f"{path} has {found} bytes; expected at least {HEADER.size}, as an index of Megatron has")
    contents = numpy.memmap(path, numpy.uint8, "r")
    magic, version, code, sequences, bounds = HEADER.unpack(contents[: HEADER.size].tobytes())
    if magic != MAGIC or version != VERSION:
        raise DataError(
            f"{path} begins with {magic!r} and version {version}; expected {MAGIC!r} and {VERSION}, as an index of "
            "Megatron"
        )
    parts = ((LENGTHS, sequences), (PLACES, sequences), (DOCUMENTS, bounds))
    size = HEADER.size + sum(numpy.dtype(kind).itemsize * count for kind, count in parts)
    if found not in (size, size + sequences):
        raise DataError(
            f"{path} has {found} bytes; expected {size} for {sequences} sequences and {bounds} bounds of documents"
        )
    dtype = _read_dtype(path, code)
    arrays, place = [], HEADER.size
    for kind, count in parts:
        arrays.append(numpy.frombuffer(contents, kind, count, place))
        place += arrays[-1].nbytes
    lengths, starts, documents = arrays
    if (lengths < 0).any():
        raise DataError(f"sequence {int((lengths < 0).argmax())} has a negative length in {path}; expected 0 or more")
    is_whole = len(documents) and documents[0] == 0 and documents[-1] == sequences
    if not is_whole or (documents[1:] < documents[:-1]).any():
        raise DataError(f"documents do not go from 0 to {sequences} sequences in {path}; expected bounds that grow")
    if numpy.frombuffer(contents, MODES, found - size, size).any():
        raise DataError(f"{path} has sequences of several modes; expected a corpus of tokens alone")
    return dtype, lengths, starts, documents


def _read_dtype(path: str, code: int) -> numpy.dtype[Any]:
    """Return the type of tokens that a code stands for.

    Raises:
        DataError: It stands for none.
        DTypeError: It is no type of integers.
    """
    name = DTYPES.get(code)
    if name is None:
        raise DataError(f"{path} has code {code} for the type of tokens; expected one of {', '.join(map(str, DTYPES))}")
    dtype: numpy.dtype[Any] = numpy.dtype(name)
    if dtype.kind not in "iu":
        raise DTypeError(f"{path} has tokens of {name}; expected integers")
    return dtype


def _join_offsets(offsets: Sequence[Array]) -> Array:
    """Return offsets over several corpora, given the offsets of each."""
    joined, end = [offsets[0]], int(offsets[0][-1])
    for each in offsets[1:]:
        joined.append(each[1:] + end)
        end += int(each[-1])
    return numpy.concatenate(joined)


def _with(options: OpenOptions, kind: str, more: Any) -> OpenOptions:
    return OpenOptions(kind=kind, format=options.format, memory=options.memory, more=more)
