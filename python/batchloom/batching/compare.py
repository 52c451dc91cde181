"""Comparison of rules on the lengths of samples: what each costs, and which is best."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import batchloom._native as _native
from batchloom.arguments import U32, U64, integer
from batchloom.batching.cost_model import CostModel, coefficients
from batchloom.batching.rules import RULES, Rule, engine_rule
from batchloom.errors import ArgumentError
from batchloom.samples.sizes import HasSizes, NamedSizes, read_named_sizes


@dataclass(frozen=True)
class Compared:
    """A rule, and what it costs.

    Attributes:
        rule: The rule as text, such as ``token-budget:16384``.
        stats: The statistics of its plan: see :meth:`batchloom.Plan.stats`.
        time: The time of an epoch by the cost model; ``None`` if none was given.
        waiting: The share of the ranks' time that is spent waiting for the slowest of a step: by the cost model, or
            without one by elements, which leaves out attention.
        balanced: The same share if ``balance`` chooses the batches of a step by the cost model; ``None`` without one,
            or with one rank.
        work: The time, or without a cost model, the elements that all ranks compute or wait for.
        planned: The seconds that it took to plan an epoch.
    """

    rule: str
    stats: dict[str, Any]
    time: float | None
    waiting: float
    balanced: float | None
    work: float
    planned: float


class Comparison:
    """Rules side by side. It prints as a table, and shows as one in notebooks.

    Attributes:
        rules: The cost of each rule, in the order in which rules were given.
        best: The rule of least work, of those that deliver every sample whole if there are some.
        verdict: The best rule and the reason, as a sentence.
    """

    def __init__(self, native: _native.Comparison) -> None:
        self._native = native
        self.rules = tuple(Compared(*rule) for rule in native.rules())
        self.best = self.rules[native.best()]
        self.verdict = native.verdict()

    def report(self, path: str | os.PathLike[str], title: str = "Batching rules") -> None:
        """Write a self-contained HTML page that shows the lengths and the rules."""
        with open(path, "w", encoding="utf-8") as page:
            page.write(self._native.page(title))

    def __str__(self) -> str:
        return self._native.text()

    def __repr__(self) -> str:
        return f"<Comparison of {len(self.rules)} rules; {self.verdict}>"

    def _repr_html_(self) -> str:
        return self._native.html()


def compare(
    sizes: Any,
    rules: Sequence[Rule | str] | None = None,
    *,
    world_size: int = 1,
    max_tokens: int | None = None,
    cost: CostModel | None = None,
) -> Comparison:
    """Compare rules on the sizes of samples, by planning a shuffled epoch with each.

        print(bl.compare(lengths, world_size=8))
        bl.compare(dataset, [bl.FixedSize(64), "token-budget:16384,multiple_of=64"]).best.rule

    The command ``batchloom compare`` prints the same table for the lengths of a file.

    Args:
        sizes: The size of each sample, or a dict of sizes by name, the first of which rules sort by; or a dataset whose
            samples have sizes.
        rules: The rules, as objects or as text; all of them at equal tokens a batch, unless given.
        world_size: The ranks that share an epoch.
        max_tokens: The elements of a batch, if no rules are given; by default 64 times the mean length.
        cost: The cost of a batch, by which rules are then compared; otherwise they are by the elements that all ranks
            compute or wait for.

    Raises:
        ArgumentError: A rule or a number is invalid, or ``max_tokens`` is given beside ``rules``.
        DataError: There are no sizes, or a sample is larger than a rule allows.
    """
    if rules is not None and max_tokens is not None:
        raise ArgumentError(f"max_tokens is {max_tokens} and rules are given; expected one of them")
    native = _native.compare(
        _sizes_of(sizes).borrow(),
        None if rules is None else _rules(rules),
        integer("world_size", world_size, least=1, most=U32),
        None if max_tokens is None else integer("max_tokens", max_tokens, least=1, most=U64),
        coefficients(cost),
    )
    return Comparison(native)


def _sizes_of(sizes: Any) -> NamedSizes:
    """Return the sizes of a dataset, or those that were given."""
    named = sizes.named_sizes() if isinstance(sizes, HasSizes) else read_named_sizes(sizes, most_dimensions=9)
    if named is None:
        kind = type(sizes).__name__
        raise ArgumentError(f"samples of this {kind} have no sizes; expected some that differ in length")
    return named


def _rules(rules: Sequence[Rule | str]) -> list[_native.Rule]:
    if isinstance(rules, (str, *RULES)) or not len(rules):
        raise ArgumentError(f"rules are {rules!r}; expected a list of rules, with at least one")
    for rule in rules:
        if not isinstance(rule, (str, *RULES)):
            raise ArgumentError(f'a rule is {rule!r}; expected one such as FixedSize(64) or "token-budget:16384"')
    return [_native.Rule.of_text(rule) if isinstance(rule, str) else engine_rule(rule) for rule in rules]
