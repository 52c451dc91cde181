"""`Source`: the samples of a loader, and the facts about them that later stages need.

Stages read these facts here, and `Source` reads them from the dataset: plans need the samples (`PlanSource`), fields
need the contents of a sample (`FieldSource`), and the loader needs the dataset as the engine sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import batchloom._native as _native
from batchloom.batching.rules import Rule
from batchloom.collate.field import FieldOptions
from batchloom.collate.field_names import FieldNames, LateFieldNames
from batchloom.collate.fields import Fields
from batchloom.dataset.base import Dataset, Memory
from batchloom.dataset.map.map_dataset import samples_of
from batchloom.dataset.mixture import Mixture
from batchloom.errors import ArgumentError
from batchloom.plan.options import PlanOptions
from batchloom.samples.draws import draws_of
from batchloom.samples.label_counts import LabelCounts


class Source:
    """The samples that a loader iterates over.

    Attributes:
        dataset: The samples.
        mixture: The mixture that draws from them; ``None`` without one.
        labels: The field whose next tokens are labels, or ``None``.
        label_counts: The labels of each sample that losses do not ignore, or ``None``.

    Args:
        data: A dataset, or a mixture of datasets.
        options: The options about fields.

    Raises:
        ArgumentError: A function makes whole batches, and batches of the dataset are more than lists of its samples;
            or labels are named, and samples have no tokens.
    """

    def __init__(self, data: Dataset[Any] | Mixture, options: FieldOptions) -> None:
        self.mixture = data if isinstance(data, Mixture) else None
        dataset = (data.dataset if isinstance(data, Mixture) else data)._current()
        if options.collate is not None and not dataset._is_on_demand:
            dataset = samples_of(dataset)
        self.dataset: Dataset[Any] = dataset
        self.labels = dataset._labels(options.labels)
        counts = options.label_counts
        self.label_counts = counts if counts is None or isinstance(counts, LabelCounts) else LabelCounts(counts)

    @property
    def samples(self) -> int:
        """The number of samples."""
        return len(self.dataset)

    @property
    def is_on_demand(self) -> bool:
        """``True`` if samples are made when their batch is formed, so that fields are known with the first block."""
        return self.dataset._is_on_demand

    @property
    def number(self) -> Callable[[str, int], int] | None:
        """The function that returns the number of a sample of a source; ``None`` where there is one source."""
        return None if self.mixture is None else self.mixture.sample

    def shuffle(self, shuffle: Any) -> tuple[str, bool]:
        """Return the random order as the engine names it, and whether documents are shuffled.

        Raises:
            ArgumentError: ``shuffle`` is an order that the dataset does not have.
        """
        return self.dataset._shuffled(shuffle)

    def draws(self, options: PlanOptions) -> _native.Draws | None:
        """Return the draws of an epoch; ``None`` if it is every sample once.

        Raises:
            ArgumentError: The mixture has weights of its own.
        """
        if self.mixture is None:
            keys = self.keys("balanced_by", options.balanced_by)
            return draws_of(self.samples, options.weights, options.num_samples, keys)
        for name in ("weights", "balanced_by"):
            if getattr(options, name) is not None:
                raise ArgumentError(f"{name} is given, and the mixture has weights of its own; expected None")
        return self.mixture._draws(options.num_samples, self.labels, self.label_counts)

    def keys(self, option: str, keys: Any) -> Any:
        """Return the key of each sample, which a field may hold; ``"source"`` stands for the sources of a mixture.

        Raises:
            ArgumentError: There is no such field with one number for each sample.
        """
        if not isinstance(keys, str | int) or isinstance(keys, bool):
            return keys
        if keys == "source" and self.mixture is not None:
            return self.mixture._sources()
        return self.dataset._classes(option, keys)

    def engine(self) -> _native.Dataset:
        """Return the dataset as the engine sees it."""
        return self.dataset._native_dataset()

    def for_loader(self, threads: int | None, fields: Fields) -> tuple[_native.Dataset, Memory | None]:
        """Return the dataset for one loader, and where blocks have to lie, if that matters.

        Args:
            threads: The threads of the loader; ``None`` for as many as it takes by itself.
            fields: The treatment of each field.
        """
        return self.dataset._for_loader(threads, fields)

    def field_names(self, rule: Rule) -> FieldNames | LateFieldNames:
        """Return the fields of batches of a rule, and the keys by which arguments name them."""
        return self.dataset._field_names(rule)

    def padded_fields(self) -> Mapping[str, str]:
        """Return the types of the fields that are padded, by name."""
        return self.dataset._padded_fields
