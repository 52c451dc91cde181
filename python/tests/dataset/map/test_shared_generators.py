"""Known transforms that draw from shared generators are told of, wherever a function holds them."""

import warnings
from functools import partial

import batchloom as bl
import pytest


def transform(name, module="torchvision.transforms.transforms", **attributes):
    """An object of a class as a package of transforms has it."""
    return type(name, (), {"__module__": module, "__call__": lambda self, item: item})


CROP, RESIZE = transform("RandomCrop")(), transform("Resize")()


def closure(held):
    return lambda item: held(item)


class Images:
    """A dataset as torchvision has them."""

    def __init__(self, held):
        self.transform = held

    def __len__(self):
        return 3

    def __getitem__(self, number):
        return number


class Compose:
    def __init__(self, *transforms):
        self.transforms = list(transforms)

    def __call__(self, item):
        return item


def apply(held, item):
    return held(item)


def named(item):
    return CROP(item)


HOLDERS = (CROP, closure(CROP), closure(Compose(RESIZE, CROP)), partial(apply, CROP), CROP.__call__, named)


@pytest.mark.parametrize("fn", HOLDERS)
def test_functions_that_hold_one_are_warned_of(fn):
    with pytest.warns(UserWarning, match=r"torchvision\.RandomCrop draws from a generator that threads share"):
        bl.MapDataset(range(3), fn)


def test_datasets_that_hold_one_are_warned_of():
    with pytest.warns(UserWarning, match="RandomCrop"):
        bl.MapDataset(Images(Compose(CROP)))


class TwoViews:
    """As in examples of contrastive learning."""

    def __init__(self, held):
        self.view = held

    def __call__(self, item):
        return self.view(item), self.view(item)


class Augmented:
    def __len__(self):
        return 3

    def __getitem__(self, number):
        return CROP(number)


def test_datasets_that_call_one_themselves_are_warned_of():
    for dataset in (Images(TwoViews(Compose(RESIZE, CROP))), Augmented()):
        with pytest.warns(UserWarning, match="RandomCrop"):
            bl.MapDataset(dataset)


@pytest.mark.parametrize("fn", [RESIZE, closure(RESIZE), closure(transform("RandomCrop", "mine")()), len])
def test_others_are_not(fn):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bl.MapDataset(range(3), fn)
        bl.MapDataset(Images(RESIZE))
