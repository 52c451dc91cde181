"""Columns by name, by pattern, joined and renamed: against a slow definition, and what is refused."""

import re

import batchloom as bl
import pytest
from batchloom.formats.columns import SHOWN, ChosenColumn, choose_columns
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

HOUSES = ["f0", "f1", "f10", "g", "target"]


def choose(columns, available=HOUSES):
    return choose_columns(available, columns, "houses.parquet")


def one(name):
    return ChosenColumn((name,))


def test_all_columns_are_fields_by_default():
    assert list(choose(None).items()) == [(name, one(name)) for name in HOUSES]


def test_a_list_chooses_in_its_own_order():
    assert list(choose(["target", "f1"]).items()) == [("target", one("target")), ("f1", one("f1"))]
    assert choose("g") == {"g": one("g")}
    assert list(choose(["target", "f*"])) == ["target", "f0", "f1", "f10"]


def test_a_dict_names_fields_and_joins_columns():
    chosen = choose({"x": "f*", "y": "target", "both": ["g", "f0"], "single": ["g"], "again": "target"})
    assert chosen == {
        "x": ChosenColumn(("f0", "f1", "f10"), joined=True),
        "y": one("target"),
        "both": ChosenColumn(("g", "f0"), joined=True),
        "single": ChosenColumn(("g",), joined=True),
        "again": one("target"),
    }
    assert chosen["x"].name == "f0"


def test_a_column_may_have_the_name_of_a_pattern():
    available = ["f*", "f1", "x[0]"]
    assert choose({"x": "f*"}, available) == {"x": one("f*")}
    assert choose(["x[0]"], available) == {"x[0]": one("x[0]")}
    assert choose({"x": ["f*", "f1"]}, available) == {"x": ChosenColumn(("f*", "f1"), joined=True)}


names = st.lists(st.text("ab*?", min_size=1, max_size=3), min_size=1, max_size=8, unique=True)


@given(available=names, pattern=st.text("ab*?", min_size=1, max_size=3))
def test_patterns_are_those_of_shells(available, pattern):
    """By a regular expression that is written out."""
    spelled = "".join({"*": ".*", "?": "."}.get(letter, re.escape(letter)) for letter in pattern)
    fits = [name for name in available if re.fullmatch(spelled, name)]
    if pattern in available:
        assert choose({"x": pattern}, available) == {"x": one(pattern)}
    elif fits and not {"*", "?"}.isdisjoint(pattern):
        assert choose({"x": pattern}, available) == {"x": ChosenColumn(tuple(fits), joined=True)}
        assert list(choose([pattern], available)) == fits
    else:
        with refused(bl.ArgumentError, "houses.parquet", repr(pattern)):
            choose({"x": pattern}, available)


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        (["targte"], ["houses.parquet", "'targte'", "did you mean 'target'"]),
        ({"y": "Target"}, ["'Target'", "'target'"]),
        ({"x": ["f0", "f7"]}, ["'f7'"]),
        ({"x": "h*"}, ["'h*'", "'f0'", "'target'"]),
        (["zzz"], ["'zzz'", "'f0'"]),
        ([], ["[]", "'f0'"]),
        ({}, ["{}", "'f0'"]),
        ({"x": []}, ["columns['x']", "'f0'"]),
        (["g", "g"], ["columns", "'g'", "twice"]),
        ({"x": ["f*", "f1"]}, ["columns['x']", "'f1'", "twice"]),
        (7, ["columns", "7"]),
        ([7], ["columns", "7"]),
        ({"x": 7}, ["columns['x']", "7"]),
        ({7: "g"}, ["field", "7"]),
        ({"x": b"g"}, ["columns['x']", "b'g'"]),
    ],
    ids=str,
)
def test_what_chooses_no_column_is_refused(columns, values):
    with refused(bl.ArgumentError, *values):
        choose(columns)


def test_files_without_columns_or_with_a_name_twice():
    with refused(bl.DataError, "houses.parquet", "no columns"):
        choose(None, [])
    with refused(bl.DataError, "houses.parquet", "'a'", "twice"):
        choose(["a"], ["a", "b", "a"])


def test_few_of_many_columns_are_listed():
    with refused(bl.ArgumentError, "'f0'", f"{100 - SHOWN} more"):
        choose(["none"], [f"f{k}" for k in range(100)])
