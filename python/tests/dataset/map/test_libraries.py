"""The libraries that functions of samples use, which the server of processes imports for all of them."""

import functools
import sys
import types

import pytest
from batchloom.dataset.map import libraries
from batchloom.dataset.map.libraries import find_libraries
from batchloom.dataset.map.processes import choose_context


@pytest.fixture
def vision(monkeypatch):
    """A library of this name with a class, a function and a module in it."""
    library, inner = types.ModuleType("torchvision"), types.ModuleType("torchvision.transforms")

    class Crop:
        def __call__(self, image):
            return image

    def flip(image):
        return image

    Crop.__module__, flip.__module__ = inner.__name__, inner.__name__
    library.Crop, library.flip, library.transforms = Crop, flip, inner
    monkeypatch.setitem(sys.modules, "torchvision", library)
    return library


class Files:
    def __init__(self, transform):
        self.transform = transform

    def __getitem__(self, number):
        return self.transform(number)


class Composed:
    def __init__(self, *transforms):
        self.transforms = transforms


def test_a_library_is_found_where_functions_and_items_hold_it(vision, monkeypatch):
    monkeypatch.setitem(globals(), "crop", vision.Crop())
    monkeypatch.setitem(globals(), "library", vision.transforms)

    def reads_a_global(number):
        return crop(number)  # noqa: F821

    def reads_inside(number):
        return [(lambda each: library)(each) for each in range(number)]  # noqa: F821

    def encloses(transform):
        return lambda number: transform(number)

    held = [
        vision.Crop(),
        vision.flip,
        vision.Crop,
        vision.transforms,
        Files(vision.Crop()),
        Files(Composed(None, vision.flip)),
        Files(None).__class__(Files(vision.Crop()).__getitem__),
        functools.partial(print, end=vision.flip),
        {"image": vision.Crop()},
        reads_a_global,
        reads_inside,
        encloses(vision.flip),
    ]
    for each in held:
        assert find_libraries(range(3), each) == ["torchvision"], each


def test_nothing_is_found_that_is_not_used_or_not_imported(vision, monkeypatch):
    assert find_libraries(range(3), Files(len), lambda number: number) == []
    monkeypatch.delitem(sys.modules, "torchvision")
    assert find_libraries(vision.Crop()) == []


def test_a_look_ends(vision):
    endless = Files(None)
    endless.transform = [endless, *range(10**6), vision.Crop()]
    assert find_libraries(endless) == []
    chain = vision.Crop()
    for _ in range(libraries.MOST_OBJECTS + 1):
        chain = Files(chain)
    assert find_libraries(chain) == []


@pytest.mark.skipif(sys.platform != "linux", reason="the server is for Linux")
def test_the_server_is_told_of_the_libraries(monkeypatch):
    told = []
    context = types.SimpleNamespace(set_forkserver_preload=told.append)
    monkeypatch.setattr("batchloom.dataset.map.processes.get_context", lambda _: context)
    choose_context("processes", ["torchvision"])
    assert told[0][-1] == "torchvision"
    assert "numpy" in told[0]
