"""neuralforecast: its models train on the windows that they would cut, each once an epoch, as the plan orders them."""

import copy
import pickle
import warnings

import batchloom as bl
import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

pytest.importorskip("neuralforecast", reason="scripts/setup --integrations installs it")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(240)]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import pandas
    import torch
    from batchloom.integrations.neuralforecast import WindowBatches, window_loader
    from neuralforecast import NeuralForecast
    from neuralforecast.losses.pytorch import MAE
    from neuralforecast.models import GRU, MLP, NHITS, TSMixer
    from neuralforecast.tsdataset import TimeSeriesDataModule, TimeSeriesDataset, TimeSeriesLoader
    from pytorch_lightning import Callback, Trainer
    from pytorch_lightning.callbacks import ModelCheckpoint

QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}


@pytest.fixture(autouse=True)
def _root(tmp_path, monkeypatch):
    """Trainers write to a folder of the test."""
    monkeypatch.setitem(QUIET, "default_root_dir", str(tmp_path))


def frame(lengths, **columns):
    """Series of these lengths, whose values are all different, with columns of one value a step besides."""
    total = sum(lengths)
    steps = numpy.concatenate([numpy.arange(length) for length in lengths])
    found = {
        "unique_id": numpy.repeat([f"s{k:03}" for k in range(len(lengths))], lengths),
        "ds": numpy.datetime64("2024-01-01") + steps.astype("timedelta64[D]"),
        "y": numpy.arange(1.0, total + 1),
        "extra": numpy.sin(numpy.arange(total)),
    }
    return pandas.DataFrame(found | columns)


def static(lengths):
    return pandas.DataFrame(
        {"unique_id": [f"s{k:03}" for k in range(len(lengths))], "place": numpy.arange(len(lengths))}
    )


def dataset(lengths, **columns):
    found, *_ = TimeSeriesDataset.from_df(frame(lengths, **columns), static(lengths))
    return found


def model(kind=MLP, *, cut=0, **options):
    """A model that keeps ``cut`` steps of each series for validation."""
    made = kind(**{"h": 3, "input_size": 5, "max_steps": 1, **QUIET, **options})
    made.val_size = cut
    return made


def rows(windows, statics):
    """The windows, each beside the static values of its series, in an order of their own."""
    return sorted(map(tuple, torch.cat([windows.flatten(1), statics], 1).tolist()))


def theirs(made, data):
    """All windows that a model of neuralforecast may train on, or the error that it raises."""
    (batch,) = TimeSeriesLoader(data, batch_size=len(data))
    try:
        windows, statics, _, kept, _, _ = made._create_windows(batch, "train")
    except Exception as error:
        return str(error)
    return rows(windows[kept], statics[kept])


def ours(made, data):
    try:
        batches = list(window_loader(made, data, 4))
    except bl.DataError as error:
        return str(error)
    return rows(
        torch.cat([batch["temporal"].mT for batch in batches]), torch.cat([batch["static"] for batch in batches])
    )


lengths = st.lists(st.integers(1, 20), min_size=1, max_size=5)
shares = st.sampled_from([0.0, 0.4, 1.0])


@given(
    lengths=lengths,
    cut=st.sampled_from([0, 1, 4, 9]),
    padded=st.booleans(),
    step=st.integers(1, 4),
    least=st.tuples(shares, shares),
    missing=st.sampled_from([0.0, 0.3]),
)
@settings(max_examples=60)
def test_windows_are_those_that_the_model_would_cut(lengths, cut, padded, step, least, missing):
    """Of series that are short, that end in the validation part, or whose steps are not all available."""
    masks = numpy.random.default_rng(len(lengths)).random(sum(lengths)) >= missing
    columns = {"available_mask": masks.astype("float32")} if missing else {}
    data = dataset(lengths, **columns)
    made = model(
        cut=cut, start_padding_enabled=padded, step_size=step, training_data_availability_threshold=list(least)
    )
    expected, found = theirs(made, data), ours(made, data)
    assert isinstance(found, str) == isinstance(expected, str), (expected, found)
    assert isinstance(found, str) or found == expected


@pytest.mark.parametrize("h_train", [1, 2, 6])
def test_windows_of_recurrent_models(h_train):
    """They train on another horizon than they predict."""
    made, data = model(GRU, recurrent=True, h_train=h_train), dataset([20, 9, 4])
    trained = copy.copy(made)
    trained.h = h_train
    assert ours(made, data) == theirs(trained, data)


def test_batches_come_as_the_plan_says():
    data = dataset([20, 9, 4, 30])
    loader = window_loader(model(), data, 6, seed=3)
    ordered = [batch["temporal"] for batch in window_loader(model(), data, 1, shuffle=False)]
    for epoch in range(3):
        plan = loader.plan(epoch)
        for numbers, batch in zip(plan, loader, strict=True):
            assert torch.equal(batch["temporal"], torch.cat([ordered[number] for number in numbers]))
        assert torch.equal(loader.replay(epoch, 2)["temporal"], torch.cat([ordered[number] for number in plan[2]]))


def test_batches_are_those_of_the_own_loader_in_form():
    data = dataset([20, 9])
    (own,) = TimeSeriesLoader(data, batch_size=2)
    batch = next(iter(window_loader(model(), data, 6)))
    assert batch.keys() == own.keys()
    assert batch["temporal"].shape == (6, own["temporal"].shape[1], 8)
    assert batch["temporal"].dtype == own["temporal"].dtype
    assert batch["temporal_cols"] is data.temporal_cols


def test_series_are_borrowed():
    """Windows within series are cut from the data of neuralforecast itself."""
    data = dataset([20, 9])
    loader = window_loader(model(), data, 100, shuffle=False)
    data.temporal[:] = -1
    (batch,) = loader
    within = 2 * (data.temporal.shape[0] // 2 - 7) - 1
    assert (batch["temporal"][:within] == -1).all()


def test_a_loader_pickles_with_its_place():
    loader = window_loader(model(), dataset([20, 9]), 4)
    batches = iter(loader)
    next(batches)
    restored = pickle.loads(pickle.dumps(loader))
    rest = [batch["temporal"] for batch in batches]
    assert [batch["temporal"].tolist() for batch in restored] == [each.tolist() for each in rest]


class Seen(Callback):
    """Notes what a model is given in each step."""

    def __init__(self):
        self.batches, self.sizes = [], []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.batches.append(batch["temporal"].clone())

    def on_validation_start(self, trainer, pl_module):
        self.sizes.append((pl_module.val_size, pl_module.test_size))


def test_fit_of_neuralforecast_takes_each_window_once_an_epoch():
    """With validation, static and other columns, and two epochs of the plan; the model is as before after that."""
    sizes = [40, 25, 12]
    seen = Seen()
    callbacks = [WindowBatches(batch_size=16, seed=5), seen]
    made = NHITS(
        h=3, input_size=5, max_steps=10, stat_exog_list=["place"], hist_exog_list=["extra"], scaler_type="standard",
        val_check_steps=4, windows_batch_size=100, callbacks=callbacks, **QUIET,
    )  # fmt: skip
    forecast = NeuralForecast([made], freq="D")
    forecast.fit(frame(sizes), static_df=static(sizes), val_size=6)
    fitted = forecast.models[0]
    # The callbacks of the fit are copies or the same: whichever the model holds has seen its batches.
    (seen,) = (each for each in fitted.trainer_kwargs["callbacks"] if isinstance(each, Seen))
    loader = window_loader(model(cut=6), dataset(sizes), 16, seed=5)
    expected = [batch["temporal"] for _ in range(3) for batch in loader][:10]
    assert len(seen.batches) == 10 > len(loader)
    assert all(torch.equal(*pair) for pair in zip(seen.batches, expected, strict=True))
    assert set(seen.sizes) == {(6, 0)}
    assert fitted.windows_batch_size == 100
    assert isinstance(fitted.padder_train, torch.nn.ConstantPad1d)
    assert forecast.predict().shape == (9, 3)


def test_training_on_a_batch_is_that_of_the_model():
    """The loss of a step equals that of neuralforecast's own windows, drawn the same."""
    data = dataset([30, 12])
    made = model(cut=4, loss=MAE(), windows_batch_size=None)
    (batch,) = TimeSeriesLoader(data, batch_size=2)
    made.log = lambda *arguments, **options: None
    expected = made.training_step(batch, 0)
    callback = WindowBatches()
    trainer = Trainer(**QUIET, enable_checkpointing=False, max_steps=1)
    trainer.datamodule = TimeSeriesDataModule(data)
    made._trainer = None
    callback.setup(trainer, made, "fit")
    (ours,) = window_loader(made, data, 10_000, shuffle=False)
    callback.on_train_batch_start(trainer, made, ours, 0)
    found = made.training_step(ours, 0)
    callback.teardown(trainer, made, "fit")
    torch.testing.assert_close(found, expected)
    assert made.val_size == 4


def test_checkpoints_of_the_trainer_go_on_exactly(tmp_path):
    """To the same batches and the same weights, from the middle of an epoch and from its end."""
    data = dataset([40, 25])

    def fit(steps, checkpoint=None, **options):
        made, seen = model(max_steps=steps, num_layers=1, hidden_size=8), Seen()
        callbacks = [WindowBatches(batch_size=16), seen, *options.pop("callbacks", [])]
        trainer = Trainer(**QUIET, max_steps=steps, callbacks=callbacks, **options)
        trainer.fit(made, datamodule=TimeSeriesDataModule(data), ckpt_path=checkpoint, weights_only=False)
        return made, seen.batches

    steps = len(window_loader(model(), data, 16))
    saving = ModelCheckpoint(dirpath=tmp_path, filename="{step}", every_n_train_steps=1, save_top_k=-1)
    whole, batches = fit(2 * steps, callbacks=[saving])
    for step in (2, steps, steps + 1):
        resumed, rest = fit(2 * steps, str(tmp_path / f"step={step}.ckpt"), enable_checkpointing=False)
        assert [batch.tolist() for batch in rest] == [batch.tolist() for batch in batches[step:]]
        for found, expected in zip(resumed.parameters(), whole.parameters(), strict=True):
            assert torch.equal(found, expected)


def test_a_model_is_as_before_after_an_error():
    class Break(Callback):
        def on_train_batch_end(self, *arguments):
            raise KeyError("stop")

    made = model(max_steps=5, callbacks=[WindowBatches(batch_size=8), Break()], windows_batch_size=77)
    with pytest.raises(KeyError):
        made.fit(dataset([40, 25]), val_size=4)
    assert (made.windows_batch_size, made.val_size) == (77, 4)
    assert isinstance(made.padder_train, torch.nn.ConstantPad1d)


def test_what_cannot_be_is_refused():
    data = dataset([20, 20])
    with refused(bl.ArgumentError, "TSMixer", "multivariate"):
        window_loader(model(TSMixer, n_series=2), data)
    with refused(bl.ArgumentError, "list", "TimeSeriesDataset"):
        window_loader(model(), [1])
    with refused(bl.ArgumentError, "output", "uneven='mask'"):
        window_loader(model(), data, output="numpy", uneven="mask")
    with refused(bl.DataError, "20", "30", "6"):
        window_loader(model(cut=30), data)
    with refused(bl.DataError, "5", "3"):
        window_loader(model(training_data_availability_threshold=1.0), dataset([20], available_mask=numpy.zeros(20)))
    with refused(bl.ArgumentError, "NoneType", "TimeSeriesDataModule"):
        Trainer(**QUIET, enable_checkpointing=False, callbacks=[WindowBatches()]).fit(
            model(), TimeSeriesLoader(data, batch_size=2)
        )
