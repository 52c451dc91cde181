"""Trains N-HiTS of darts on 100 series, with its own loader and with batchloom's windows, and forecasts a week.

The model, the trainer, the series and the forecast are darts'; one argument of the model changes its batches. Both
models begin with the same weights, and train on every window once.

    python examples/forecast_darts.py
"""

import logging
import time
import warnings

import numpy
import pandas
from batchloom.integrations.darts import WindowBatches
from darts import TimeSeries
from darts.models import NHiTSModel

SERIES, STEPS, INPUT, HORIZON = 100, 150, 28, 7
QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}


def panel() -> list[TimeSeries]:
    """Return the sales of shops, with a week of their own and noise, near 1."""
    random = numpy.random.default_rng(0)
    days = pandas.date_range("2024-01-01", periods=STEPS)
    weeks = random.normal(scale=0.5, size=(SERIES, 7))[:, numpy.arange(STEPS) % 7]
    sales = (1 + weeks + random.normal(scale=0.1, size=weeks.shape)).astype(numpy.float32)
    return [TimeSeries.from_times_and_values(days, values) for values in sales]


def error(series: list[TimeSeries], callbacks: list[WindowBatches]) -> tuple[float, float]:
    """Return the mean absolute error of the last week, and the seconds of training."""
    model = NHiTSModel(
        INPUT,
        HORIZON,
        num_blocks=1,
        num_layers=1,
        layer_widths=64,
        n_epochs=1,
        batch_size=128,
        random_state=1,
        pl_trainer_kwargs={**QUIET, "callbacks": callbacks},
    )
    train = [each[:-HORIZON] for each in series]
    start = time.perf_counter()
    model.fit(train, verbose=False)
    seconds = time.perf_counter() - start
    forecasts = model.predict(HORIZON, series=train, verbose=False)
    gaps = [abs(found.values() - each.values()[-HORIZON:]) for found, each in zip(forecasts, series, strict=True)]
    return float(numpy.mean(gaps)), seconds


def main() -> None:
    """Train twice, and print both errors."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    series = panel()
    for name, callbacks in (("darts' loader", []), ("batchloom's windows", [WindowBatches()])):
        mean, seconds = error(series, callbacks)
        print(f"{name}: mean absolute error {mean:.3f} of {SERIES * HORIZON} days, trained in {seconds:.1f} s")


if __name__ == "__main__":
    main()
