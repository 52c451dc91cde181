"""Trains a temporal fusion transformer of PyTorch Forecasting on 100 series, with its loader and with batchloom's.

The frame is read and encoded by the library's ``TimeSeriesDataSet``, and the model and the trainer are its own; the
loader that is passed to ``fit`` is another. Both models begin with the same weights, and take as many steps.

    python examples/forecast_pytorch_forecasting.py
"""

import logging
import time
import warnings
from typing import Any

import lightning.pytorch
import numpy
import pandas
import torch
from batchloom.integrations.pytorch_forecasting import window_loader
from pytorch_forecasting import TemporalFusionTransformer, TimeSeriesDataSet
from pytorch_forecasting.metrics import MAE

SERIES, STEPS, INPUT, HORIZON, BATCH, TRAINED = 100, 100, 28, 7, 64, 80
QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}


def panel() -> tuple[TimeSeriesDataSet, TimeSeriesDataSet]:
    """Return the sales of shops, with a week of their own and noise: those to train on, and the last week."""
    random = numpy.random.default_rng(0)
    shop, day = numpy.repeat(numpy.arange(SERIES), STEPS), numpy.tile(numpy.arange(STEPS), SERIES)
    week = random.normal(size=(SERIES, 7))[shop, day % 7]
    sales = 10 + 2 * week + random.normal(scale=0.3, size=len(shop))
    frame = pandas.DataFrame({"shop": shop.astype(str), "day": day, "sales": sales, "weekday": (day % 7).astype(str)})
    train = TimeSeriesDataSet(
        frame[frame["day"] < STEPS - HORIZON],
        time_idx="day",
        target="sales",
        group_ids=["shop"],
        max_encoder_length=INPUT,
        max_prediction_length=HORIZON,
        time_varying_known_categoricals=["weekday"],
        time_varying_unknown_reals=["sales"],
        add_relative_time_idx=True,
    )
    return train, TimeSeriesDataSet.from_dataset(train, frame, predict=True, stop_randomization=True)


def error(train: TimeSeriesDataSet, test: TimeSeriesDataSet, batches: Any) -> tuple[float, float]:
    """Return the mean absolute error of the last week, and the seconds of training."""
    lightning.pytorch.seed_everything(1, verbose=False)
    model = TemporalFusionTransformer.from_dataset(
        train, hidden_size=8, attention_head_size=1, learning_rate=0.02, loss=MAE(), log_interval=-1
    )
    trainer = lightning.pytorch.Trainer(**QUIET, enable_checkpointing=False, max_steps=TRAINED, max_epochs=-1)
    start = time.perf_counter()
    trainer.fit(model, batches)
    seconds = time.perf_counter() - start
    model.eval()
    with torch.no_grad():
        ((x, (y, _)),) = window_loader(test, SERIES, train=False)
        return float((model(x)["prediction"][..., 0] - y).abs().mean()), seconds


def main() -> None:
    """Train twice, and print both errors."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    train, test = panel()
    loaders = {
        "PyTorch Forecasting's loader": train.to_dataloader(train=True, batch_size=BATCH),
        "batchloom's windows": window_loader(train, BATCH, drop_last=True),
    }
    for name, batches in loaders.items():
        mean, seconds = error(train, test, batches)
        print(f"{name}: mean absolute error {mean:.3f} of {SERIES * HORIZON} days, trained in {seconds:.1f} s")


if __name__ == "__main__":
    main()
