"""States that are damaged or of another run: an error, and the loader stays as it was."""

import batchloom as bl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.runs import Run, listed
from refusals import plain_values, refused


def state(**changes):
    """A state in mid-epoch, changed."""
    loader = Run(100, 7, seed=5).loader(world_size=2)
    batches = iter(loader)
    next(batches), next(batches), next(batches)
    changed = loader.state_dict() | changes
    return {key: value for key, value in changed.items() if value is not None}


def test_the_state_that_the_others_are_made_of_loads():
    loader = Run(100, 7, seed=1).loader(world_size=2)
    loader.load_state_dict(state())
    assert listed(loader) == Run(100, 7, seed=5).seen(0, 2)[3:]


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"version": 2}, ("version", "2", "1")),
        ({"version": 0}, ("version", "0", "1")),
        ({"version": "1"}, ("version", "'1'")),
        ({"version": -1}, ("version", "-1")),
        ({"version": 2**40}, ("version", str(2**40))),
        ({"fingerprint": "0" * 32}, ("fingerprint", "0" * 32)),
        ({"fingerprint": ""}, ("fingerprint",)),
        ({"fingerprint": 5}, ("fingerprint", "5")),
        ({"seed": 6}, ("fingerprint",)),
        ({"seed": -1}, ("seed", "-1")),
        ({"seed": 1.0}, ("seed", "1.0")),
        ({"seed": 2**64}, ("seed", str(2**64))),
        ({"epoch": -1}, ("epoch", "-1")),
        ({"epoch": "0"}, ("epoch", "'0'")),
        ({"batches": 7}, ("7", "6")),
        ({"batches": 0}, ("0", "6")),
        ({"batches": 2.5}, ("batches", "2.5")),
        ({"batches": "6"}, ("batches", "'6'")),
        ({"worlds": []}, ("6", "0")),
        ({"worlds": [[2, 4]]}, ("6", "8")),
        ({"worlds": [[0, 3]]}, ("world", "0")),
        ({"worlds": [[2, 9]]}, ("9", "8")),
        ({"worlds": [[2, 2**64 - 1]]}, (str(2**64 - 1),)),
        ({"worlds": [[2, 2**64]]}, ("worlds", str(2**64))),
        ({"worlds": [[2**32, 3]]}, (str(2**32),)),
        ({"worlds": [[2**64 - 1, 2**64 - 1]]}, (str(2**64 - 1),)),
        ({"worlds": [[-2, 3]]}, ("worlds", "-2")),
        ({"worlds": [[2, 3], [3]]}, ("worlds", "[3]")),
        ({"worlds": [[2, 3, 4]]}, ("worlds", "[2, 3, 4]")),
        ({"worlds": [2, 3]}, ("worlds", "[2, 3]")),
        ({"worlds": {"2": 3}}, ("worlds",)),
        ({"worlds": "none"}, ("worlds", "none")),
        ({"version": None}, ("version", "missing")),
        ({"fingerprint": None}, ("fingerprint", "missing")),
        ({"seed": None}, ("seed", "missing")),
        ({"epoch": None}, ("epoch", "missing")),
        ({"batches": None}, ("batches", "missing")),
        ({"worlds": None}, ("worlds", "missing")),
    ],
    ids=str,
)
def test_states_that_are_damaged(changes, parts):
    loader = Run(100, 7, seed=5).loader(world_size=2)
    loader.set_epoch(3)
    before = loader.state_dict(), loader.plan(), len(loader)
    with refused(bl.StateError, *parts):
        loader.load_state_dict(state(**changes))
    assert (loader.state_dict(), loader.plan(), len(loader)) == before


@pytest.mark.parametrize("found", [None, [], "state", 5, [("version", 1)], b"{}"])
def test_states_that_are_no_dicts(found):
    with refused(bl.StateError, type(found).__name__, "dict"):
        Run(100, 7).loader().load_state_dict(found)


def test_an_empty_state():
    with refused(bl.StateError, "missing"):
        Run(100, 7).loader().load_state_dict({})


@pytest.mark.parametrize(
    "other",
    [
        Run(101, 7, seed=5),
        Run(100, 8, seed=5),
        Run(100, 7, seed=5, shuffle=False),
        Run(100, 7, seed=5, drop_last=True),
        Run(100, 7, seed=5, uneven="short"),
    ],
    ids=str,
)
def test_states_of_another_plan(other):
    loader = other.loader(world_size=2)
    before = loader.state_dict()
    with refused(bl.StateError, "fingerprint", state()["fingerprint"]):
        loader.load_state_dict(state())
    assert loader.state_dict() == before


@given(changes=st.dictionaries(st.sampled_from(sorted(state())), plain_values, min_size=1))
def test_any_damage_is_a_state_error_or_a_state(changes):
    loader = Run(100, 7, seed=5).loader(world_size=2)
    before = loader.state_dict()
    try:
        loader.load_state_dict(state() | changes)
    except bl.StateError:
        assert loader.state_dict() == before
    else:
        expected = len(loader)
        assert len(list(loader)) == expected
