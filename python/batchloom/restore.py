"""Results of an inference run, back in the order of the dataset."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy
from batchloom.errors import DataError


def restore_order(outputs: Any, index: Any) -> Any:
    """Put results back in the order of the samples.

        outputs, index = [], []
        for batch in loader:
            outputs.append(model(batch))
            index.append(batch["index"])
        results = bl.restore_order(outputs, index)  # results[k] is that of sample k

    Args:
        outputs: One result for each sample, in the order in which the samples came: a tensor or an array
            ``[samples, ...]``, or a list of these, one a batch; or, for results that are no arrays, a list of them, or
            a list of lists, one a batch.
        index: The samples, in the same order: the ``index`` of the batches, as one array or as a list of them.

    Returns:
        An array like ``outputs`` whose row ``k`` is the result of sample ``k``, or a list. A sample that came twice
        (``uneven="pad"`` repeats batches) has its last result.

    Raises:
        DataError: There are not as many results as samples, or a sample is missing.
    """
    samples = _samples(index)
    if _is_array(outputs):
        return _scatter(outputs, _places(samples, len(outputs)))
    outputs = list(outputs)
    if outputs and all(map(_is_array, outputs)) and (outputs[0].ndim > 0 or len(outputs) != len(samples)):
        whole = _concatenate(outputs)
        return _scatter(whole, _places(samples, len(whole)))
    if (
        isinstance(index, list | tuple)
        and len(outputs) == len(index)
        and all(isinstance(o, list | tuple) for o in outputs)
    ):
        outputs = [result for batch in outputs for result in batch]
    return [outputs[place] for place in _places(samples, len(outputs))]


def _samples(index: Any) -> Any:
    """Return sample numbers as one array."""
    parts = index if isinstance(index, list | tuple) else [index]
    arrays = [numpy.asarray(_on_cpu(part)).reshape(-1) for part in parts]
    return numpy.concatenate(arrays) if arrays else numpy.zeros(0, numpy.int64)


def _places(samples: Any, results: int) -> Any:
    """Return, for each sample, the place of its result."""
    if results != len(samples):
        raise DataError(f"there are {results} results for {len(samples)} samples; expected one for each")
    places = numpy.full(int(samples.max(initial=-1)) + 1, -1, numpy.int64)
    places[samples] = numpy.arange(len(samples))
    if (places < 0).any():
        raise DataError(f"sample {int((places < 0).argmax())} has no result; expected one for each sample")
    return places


def _is_array(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape")


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _on_cpu(value: Any) -> Any:
    return value.detach().cpu() if _is_torch(value) else value


def _concatenate(arrays: Sequence[Any]) -> Any:
    if _is_torch(arrays[0]):
        return sys.modules["torch"].cat(list(arrays))
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(arrays[0], jax.Array):
        return jax.numpy.concatenate(arrays)
    return numpy.concatenate(arrays)


def _scatter(outputs: Any, places: Any) -> Any:
    if _is_torch(outputs):
        return outputs[sys.modules["torch"].from_numpy(places).to(outputs.device)]
    return outputs[places]
