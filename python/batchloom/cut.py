"""How samples share a batch: the rules that ``DataLoader(batching=...)`` takes."""

from dataclasses import dataclass

from batchloom.arguments import whole


@dataclass(frozen=True)
class FixedSize:
    """Batches of ``batch_size`` samples, in order; the last one holds what is left.

    ``DataLoader(dataset, batch_size=64)`` is short for ``batching=FixedSize(64)``.

    Raises:
        ArgumentError: ``batch_size`` is not at least 1.
    """

    batch_size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch_size", whole("batch_size", self.batch_size, least=1))
