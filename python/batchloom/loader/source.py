"""`LoaderSamples`: the samples of a loader, and the facts about them that later stages need.

The order of batches reads these facts here (`PlanSamples`). All other stages ask the samples of the dataset directly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import batchloom._native as _native
from batchloom.collate.field import FieldOptions
from batchloom.dataset.base import Dataset, refresh, samples_of
from batchloom.dataset.map.map_dataset import MapDataset
from batchloom.dataset.mixture import Mixture, mixed_samples_of
from batchloom.errors import ArgumentError
from batchloom.plan.options import PlanOptions
from batchloom.samples.draws import draws_of
from batchloom.samples.label_counts import as_label_counts


class LoaderSamples:
    """The samples that a loader iterates over.

    Attributes:
        dataset: The dataset.
        held: Its samples, which answer the questions of all stages.
        samples: The number of samples.
        mixture: The mixture that draws from them; ``None`` without one.
        labels: The field with the labels, its next tokens; or ``None``.
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
        dataset = refresh(data.dataset if isinstance(data, Mixture) else data)
        if options.collate is not None:
            dataset = samples_of(dataset).one_by_one(dataset, MapDataset)
        self.dataset: Dataset[Any] = dataset
        self.held = held = samples_of(dataset)
        self.samples = len(held)
        self.labels = labels = options.labels
        if labels is not None and not held.has_next_tokens:
            raise ArgumentError(
                f"labels is {labels!r}; labels= needs sequences, as tokens of sequences have a next one: a "
                f"SequenceDataset, or samples with sizes; this loader batches a {type(dataset).__name__}"
            )
        if labels is not None and not isinstance(labels, str):
            raise ArgumentError(f"labels is {labels!r}; expected None or the name of a field")
        self.label_counts = as_label_counts(options.label_counts)

    @property
    def number(self) -> Callable[[str, int], int] | None:
        """The function that returns the number of a sample of a source; ``None`` where there is one source."""
        return None if self.mixture is None else self.mixture.sample

    def shuffle(self, shuffle: Any) -> tuple[str, bool]:
        """Return the random order as the engine names it, and whether documents are shuffled.

        Raises:
            ArgumentError: ``shuffle`` is an order that the dataset does not have.
        """
        return self.held.shuffle(shuffle)

    def draws(self, options: PlanOptions) -> _native.Draws | None:
        """Return the draws of an epoch; ``None`` if it is every sample once.

        Raises:
            ArgumentError: The mixture has weights of its own.
        """
        if self.mixture is None:
            keys = self.keys("balanced_by", options.balanced_by)
            return draws_of(self.samples, options.weights, options.num_samples, keys, options.per_class)
        for name in ("weights", "balanced_by"):
            if getattr(options, name) is not None:
                raise ArgumentError(f"{name} is given, and the mixture has weights of its own; expected None")
        return mixed_samples_of(self.mixture).draws(options.num_samples, self.labels, self.label_counts)

    def keys(self, option: str, keys: Any) -> Any:
        """Return the key of each sample, which a field may hold; ``"source"`` stands for the sources of a mixture.

        Raises:
            ArgumentError: There is no such field with one number for each sample.
        """
        if not isinstance(keys, str | int) or isinstance(keys, bool):
            return keys
        if keys == "source" and self.mixture is not None:
            return mixed_samples_of(self.mixture).sources()
        return self.held.classes(option, keys)
