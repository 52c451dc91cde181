"""Rolling-origin backtests: windows to train on and windows to test on, again and again, each time later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import batchloom._native as _native

Part = TypeVar("Part")


class Backtest(Generic[Part]):
    """The folds of a backtest, as pairs of datasets ``(train, test)``, made by ``WindowDataset.backtest``.

    Folds are made when they are asked for, and share the arrays of the dataset. Folds that need no new model have the
    same ``train``. ``len()`` is the number of folds, and each iteration begins with the first one.
    """

    def __init__(
        self,
        folds: _native.Backtest,
        part: Callable[[_native.Windows, bool], Part],
        scaled: Callable[[Part], Callable[[Part], Part]] | None,
    ) -> None:
        self._folds, self._part, self._scaled = folds, part, scaled

    def __len__(self) -> int:
        return len(self._folds)

    def __iter__(self) -> Iterator[tuple[Part, Part]]:
        """Iterate over the folds.

        Raises:
            DataError: A fold has no window to train on, or to test on.
        """
        train: Part | None = None
        trained_at = -1
        scale: Callable[[Part], Part] = _as_it_is
        for fold in range(len(self)):
            if train is None or self._folds.trained_at(fold) != trained_at:
                train, trained_at = self._part(self._folds.train(fold), False), self._folds.trained_at(fold)
                scale = _as_it_is if self._scaled is None else self._scaled(train)
                train = scale(train)
            yield train, scale(self._part(self._folds.test(fold), True))

    def __repr__(self) -> str:
        return f"Backtest({len(self)} folds)"


def _as_it_is(part: Any) -> Any:
    return part
