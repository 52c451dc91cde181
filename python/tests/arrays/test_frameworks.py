"""Frameworks: each is a file that fulfils the protocol, and a name in the registry."""

import importlib
import inspect
from pathlib import Path

import batchloom as bl
import numpy
import pytest
from batchloom.arrays import framework, frameworks
from refusals import refused

GROUPS = {
    "HAS_VIEWS": framework.Views,
    "HAS_SPARSE_ROWS": framework.SparseRows,
    "HAS_DEVICES": framework.Devices,
    "HAS_PLACES": framework.Places,
}


def members(group):
    """The functions and the facts of a group of the protocol, by name."""
    functions = {name: each for name, each in vars(group).items() if inspect.isfunction(each) and name[0] != "_"}
    return functions, set(group.__annotations__)


@pytest.fixture(params=frameworks.OUTPUTS)
def module(request):
    """The functions of one framework."""
    pytest.importorskip(request.param)
    return frameworks.load(request.param)


def test_every_framework_fulfils_the_protocol(module):
    groups = [framework.Arrays, *(group for fact, group in GROUPS.items() if getattr(module, fact))]
    for functions, facts in map(members, groups):
        assert [name for name in facts if not hasattr(module, name)] == []
        for name, function in functions.items():
            _, *expected = inspect.signature(function).parameters
            assert list(inspect.signature(getattr(module, name)).parameters) == expected, name


def test_facts_of_groups_are_facts_of_the_protocol():
    assert GROUPS.keys() <= set(framework.Arrays.__annotations__)


def test_frameworks_with_devices_and_places_have_them():
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    assert frameworks.load(frameworks.DEVICE_FRAMEWORK).HAS_DEVICES
    assert frameworks.load(frameworks.PLACE_FRAMEWORK).HAS_PLACES


def test_each_array_is_owned_by_its_own_framework(module):
    name = module.__name__.rpartition(".")[2]
    package = importlib.import_module(name)
    array = package.numpy.ones(3) if name == "jax" else package.ones(3)
    assert frameworks.owner_name(array) == name
    assert frameworks.owner(array) is module
    assert frameworks.framework_of("x", array) == name
    assert frameworks.owner_name([1.0]) is None


def test_the_registry_names_every_file_of_a_framework():
    folder = Path(frameworks.__file__).parent
    files = {path.stem for path in folder.glob("*.py") if "\nTAKES_CAPSULES = " in path.read_text(encoding="utf-8")}
    assert files == set(frameworks.OUTPUTS)


def test_other_producers_are_of_the_default_framework():
    class Producer:
        def __init__(self, array):
            self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

    assert frameworks.framework_of("x", Producer(numpy.ones(3))) == frameworks.DEFAULT_FRAMEWORK


def test_values_that_are_no_arrays():
    with refused(bl.DataError, "x", "list"):
        frameworks.framework_of("x", [1.0])


def test_a_framework_that_is_not_imported_is_not_loaded(interpreter):
    interpreter(
        """
        import sys
        from batchloom.arrays import frameworks

        assert frameworks.find_loaded("torch") is None and frameworks.find_loaded("jax") is None
        assert [each.__name__ for each in frameworks.list_loaded()] == ["batchloom.arrays.numpy"]
        assert "torch" not in sys.modules
        """
    )
