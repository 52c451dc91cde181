"""The Python numbers of a field have the type that ``dtype`` gives the field, however each of them is written."""

import batchloom as bl
import numpy
import pytest

ROWS = [{"price": 3, "sold": 1.0}, {"price": 3.5, "sold": 0}, {"price": 4, "sold": 1.0}, {"price": 5, "sold": 2}]
FLOAT = bl.Field(dtype="float32")


@pytest.mark.parametrize("workers", ["threads", "processes"])
@pytest.mark.parametrize(
    "fields", [{"price": FLOAT, "sold": FLOAT}, {"price": FLOAT, "sold": bl.Field(dtype="float64")}]
)
def test_numbers_written_without_a_fraction_are_floats(workers, fields):
    loader = bl.DataLoader(bl.MapDataset(ROWS, workers=workers), 2, shuffle=True, fields=fields, num_threads=2)
    for epoch in range(2):
        plan = loader.plan(epoch)
        for step, batch in enumerate(loader):
            for name, field in fields.items():
                assert batch[name].dtype == field.dtype
                assert batch[name].tolist() == [ROWS[sample][name] for sample in plan[step]]


def test_numbers_of_two_types_without_a_type_name_the_option():
    with pytest.raises(bl.DataError, match="field price of sample 1 is float64") as caught:
        list(bl.DataLoader(bl.MapDataset(ROWS), 4))
    assert "dtype" in str(caught.value)
    assert "images" not in str(caught.value)


def test_a_fraction_is_no_integer():
    dataset = bl.MapDataset([{"x": 1.5}, {"x": 2.5}])
    with pytest.raises(bl.DataError, match=r"1\.5"):
        list(bl.DataLoader(dataset, 2, fields={"x": bl.Field(dtype="int64")}))


def test_integers_that_no_float_holds_are_rounded_as_floats_are():
    large = 2**60 + 1
    (batch,) = bl.DataLoader(bl.MapDataset([{"x": large}, {"x": 0.5}]), 2, fields={"x": bl.Field(dtype="float64")})
    assert batch["x"].tolist() == [float(large), 0.5]
    assert batch["x"].dtype == numpy.float64
