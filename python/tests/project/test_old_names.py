"""Names of arguments and attributes that were changed: an old one is an error that gives the new one."""

import inspect
import pickle

import batchloom as bl
import numpy
import pytest
from named import named

DATASET = bl.TensorDataset(numpy.arange(8))

ARGUMENTS = [
    (lambda: bl.DataLoader(DATASET, 2, rank=0, world=1), "DataLoader", "world", "world_size"),
    (lambda: bl.DataLoader(DATASET, 2, static=True), "DataLoader", "static", "static_buffers"),
    (lambda: bl.Plan(8, 2, rank=0, world=1), "Plan", "world", "world_size"),
    (lambda: bl.Packing(8, overflow="split"), "Packing", "overflow", "oversize"),
    (lambda: bl.GroupDataset([1, 1, 2], max_rows=1, longer="truncate"), "GroupDataset", "longer", "oversize"),
]


@pytest.mark.parametrize(("make", "kind", "old", "new"), ARGUMENTS, ids=named)
def test_an_old_argument_gives_the_new_one(make, kind, old, new):
    with pytest.raises(TypeError, match=rf"^{kind}\(\) has no argument '{old}'; it is called '{new}' now$"):
        make()


@pytest.mark.parametrize(
    ("thing", "old", "new"),
    [
        (bl.DataLoader(DATASET, 2), "world", "world_size"),
        (bl.Plan(8, 2), "world", "world_size"),
        (bl.Packing(8), "overflow", "oversize"),
    ],
    ids=repr,
)
def test_an_old_attribute_gives_the_new_one(thing, old, new):
    assert not hasattr(thing, old)
    assert hasattr(thing, new)
    with pytest.raises(AttributeError, match=f"has no attribute '{old}'; it is called '{new}' now"):
        getattr(thing, old)
    with pytest.raises(AttributeError, match=r"has no attribute 'neither'$"):
        thing.neither  # noqa: B018


@pytest.mark.parametrize("kind", [bl.DataLoader, bl.Plan, bl.Packing, bl.GroupDataset])
def test_signatures_have_the_new_names_alone(kind):
    names = set(inspect.signature(kind).parameters)
    assert names & {"world_size", "static_buffers", "oversize"}
    assert not names & {"world", "static", "overflow", "longer"}


def test_an_unknown_argument_is_refused_as_ever():
    with pytest.raises(TypeError, match="unexpected keyword argument 'wrld'"):
        bl.Plan(8, 2, wrld=1)


def test_values_pickle_and_compare_as_ever():
    for value in (bl.Packing(8, oversize="split"), bl.Plan(8, 2, seed=3)):
        assert pickle.loads(pickle.dumps(value)) == value
