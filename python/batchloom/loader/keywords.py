"""The keywords of a loader, and their division among the stages that they are options of."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy
from batchloom.arguments import require_known
from batchloom.arrays.copying import copy_argument
from batchloom.batching.rules import Rule
from batchloom.collate.field import FieldKeywords, FieldOptions
from batchloom.delivery.options import DeliveryKeywords, DeliveryOptions
from batchloom.loader.torch.options import TorchOptions, TorchRequest, read_torch_options
from batchloom.plan.options import OrderKeywords
from batchloom.ranks.ranks import RankKeywords, RankOptions

if TYPE_CHECKING:
    import torch

    Seed = int | numpy.random.Generator | torch.Generator | None


class LoaderKeywords(OrderKeywords, FieldKeywords, DeliveryKeywords, RankKeywords, TorchOptions, total=False):
    """Keywords of :class:`batchloom.DataLoader`: the options of all of its stages."""

    batching: Rule | None
    seed: Seed


# The keywords of each stage, and the stage of each keyword; a loader itself has a rule and a seed.
KINDS: tuple[Any, ...] = (OrderKeywords, FieldKeywords, DeliveryKeywords, RankKeywords, TorchOptions, LoaderKeywords)
KIND_OF: dict[str, Any] = {name: kind for kind in reversed(KINDS) for name in kind.__annotations__}

# Attributes of a field that a user may take for keywords of a loader.
OF_FIELDS = frozenset(("scale", "mean", "std", "slot", "pad"))


Class = TypeVar("Class", bound=type)


class FixedOption:
    """An option of the plan as an attribute of a loader: it cannot be set, which would have no effect."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, loader: object | None, kind: type) -> NoReturn:
        raise AttributeError(f"{kind.__name__} has no attribute {self._name!r}; its plan() has options")

    def __set__(self, loader: object, value: object) -> NoReturn:
        kind, name = type(loader).__name__, self._name
        raise AttributeError(
            f"{name} of a {kind} is fixed when the {kind} is made; expected a new one, {kind}(..., {name}=...), which "
            "goes on where this one is with load_state_dict(loader.state_dict())"
        )


def fix_options(kind: Class) -> Class:
    """Decorate a class of loaders: options of the plan that are no attributes of it cannot be set."""
    for name in ("shuffle", *OrderKeywords.__annotations__):
        if not hasattr(kind, name):
            setattr(kind, name, FixedOption(name))
    return kind


def divide(keywords: LoaderKeywords) -> DividedKeywords:
    """Return the keywords of a loader by stage. Loaders without keywords share one value, which does not change."""
    return DividedKeywords(keywords) if keywords else _divide_nothing()


@cache
def _divide_nothing() -> DividedKeywords:
    return DividedKeywords({})


class DividedKeywords:
    """The keywords that a user gave a loader, by stage.

    Attributes:
        recipe: Copies of all of them: later changes in place reach neither the loader nor its pickles.
        batching: The rule, or ``None``.
        seed: The seed.
        order: The options of the plan but ``shuffle`` and ``seed``.
        fields: The options about fields.
        delivery: The options about the place of batches.
        ranks: The ranks.
        torch: The arguments of torch's loader that have a use.

    Raises:
        ArgumentError: An option of fields or of the delivery has the wrong type.
        TypeError: A keyword is no option.
    """

    def __init__(self, keywords: LoaderKeywords) -> None:
        for name in OF_FIELDS & keywords.keys():
            raise TypeError(
                f"DataLoader() got an unexpected keyword argument {name!r}; {name} is an attribute of a field: "
                f"expected fields={{...: bl.Field({name}=...)}}, or fields=bl.Field({name}=...) for the only field"
            )
        require_known("DataLoader", keywords, LoaderKeywords, others=("batch_size", "shuffle"))
        given: dict[Any, dict[str, Any]] = {kind: {} for kind in KINDS}
        for name, value in keywords.items():
            given[KIND_OF[name]][name] = copy_argument(value)
        # Arguments of torch that have no effect warn once, not in each copy.
        torch = given.pop(TorchOptions)
        self.recipe = {name: value for options in given.values() for name, value in options.items()}
        self.torch: TorchRequest = read_torch_options(torch)  # type: ignore[arg-type]
        self.batching, self.seed = given[LoaderKeywords].get("batching"), given[LoaderKeywords].get("seed", 0)
        self.order = given[OrderKeywords]
        self.fields: FieldOptions = _options(FieldOptions, given[FieldKeywords])
        self.delivery: DeliveryOptions = _options(DeliveryOptions, given[DeliveryKeywords])
        self.ranks: RankOptions = _options(RankOptions, given[RankKeywords])


def _options(kind: Any, given: dict[str, Any]) -> Any:
    """Return the options of a stage. Loaders that are given none share one value, which does not change."""
    return kind(**given) if given else _defaults(kind)


@cache
def _defaults(kind: Any) -> Any:
    return kind()
