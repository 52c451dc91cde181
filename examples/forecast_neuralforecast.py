"""Trains NHITS of neuralforecast on 100 series, with its own loader and with batchloom's windows, and forecasts a week.

The model, the trainer, the frame and the forecast are neuralforecast's; one argument of the model changes its batches.
Both models begin with the same weights and take as many steps of as many windows.

    python examples/forecast_neuralforecast.py
"""

import logging
import time
import warnings

import numpy
import pandas
from batchloom.integrations.neuralforecast import WindowBatches
from neuralforecast import NeuralForecast
from neuralforecast.models import NHITS

SERIES, STEPS, INPUT, HORIZON = 100, 400, 28, 7
QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}


def panel() -> pandas.DataFrame:
    """Return the sales of shops, with a week of their own and noise."""
    random = numpy.random.default_rng(0)
    shop, day = numpy.repeat(numpy.arange(SERIES), STEPS), numpy.tile(numpy.arange(STEPS), SERIES)
    week = random.normal(size=(SERIES, 7))[shop, day % 7]
    sales = 10 + shop / 20 + 2 * week + random.normal(scale=0.3, size=len(shop))
    start = numpy.datetime64("2024-01-01")
    return pandas.DataFrame({"unique_id": shop, "ds": start + day.astype("timedelta64[D]"), "y": sales})


def error(train: pandas.DataFrame, test: pandas.DataFrame, callbacks: list[WindowBatches]) -> tuple[float, float]:
    """Return the mean absolute error of the last week, and the seconds of training."""
    model = NHITS(
        HORIZON,
        INPUT,
        max_steps=150,
        windows_batch_size=256,
        scaler_type="standard",
        random_seed=1,
        callbacks=callbacks,
        **QUIET,
    )
    forecast = NeuralForecast([model], freq="D")
    start = time.perf_counter()
    forecast.fit(train)
    seconds = time.perf_counter() - start
    found = forecast.predict().merge(test, on=["unique_id", "ds"])
    return float((found["NHITS"] - found["y"]).abs().mean()), seconds


def main() -> None:
    """Train twice, and print both errors."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    frame = panel()
    is_last = frame["ds"] > frame["ds"].max() - pandas.Timedelta(days=HORIZON)
    train, test = frame[~is_last], frame[is_last]
    for name, callbacks in (("neuralforecast's loader", []), ("batchloom's windows", [WindowBatches()])):
        mean, seconds = error(train, test, callbacks)
        print(f"{name}: mean absolute error {mean:.3f} of {len(test)} days, trained in {seconds:.1f} s")


if __name__ == "__main__":
    main()
