"""The cost of a batch from its shape: given, counted from the shape of a model, or fitted to measurements."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Real

import batchloom._native as _native
from batchloom.arguments import boolean, integer
from batchloom.errors import ArgumentError

# The coefficients of a cost model, which are options in the text of a rule.
COEFFICIENTS = ("fixed", "per_token", "per_pair")

# The length at which attention costs as much as all else, by default.
CROSSOVER = 24_576


@dataclass(frozen=True)
class Fit:
    """The fit of a cost model to measurements.

    Attributes:
        shapes: The shapes that were run: (samples, length).
        seconds: The time of each shape: the least of its runs.
        predicted: The time of each shape by the model.
        error: The median of the relative errors.
        worst: The largest relative error.
    """

    shapes: tuple[tuple[int, int], ...]
    seconds: tuple[float, ...]
    predicted: tuple[float, ...]
    error: float
    worst: float

    def __str__(self) -> str:
        rows = [
            f"{samples:>8} x {length:<8} {measured * 1e3:>12.3f} {said * 1e3:>12.3f} {said / measured - 1:>+8.0%}"
            for (samples, length), measured, said in zip(self.shapes, self.seconds, self.predicted, strict=True)
        ]
        head = f"{'samples':>8} x {'length':<8} {'measured/ms':>12} {'model/ms':>12} {'error':>8}"
        return "\n".join([head, *rows, f"median error {self.error:.1%}, largest {self.worst:.1%}"])


@dataclass(frozen=True)
class CostModel:
    """The cost of a batch of ``n`` samples padded to ``L``: ``fixed + per_token * n * L + per_pair * n * L**2``.

    Samples that are concatenated have their own lengths: ``fixed + per_token * sum(L) + per_pair * sum(L**2)``.

    ``fixed`` is the cost of every batch, independent of its contents (reading the weights, launching kernels), and
    ``per_pair`` the cost of attention. The unit does not matter. :func:`batchloom.calibrate` measures the cost of your
    model, :meth:`of` counts the operations of a transformer, and :meth:`default` is about a language model of 7 billion
    parameters.

    Attributes:
        fit: The fit to measurements, for models that were calibrated.

    Raises:
        ArgumentError: A coefficient is negative or not a finite number, or all are 0.
    """

    fixed: float = 0.0
    per_token: float = 0.0
    per_pair: float = 0.0
    fit: Fit | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in COEFFICIENTS:
            object.__setattr__(self, name, _cost(name, getattr(self, name)))
        if not (self.fixed or self.per_token or self.per_pair):
            raise ArgumentError("fixed, per_token and per_pair are 0; expected a cost in at least one of them")

    def cost(self, samples: int, length: int) -> float:
        """Return the cost of a batch of ``samples`` samples padded to ``length``."""
        return self.fixed + samples * length * (self.per_token + self.per_pair * length)

    def packed_cost(self, tokens: int, squares: int) -> float:
        """Return the cost of a batch of concatenated samples.

        Both sums are integers, so neither the order of the samples nor the platform changes a bit of the cost.

        Args:
            tokens: The sum of the lengths.
            squares: The sum of the squares of the lengths.
        """
        return self.fixed + (self.per_token * tokens + self.per_pair * squares)

    @classmethod
    def default(cls) -> CostModel:
        """Return the cost model that is used where a cost is needed and none is given.

        A token costs 1, and attention costs as much as all else in a sample of 24 576 tokens. That is a transformer of
        width 4096, as models of 7 billion parameters are, by the count of :meth:`of`.
        """
        return cls(per_token=1.0, per_pair=1.0 / CROSSOVER)

    @classmethod
    def of(
        cls,
        *,
        hidden_size: int,
        layers: int,
        intermediate_size: int | None = None,
        gated: bool = False,
        heads: int = 1,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        experts_per_token: int = 1,
        vocab_size: int = 0,
        causal: bool = False,
    ) -> CostModel:
        """Return the cost of a transformer: its floating-point operations, forward.

            bl.CostModel.of(
                hidden_size=4096, layers=32, intermediate_size=14_336, gated=True, heads=32, kv_heads=8
            )

        Backward, each kind of operation costs about twice as much again, so the model is as good for a step of
        training. Operations are no times: attention may run at another speed than matrices of weights.
        :func:`batchloom.calibrate` measures both.

        Args:
            hidden_size: The width of a layer.
            layers: The number of layers.
            intermediate_size: The width of the hidden layer of a feed-forward block, of one expert if there are
                several. ``None`` for four times ``hidden_size``.
            gated: Count three matrices in a feed-forward block, the third of a gate, and not two.
            heads: The heads of queries.
            kv_heads: The heads of keys and values, which divide ``heads``. ``None`` for as many.
            head_dim: The width of a head. ``None`` for queries as wide as the layer, all heads together.
            experts_per_token: The feed-forward blocks that a token passes in a layer, shared ones included.
            vocab_size: The size of the vocabulary that is scored.
            causal: Count the pairs of a token and one before it alone, for kernels that skip the other half.

        Raises:
            ArgumentError: A number is below 1, or ``heads`` is no multiple of ``kv_heads``.
        """
        queries = integer("heads", heads, least=1)
        optional = (("intermediate_size", intermediate_size), ("head_dim", head_dim), ("kv_heads", kv_heads))
        given = {name: None if value is None else integer(name, value, least=1) for name, value in optional}
        per_token, per_pair = _native.transformer_cost(
            integer("hidden_size", hidden_size, least=1),
            integer("layers", layers, least=1),
            given["intermediate_size"],
            boolean("gated", gated),
            (queries, queries if given["kv_heads"] is None else given["kv_heads"]),
            given["head_dim"],
            integer("experts_per_token", experts_per_token, least=1),
            integer("vocab_size", vocab_size),
            boolean("causal", causal),
        )
        return cls(per_token=per_token, per_pair=per_pair)


def coefficients(cost: CostModel | None) -> tuple[float, float, float] | None:
    """Return the coefficients of the argument ``cost``; ``None`` without a model.

    Raises:
        ArgumentError: It is no cost model.
    """
    if cost is None:
        return None
    if not isinstance(cost, CostModel):
        raise ArgumentError(f"cost is {cost!r}; expected a CostModel, or None")
    return cost.fixed, cost.per_token, cost.per_pair


def _cost(name: str, value: object) -> float:
    """Return ``value`` as a finite float of at least 0."""
    try:
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < 0:
        raise ArgumentError(f"{name} is {value!r}; expected a finite number of at least 0")
    return number
