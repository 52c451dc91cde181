"""Read-only attributes that loaders and samplers share: rule, batch size, seed and more."""

from __future__ import annotations

from abc import abstractmethod

from batchloom.batching.rules import Rule
from batchloom.plan.plan import Plan


class PlanAttributes:
    """Attributes that a loader and a sampler have from their plan, under the names that torch's have."""

    @property
    @abstractmethod
    def batching(self) -> Rule:
        """The rule that makes batches of samples."""

    @abstractmethod
    def plan(self, epoch: int | None = None) -> Plan:
        """Return the plan of an epoch, or of the next iteration."""

    @abstractmethod
    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the next one."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of batches of this rank in a whole epoch."""

    @property
    def batch_size(self) -> int | None:
        """The number of samples in a batch; ``None`` for rules whose batches differ in number."""
        return getattr(self.batching, "batch_size", None)

    @property
    def drop_last(self) -> bool:
        """``True`` if samples that do not fill a batch, and batches that do not fill a step, are left out."""
        return self.plan().drop_last

    @property
    def seed(self) -> int:
        """The seed of the random orders, which depend on the epoch too."""
        return self.plan().seed
