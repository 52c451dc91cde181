"""The shape of a window in Python: the engine's shape, and the steps that fields take."""

import inspect

import batchloom._native as native
import numpy
import pytest
from batchloom.collate.window_steps import WindowSteps
from batchloom.dataset.window_shape import OF_ENGINE, WindowShape


def test_the_engine_takes_each_of_its_attributes_once():
    assert {"offsets", *OF_ENGINE} == set(inspect.signature(native.Windows).parameters)
    attributes = [name for name in WindowShape.__dataclass_fields__ if name in OF_ENGINE]
    assert attributes == list(OF_ENGINE)


@pytest.mark.parametrize("length", [7, 12])
def test_windows_of_the_default_shape_begin_at_every_step(length):
    windows = WindowShape(4, horizon=2).slide(numpy.array([0, length]))
    assert len(windows) == length - 5
    assert [windows.place(number) for number in range(len(windows))] == [(0, row, 0) for row in range(length - 5)]


def test_inputs_and_targets_take_steps_of_their_own():
    shape = WindowShape(6, horizon=3, label_len=2, gap=1, mask=True)
    assert shape.steps_of("x", is_target=False) == shape.masks["mask"] == WindowSteps(0, 6)
    assert shape.steps_of("y", is_target=True) == shape.masks["target_mask"] == WindowSteps(5, 5)
    assert shape.span == 10


def test_the_last_step_of_x_alone_is_repeated():
    shape = WindowShape(3, horizon=1, patches=(2, 2), repeats=2)
    assert list(shape.steps_of("x", is_target=False).numbers) == [0, 1, 2, 2, 2]
    assert list(shape.steps_of("x_mark", is_target=False).numbers) == [0, 1, 2]


def test_fields_with_steps_have_masks_of_their_own():
    steps = {"state": WindowSteps(2, 1), "action": WindowSteps(0, 3)}
    shape = WindowShape(3, fields=steps, anchor_step=2, mask=True, index=True)
    assert shape.steps_of("action", is_target=False) == steps["action"]
    assert shape.masks == {"state_mask": steps["state"], "action_mask": steps["action"]}
    assert shape.place_names == ("series", "step", "time", "index")
