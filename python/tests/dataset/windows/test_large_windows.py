"""Windows that are copied past the caches, those of a megabyte and more: every byte, at any place and of any length."""

import batchloom as bl
import numpy
import pytest

MEGABYTE = 1 << 20


@pytest.mark.parametrize("length", [MEGABYTE - 1, MEGABYTE, MEGABYTE + 1, MEGABYTE + 77])
@pytest.mark.parametrize("prefetch", [0, None])
def test_large_windows_are_the_steps_of_their_series(length, prefetch):
    series = numpy.random.default_rng(length).integers(0, 256, length + 40, dtype=numpy.uint8)
    data = bl.WindowDataset(series[:, None], length)
    options = {} if prefetch is None else {"prefetch": prefetch}
    loader = bl.DataLoader(data, 3, shuffle=True, drop_last=True, **options)
    plan = loader.plan(0)
    for step, batch in enumerate(loader):
        (x,) = batch
        for window, found in zip(plan[step].tolist(), x, strict=True):
            # Memory that was used before holds other bytes: those that were not copied would show.
            assert numpy.array_equal(found[:, 0], series[window : window + length])
