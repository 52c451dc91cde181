"""Keras: ``fit``, ``evaluate`` and ``predict`` take a loader, with the batches of its plan in their order.

The backend of Keras is chosen as it is imported, so that each has a process: it goes through all cases, and the tests
compare what each of them saw with plans.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import batchloom as bl
import numpy as np
import pytest

# An import would choose the backend.
if find_spec("keras") is None:
    pytest.skip("scripts/setup --integrations installs Keras", allow_module_level=True)

ROWS = 103

PROGRAM = """
import contextlib
import json
import os
import sys
import warnings

import batchloom as bl
import numpy as np
import torch

backend, folder = sys.argv[1:]
rows = np.arange(103, dtype=np.float32)[:, None]
# Keras is imported after a loader was made.
before = bl.DataLoader(bl.TensorDataset(rows, rows), 10, shuffle=True)
import keras

from batchloom.integrations.keras import ExactBackup

warnings.filterwarnings("error", message=".*ran out of data.*")
found = {}
assert keras.backend.backend() == backend


class Model(keras.Sequential):
    def __init__(self):
        super().__init__([keras.layers.Dense(1, kernel_initializer="ones", use_bias=False)])
        self.trained, self.tested, self.predicted = [], [], []
        optimizer = keras.optimizers.SGD(1e-6, momentum=0.9)
        self.compile(optimizer, "mse", weighted_metrics=["mae"], run_eagerly=True, jit_compile=False)

    def train_step(self, *state_and_data):
        self.trained.append(plain(state_and_data[-1]))
        return super().train_step(*state_and_data)

    def test_step(self, *state_and_data):
        self.tested.append(plain(state_and_data[-1]))
        return super().test_step(*state_and_data)

    def predict_step(self, *state_and_data):
        self.predicted.append(plain(state_and_data[-1]))
        return super().predict_step(*state_and_data)

    @property
    def seen(self):
        return [batch[0] for batch in self.trained]


def plain(data):
    if isinstance(data, dict):
        return {name: plain(field) for name, field in data.items()}
    if isinstance(data, (tuple, list)):
        return [plain(field) for field in data]
    assert type(data).__module__.split(".")[0] in ("numpy", "torch", "jax", "jaxlib"), type(data)
    return np.asarray(data)[:, 0].tolist()


def loader(*fields, **options):
    fields = fields or (rows, rows)
    return bl.DataLoader(bl.TensorDataset(*fields), 10, **{"shuffle": True, "output": backend, **options})


def fit(data, model=None, **options):
    model = model or Model()
    history = model.fit(data, verbose=0, **options)
    return model, history


class Stop(keras.callbacks.Callback):
    def __init__(self, batches):
        super().__init__()
        self.left = batches

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def weights(model):
    return [np.asarray(keras.ops.convert_to_numpy(each)).tolist() for each in model.get_weights()]
"""

CASES = """
class Steps(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        found["steps"] = self.params["steps"]

model, history = fit(before, epochs=3, callbacks=[Steps()])
found["epochs"], found["losses"] = model.seen, len(history.history["loss"])
found["further"] = fit(before, model, epochs=1)[0].seen[33:]
found["built"] = fit(loader(), model, epochs=1)[0].seen[44:]
found["torch data"] = fit(loader(torch.from_numpy(rows), torch.from_numpy(rows), output="torch"))[0].seen
found["numpy data"] = fit(loader(output="numpy"))[0].seen

model = Model()
found["loss"] = model.evaluate(loader(rows, rows + 2), verbose=0)
found["evaluated"] = [batch[0] for batch in model.tested]
found["prediction"] = model.predict(loader(rows, shuffle=False), verbose=0)[:, 0].tolist()
held = loader(rows[:25], rows[:25])
model, history = fit(loader(), epochs=2, validation_data=held)
found["validated"], found["validated losses"] = [batch[0] for batch in model.tested], len(history.history["val_loss"])
model, _ = fit(loader(), epochs=2, validation_data=loader(shuffle=False), validation_steps=2)
found["validated steps"] = [batch[0] for batch in model.tested]

data = loader()
model, _ = fit(data, epochs=3, steps_per_epoch=4)
found["stepwise"], found["place"] = model.seen, data.state_dict()["steps"]
found["stepwise"] += fit(data, epochs=2, steps_per_epoch=15, shuffle=True)[0].seen
found["unshuffled"] = fit(loader(), epochs=4, steps_per_epoch=4, shuffle=False)[0].seen
model = Model()
data = loader(rows, shuffle=False)
for _ in range(2):
    model.predict(data, steps=2, verbose=0)
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    model.predict(data, steps=20, verbose=0)
found["warned"] = sum("ran out of data" in str(each.message) for each in warned)
found["predicted steps"] = [batch[0] for batch in model.predicted]

odd = rows % 2
weighted = loader(rows, rows + 5 - 4 * odd, odd)
found["weighted"] = fit(weighted)[0].trained
found["weighted error"] = Model().evaluate(weighted, verbose=0)[1]
named = bl.TensorDataset(x=rows, y=rows + 1, sample_weight=rows)
found["named"] = fit(bl.DataLoader(named, 10, output=backend))[0].trained
inputs = {name: keras.Input((1,), name=name) for name in ("a", "b")}
several = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Add()(list(inputs.values()))))
several.compile("sgd", "mse")
parts = bl.TensorDataset(a=rows / 100, b=rows / 100, y=rows / 100)
history = several.fit(bl.DataLoader(parts, 10, shuffle=True, output=backend), epochs=2, verbose=0)
found["functional"] = len(history.history["loss"])
found["by name"] = several.predict(bl.DataLoader(bl.TensorDataset(a=rows, b=rows), 10, output=backend), verbose=0).shape

class Lists:
    # Batches of another size in each epoch, which are drawn anew at each reading.

    def __init__(self):
        self.drawn = np.random.default_rng(0)
        self.size = 9

    def __iter__(self):
        self.size += 1
        order = self.drawn.permutation(103)
        lists = [order[start : start + self.size].tolist() for start in range(0, 103, self.size)]
        found.setdefault("lists", []).extend(lists)
        return iter(lists)

bar = []
class Bar(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        bar.append(batch)
data = bl.DataLoader(bl.TensorDataset(rows, rows), batch_sampler=Lists(), output=backend)
found["listed"], found["bar"] = fit(data, epochs=3, callbacks=[Bar()])[0].seen, bar

def turns():
    return bl.interleave({"a": loader(rows, rows, seed=4), "b": loader(-rows[:20], rows[:20], seed=5)}, [2, 1])
run = turns()
found["turns"] = fit(run, epochs=3)[0].seen
run = turns()
next(iter(run))
found["turns left"] = fit(run, epochs=1)[0].seen
found["turns stepwise"] = fit(turns(), epochs=5, steps_per_epoch=4)[0].seen

# A callback of the user's, between epochs.
data, states = loader(), []
class Keep(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        states.append(data.state_dict())
fit(data, epochs=2, callbacks=[Keep()])
again = loader()
again.load_state_dict(states[0])
found["between"] = fit(again, epochs=1)[0].seen
data = loader()
for _ in zip(range(4), data):
    pass
again.load_state_dict(data.state_dict())
found["amid"] = fit(again, epochs=2)[0].seen

def resumed(make, stop, every, **options):
    place = os.path.join(folder, f"{stop}-{len(options)}-{os.path.basename(folder)}")
    data, model = make(), Model()
    backup = ExactBackup(place, data, every=every)
    with contextlib.suppress(KeyboardInterrupt):
        fit(data, model, callbacks=[backup, Stop(stop)], **options)
    files = sorted(os.listdir(place))
    data, again = make(), Model()
    backup = ExactBackup(place, data, every=every)
    fit(data, again, initial_epoch=backup.epoch, callbacks=[backup], **options)
    return [again.seen, weights(again), files, os.listdir(place)]

def whole(make, **options):
    model, _ = fit(make(), **options)
    return [model.seen, weights(model)]

cases = {"passes": (loader, {"epochs": 3}), "steps": (loader, {"epochs": 4, "steps_per_epoch": 7})}
cases["turns"] = turns, {"epochs": 7}
kills = (9, 3), (17, 4), (25, None)
found["resumed"] = {
    name: [whole(make, **options), *(resumed(make, stop, every, **options) for stop, every in kills)]
    for name, (make, options) in cases.items()
}
if backend == "jax":
    # On accelerators, Keras takes a batch ahead of its use.
    import jax

    jax.default_backend = lambda: "gpu"
    found["ahead"] = {
        name: [whole(make, **options), *(resumed(make, stop, 1, **options) for stop in (9, 11, 17))]
        for name, (make, options) in cases.items()
    }

found["refused"] = []
for options, data in [({"y": rows}, loader()), ({"batch_size": 4}, loader()), ({}, loader(rows, rows, rows, rows))]:
    try:
        fit(data, **options)
    except bl.ArgumentError as error:
        found["refused"].append(str(error))
place = os.path.join(folder, "refused")
with contextlib.suppress(bl.ArgumentError):
    ExactBackup(place, loader(), every=0)
    raise AssertionError
os.mkdir(place)
with open(os.path.join(place, "state.json"), "w") as file:
    file.write("{")
with contextlib.suppress(bl.StateError):
    ExactBackup(place, loader())
    raise AssertionError
os.remove(os.path.join(place, "state.json"))
data = loader()
with contextlib.suppress(KeyboardInterrupt):
    fit(data, epochs=2, callbacks=[ExactBackup(place, data), Stop(12)])
for backed, fitted in [(data, data), (loader(), data)]:
    try:
        fit(fitted, epochs=2, callbacks=[ExactBackup(place, backed)])
    except bl.LoaderError as error:
        found["refused"].append(str(error))
with open(os.path.join(folder, "found.json"), "w") as file:
    json.dump(found, file)
"""


@pytest.fixture(scope="module", params=["torch", "jax"])
def found(request, tmp_path_factory):
    """The record of a process with one backend."""
    pytest.importorskip(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    path = folder / "program.py"
    path.write_text(PROGRAM + CASES, encoding="utf-8")
    command = [sys.executable, str(path), request.param, str(folder)]
    environment = {**os.environ, "KERAS_BACKEND": request.param}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads((folder / "found.json").read_text())


pytestmark = pytest.mark.timeout(300)


def loader(rows=ROWS, size=10, **options):
    return bl.DataLoader(bl.TensorDataset(np.arange(rows)), size, **{"shuffle": True, **options})


def planned(*epochs, **options):
    """The batches of epochs."""
    return [batch.tolist() for epoch in epochs for batch in loader(**options).plan(epoch)]


def test_each_epoch_is_the_one_of_the_plan(found):
    """Keras builds a model from a first batch, which is not lost; the last batch of an epoch has three samples."""
    assert found["epochs"] == planned(0, 1, 2)
    assert len(found["epochs"][10]) == 3
    assert found["losses"] == 3
    assert found["steps"] == 11
    assert found["further"] == planned(3)
    assert found["built"] == found["torch data"] == found["numpy data"] == planned(0)


def test_evaluation_and_prediction(found):
    assert found["evaluated"] == planned(0)
    assert found["loss"] == pytest.approx([4, 2])
    assert found["prediction"] == list(range(ROWS))
    assert found["validated"] == planned(0, 1, rows=25)
    assert found["validated losses"] == 2
    assert found["validated steps"] == planned(0, shuffle=False)[:2] * 2


def test_steps_go_on_from_pass_to_pass(found):
    """Also from one ``fit`` to the next, and where one epoch takes more than a pass."""
    assert found["stepwise"] == planned(0, 1, 2, 3)[: 12 + 30]
    assert found["place"] == 12
    assert found["unshuffled"] == planned(0, 1)[:16]


def test_evaluation_begins_anew_and_counts_no_sample_twice(found):
    every = planned(0, shuffle=False)
    assert found["predicted steps"] == every[:2] * 2 + every
    assert found["warned"] == 1


def test_fields_are_arguments_of_fit(found):
    fields = [[batch, [n + 5 - 4 * (n % 2) for n in batch], [n % 2 for n in batch]] for batch in planned(0)]
    assert found["weighted"] == fields
    assert found["weighted error"] == pytest.approx(1)
    every = planned(0, shuffle=False)
    assert found["named"] == [[batch, [n + 1 for n in batch], batch] for batch in every]
    assert found["functional"] == 2
    assert found["by name"] == [ROWS, 1]


def test_epochs_with_other_numbers_of_batches(found):
    assert found["listed"] == found["lists"]
    assert len(found["lists"]) == 11 + 10 + 9
    assert found["bar"] == [*range(11), *range(10), *range(9)]


def test_loaders_that_take_turns(found):
    run = bl.interleave({"a": loader(seed=4), "b": loader(20, seed=5)}, [2, 1])
    signs = {"a": 1, "b": -1}
    epochs = [[[signs[name] * n for n in x.tolist()] for name, (x,) in run] for _ in range(5)]
    assert found["turns"] == [batch for epoch in epochs[:3] for batch in epoch]
    assert found["turns left"] == epochs[1]
    assert found["turns stepwise"] == [batch for epoch in epochs for batch in epoch][:20]


def test_a_state_goes_on(found):
    assert found["between"] == planned(1)
    assert found["amid"] == planned(0, 1)[4:]


@pytest.mark.parametrize("name", ["passes", "steps", "turns"])
@pytest.mark.parametrize("ahead", ["resumed", "ahead"])
def test_a_run_that_was_killed_goes_on_from_its_last_save(found, name, ahead):
    if ahead not in found:
        pytest.skip("torch takes no batch ahead")
    (seen, end), *resumed = found[ahead][name]
    lengths = {"passes": [11, 11, 11], "steps": [7] * 4, "turns": None}[name]
    for stop, (again, reached, files, left) in enumerate(resumed):
        assert again, (name, stop)
        assert again == seen[-len(again) :], (name, stop)
        assert reached == end, (name, stop)
        assert len(files) == 2
        assert left == []
    saved = [len(seen) - len(again) for again, *_ in resumed]
    if lengths and ahead == "resumed":
        # The last save before the kill: every third or fourth batch since the last end of an epoch, or that end.
        ends = np.cumsum(lengths)
        last = [max(end for end in [0, *ends] if end <= stop) for stop in (9, 17, 25)]
        assert saved == [last[0] + (9 - last[0]) // 3 * 3, last[1] + (17 - last[1]) // 4 * 4, last[2]]


def test_what_the_loader_decides_is_refused(found):
    given, size, fields, epoch, other = found["refused"]
    assert "y is given" in given
    assert "batch_size is given" in size
    assert "4 fields" in fields
    assert "3" in fields
    assert "epoch 0" in epoch
    assert "epoch 1" in epoch
    assert "initial_epoch" in epoch
    assert "does not read the loader" in other
