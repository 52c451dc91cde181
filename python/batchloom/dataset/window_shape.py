"""The shape of a window: the steps that it takes, the steps that each of its fields holds, and the places of windows.

Windows over series (``windows/``) and pieces of a stream of tokens both have one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import batchloom._native as _native
import numpy
from batchloom.collate.window_steps import WindowSteps
from batchloom.errors import DataError, many

Array = numpy.ndarray[Any, Any]

# The attributes of a shape that the engine's shape has too.
OF_ENGINE = (
    "input_len",
    "horizon",
    "label_len",
    "gap",
    "stride",
    "lead",
    "trail",
    "whole",
    "anchor",
    "short",
    "sampled_by",
)


@dataclass(frozen=True)
class WindowShape:
    """The shape of a window: steps of input, then ``gap`` steps that no field holds, then the horizon.

    The attributes up to ``sampled_by`` are the attributes of ``WindowShape`` in Rust.
    """

    input_len: int
    """Steps of input; with ``fields``, all steps of a window."""
    horizon: int = 0
    """Steps to predict; 0 for inputs alone."""
    label_len: int = 0
    """Steps before the horizon with which targets begin."""
    gap: int = 0
    """Steps between input and horizon."""
    stride: int = 1
    """Steps from one window to the next."""
    lead: int = 0
    """The most steps of a window that may lie before its series, and are zeros there."""
    trail: int = 0
    """The most steps of a window that may lie after its series, and are zeros there."""
    whole: bool = False
    """``True`` if a series shorter than a window is too short, even if it has all targets."""
    anchor: str = "start"
    """The end of a series from which windows are counted: ``"start"`` or ``"end"``."""
    short: str = "error"
    """The treatment of series that are too short: ``"error"``, ``"drop"`` or ``"pad"``."""
    sampled_by: str = "windows"
    """The unit that counts the same in an epoch: ``"windows"`` or ``"series"``."""
    fields: dict[str, WindowSteps] | None = None
    """The steps of each field by name; ``None`` where fields are inputs and targets."""
    anchor_step: int = 0
    """The step of a window from which the steps of ``fields`` are counted."""
    patches: tuple[int, int] | None = None
    """The length of the patches of ``x``, and the steps from one to the next; ``None`` if ``x`` is not cut."""
    repeats: int = 0
    """The number of times that the last step of ``x`` is repeated, so that patches leave out no step."""
    mask: bool = False
    """``True`` if batches hold masks of the steps that series have."""
    index: bool = False
    """``True`` if batches hold the series, the step, the time and the number of each window."""

    @property
    def span(self) -> int:
        """The steps of a window: input, gap and horizon."""
        return self.input_len + self.gap + self.horizon

    @cached_property
    def input_steps(self) -> WindowSteps:
        """The steps of input."""
        return WindowSteps(0, self.input_len)

    @cached_property
    def target_steps(self) -> WindowSteps:
        """The steps of targets: the horizon, and ``label_len`` steps before it."""
        return WindowSteps(self.input_len + self.gap - self.label_len, self.label_len + self.horizon)

    def steps_of(self, field: str, is_target: bool) -> WindowSteps:
        """Return the steps of a field.

        Args:
            field: The name of the field.
            is_target: ``True`` if the field is cut as ``y`` is; ``False`` if it is cut as ``x`` is.
        """
        if self.fields is not None:
            return self.fields[field]
        if is_target:
            return self.target_steps
        if not self.repeats or field != "x":
            return self.input_steps
        last = self.input_len - 1
        return WindowSteps.of([*range(last + 1), *[last] * self.repeats])

    @cached_property
    def masks(self) -> dict[str, WindowSteps]:
        """The steps of each mask that batches hold, by name."""
        if not self.mask:
            return {}
        if self.fields is not None:
            return {f"{name}_mask": steps for name, steps in self.fields.items()}
        return {"mask": self.input_steps} | ({"target_mask": self.target_steps} if self.horizon else {})

    @property
    def step_name(self) -> str:
        """The name of the field that holds the step at which a window is."""
        return "start" if self.fields is None else "step"

    @property
    def time_step(self) -> int:
        """The step of a window at which its time is read: the anchor of ``fields``, or the last step of input."""
        return self.input_len - 1 if self.fields is None else self.anchor_step

    @property
    def place_names(self) -> tuple[str, ...]:
        """The names of the fields that hold the place of a window, if batches hold them."""
        return ("series", self.step_name, "time", "index") if self.index else ()

    def slide(self, offsets: Array, ids: list[Any] | None = None) -> _native.Windows:
        """Return the windows of the engine over series, without fields.

        Args:
            offsets: The beginning of each series, and the end of the last one.
            ids: The id of each series, if series have ids.

        Raises:
            ArgumentError: Lengths that make no sense.
            DataError: A series is too short; the message names it, also by its id. Or there is no window.
        """
        lengths: dict[str, Any] = {name: getattr(self, name) for name in OF_ENGINE}
        try:
            return _native.Windows(_native.borrow(offsets, "offsets"), **lengths)
        except DataError as error:
            raise DataError(_name_series(str(error), ids)) from None

    def require_reach(self, offsets: Array, ids: list[Any] | None) -> None:
        """Check that each series has all steps of ``fields``, if shorter series are errors.

        Raises:
            DataError: A series is too short; the message names the steps that reach furthest.
        """
        lengths = numpy.diff(offsets)
        are_short = lengths < self.input_len
        if self.short != "error" or self.fields is None or not are_short.any():
            return
        series = int(are_short.argmax())
        which = f"series {series}" if ids is None else f"series {series} ({ids[series]!r})"
        steps = {name: [step - self.anchor_step for step in each.numbers] for name, each in self.fields.items()}
        first, last = (best(steps, key=lambda name: best(steps[name])) for best in (min, max))
        raise DataError(
            f"{which} has {many(lengths[series], 'step')}, and offsets reach from {min(0, *steps[first])} ({first}) to "
            f"{max(0, *steps[last])} ({last}), which are {self.input_len} ({are_short.sum()} of {len(lengths)} series "
            'are too short); expected longer series, or short="drop" or "pad"'
        )


def _name_series(message: str, ids: list[Any] | None) -> str:
    """Return a message of the engine's that begins with the number of a series, with its id after the number."""
    number = re.match(r"series (\d+)", message)
    if number is None or ids is None:
        return message
    return f"{number[0]} ({ids[int(number[1])]!r}){message[number.end() :]}"
