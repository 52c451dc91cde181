"""The arguments of a dataset that give the shape of its windows: lengths, steps of fields, patches."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

from batchloom.arguments import boolean, choice, integer
from batchloom.collate.window_steps import MOST_STEPS, WindowSteps
from batchloom.dataset.window_shape import WindowShape
from batchloom.errors import ArgumentError

# The words that arguments take.
WORDS = {"anchor": ("start", "end"), "short": ("error", "drop", "pad"), "sampled_by": ("windows", "series")}


def read_shape(
    input_len: Any,
    lengths: Mapping[str, Any],
    words: Mapping[str, Any],
    offsets: Any,
    patches: tuple[Any, Any, Any],
    mask: Any,
    index: Any,
) -> WindowShape:
    """Return the shape of a window.

    Args:
        input_len: The argument ``input_len``.
        lengths: The arguments ``horizon``, ``label_len``, ``gap`` and ``stride``, by name.
        words: The arguments ``anchor``, ``short`` and ``sampled_by``, by name.
        offsets: The argument ``offsets``.
        patches: The arguments ``patch_len``, ``patch_stride`` and ``patch_pad``.
        mask: The argument ``mask``.
        index: The argument ``index``.

    Raises:
        ArgumentError: An argument has a value that it does not take, or arguments exclude each other.
    """
    chosen: dict[str, Any] = {name: choice(name, word, WORDS[name]) for name, word in words.items()}
    pads = chosen["short"] == "pad"
    mask, index = boolean("mask", mask) or pads, boolean("index", index)
    if offsets is None:
        steps = _read_input_len(input_len)
    else:
        steps = _read_fields(offsets, pads=pads)
        if input_len is not None:
            raise ArgumentError(f"input_len is {input_len!r}, and offsets is given, which says all steps; expected one")
    for name, value in lengths.items():
        steps[name] = integer(name, value, 1 if name == "stride" else 0, MOST_STEPS)
    steps["patches"], steps["repeats"] = _read_patches(*patches, steps["input_len"])
    return WindowShape(mask=mask, index=index, **chosen, **steps)


def _read_input_len(input_len: Any) -> dict[str, Any]:
    """Return the steps of input, and the steps that windows at the beginning of a series may lack."""
    if input_len is None:
        raise ArgumentError("input_len is None; expected the steps of input, or offsets=")
    if not isinstance(input_len, tuple | list):
        return {"input_len": integer("input_len", input_len, least=1, most=MOST_STEPS)}
    if len(input_len) != 2:
        raise ArgumentError(f"input_len is {input_len!r}; expected a number, or the least and the most steps")
    least = integer("the least input_len", input_len[0], least=1, most=MOST_STEPS)
    most = integer("the most input_len", input_len[1], least=least, most=MOST_STEPS)
    return {"input_len": most, "lead": most - least, "whole": True}


def _read_fields(offsets: Any, *, pads: bool) -> dict[str, Any]:
    """Return the steps of fields that are given relative to an anchor, as steps of a window.

    Args:
        offsets: The steps of each field by name, such as ``{"state": [0], "action": range(16)}``.
        pads: ``True`` if every step of a series is an anchor; ``False`` if every step around which all steps exist.

    Raises:
        ArgumentError: They are not a dict of steps by name, or a field takes no step.
    """
    if not isinstance(offsets, Mapping) or not offsets:
        raise ArgumentError(
            f"offsets is {offsets!r}; expected the steps of each field by name, such as "
            '{"state": [0], "action": range(16)}'
        )
    listed = {name: _list_steps(name, steps) for name, steps in offsets.items()}
    first = min(0, *(min(steps) for steps in listed.values()))
    last = max(0, *(max(steps) for steps in listed.values()))
    return {
        "input_len": last - first + 1,
        "fields": {name: WindowSteps.of(step - first for step in steps) for name, steps in listed.items()},
        "anchor_step": -first,
        "lead": -first if pads else 0,
        "trail": last if pads else 0,
        "whole": True,
    }


def _list_steps(name: Any, steps: Any) -> list[int]:
    """Return the steps of one field."""
    if not isinstance(name, str):
        raise ArgumentError(f"offsets names a field {name!r}; expected a text")
    try:
        listed = [operator.index(step) for step in (steps if isinstance(steps, Iterable) else [steps])]
    except TypeError:
        raise ArgumentError(f"offsets of field {name} are {steps!r}; expected whole steps, such as [-1, 0]") from None
    if not listed:
        raise ArgumentError(f"offsets of field {name} are empty; expected at least one step")
    far = max(listed, key=abs)
    if abs(far) >= MOST_STEPS:
        raise ArgumentError(f"offsets of field {name} have step {far}; expected steps of a series")
    return listed


def _read_patches(
    patch_len: Any, patch_stride: Any, patch_pad: Any, input_len: int
) -> tuple[tuple[int, int] | None, int]:
    """Return the length and the stride of patches, and how often they need the last step of ``x`` once more."""
    if patch_len is None:
        if patch_stride is not None:
            raise ArgumentError(f"patch_stride is {patch_stride}, but patch_len is not given; expected both")
        if patch_pad is not None:
            choice("patch_pad", patch_pad, ("end",))
            raise ArgumentError(f"patch_pad is {patch_pad!r}, but patch_len is not given; expected both")
        return None, 0
    length = integer("patch_len", patch_len, least=1, most=input_len)
    # A stride longer than the input makes one patch, as a stride of the length of the input does.
    stride = length if patch_stride is None else min(integer("patch_stride", patch_stride, least=1), input_len)
    if patch_pad is None:
        return (length, stride), 0
    choice("patch_pad", patch_pad, ("end",))
    # A whole stride of repeated steps would end with steps that fill no patch.
    return (length, stride), stride - (input_len - length) % stride
