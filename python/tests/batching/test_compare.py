"""Rules side by side: what they say is what their plans say."""

import batchloom as bl
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

RULES = [
    bl.FixedSize(4),
    bl.LengthBuckets(4),
    bl.TokenBudget(200, multiple_of=8),
    bl.CostOptimal(bl.CostModel(10, 1), max_tokens=200),
    bl.Packing(200),
]


@given(st.lists(st.integers(1, 100), min_size=1, max_size=200), st.integers(1, 4))
def test_rules_say_what_their_plans_say(sizes: list[int], world_size: int) -> None:
    found = bl.compare(sizes, RULES, world_size=world_size)
    data = bl.SequenceDataset(ids=[numpy.zeros(size, numpy.int32) for size in sizes])
    for rule, compared in zip(RULES, found.rules, strict=True):
        loader = bl.DataLoader(data, batching=rule, shuffle=True, rank=0, world_size=world_size)
        assert compared.stats == loader.plan().stats()
        assert compared.time is None
        assert compared.rule in str(found)
    least = min(rule.work for rule in found.rules)
    assert found.best.work <= least * 1.005
    assert found.best.rule in found.verdict


def test_rules_are_objects_or_text() -> None:
    sizes = range(1, 101)
    objects, texts = bl.compare(sizes, [bl.TokenBudget(500)]), bl.compare(sizes, ["token-budget:500"])
    assert objects.rules[0].stats == texts.rules[0].stats
    assert objects.rules[0].rule == "token-budget:500"


def test_the_usual_rules_are_all_rules() -> None:
    found = bl.compare(range(1, 101), world_size=2, max_tokens=1000)
    assert [rule.rule.split(":")[0] for rule in found.rules] == [
        "fixed-size",
        "length-buckets",
        "token-budget",
        "token-budget",
        "cost-optimal",
        "packing",
    ]


def test_a_cost_model_decides() -> None:
    cost = bl.CostModel(1.0, 0.001)
    found = bl.compare(range(1, 101), ["fixed-size:10", "fixed-size:50"], cost=cost)
    assert found.best.rule == "fixed-size:50"
    assert all(rule.time == rule.work for rule in found.rules)
    assert found.rules[1].time == pytest.approx(2 + 0.001 * found.rules[1].stats["padded"])


def test_a_dataset_has_its_sizes() -> None:
    data = bl.SequenceDataset(ids=[numpy.zeros(size) for size in (3, 4, 5)])
    assert bl.compare(data, ["packing:12"]).rules[0].stats["tokens"] == 12


def test_it_shows_in_notebooks_and_on_a_page(tmp_path) -> None:
    found = bl.compare(range(1, 101))
    assert found._repr_html_().count("<tr>") == 7
    assert "Comparison of 6 rules" in repr(found)
    found.report(tmp_path / "page.html", "a & b")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<title>a &amp; b</title>" in page
    assert "<h2>Rules</h2>" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rules": ["fixed"]}, 'the rule "fixed" cannot be read'),
        ({"rules": ["token-budget:9,pools=3"]}, 'token-budget has no option "pools"; expected count'),
        ({"rules": []}, "expected a list of rules"),
        ({"rules": bl.FixedSize(3)}, "expected a list of rules"),
        ({"rules": [3]}, "a rule is 3"),
        ({"rules": ["fixed-size:3"], "max_tokens": 3}, "max_tokens is 3 and rules are given"),
        ({"world_size": 0}, "world_size is 0"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"cost": 3}, "cost is 3; expected a CostModel"),
        ({"sizes": bl.TensorDataset(numpy.zeros(4))}, "samples of this TensorDataset have no sizes"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(bl.ArgumentError) as error:
        bl.compare(**{"sizes": [1, 2, 3], **arguments})
    assert message in str(error.value)


@pytest.mark.parametrize("sizes", [[], [-1], [0.5]])
def test_bad_sizes_are_refused(sizes: list) -> None:
    with pytest.raises(bl.DataError):
        bl.compare(sizes)


def test_a_sample_that_is_too_large_is_named() -> None:
    with pytest.raises(bl.DataError, match="sample 2 has size 9"):
        bl.compare([1, 2, 9], ["packing:8"])
