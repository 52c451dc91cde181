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
