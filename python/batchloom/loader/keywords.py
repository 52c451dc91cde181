"""The keywords of a loader, and their division among the stages that they are options of."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy
from batchloom.arguments import require_known
from batchloom.arrays.copying import copy_argument
from batchloom.batching.rules import Rule
from batchloom.collate.field import FieldKeywords, FieldOptions
from batchloom.delivery.options import DeliveryKeywords, DeliveryOptions
from batchloom.loader.torch.options import TorchOptions, TorchRequest, accepted
from batchloom.plan.options import OrderKeywords
from batchloom.ranks.ranks import RankKeywords, RankOptions

if TYPE_CHECKING:
    import torch

    Seed = int | numpy.random.Generator | torch.Generator | None


class LoaderKeywords(OrderKeywords, FieldKeywords, DeliveryKeywords, RankKeywords, TorchOptions, total=False):
    """Keywords of :class:`batchloom.DataLoader`: the options of all of its stages."""

    batching: Rule | None
    seed: Seed


# Attributes of a field that a user may take for keywords of a loader.
OF_FIELDS = ("scale", "mean", "std", "slot", "pad")


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
        for name in (name for name in OF_FIELDS if name in keywords):
            raise TypeError(
                f"DataLoader() got an unexpected keyword argument {name!r}; {name} is an attribute of a field: "
                f"expected fields={{...: bl.Field({name}=...)}}, or fields=bl.Field({name}=...) for the only field"
            )
        require_known("DataLoader", keywords, LoaderKeywords)
        given: dict[str, Any] = {name: copy_argument(value) for name, value in keywords.items()}
        # Arguments of torch that have no effect warn once, not in each copy.
        self.recipe = {name: value for name, value in given.items() if name not in TorchOptions.__annotations__}
        self.torch: TorchRequest = accepted(_chosen(given, TorchOptions))  # type: ignore[arg-type]
        self.batching, self.seed = given.get("batching"), given.get("seed", 0)
        self.order = _chosen(given, OrderKeywords)
        self.fields: FieldOptions = _options(FieldOptions, _chosen(given, FieldKeywords))
        self.delivery: DeliveryOptions = _options(DeliveryOptions, _chosen(given, DeliveryKeywords))
        self.ranks: RankOptions = _options(RankOptions, _chosen(given, RankKeywords))


def _chosen(keywords: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    if not keywords:
        return {}
    return {name: keywords[name] for name in kind.__annotations__ if name in keywords}


def _options(kind: Any, given: dict[str, Any]) -> Any:
    """Return the options of a stage. Loaders that are given none share one value, which does not change."""
    return kind(**given) if given else _defaults(kind)


@cache
def _defaults(kind: Any) -> Any:
    return kind()
