"""Classes of errors, and messages that people read."""

import batchloom as bl
import pytest
import torch

BUILT_IN = {
    bl.ArgumentError: ValueError,
    bl.DataError: ValueError,
    bl.DTypeError: TypeError,
    bl.DeviceError: ValueError,
    bl.RangeError: IndexError,
    bl.StateError: ValueError,
    bl.LoaderError: RuntimeError,
}


@pytest.mark.parametrize("kind", BUILT_IN)
def test_every_class_is_also_the_built_in_one(kind):
    assert issubclass(kind, bl.Error)
    assert issubclass(kind, BUILT_IN[kind])
    assert issubclass(bl.Error, Exception)
    assert kind.__name__ in bl.__all__


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_messages_are_for_people():
    """No page of C++ frames in them."""
    for X in (
        torch.zeros(4, dtype=torch.uint8).view(torch.bits8),
        torch.quantize_per_tensor(torch.zeros(3), 1, 0, torch.qint8),
    ):
        with pytest.raises(bl.DTypeError) as caught:
            bl.TensorDataset(X)
        assert "frame #" not in str(caught.value)


def test_one_of_something_is_no_plural():
    one, two = (bl.DataLoader(bl.TensorDataset(torch.zeros(count)), 1) for count in (1, 2))
    assert repr(one.plan()).endswith("1 batch)")
    assert repr(two.plan()).endswith("2 batches)")
    assert repr(one.dataset).endswith("; 1 sample)")
    assert repr(two.dataset).endswith("; 2 samples)")
    for length, said in ((1, "has 1 step, and"), (2, "has 2 steps, and")):
        with pytest.raises(bl.DataError, match=said):
            bl.WindowDataset({"x": torch.zeros(length)}, offsets={"x": range(5)})
    with pytest.raises(bl.DataError, match="time has 1 step; expected 3"):
        bl.WindowDataset(torch.zeros(3), 1, 1, time=[0], freq=1)
