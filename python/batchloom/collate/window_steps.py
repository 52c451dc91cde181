"""The steps of a window that a field holds, counted from the beginning of the window."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# More steps than any series has.
MOST_STEPS = 2**48


@dataclass(frozen=True)
class WindowSteps:
    """Steps of a window: ``count`` of them from ``start`` on, or those that are listed.

    Attributes:
        start: The first step of the window that is needed for them.
        count: The number of steps.
        every: The number of steps from one to the next.
        listed: The steps, where they are not at equal distances.
    """

    start: int
    count: int
    every: int = 1
    listed: tuple[int, ...] | None = None

    @staticmethod
    def of(steps: Iterable[int]) -> WindowSteps:
        """Return these steps, as a range where they form one."""
        numbers = tuple(steps)
        every = numbers[1] - numbers[0] if len(numbers) > 1 else 1
        if every > 0 and numbers == tuple(range(numbers[0], numbers[-1] + 1, every)):
            return WindowSteps(numbers[0], len(numbers), every)
        return WindowSteps(min(numbers), len(numbers), listed=numbers)

    @property
    def numbers(self) -> tuple[int, ...] | range:
        """Each step."""
        return (
            range(self.start, self.start + self.count * self.every, self.every) if self.listed is None else self.listed
        )

    @property
    def covered(self) -> int:
        """The number of neighbouring steps from ``start`` on that hold all of them."""
        if self.listed is not None:
            return max(self.listed) + 1 - self.start
        return (self.count - 1) * self.every + 1 if self.count else 0

    @property
    def are_neighbours(self) -> bool:
        """``True`` if they are one run of steps, in order."""
        return self.listed is None and (self.every == 1 or self.count < 2)

    @property
    def are_strided(self) -> bool:
        """``True`` if they are at equal distances, so that a view of a series can hold them."""
        return self.listed is None

    @property
    def native(self) -> tuple[int, int, int] | list[int]:
        """The steps as the engine takes them."""
        return (self.start, self.count, self.every) if self.listed is None else list(self.listed)
