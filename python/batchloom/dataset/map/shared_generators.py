"""Known transforms that draw from generators which threads share, so that their numbers depend on timing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import Any

# Packages whose random transforms draw from the generators of torch, NumPy or Python, and how these are named.
PACKAGES = ("torchvision.transforms", "torchaudio.transforms", "audiomentations", "imgaug", "monai.transforms")
NAMES = ("Random", "Rand", "ColorJitter", "AutoAugment", "RandAugment", "TrivialAugment", "AugMix", "ElasticTransform")

# Transforms are looked for so deep in the attributes, closures and lists of a function.
DEPTH = 5


def find_shared_draw(*holders: Any) -> str | None:
    """Return the name of a known transform that draws from shared generators, in functions or in what they hold."""
    seen: set[int] = set()
    for holder in holders:
        name = _find(holder, DEPTH, seen)
        if name is not None:
            return name
    return None


def _find(value: Any, depth: int, seen: set[int]) -> str | None:
    kind = type(value)
    if kind.__module__.startswith(PACKAGES) and kind.__name__.startswith(NAMES):
        return f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
    if depth == 0 or id(value) in seen:
        return None
    seen.add(id(value))
    for part in _parts(value):
        name = _find(part, depth - 1, seen)
        if name is not None:
            return name
    return None


def _parts(value: Any) -> Iterator[Any]:
    """Yield the objects that a function or a transform holds."""
    if isinstance(value, partial):
        yield from (value.func, *value.args, *value.keywords.values())
        return
    if isinstance(value, list | tuple):
        yield from value[:100]
        return
    yield getattr(value, "__self__", None)
    for cell in getattr(value, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue  # the variable has no value yet
    code, names = getattr(value, "__code__", None), getattr(value, "__globals__", {})
    yield from (names[name] for name in getattr(code, "co_names", ()) if name in names)
    if isinstance(value, type | ModuleType):
        return
    # Of other objects, what is called: the function that reads an item of a dataset, or that of a transform.
    yield from (getattr(type(value), name, None) for name in ("__getitem__", "__call__"))
    attributes = getattr(value, "__dict__", {})
    yield from (held for name, held in attributes.items() if callable(held) or "transform" in name)
