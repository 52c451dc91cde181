"""Keywords that do not exist: Python's own error, which names them."""

import batchloom as bl
import numpy
import pytest

DATASET = bl.TensorDataset(numpy.arange(8))


@pytest.mark.parametrize(
    "make",
    [
        lambda: bl.DataLoader(DATASET, 2, wrld=1),
        lambda: bl.Plan(8, 2, wrld=1),
        lambda: bl.Packing(8, wrld=1),
    ],
    ids=["DataLoader", "Plan", "Packing"],
)
def test_an_unknown_keyword_is_a_type_error(make):
    with pytest.raises(TypeError, match="unexpected keyword argument 'wrld'"):
        make()
