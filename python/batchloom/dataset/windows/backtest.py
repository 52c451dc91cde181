"""Rolling-origin backtests: windows to train on and windows to test on, again and again, each time later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import batchloom._native as _native
from batchloom.arguments import integer
from batchloom.collate.window_steps import MOST_STEPS

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
        scale: Callable[[Part], Part] = _keep
        for fold in range(len(self)):
            if train is None or self._folds.trained_at(fold) != trained_at:
                train, trained_at = self._part(self._folds.train(fold), False), self._folds.trained_at(fold)
                scale = _keep if self._scaled is None else self._scaled(train)
                train = scale(train)
            yield train, scale(self._part(self._folds.test(fold), True))

    def __repr__(self) -> str:
        return f"Backtest({len(self)} folds)"


def _keep(part: Any) -> Any:
    return part


def read_folds(
    windows: _native.Windows, start: _native.PartEnd, horizon: int, stride: Any, refit: Any, train_len: Any
) -> _native.Backtest:
    """Return the folds of a backtest.

    Args:
        windows: The windows of a dataset.
        start: The first origin.
        horizon: The steps of each test part.
        stride: Steps from one origin to the next; ``None`` for ``horizon``.
        refit: ``True``, ``False`` or a number of folds, after which the training part moves up.
        train_len: The steps of the training part; ``None`` for all before the origin.

    Raises:
        ArgumentError: A number that makes no sense, or a start that lies outside the series.
    """
    return windows.backtest(
        start,
        horizon=horizon,
        stride=horizon if stride is None else integer("stride", stride, least=1, most=MOST_STEPS),
        refit=int(refit) if isinstance(refit, bool) else integer("refit", refit, least=1, most=MOST_STEPS),
        train_len=None if train_len is None else integer("train_len", train_len, least=1, most=MOST_STEPS),
    )
