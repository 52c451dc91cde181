"""darts: its models train on the samples of their own dataset, each as often an epoch, as the plan orders them."""

import dataclasses
import warnings

import batchloom as bl
import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

pytest.importorskip("darts", reason="scripts/setup --integrations installs it")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(240)]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import pandas
    import torch
    from batchloom.integrations.darts import WindowBatches, window_loader
    from darts import TimeSeries, concatenate
    from darts.models import NLinearModel
    from darts.utils.data import (
        HorizonBasedTorchTrainingDataset,
        SequentialTorchTrainingDataset,
        ShiftedTorchTrainingDataset,
    )
    from darts.utils.data.torch_datasets.utils import TorchTrainingBatch, _batch_collate_fn_train
    from pytorch_lightning import Callback

FIELDS = [field.name for field in dataclasses.fields(TorchTrainingBatch)]


def series(length, number=0, components=1, start="2024-01-01", dtype="float32"):
    """A series whose values are all different, with static covariates."""
    values = 1000.0 * number + numpy.arange(length * components, dtype=dtype).reshape(length, components) + 1
    times = pandas.date_range(start, periods=length)
    return TimeSeries(times, values, static_covariates=pandas.DataFrame({"place": [float(number)]}))


def rows(batches):
    """The samples of batches as flat rows, in an order of their own."""
    found = []
    for batch in batches:
        fields = [value.double().flatten(1) for name in FIELDS if (value := getattr(batch, name)) is not None]
        found += map(tuple, torch.cat(fields, 1).tolist())
    return sorted(found)


def own(dataset):
    """One batch of every sample of darts."""
    return _batch_collate_fn_train([dataset[number] for number in range(len(dataset))])


def same_form(batch, other):
    """Tells whether batches have the same fields, of the same types and shapes."""

    def form(value):
        return None if value is None else (value.dtype, value.shape[1:])

    return all(form(getattr(batch, name)) == form(getattr(other, name)) for name in FIELDS)


@given(
    lengths=st.lists(st.integers(12, 24), min_size=1, max_size=4),
    stride=st.integers(1, 3),
    most=st.sampled_from([None, 1, 4]),
    shift=st.integers(0, 2),
    beside=st.sets(st.sampled_from(["past_covariates", "future_covariates", "sample_weight"])),
    static=st.booleans(),
)
@settings(max_examples=60)
def test_samples_are_those_of_the_dataset(lengths, stride, most, shift, beside, static):
    """Covariates begin at another time, end at another time, and have other types."""
    numbered = list(enumerate(lengths))
    covariates = {
        "past_covariates": [series(length + 9, k, 2, "2023-12-28", "float64") for k, length in numbered],
        "future_covariates": [series(length + 3, k, 3) for k, length in numbered],
        "sample_weight": [series(length, k) for k, length in numbered],
    }
    dataset = SequentialTorchTrainingDataset(
        [series(length, k, 2) for k, length in numbered],
        input_chunk_length=6,
        output_chunk_length=3,
        output_chunk_shift=shift,
        stride=stride,
        max_samples_per_ts=most,
        use_static_covariates=static,
        **{name: covariates[name] for name in beside},
    )
    batches = list(window_loader(dataset, 4))
    assert same_form(batches[0], own(dataset))
    assert rows(batches) == rows([own(dataset)])


@pytest.mark.parametrize("output", [6, 9])
def test_samples_of_recurrent_models(output):
    """Their output begins one step after the input does."""
    dataset = ShiftedTorchTrainingDataset(
        [series(20), series(14, 1)], input_chunk_length=6, output_chunk_length=output, shift=1
    )
    assert rows(window_loader(dataset, 4)) == rows([own(dataset)])


def test_covariates_may_end_where_no_input_takes_them():
    target, past = series(20), series(17, 1)
    dataset = SequentialTorchTrainingDataset(target, past, input_chunk_length=6, output_chunk_length=3)
    assert rows(window_loader(dataset, 4)) == rows([own(dataset)])


def test_batches_come_as_the_plan_says():
    dataset = SequentialTorchTrainingDataset([series(20), series(16, 1)], input_chunk_length=6, output_chunk_length=3)
    ordered = list(window_loader(dataset, 1, shuffle=False))
    loader = window_loader(dataset, 5, seed=3)
    for epoch in range(2):
        for numbers, batch in zip(loader.plan(epoch), loader, strict=True):
            for name in ("past_target", "future_target", "static_covariates"):
                expected = torch.cat([getattr(ordered[number], name) for number in numbers])
                assert torch.equal(getattr(batch, name), expected)


class Seen(Callback):
    """Notes the batches of training and of validation."""

    def __init__(self):
        self.train, self.validation = [], []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.train.append(batch)

    def on_validation_batch_start(self, trainer, pl_module, batch, batch_idx, dataloader_idx=0):
        if not trainer.sanity_checking:
            self.validation.append(batch)


def model(folder, callbacks, **options):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    return NLinearModel(
        6, 3, batch_size=8, n_epochs=2, random_state=1, work_dir=str(folder), model_name="model", save_checkpoints=True,
        force_reset=True, pl_trainer_kwargs={**quiet, "callbacks": callbacks}, **options,
    )  # fmt: skip


def test_fits_go_on_from_checkpoints(tmp_path):
    """Each epoch of a fit is the one of the plan, and a model that was loaded goes on with the next one."""
    train, later = [series(30) / 40, series(22, 1) / 1040], [series(15) / 40]
    dataset = SequentialTorchTrainingDataset(train, input_chunk_length=6, output_chunk_length=3)
    seen = Seen()
    fitted = model(tmp_path, [WindowBatches(seed=2), seen])
    fitted.fit(train, val_series=later, verbose=False)
    loader = window_loader(dataset, 8, seed=2)
    expected = [batch for _ in range(2) for batch in loader]
    assert len(seen.train) == len(expected)
    for batch, other in zip(seen.train, expected, strict=True):
        assert torch.equal(batch.past_target, other.past_target)
    validation = SequentialTorchTrainingDataset(later, input_chunk_length=6, output_chunk_length=3)
    assert rows(seen.validation) == rows([own(validation)] * 2)
    assert len(fitted.predict(3, series=train[0], verbose=False)) == 3

    resumed = NLinearModel.load_from_checkpoint("model", work_dir=str(tmp_path), best=False, trusted=True)
    (seen,) = (each for each in resumed.trainer_params["callbacks"] if isinstance(each, Seen))
    seen.train = []
    resumed.fit(train, val_series=later, epochs=3, verbose=False)
    for batch, other in zip(seen.train, loader, strict=True):
        assert torch.equal(batch.past_target, other.past_target)


def test_saved_models_load_where_the_callback_is_imported(tmp_path):
    fitted = model(tmp_path, [WindowBatches()])
    fitted.fit(series(30) / 40, verbose=False)
    fitted.save(str(tmp_path / "model.pt"))
    assert NLinearModel.load(str(tmp_path / "model.pt")).input_chunk_length == 6


def test_what_cannot_be_is_refused():
    lengths = {"input_chunk_length": 6, "output_chunk_length": 3}
    with refused(bl.ArgumentError, "HorizonBasedTorchTrainingDataset"):
        window_loader(HorizonBasedTorchTrainingDataset(series(40), output_chunk_length=3))
    with refused(bl.ArgumentError, "4", "6"):
        window_loader(SequentialTorchTrainingDataset(series(40), input_chunk_length=(4, 6), output_chunk_length=3))
    with refused(bl.ArgumentError, "3", "1", "6"):
        window_loader(ShiftedTorchTrainingDataset(series(40), **lengths, shift=1))
    with refused(bl.DataError, "series 1", "8", "9"):
        window_loader(SequentialTorchTrainingDataset([series(40), series(8)], **lengths))
    with refused(bl.DataError, "past_covariates 0", "2024-01-30", "2024-02-09"):
        window_loader(SequentialTorchTrainingDataset(series(43), series(30, 1), **lengths))
    with refused(bl.DataError, "series 0", "2"):
        drawn = concatenate([series(40), series(40, 1)], axis="sample")
        window_loader(SequentialTorchTrainingDataset(drawn, **lengths))
