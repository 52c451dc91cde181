"""`BatchOrder`: the batches that a loader forms, and their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from batchloom.arguments import Shuffle, integer
from batchloom.batching.rules import Rule, rule
from batchloom.loader.keywords import DividedKeywords
from batchloom.loader.source import LoaderSamples
from batchloom.loader.torch.lists import EpochLists
from batchloom.plan.options import PlanOptions
from batchloom.samples.bans import read_ban


class BatchOrder:
    """The batches that a loader forms of a source, and their order.

    Attributes:
        options: The options of the plan.
        rule: The rule that makes batches.
        lists: The batches that a sampler gives; ``None`` without one.
        label_counts: The labels of each sample that losses do not ignore, or ``None``.
        shuffle: The random order of samples, as the engine names it.
        shuffles_documents: ``True`` if documents are shuffled.
        generator: The generator that draws the seed, or ``None``.
        draw_seed: Draws the seed when the run begins; ``None`` where it is given.
        is_unseeded: ``True`` if neither a seed nor a generator is given.
        recipe: The arguments by which a copy has the same order.

    Args:
        source: The samples.
        batch_size: Samples in a batch, or ``None``.
        shuffle: The order that the user asked for.
        keywords: The keywords of the loader.

    Raises:
        ArgumentError: Two arguments decide the same, or one has the wrong type.
    """

    def __init__(
        self, source: LoaderSamples, batch_size: int | None, shuffle: Shuffle, keywords: DividedKeywords
    ) -> None:
        self._source, self.label_counts = source, source.label_counts
        torch, seed = keywords.torch.with_seed(keywords.seed)
        number = integer("seed", 0 if seed is None else seed)
        ban = read_ban(keywords.order.get("ban"), source.samples, source.number)
        self.options = PlanOptions(shuffle=shuffle, seed=number, **keywords.order | {"ban": ban})
        batching, drop_last = keywords.batching, self.options.drop_last
        self.lists: EpochLists | None = torch.lists(source.samples, batch_size, batching, shuffle, drop_last)
        self.rule: Rule = rule(batch_size, batching) if self.lists is None else self.lists.at(0)
        self.shuffle, self.shuffles_documents = source.shuffle(shuffle)
        self.generator: Any = torch.generator
        self.draw_seed: Callable[[], int] | None = torch.seed_source(number)
        self.is_unseeded = seed is None and self.draw_seed is None
        self.recipe: dict[str, Any] = vars(torch) | {"ban": ban, "seed": number}
        if self.lists is not None:
            self.recipe[self.lists.name] = self.lists.sampler  # an iterator was read

    def for_engine(self, shard_size: int | None) -> dict[str, Any]:
        """Return the options of the plan as the engine takes them.

        Args:
            shard_size: Samples in a shard, as the delivery decided; ``None`` without shards.

        Raises:
            ArgumentError: An option has the wrong type, or names a field that the samples do not have.
        """
        return self.options.native(self.rule, self._source) | {"shard_size": shard_size}

    @property
    def neighbours(self) -> str:
        """The order, if batches are runs of neighbours; "samples" if samples are drawn or grouped."""
        return self.shuffle if self.options.keeps_neighbours else "samples"

    @property
    def clears_places(self) -> bool:
        """``True`` if samples are banned: their places are cleared in memory, not on a device."""
        return bool(self.options.ban)

    @property
    def has_bans(self) -> bool:
        """``True`` if there is a list of banned samples, though it may be empty."""
        return self.options.ban is not None

    @property
    def has_marks(self) -> bool:
        """``True`` if batches hold marks of the places that only fill up."""
        return self.options.uneven == "mask" or self.has_bans
