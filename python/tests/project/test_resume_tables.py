"""The tables of killed and resumed runs are those of the results, which lose and repeat nothing with batchloom."""

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def table(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    found = importlib.import_module("bench.resume.table")
    yield found
    for name in [name for name in sys.modules if name.partition(".")[0] == "bench"]:
        del sys.modules[name]


def test_the_page_has_the_tables_of_the_results(table):
    page = table.PAGE.read_text(encoding="utf-8")
    found = page.partition(table.START)[2].partition(table.END)[0]
    assert found == "\n" + table.tables(table.cases()), "write them with python -m bench.resume.table"


def test_every_cell_of_batchloom_is_exact(table):
    ours = {(case["trainer"], case["rule"]): case["found"] for case in table.cases() if case["loader"] == "batchloom"}
    alone = {(trainer, rule) for trainer in table.TRAINERS for rule in ("rows", "budget", "packing")}
    assert alone <= set(ours)
    for place, found in ours.items():
        assert set(found) == set(table.COLUMNS)
        for event, said in found.items():
            order = "" if event == "whole" or "ranks" in event else ", same order"
            assert said == f"0 lost, 0 repeated{order}", (place, event)


def test_a_cell_says_what_was_found(table):
    assert table.cell("0 lost, 0 repeated, same order") == "0/0 ="
    assert table.cell("3 lost, 12 repeated, another order (the run ended with an error)") == "3/12 ≠, error"
    assert table.cell("0 lost, 7 repeated") == "0/7"
    assert table.cell("fails (the run ended with an error)") == "error"
    with pytest.raises(ValueError, match="nothing"):
        table.cell("nothing")
