"""PyTorch Forecasting: batches are those of the loader of a ``TimeSeriesDataSet``, value by value."""

import warnings

import batchloom as bl
import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

pytest.importorskip("pytorch_forecasting", reason="scripts/setup --integrations installs it")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(240)]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import pandas
    import torch
    from batchloom.integrations.pytorch_forecasting import window_loader
    from lightning.pytorch import Callback, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint
    from pytorch_forecasting import TemporalFusionTransformer, TimeSeriesDataSet
    from pytorch_forecasting.data import EncoderNormalizer, GroupNormalizer, MultiNormalizer, NaNLabelEncoder


def frame(lengths):
    random = numpy.random.default_rng(0)
    total = sum(lengths)
    return pandas.DataFrame(
        {
            "shop": numpy.repeat([f"s{k}" for k in range(len(lengths))], lengths),
            "day": numpy.concatenate([numpy.arange(length) for length in lengths]),
            "sales": random.normal(5, 1, total),
            "returns": random.normal(size=total),
            "price": random.normal(size=total),
            "kind": random.choice(["a", "b"], total),
            "weight": random.uniform(size=total),
        }
    )


def dataset(lengths=(30, 22, 15), **options):
    found = {
        "time_idx": "day", "target": "sales", "group_ids": ["shop"],
        "max_encoder_length": 8, "max_prediction_length": 3,
        "time_varying_unknown_reals": ["sales"], "time_varying_known_reals": ["price", "day"],
    }  # fmt: skip
    return TimeSeriesDataSet(frame(lengths), **{**found, **options})


def same(found, expected):
    """Compares batches, with everything in them: structures, types, shapes and values."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        found, expected = list(found.values()), list(expected.values())
    if isinstance(expected, list | tuple):
        for pair in zip(found, expected, strict=True):
            same(*pair)
    elif expected is not None:
        # A mean of many rows at once may differ in the last bit from that of each.
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


KINDS = {
    "as it is": {},
    "without a normalizer": {"target_normalizer": None},
    "categories and weights": {
        "static_categoricals": ["shop"], "time_varying_known_categoricals": ["kind"], "weight": "weight",
        "add_relative_time_idx": True, "add_target_scales": True, "add_encoder_length": True,
    },
    "scales of groups": {
        "target_normalizer": GroupNormalizer(groups=["shop"], transformation="softplus"), "add_target_scales": True
    },
    "scales of windows": {"target_normalizer": EncoderNormalizer(), "add_target_scales": True},
    "robust scales of windows": {
        "target_normalizer": EncoderNormalizer(method="robust", max_length=5, transformation="log1p")
    },
    "two targets": {
        "target": ["sales", "returns"], "time_varying_unknown_reals": ["sales", "returns"],
        "target_normalizer": MultiNormalizer([EncoderNormalizer(), GroupNormalizer(groups=["shop"])]),
    },
    "labels": {
        "target": "kind", "time_varying_unknown_reals": [], "time_varying_unknown_categoricals": ["kind"],
        "target_normalizer": NaNLabelEncoder(),
    },
    "lags": {"lags": {"sales": [2, 5]}, "target_normalizer": GroupNormalizer(groups=["shop"])},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_those_of_the_own_loader(kind):
    made = dataset(**KINDS[kind])
    expected = made.to_dataloader(train=False, batch_size=7)
    for pair in zip(window_loader(made, 7, train=False), expected, strict=True):
        same(*pair)


@given(lengths=st.lists(st.integers(11, 25), min_size=1, max_size=4), batch_size=st.integers(1, 9))
@settings(max_examples=20)
def test_batches_of_any_panel(lengths, batch_size):
    made = dataset(lengths, add_relative_time_idx=True)
    expected = made.to_dataloader(train=False, batch_size=batch_size)
    for pair in zip(window_loader(made, batch_size, train=False), expected, strict=True):
        same(*pair)


def test_batches_to_predict_are_those_of_the_own_loader():
    """A dataset that predicts has the last window of each series."""
    made = TimeSeriesDataSet.from_dataset(dataset(), frame((40, 11, 23)), predict=True, stop_randomization=True)
    assert made.predict_mode
    found, expected = window_loader(made, 2, train=False), made.to_dataloader(train=False, batch_size=2)
    assert len(found) == 2
    for pair in zip(found, expected, strict=True):
        same(*pair)


def test_models_predict_from_a_loader_as_from_the_dataset():
    made = dataset()
    model = TemporalFusionTransformer.from_dataset(made, hidden_size=4, hidden_continuous_size=4)
    loader = window_loader(made, 7, train=False)
    assert loader.dataset is made
    quiet = {"logger": False, "enable_model_summary": False, "enable_checkpointing": False, "accelerator": "cpu"}
    found, expected = (
        model.predict(data, batch_size=7, return_index=True, trainer_kwargs=dict(quiet)) for data in (loader, made)
    )
    torch.testing.assert_close(found.output, expected.output)
    assert found.index.equals(expected.index)


def test_batches_come_as_the_plan_says():
    """The samples of the loader are those of the dataset by number, and none is dropped."""
    made = dataset().filter(lambda index: index.shop != "s1")
    loader = window_loader(made, 7, seed=3)
    for epoch in range(2):
        plan = loader.plan(epoch)
        assert sorted(number for numbers in plan for number in numbers) == list(range(len(made)))
        for numbers, batch in zip(plan, loader, strict=True):
            same(batch, made._collate_fn([made[int(number)] for number in numbers]))


def test_arrays_are_borrowed():
    made = dataset(weight="weight")
    loader = window_loader(made, 4, train=False)
    made.data["weight"][:] = 7
    assert all((weight == 7).all() for _, (_, weight) in loader)


class Seen(Callback):
    def __init__(self):
        self.batches = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.batches.append(batch[0]["decoder_time_idx"].tolist())


def test_training_goes_on_from_a_checkpoint(tmp_path):
    made = dataset(add_relative_time_idx=True)

    def fit(checkpoint=None, **options):
        torch.manual_seed(0)
        seen = Seen()
        model = TemporalFusionTransformer.from_dataset(
            made, hidden_size=4, hidden_continuous_size=4, attention_head_size=1, dropout=0.0, log_interval=-1
        )
        callbacks = [seen, *options.pop("callbacks", [])]
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
        trainer = Trainer(**quiet, default_root_dir=tmp_path, max_epochs=2, callbacks=callbacks, **options)
        trainer.fit(model, window_loader(made, 8), ckpt_path=checkpoint, weights_only=False)
        return model, seen.batches

    saving = ModelCheckpoint(dirpath=tmp_path, filename="{step}", every_n_train_steps=2, save_top_k=-1)
    whole, batches = fit(callbacks=[saving])
    loader = window_loader(made, 8)
    assert batches == [x["decoder_time_idx"].tolist() for _ in range(2) for x, _ in loader]
    resumed, rest = fit(str(tmp_path / "step=2.ckpt"), enable_checkpointing=False)
    assert rest == batches[2:]
    for found, expected in zip(resumed.parameters(), whole.parameters(), strict=True):
        assert torch.equal(found, expected)


def test_what_cannot_be_is_refused():
    with refused(bl.ArgumentError, "list", "TimeSeriesDataSet"):
        window_loader([1])
    with refused(bl.ArgumentError, "randomize_length"):
        window_loader(dataset(randomize_length=(0.2, 0.05), min_encoder_length=4))
    with refused(bl.ArgumentError, "11"):
        window_loader(dataset(min_encoder_length=4))
    with refused(bl.ArgumentError, "price", "EncoderNormalizer"):
        window_loader(dataset(scalers={"price": EncoderNormalizer()}))
    gaps = frame([30]).drop(index=12)
    with refused(bl.ArgumentError, "10", "11"):
        window_loader(
            TimeSeriesDataSet(
                gaps,
                "day",
                "sales",
                ["shop"],
                max_encoder_length=8,
                max_prediction_length=3,
                allow_missing_timesteps=True,
            )
        )
    made = dataset()
    made.set_overwrite_values(1.0, variable="price", target="decoder")
    with refused(bl.ArgumentError, "reset_overwrite_values"):
        window_loader(made)
