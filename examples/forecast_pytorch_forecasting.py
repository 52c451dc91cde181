"""Trains a transformer of PyTorch Forecasting on 100 series, with its own loader and with batchloom's windows.

The model, the trainer, the dataset and the forecast are PyTorch Forecasting's; its loader of training windows is
replaced. Both models begin with the same weights, and train on every window three times.

    python examples/forecast_pytorch_forecasting.py
"""

import logging
import time
import warnings
from typing import Any

import lightning.pytorch as lightning
import numpy
import pandas
from batchloom.integrations.pytorch_forecasting import window_loader
from pytorch_forecasting import TemporalFusionTransformer, TimeSeriesDataSet
from pytorch_forecasting.data import GroupNormalizer
from pytorch_forecasting.metrics import MAE

SERIES, STEPS, INPUT, HORIZON, BATCH = 100, 150, 28, 7, 128
QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}


def panel() -> pandas.DataFrame:
    """Return the sales of shops, with a week of their own and noise, near 1."""
    random = numpy.random.default_rng(0)
    shop, day = numpy.repeat(numpy.arange(SERIES), STEPS), numpy.tile(numpy.arange(STEPS), SERIES)
    week = random.normal(scale=0.5, size=(SERIES, 7))[shop, day % 7]
    sales = 1 + week + random.normal(scale=0.1, size=len(shop))
    return pandas.DataFrame({"shop": shop.astype(str), "day": day, "sales": sales})


def windows_of(frame: pandas.DataFrame) -> TimeSeriesDataSet:
    """Return the windows of a frame."""
    return TimeSeriesDataSet(
        frame,
        "day",
        "sales",
        ["shop"],
        max_encoder_length=INPUT,
        min_encoder_length=INPUT,
        max_prediction_length=HORIZON,
        time_varying_unknown_reals=["sales"],
        target_normalizer=GroupNormalizer(groups=["shop"]),
        add_relative_time_idx=True,
    )


def error(train: TimeSeriesDataSet, frame: pandas.DataFrame, batches: Any) -> tuple[float, float]:
    """Return the mean absolute error of the last week, and the seconds of training."""
    lightning.seed_everything(1, verbose=False)
    model = TemporalFusionTransformer.from_dataset(
        train, hidden_size=8, hidden_continuous_size=8, attention_head_size=1, loss=MAE(), learning_rate=0.01
    )
    trainer = lightning.Trainer(max_epochs=3, accelerator="cpu", **QUIET)
    start = time.perf_counter()
    trainer.fit(model, batches)
    seconds = time.perf_counter() - start
    last = TimeSeriesDataSet.from_dataset(train, frame, predict=True, stop_randomization=True)
    found = model.predict(
        window_loader(last, BATCH, train=False), return_y=True, trainer_kwargs={**QUIET, "accelerator": "cpu"}
    )
    return float((found.output - found.y[0]).abs().mean()), seconds


def main() -> None:
    """Train twice, and print both errors."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    frame = panel()
    train = windows_of(frame[frame["day"] < STEPS - HORIZON])
    loaders = (
        ("PyTorch Forecasting's loader", train.to_dataloader(train=True, batch_size=BATCH)),
        ("batchloom's windows", window_loader(train, BATCH)),
    )
    for name, batches in loaders:
        mean, seconds = error(train, frame, batches)
        print(f"{name}: mean absolute error {mean:.3f} of {SERIES * HORIZON} days, trained in {seconds:.1f} s")


if __name__ == "__main__":
    main()
