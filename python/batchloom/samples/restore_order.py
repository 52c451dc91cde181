"""Results of an inference run, restored to the order of the dataset."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import batchloom._native as _native
import numpy
from batchloom.arrays.frameworks import DEFAULT_FRAMEWORK, load, owner
from batchloom.errors import DataError

if TYPE_CHECKING:
    from batchloom.arrays.framework import Framework


def restore_order(outputs: Any, index: Any) -> Any:
    """Return results in the order of the samples.

        outputs, index = [], []
        for batch in loader:
            outputs.append(model(batch))
            index.append(batch["index"])
        results = bl.restore_order(outputs, index)  # results[k] is the result of sample k

    Args:
        outputs: One result for each sample, in the order in which the samples came: a tensor or an array
            ``[samples, ...]``, or a list of these, one a batch; or, for results that are not arrays, a list of results,
            or a list of lists, one a batch.
        index: The samples, in the same order: the ``index`` of the batches, as one array or as a list of them.

    Returns:
        An array like ``outputs`` whose row ``k`` is the result of sample ``k``, or a list. A sample that came twice
        (``uneven="pad"`` repeats samples) has its last result. Results of places that only filled up (``uneven="mask"``
        marks them by an ``index`` of -1) are left out.

    Raises:
        DataError: The numbers of results and samples differ, or a sample before the last one of ``index`` is missing.
            (The function cannot tell that the very last samples are missing.)
    """
    samples = _samples(index)
    if _is_array(outputs) and outputs.ndim > 0:
        return _scatter(outputs, _places(samples, len(outputs)))
    outputs = _to_list(outputs)
    if outputs and all(map(_is_array, outputs)) and all(output.ndim > 0 for output in outputs):
        whole = _concatenate(outputs)
        return _scatter(whole, _places(samples, len(whole)))
    if _is_by_batch(outputs, index):
        outputs = [result for batch in outputs for result in batch]
    places: list[int] = numpy.from_dlpack(_places(samples, len(outputs))).tolist()
    return [outputs[place] for place in places]


def _to_list(outputs: Any) -> list[Any]:
    if not isinstance(outputs, Iterable) or isinstance(outputs, str | bytes) or _is_array(outputs):
        kind = type(outputs).__name__
        raise DataError(f"outputs is a {kind}; expected an array with a row for each sample, or a list of results")
    return list(outputs)


def _is_by_batch(outputs: Sequence[Any], index: Any) -> bool:
    """Return whether both results and samples are lists of batches."""
    if not isinstance(index, list | tuple) or len(outputs) != len(index):
        return False
    pairs = list(zip(outputs, index, strict=True))
    return all(isinstance(results, list | tuple) and numpy.ndim(_on_cpu(batch)) == 1 for results, batch in pairs)


def _samples(index: Any) -> Any:
    """Return sample numbers as one array.

    Raises:
        DataError: They are not integers of at least -1.
    """
    parts = index if isinstance(index, list | tuple) else [index]
    try:
        arrays = [numpy.asarray(_on_cpu(part)).reshape(-1) for part in parts]
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"index is not an array of sample numbers: {error}") from None
    arrays = [array for array in arrays if array.size]
    for array in arrays:
        if array.dtype.kind not in "iu":
            raise DataError(f"index holds {array.dtype}; expected integers, the `index` of the batches")
        if array.min() < -1:
            raise DataError(f"index holds sample {array.min()}; expected numbers of at least 0, or -1 for a filler")
    return numpy.concatenate([numpy.zeros(0, numpy.int64), *map(_to_int64, arrays)])


def _to_int64(numbers: Any) -> Any:
    """Return integers as int64; larger ones become the largest int64, which numbers no sample."""
    if numbers.dtype.kind == "u":
        numbers = numpy.minimum(numbers.astype(numpy.uint64), numpy.iinfo(numpy.int64).max)
    return numbers.astype(numpy.int64)


def _places(samples: Any, results: int) -> _native.Tensor:
    """Return, for each sample, the place of its result."""
    return _native.restore_order(_native.borrow(samples, "index"), results)


def _is_array(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "ndim")


def _framework(array: Any) -> Framework:
    """Return the framework of an array; the default one where no framework owns it."""
    return owner(array) or load(DEFAULT_FRAMEWORK)


def _on_cpu(value: Any) -> Any:
    framework = _framework(value)
    return framework.to_host(framework.to_plain(value))


def _concatenate(arrays: Sequence[Any]) -> Any:
    try:
        return _framework(arrays[0]).concatenate(arrays)
    except (TypeError, ValueError, RuntimeError) as error:
        shapes = sorted({tuple(array.shape[1:]) for array in arrays})
        raise DataError(
            f"results of batches cannot be concatenated: their rows have shapes {shapes}; expected one shape: {error}"
        ) from None


def _scatter(outputs: Any, places: _native.Tensor) -> Any:
    return _framework(outputs).take(outputs, places)
