"""Checks of arguments that are the same everywhere, and the names that other libraries have for ours (`MEANINGS`)."""

import functools
import inspect
import operator
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from numbers import Number, Real
from typing import Any, Literal, Protocol, SupportsIndex, TypeVar

import numpy
from batchloom.errors import ArgumentError, RangeError

PACKAGE = os.path.dirname(__file__) + os.sep

U32 = 2**32 - 1
U64 = 2**64 - 1

Class = TypeVar("Class", bound=type)

Uneven = Literal["pad", "mask", "short"]
Shuffle = bool | Literal["runs", "documents", "chunks"]
PadSide = Literal["right", "left"]
PadTo = int | Literal["longest"] | Sequence[int]
Truncate = Literal["error", "left", "right"]
Resident = bool | int | Literal["auto"]
Buffers = Literal["views", "own", "static", "checked"]


class SupportsArray(Protocol):
    """Anything that becomes an array of NumPy: an array, a tensor, a column of a frame."""

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the values as an array of NumPy."""


PerSample = Sequence[float] | SupportsArray
"""One number for each sample."""

SampleKeys = Sequence[Any] | SupportsArray | int
"""One number or text for each sample; or the field that holds them, by its name or by its place in a tuple."""

UNEVEN = ("pad", "mask", "short")
RUNS = "runs"
DOCUMENTS, CHUNKS = "documents", "chunks"
PAD_SIDE = ("right", "left")
BUFFERS = ("views", "own", "static", "checked")
TRUNCATE = ("error", "left", "right")


def _stand_for(meaning: str, *names: str) -> dict[str, str]:
    """Return a meaning for each of several names."""
    return dict.fromkeys(names, meaning)


# Options of a loader, which other libraries give to datasets, samplers or rules.
_OF_LOADER = {
    **{name: f"{name} of the DataLoader" for name in ("shuffle", "seed", "pad_value", "pad_side", "pad_to", "output")},
    **_stand_for("drop_last of the DataLoader", "drop_last", "drop_remainder"),
    **_stand_for("seed of the DataLoader", "random_seed", "random_state"),
    **_stand_for("collate of the DataLoader", "collate_fn", "collate"),
    **_stand_for("pad_value of the DataLoader", "padding_value", "pad_token_id", "pad_id", "pad_idx", "padding_idx"),
    **_stand_for("pad_side of the DataLoader", "padding_side"),
    **_stand_for("device of the DataLoader", "device", "pin_memory"),
    **_stand_for("world_size of the DataLoader", "num_replicas", "world_size"),
}
_PADDING = {
    **_stand_for("pad_to and truncate of the DataLoader", "max_length", "max_len", "max_seq_length", "truncation"),
    **_stand_for("multiple_of of a rule, as in bl.FixedSize(64, multiple_of=8)", "pad_to_multiple_of", "multiple_of"),
    **_stand_for('pad_to of the DataLoader; "longest" is the default', "padding", "pad_to_max_length"),
}
_BATCHING = {
    **_stand_for("batching=bl.LengthBuckets(64) of the DataLoader", "group_by_length", "num_buckets", "bucket_size"),
    **_stand_for("batching=bl.TokenBudget(...) of the DataLoader", "max_tokens", "max_duration", "tokens_per_batch"),
    **_stand_for("batching=bl.Packing(...) of the DataLoader", "packing", "pack"),
}
_OF_DATASET = {**_OF_LOADER, **_BATCHING, "batch_size": "batch_size of the DataLoader"}
_TARGET_LENGTH = ("pred_len", "prediction_length", "forecast_horizon", "output_len", "output_chunk_length", "h")
_INPUT_LENGTH = (
    *("seq_len", "lookback", "lookback_window", "context_length", "context_len", "input_size", "input_chunk_length"),
    *("max_encoder_length", "window", "window_size", "history_length", "n_lags"),
)
_SAMPLES = ("max_batch_size", "max_sentences", "per_device_train_batch_size", "batch_samples")
_LENGTHS = ("max_length", "max_seq_length", "max_seq_len", "seq_len", "block_size", "context_length", "budget")
_ROUNDING = ("pad_to_multiple_of", "required_batch_size_multiple")
_POOL = ("bucket_size", "bucket_size_multiplier", "num_buckets", "buffer_size", "pool_size", "megabatch_mult")

# Options of rules whose batches have a limit, and of rules whose batches have a number of samples.
_LIMITED = {
    **_OF_LOADER,
    **_stand_for("max_tokens", *_LENGTHS, "max_duration", "tokens_per_batch"),
    **_stand_for("max_samples", "batch_size", *_SAMPLES),
    **_stand_for("pool", *_POOL),
}
_BUDGETS = {**_LIMITED, **_stand_for("multiple_of", *_ROUNDING)}
_COUNTS = {
    **_OF_LOADER,
    **_stand_for("batch_size", *_SAMPLES, "max_samples"),
    **_stand_for("multiple_of", *_ROUNDING),
    **_stand_for("pad_to and truncate of the DataLoader", *_LENGTHS),
    **_stand_for("bl.TokenBudget(...)", "max_tokens", "max_duration", "tokens_per_batch"),
    "group_by_length": "bl.LengthBuckets(64)",
}
_PLANS = {
    **_stand_for("drop_last", "drop_remainder"),
    **_stand_for("seed", "random_seed", "random_state"),
    **_stand_for("world_size", "num_replicas"),
    **_stand_for("batching=bl.LengthBuckets(64)", "group_by_length", "num_buckets", "bucket_size"),
    **_stand_for("batching=bl.TokenBudget(...)", "max_tokens", "max_duration", "tokens_per_batch"),
    **_stand_for("batching=bl.Packing(...)", "packing", "pack"),
    **_stand_for("batching=bl.FixedSize(64, multiple_of=8)", "pad_to_multiple_of", "multiple_of"),
    **_stand_for("pad_to and truncate", "max_length", "max_len", "max_seq_length", "truncation"),
    **_stand_for('pad_to; "longest" is the default', "padding", "pad_to_max_length"),
}

# By class: the names that other libraries have for its keywords, or for what belongs elsewhere. What a name means is in
# words that follow "did you mean".
MEANINGS: dict[str, dict[str, str]] = {
    "DataLoader": {
        **_PLANS,
        **_stand_for("pad_value", "padding_value", "pad_token_id", "pad_id", "pad_idx", "padding_idx"),
        **_stand_for("pad_side", "padding_side"),
        **_stand_for("batch_size", *_SAMPLES),
        **_stand_for("seq_len of a TokenDataset", "block_size", "seq_len", "chunk_size"),
        **_stand_for("input_len of a WindowDataset", "lookback", "input_len", "context_length"),
        **_stand_for("horizon of a WindowDataset", "horizon", "pred_len", "prediction_length"),
        **_stand_for("max_rows of a GroupDataset", "max_rows", "slate_length"),
        **_stand_for("fn of a MapDataset", "transform", "fn"),
        **_stand_for("own_lengths of a SequenceDataset", "own_lengths"),
        **_stand_for('fields={"edge_index": bl.Field(offset_by="x")}', "follow_batch", "offset_by"),
        **_stand_for("extras", "return_lengths", "return_attention_mask", "remove_unused_columns"),
    },
    "Plan": _PLANS,
    "BatchSampler": _PLANS,
    "FixedSize": _COUNTS,
    "LengthBuckets": {**_COUNTS, **_stand_for("pool", *_POOL)},
    "TokenBudget": _BUDGETS,
    "CostOptimal": {**_BUDGETS, "cost_model": "cost"},
    "Packing": {
        **{name: meant for name, meant in _BUDGETS.items() if meant != "multiple_of"},
        **_stand_for("max_tokens", "seq_length", "sequence_length", "bin_size", "capacity"),
    },
    "Listed": {**_OF_LOADER, **_stand_for("batches", "lists", "batch_sampler", "batch_size")},
    "TensorDataset": {**_OF_DATASET, **_PADDING},
    "SequenceDataset": {**_OF_DATASET, **_PADDING, **_stand_for("sizes", "lengths", "size")},
    "GroupDataset": {
        **_OF_DATASET,
        **_stand_for("max_rows", "max_length", "max_len", "slate_length", "list_size", "max_group_size"),
        **_stand_for("oversize", "truncation", "truncate"),
        **_stand_for("layout", "padding", "padded", "mode"),
        **_stand_for("shuffle_rows", "shuffle_within_group", "shuffle_groups"),
    },
    "TokenDataset": {
        **_OF_DATASET,
        **_stand_for("seq_len", "block_size", "context_length", "sequence_length", "max_seq_len", "chunk_size"),
        **_stand_for("seq_len", "max_length", "max_seq_length", "seq_length", "n_ctx", "bptt"),
        **_stand_for("separator", "eos_token_id", "eos_id", "eod"),
        **_stand_for("documents", "doc_offsets", "document_ids"),
        **_stand_for('tail="drop" or "pad"', "drop_last"),
    },
    "WindowDataset": {
        **_OF_DATASET,
        **_stand_for("input_len", *_INPUT_LENGTH),
        **_stand_for("horizon", *_TARGET_LENGTH, "prediction_len", "max_prediction_length"),
        **_stand_for("id", "item_id", "unique_id", "group_ids", "series_id", "group_col"),
        **_stand_for("time", "timestamp", "time_idx", "ds", "time_col", "date_column"),
        **_stand_for("targets", "target", "target_columns", "value_cols"),
        **_stand_for("stride", "step", "step_size", "shift"),
        **_stand_for("static", "static_features", "static_covariates"),
        **_stand_for("past", "past_covariates", "hist_exog_list"),
        **_stand_for("future", "future_covariates", "known_covariates", "futr_exog_list"),
        **_stand_for("split(..., scale=...) of the dataset", "scale", "scaler", "normalize"),
    },
    "MapDataset": {
        **_OF_DATASET,
        **_PADDING,
        **_stand_for("fn", "transform", "function", "map_fn", "loader"),
        **_stand_for("workers", "num_workers"),
        **_stand_for("sizes", "lengths"),
    },
    "ConcatDataset": _OF_DATASET,
    "open": {
        **_OF_DATASET,
        **_PADDING,
        **_stand_for("columns", "fields", "usecols", "features"),
        **_stand_for("kind", "mode", "type"),
        **_stand_for("format", "filetype", "suffix"),
        **_stand_for("fn", "transform", "decode", "map_fn"),
        **_stand_for("header", "offset", "skip"),
        **_stand_for("source, the first argument", "path", "paths", "data_files", "urls", "files"),
    },
    "Mixture": {
        **_OF_DATASET,
        **_stand_for("weights", "probabilities", "probs", "proportions"),
        **_stand_for("when_exhausted", "stopping_strategy", "stop_on_empty_dataset"),
        **_stand_for("sources", "datasets"),
    },
}


def choice(name: str, value: object, allowed: Sequence[str]) -> str:
    """Return ``value``, one of ``allowed``.

    Raises:
        ArgumentError: ``value`` is not one of them.
    """
    if isinstance(value, str) and value in allowed:
        return value
    raise ArgumentError(f"{name} is {value!r}; expected {' or '.join(map(repr, allowed))}")


def boolean(name: str, value: object, *others: str) -> bool:
    """Return ``value`` as a boolean: ``True``, ``False``, or the numbers 1 and 0.

    Args:
        name: The name of the argument.
        value: Its value.
        others: Other values that the argument takes, for the message.

    Raises:
        ArgumentError: ``value`` is anything else: what is true or false of other values is seldom what was meant.
    """
    if value is True or value is False:
        return value
    if isinstance(value, int | numpy.bool_) and value in (0, 1):
        return bool(value)
    *expected, last = ["True", "False", *map(repr, others)]
    raise ArgumentError(f"{name} is {value!r}; expected {', '.join(expected)} or {last}")


def read_shuffle(shuffle: object, *others: str) -> str:
    """Return the argument ``shuffle`` as the engine names it: "samples", "nothing" or "runs".

    Args:
        shuffle: The argument.
        others: Other values that it takes, for the message.

    Raises:
        ArgumentError: ``shuffle`` is neither a boolean nor "runs". ``None`` is ``False``, as for torch.
    """
    if isinstance(shuffle, str) and shuffle == RUNS:
        return RUNS
    return "samples" if shuffle is not None and boolean("shuffle", shuffle, *others, RUNS) else "nothing"


def read_stream_shuffle(shuffle: object, mode: str) -> tuple[str, bool]:
    """Return the shuffle of pieces of a token stream, as the engine names it, and whether documents are shuffled.

    Raises:
        ArgumentError: ``shuffle`` is neither a boolean nor a known string, or shuffles pieces with mode "continuous".
    """
    named = shuffle if isinstance(shuffle, str) else None
    if named == DOCUMENTS:
        return "nothing", True
    if mode == "continuous" and not (shuffle is None or (isinstance(shuffle, bool | int) and shuffle == 0)):
        raise ArgumentError(
            f"shuffle is {shuffle!r}, but rows of a stream go on with mode 'continuous'; expected False or 'documents'"
        )
    pieces = "samples" if named == CHUNKS else read_shuffle(shuffle, DOCUMENTS, CHUNKS)
    return pieces, pieces == "samples" and named is None


def require_known(owner: str, keywords: Mapping[str, Any], *kinds: Any, others: Sequence[str] = ()) -> None:
    """Refuse keywords that are in none of several typed dicts; ``others`` are arguments that may be meant.

    Raises:
        TypeError: There is one. The message names it, and a keyword that has its meaning or is spelled alike.
    """
    known = {name for kind in kinds for name in kind.__annotations__} if keywords else set()
    for name in keywords:
        if name not in known:
            raise make_unknown_keyword_error(owner, name, {*known, *others})


def make_unknown_keyword_error(owner: str, name: str, known: Iterable[str]) -> TypeError:
    """Return the error for a keyword that ``owner`` does not have, with the keyword that is meant, if one is likely.

    Args:
        owner: The name of a class.
        name: The keyword.
        known: The keywords that there are.
    """
    alike = MEANINGS.get(owner, {}).get(name) or find_alike(name, known)
    meant = "" if alike is None else f"; did you mean {alike}?"
    return TypeError(f"{owner}() got an unexpected keyword argument {name!r}{meant}")


def find_alike(name: str, known: Iterable[str]) -> str | None:
    """Return the name that is spelled most like another; ``None`` where none is alike."""
    import difflib

    return next(iter(difflib.get_close_matches(name, sorted(known), 1)), None)


def answer_unknown_keywords(kind: Class) -> Class:
    """Decorate a class: its constructor answers an unknown keyword with the one that is meant.

    A class that takes fields by any names refuses such a keyword where its value is no field, but a number or a text.
    """
    construct, owner = kind.__init__, kind.__name__  # type: ignore[misc]
    parameters = inspect.signature(construct).parameters
    takes_fields = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    placed = [name for name, each in parameters.items() if each.kind is each.POSITIONAL_ONLY and name != "self"]
    named = [name for name, each in parameters.items() if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD)]

    @functools.wraps(construct)
    def initialise(self: Any, /, *arguments: Any, **keywords: Any) -> None:
        if takes_fields:
            _refuse_options_among_fields(owner, keywords, named)
        try:
            construct(self, *arguments, **keywords)
        except TypeError:
            by_name = next((name for name in placed if name in keywords and not arguments), None)
            if by_name is not None:
                raise TypeError(f"{owner}() takes {by_name} by its place; expected {owner}({by_name}, ...)") from None
            unknown = next((name for name in keywords if name not in named), None)
            if unknown is None or takes_fields:
                raise
            raise make_unknown_keyword_error(owner, unknown, named) from None

    kind.__init__ = initialise  # type: ignore[misc]
    return kind


def _refuse_options_among_fields(owner: str, keywords: Mapping[str, Any], named: Sequence[str]) -> None:
    """Refuse fields that have the name of an option, or nearly so, and hold one number or one text.

    Raises:
        TypeError: There is one.
    """
    for name, value in keywords.items():
        if name in named or not isinstance(value, Number | str | None):
            continue
        if name in MEANINGS[owner] or find_alike(name, named) is not None:
            raise make_unknown_keyword_error(owner, name, named)


def integer(name: str, value: SupportsIndex, least: int = 0, most: int = U64) -> int:
    """Return ``value`` as an integer between ``least`` and ``most``.

    Raises:
        ArgumentError: ``value`` is not an integer (no float is, not even 2.0), or is out of range.
    """
    if type(value) is int and least <= value <= most:
        return value
    if isinstance(value, bool) or is_mask(value):
        raise ArgumentError(f"{name} is {value}; expected an integer")
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentError(f"{name} is {value!r}; expected an integer") from None
    except RuntimeError as error:  # an array without values
        raise ArgumentError(f"{name} is {value!r}; expected an integer: {error}") from None
    if number < least:
        raise ArgumentError(f"{name} is {show_integer(number)}; expected at least {least}")
    if number > most:
        raise ArgumentError(f"{name} is {show_integer(number)}; expected at most {most}")
    return number


BYTES = {
    "": 1,
    "B": 1,
    **{name: 1000**power for power, name in enumerate(("KB", "MB", "GB", "TB"), start=1)},
    **{name: 1024**power for power, name in enumerate(("KIB", "MIB", "GIB", "TIB"), start=1)},
}


def byte_count(name: str, value: SupportsIndex | str) -> int:
    """Return a number of bytes, given as a number or as a text such as ``"256MB"`` or ``"1.5GiB"``.

    Raises:
        ArgumentError: It is neither, or less than 1.
    """
    if not isinstance(value, str):
        return integer(name, value, least=1)
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
    unit = found and BYTES.get(found[2].upper())
    if not found or unit is None:
        raise ArgumentError(f'{name} is {value!r}; expected a number of bytes, or a text such as "256MB" or "1.5GiB"')
    return integer(name, int(Fraction(found[1]) * unit), least=1)


def resolve_index(noun: str, index: SupportsIndex, length: int, where: str = "") -> int:
    """Return an index as a place from 0 on; a negative one counts from the end.

    Args:
        noun: The thing that the index numbers.
        index: The index.
        length: The number of such things.
        where: The owner of the things, for the message: `` of source 'x'``.

    Raises:
        RangeError: There is no such thing.
    """
    number = operator.index(index)
    if not -length <= number < length:
        raise out_of_range(noun, number, length, where)
    return number % length


def out_of_range(noun: str, number: int, length: int, where: str = "") -> RangeError:
    """Return the error for a number that is out of range, in the words that all of the package uses."""
    return RangeError(f"{noun} {show_integer(number)}{where} is out of range; expected 0 <= {noun} < {length}")


def count_used(batches: SupportsIndex, taken: int) -> int:
    """Return how many of ``taken`` batches were used: ``batches``; a negative number counts from the last batch.

    Raises:
        ArgumentError: ``batches`` is larger than ``taken``.
    """
    number = integer("batches", batches, least=-taken, most=taken)
    return number if number >= 0 else taken + number


def weight(name: str, value: Any) -> Any:
    """Return ``value``, the weight of a source.

    Raises:
        ArgumentError: It is no number, negative, or larger than any float.
    """
    try:
        is_weight = isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) < float("inf")
    except OverflowError:
        is_weight = False
    if not is_weight:
        raise ArgumentError(f"the weight of {name} is {value!r:.80}; expected a finite number, at least 0")
    return value


def text(name: str, value: object) -> str:
    """Return ``value``, a name that can be written as UTF-8.

    Raises:
        ArgumentError: It is no text, or has half of a surrogate pair.
    """
    if not isinstance(value, str):
        raise ArgumentError(f"{name} is {value!r}; expected a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(f"{name} is {value!r}; expected a text that UTF-8 can write: {error}") from None
    return value


def is_mask(value: object) -> bool:
    """Return whether a value is of a type of booleans of NumPy or torch: a mask, or an element of one."""
    return str(getattr(value, "dtype", "")).removeprefix("torch.") == "bool"


def show_integer(number: int) -> str:
    """Return an integer as text; Python writes out none of thousands of digits."""
    return str(number) if number.bit_length() <= 256 else f"an integer of {number.bit_length()} bits"


def caller() -> int:
    """Return the level of the first caller outside of the package and of loaders of torch, for a warning's position.

    The level is an argument of ``warnings.warn`` in the function that calls this one.
    """
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _is_inside(frame.f_code.co_filename, frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    return level


def _is_inside(file: str, module: str) -> bool:
    return file.startswith(PACKAGE) or module.startswith(("torch.", "torchdata.", "accelerate."))
