"""`LoaderSamples`: the samples of a loader, and the facts about them that later stages need.

Stages read these facts here: plans need the samples (`PlanSamples`), and fields need the contents of a
sample (`FieldSamples`). The loader and the delivery read the samples of the dataset directly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import batchloom._native as _native
from batchloom.batching.rules import Rule
from batchloom.collate.document_mask import read_block_mask
from batchloom.collate.extras import Extras
from batchloom.collate.field import FieldOptions
from batchloom.collate.field_names import FieldNames, LateFieldNames
from batchloom.collate.schema import BOUNDARIES, LOSS_EXTRAS, MARKS, OWNERS
from batchloom.dataset.base import Dataset, refresh, samples_of
from batchloom.dataset.map.map_dataset import one_by_one
from batchloom.dataset.mixture import Mixture, mixed_samples_of
from batchloom.errors import ArgumentError
from batchloom.plan.options import PlanOptions
from batchloom.samples.draws import draws_of
from batchloom.samples.label_counts import LabelCounts


class LoaderSamples:
    """The samples that a loader iterates over.

    Attributes:
        dataset: The dataset.
        held: Its samples, which answer the questions of the stages.
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
        if options.collate is not None and not samples_of(dataset).location.is_on_demand:
            dataset = one_by_one(dataset)
        self.dataset: Dataset[Any] = dataset
        self.held = samples_of(dataset)
        self.samples = len(self.held)
        self.labels = self._label_field(options.labels)
        self._extras, self._makes_whole = options.extras, options.collate is not None
        self._has_loss, self._has_offsets = options.loss is not None, options.has_offsets
        self._block_mask = read_block_mask(options.block_mask)
        counts = options.label_counts
        self.label_counts = counts if counts is None or isinstance(counts, LabelCounts) else LabelCounts(counts)

    def choose_extras(self, rule: Rule, *, has_marks: bool) -> None:
        """Choose what batches of a rule hold beside the fields of samples.

        Args:
            rule: The rule.
            has_marks: ``True`` if places that only fill up are marked.

        Raises:
            ArgumentError: An extra is named that these batches do not have.
        """
        names = [] if self._makes_whole else self.held.list_extras(rule)
        if self._has_offsets and BOUNDARIES in names:
            names += OWNERS
        names += [name for name in MARKS if has_marks and name not in names]
        names += LOSS_EXTRAS if self._has_loss else ()
        self.held = self.held.with_extras(Extras(tuple(names), self._extras, self._block_mask))

    def _label_field(self, labels: Any) -> str | None:
        """Return the field with the labels, its next tokens."""
        if labels is None:
            return None
        if not self.held.has_next_tokens:
            raise ArgumentError(
                f"labels is {labels!r}; labels= needs sequences, as tokens of sequences have a next one: a "
                f"SequenceDataset, or samples with sizes; this loader batches a {type(self.dataset).__name__}"
            )
        if not isinstance(labels, str):
            raise ArgumentError(f"labels is {labels!r}; expected None or the name of a field")
        return labels

    @property
    def is_on_demand(self) -> bool:
        """``True`` if samples are made when their batch is formed, so that fields are known with the first block."""
        return self.held.location.is_on_demand

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

    def engine(self) -> _native.Dataset:
        """Return the dataset as the engine sees it."""
        return self.held.engine()

    def field_names(self, rule: Rule) -> FieldNames | LateFieldNames:
        """Return the fields of batches of a rule, and the keys that name them in arguments."""
        return self.held.field_names(rule)

    @property
    def batch_types(self) -> Mapping[str, str]:
        """The types of fields in batches, by name, where they are not the types of the data."""
        return self.held.batch_types

    def padded_fields(self) -> Mapping[str, str]:
        """Return the types of the fields that are padded, by name."""
        return self.held.padded_fields()
