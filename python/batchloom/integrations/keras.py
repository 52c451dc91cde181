"""Keras: a callback that saves a run with the place of its loader, and resumes it with the next batch.

A loader passed to ``fit``, ``evaluate`` or ``predict`` needs nothing from here. Keras saves no place in data, and its
own ``BackupAndRestore`` begins an epoch anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from batchloom.errors import ArgumentError, LoaderError, StateError
from batchloom.integrations.keras_adapter import LoaderAdapter, adapter_of
from batchloom.integrations.requirement import require
from batchloom.loader.interleave import Interleaved
from batchloom.loader.loader import DataLoader

require("keras", "3.8")

import keras  # noqa: E402

STATE = "state.json"


class ExactBackup(keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    """Saves model, optimizer and loader in one step, and resumes from the last save.

        backup = ExactBackup("backup", loader, every=500)
        model.fit(loader, epochs=10, initial_epoch=backup.epoch, callbacks=[backup])

    The same lines begin a run and resume it. Each epoch is saved as it ends, and the files are deleted when ``fit``
    ends. After a resume in the middle of an epoch, logs of that epoch count the batches of its rest.

    Args:
        folder: The folder of the files, used by one run.
        loader: The loader that ``fit`` gets.
        every: The number of batches after which to save in the middle of an epoch; ``None`` for ends of epochs alone.

    Attributes:
        epoch: The epoch that the run begins or resumes with, for ``initial_epoch``.

    Raises:
        ArgumentError: The number of batches makes no sense.
        StateError: The file in the folder is damaged.
    """

    def __init__(
        self, folder: str | os.PathLike[str], loader: DataLoader[Any] | Interleaved, *, every: int | None = None
    ) -> None:
        super().__init__()
        self._folder, self._loader = Path(folder), loader
        if every is not None and (type(every) is not int or every < 1):
            raise ArgumentError(f"every is {every!r}; expected a number of batches from 1, or None for ends of epochs")
        self._every = every
        self._saved = self._read()
        self.epoch: int = 0 if self._saved is None else self._saved["epoch"]
        # The batches that were used since fit() began, and of them before the epoch under way.
        self._used = self._before = 0
        # The epoch under way, its steps before the resume, and the batches since the last save.
        self._current = self._skipped = self._unsaved = 0
        self._is_first = True

    def on_train_begin(self, logs: Any = None) -> None:
        """Load what was saved, if anything was."""
        self._used, self._unsaved, self._is_first = 0, 0, True
        adapter, saved = self._adapter(), self._saved
        if saved is None:
            return
        model = self.model
        if model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        model.load_weights(self._folder / saved["weights"])
        self._loader.load_state_dict(saved["loader"])
        self._skipped = saved["batch"]
        adapter.skip_steps(self._skipped)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Note the epoch.

        Raises:
            LoaderError: The first epoch is not the one that was saved.
        """
        if self._is_first and self._saved is not None and epoch != self.epoch:
            raise LoaderError(
                f"fit() begins with epoch {epoch}, and {self._folder} holds a run in epoch {self.epoch}; expected "
                "initial_epoch=backup.epoch in fit(), or an empty folder for a new run"
            )
        self._current, self._before, self._is_first = epoch, self._used, False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Save in the middle of an epoch."""
        adapter, before = self._adapter(), self._used
        # Keras counts the batches of a last call of several steps as if all were there.
        self._used = min(self._before + batch + 1, adapter.handed)
        self._unsaved += self._used - before
        done = self._used - self._before
        if self._every is not None and self._unsaved >= self._every and done < adapter.length:
            self._save(adapter, self._current, self._skipped + done)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Save the end of an epoch."""
        self._skipped = 0
        self._save(self._adapter(), epoch + 1, 0)

    def on_train_end(self, logs: Any = None) -> None:
        """Delete the files: the run is over."""
        (self._folder / STATE).unlink(missing_ok=True)
        self._delete_weights(except_for=None)
        self._saved, self.epoch = None, 0

    def _save(self, adapter: LoaderAdapter, epoch: int, batch: int) -> None:
        """Save the run; a process that is killed here leaves the save before."""
        self._unsaved = 0
        waiting = adapter.handed - self._used
        place = self._loader.state_dict(batches=-waiting) if waiting else self._loader.state_dict()
        weights = f"epoch-{epoch}-batch-{batch}.weights.h5"
        self._folder.mkdir(parents=True, exist_ok=True)
        self.model.save_weights(self._folder / weights, overwrite=True)
        state = {"epoch": epoch, "batch": batch, "weights": weights, "loader": place}
        written = self._folder / f"{STATE}.written"
        written.write_text(json.dumps(state), encoding="utf-8")
        written.replace(self._folder / STATE)
        self._delete_weights(except_for=weights)

    def _read(self) -> dict[str, Any] | None:
        """Return what was saved."""
        path = self._folder / STATE
        if not path.exists():
            return None
        try:
            saved: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if saved.keys() >= {"epoch", "batch", "weights", "loader"}:
                return saved
        except (ValueError, AttributeError):
            pass
        raise StateError(f"{path} is damaged; expected the file that ExactBackup wrote, or none for a new run")

    def _delete_weights(self, *, except_for: str | None) -> None:
        for path in self._folder.glob("epoch-*-batch-*.weights.h5"):
            if path.name != except_for:
                path.unlink()

    def _adapter(self) -> LoaderAdapter:
        """Return the adapter by which Keras reads the loader.

        Raises:
            LoaderError: Keras reads another one.
        """
        adapter = adapter_of(self._loader)
        if adapter is None:
            raise LoaderError(f"fit() does not read the loader of this callback, {self._loader!r}; expected the same")
        return adapter
