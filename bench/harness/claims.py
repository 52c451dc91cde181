"""Compare measurements with the numbers to reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.harness.measure import LOOM, Timing


@dataclass(frozen=True)
class Claim:
    """A number to reach, and the figure that was measured.

    Attributes:
        text: The claim in words.
        measured: The figure: a median.
        relation: The relation to ``bound`` that is claimed: ">=", "<=" or "<".
        bound: The number to reach.
        best: For a ratio, that of the shortest runs, where a process may be lucky once.
    """

    text: str
    measured: float
    relation: str
    bound: float
    best: float | None = None

    @classmethod
    def of_ratio(cls, text: str, timing: Timing, other: Timing, relation: str, bound: float) -> Claim:
        """Claim how many times the seconds of ``other`` the first takes."""
        return cls(text, timing.ratio(other), relation, bound, timing.best_ratio(other))

    @property
    def reached(self) -> bool:
        """Tell whether the claim holds."""
        holds = {">=": self.measured >= self.bound, "<=": self.measured <= self.bound}
        return {**holds, "<": self.measured < self.bound}[self.relation]

    def record(self) -> dict[str, Any]:
        """Return the JSON's record."""
        return {**vars(self), "reached": self.reached}

    def print(self) -> None:
        """Print the claim, reached or not."""
        verdict = "reached" if self.reached else "NOT REACHED"
        best = "" if self.best is None else f", shortest runs {self.best:.4g}"
        print(f"{verdict:>11}  {self.text}: {self.measured:.4g}{best} (to reach: {self.relation} {self.bound:g})")


def slower(title: str, peer: Timing, loom: Timing, bound: float) -> Claim:
    """Claim that a peer takes so many times batchloom's time at least."""
    return Claim.of_ratio(f"{title}: time of {peer.name}, times batchloom's", peer, loom, ">=", bound)


def all_slower(title: str, timings: dict[str, Timing], bounds: Mapping[str, float]) -> list[Claim]:
    """Claim it of every peer that has a bound and was measured."""
    measured = [name for name in bounds if name in timings]
    return [slower(title, timings[name], timings[LOOM], bounds[name]) for name in measured]


def stated(claims: Sequence[Claim]) -> list[dict[str, Any]]:
    """Print claims, reached or not; return them for the JSON."""
    for claim in claims:
        claim.print()
    return [claim.record() for claim in claims]
