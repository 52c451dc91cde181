"""Lightning: a loader passed to ``fit`` is all there is to it, and what would lose batches is refused."""

import json
import os
import socket
import subprocess
import sys

import pytest

pytest.importorskip("lightning", reason="scripts/setup --integrations installs it")

HEAD = """
import json
import os
import sys
import warnings

warnings.simplefilter("ignore")
import lightning
import numpy
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

import batchloom as bl
from batchloom.integrations.lightning import ExactEpochs


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(1, 1), []

    def training_step(self, batch, index):
        x = batch[0] if isinstance(batch, tuple) else batch["tokens"].float()
        samples = x[:, 0].tolist() if isinstance(batch, tuple) else batch["index"].tolist()
        self.seen.append((self.trainer.current_epoch, [int(sample) for sample in samples]))
        return self.layer(x.mean().reshape(1, 1)).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-6)


def trainer(**options):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    usual = {"devices": 1, "enable_checkpointing": False, "default_root_dir": sys.argv[1]}
    return lightning.Trainer(**{**quiet, **usual, **options})


rows = bl.TensorDataset(torch.arange(100.0)[:, None])
"""


@pytest.fixture
def program(tmp_path):
    """Run a program from a file of its own, as Lightning's launchers need; return what it wrote to files, by name.

    It is run once, or by a process for each environment at the same time.
    """

    def run(code, environments=({},), timeout=100):
        path = tmp_path / "program.py"
        path.write_text(HEAD + code, encoding="utf-8")
        command = [sys.executable, str(path), str(tmp_path)]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started = [subprocess.Popen(command, env={**os.environ, **more}, **options) for more in environments]
        ended = [process.communicate(timeout=timeout) for process in started]
        for process, (said, errors) in zip(started, ended, strict=True):
            assert process.returncode == 0, said[-2000:] + errors[-4000:]
        return {file.stem: json.loads(file.read_text()) for file in tmp_path.glob("*.json")}

    return run


def free_port():
    """A port that nothing listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def test_each_epoch_is_the_one_of_the_plan(program):
    """Lightning calls ``iter`` before the first epoch; that spends nothing."""
    program(
        """
loader, model = bl.DataLoader(rows, 10, shuffle=True), Model()
bar = trainer(max_epochs=3)
bar.fit(model, loader)
assert bar.num_training_batches == 10
for epoch in range(3):
    trained = [samples for number, samples in model.seen if number == epoch]
    assert trained == [batch.tolist() for batch in loader.plan(epoch)], epoch

limited = Model()
trainer(max_epochs=2, limit_train_batches=4).fit(limited, bl.DataLoader(rows, 10, shuffle=True))
assert [epoch for epoch, _ in limited.seen] == [0] * 4 + [1] * 4
expected = [batch.tolist() for epoch in range(2) for batch in loader.plan(epoch)[:4]]
assert [samples for _, samples in limited.seen] == expected
"""
    )


DEALT = """
class Write(Callback):
    def on_train_end(self, trainer, module):
        path = sys.argv[1] + f"/rank{trainer.global_rank}.json"
        open(path, "w").write(json.dumps(module.seen))

if __name__ == "__main__":
    loader = bl.DataLoader(rows, 10, shuffle=True)
    trainer(devices=2, max_epochs=2, callbacks=[Write()], **STRATEGY).fit(Model(), loader)
"""


def assert_disjoint(found):
    """Each epoch of two ranks holds each of 100 rows once."""
    for epoch in range(2):
        ranks = [
            [sample for number, samples in found[f"rank{rank}"] if number == epoch for sample in samples]
            for rank in (0, 1)
        ]
        assert [len(rank) for rank in ranks] == [50, 50]
        assert sorted(ranks[0] + ranks[1]) == list(range(100))


@pytest.mark.parametrize("strategy", ["ddp", "ddp_fork", "ddp_spawn"])
def test_a_loader_passed_to_fit_is_dealt_to_ranks(program, strategy):
    assert_disjoint(program(f'STRATEGY = {{"strategy": "{strategy}"}}' + DEALT))


def test_ranks_that_slurm_started_are_found(program):
    """Two processes with the variables of ``srun --ntasks=2``, without a cluster: Lightning takes its ranks there."""
    job = {"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_JOB_ID": "1", "SLURM_JOB_NAME": "train"}
    job |= {"SLURM_NODEID": "0", "SLURM_NODELIST": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [{**job, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)} for rank in (0, 1)]
    assert_disjoint(program('STRATEGY = {"strategy": "ddp", "num_nodes": 1}' + DEALT, environments=ranks))


def test_fsdp_needs_a_gpu(program):
    """The guide says so, in Lightning's words."""
    program(
        """
try:
    trainer(devices=2, strategy="fsdp")
except ValueError as error:
    assert "The strategy `fsdp` requires a GPU accelerator" in str(error), error
else:
    raise AssertionError
"""
    )


def test_the_progress_bar_shows_the_batches_of_an_epoch(program):
    """Its total is that of the epoch, or the limit. Lightning gives none to an epoch that is resumed in the middle."""
    program(
        """
from lightning.pytorch.callbacks import TQDMProgressBar

class Bar(TQDMProgressBar):
    def __init__(self):
        super().__init__()
        self.shown = []

    def on_train_batch_end(self, *arguments):
        super().on_train_batch_end(*arguments)
        self.shown.append((self.train_progress_bar.n, self.train_progress_bar.total))

def shown(loader, resume=None, **options):
    bar = Bar()
    trainer(callbacks=[bar], enable_progress_bar=True, **options).fit(Model(), loader, ckpt_path=resume)
    return bar.shown

folder = sys.argv[1]
saving = ModelCheckpoint(dirpath=folder, filename="{step}", every_n_train_steps=14, save_top_k=-1)
trainer(max_epochs=2, enable_checkpointing=True, callbacks=[saving]).fit(Model(), bl.DataLoader(rows, 10))
whole = [(batch, 10) for batch in range(1, 11)]
assert shown(bl.DataLoader(rows, 10), max_epochs=2) == whole * 2
resumed = shown(bl.DataLoader(rows, 10), f"{folder}/step=14.ckpt", max_epochs=3)
assert [batch for batch, _ in resumed[:6]] == [5, 6, 7, 8, 9, 10]
assert resumed[6:] == whole
assert shown(bl.DataLoader(rows, 10), max_epochs=2, limit_train_batches=4) == [(n, 4) for n in range(1, 5)] * 2
assert shown(bl.DataLoader(rows, 10), max_epochs=1, limit_train_batches=0.5) == [(n, 5) for n in range(1, 6)]
assert len(bl.DataLoader(rows, 10)) == 10
"""
    )


def test_every_checkpoint_goes_on_exactly(program):
    """Checkpoints every few steps, also at the last batch of an epoch and after it."""
    program(
        """
folder = sys.argv[1]
whole = Model()
saving = ModelCheckpoint(dirpath=folder, filename="{step}", every_n_train_steps=5, save_top_k=-1)
at_end = ModelCheckpoint(dirpath=folder, filename="end-{epoch}", save_top_k=-1)
options = {"max_epochs": 3, "enable_checkpointing": True}
trainer(**options, callbacks=[saving, at_end]).fit(whole, bl.DataLoader(rows, 10, shuffle=True))
places = {f"step={step}": step for step in range(5, 30, 5)} | {"end-epoch=0": 10, "end-epoch=1": 20}
for name, step in places.items():
    resumed = Model()
    again = trainer(max_epochs=3)
    again.fit(resumed, bl.DataLoader(rows, 10, shuffle=True), ckpt_path=f"{folder}/{name}.ckpt")
    assert resumed.seen == whole.seen[step:], name
    assert again.num_training_batches == 10 and again.global_step == 30, name
"""
    )


def test_what_would_lose_batches_is_refused(program):
    """Without the callback: another number of ranks, and epochs of other lengths."""
    program(
        """
folder = sys.argv[1]
saving = ModelCheckpoint(dirpath=folder, filename="{step}", every_n_train_steps=5, save_top_k=-1)
alone = trainer(max_epochs=2, callbacks=[saving], enable_checkpointing=True)
alone.fit(Model(), bl.DataLoader(rows, 10, shuffle=True, rank=0, world_size=1))
for step, place in ((5, "batch 2 of 5"), (10, "batch 5 of 5")):
    half = {"shuffle": True, "rank": 0, "world_size": 2}
    refused = bl.DataLoader(rows, 10, **half)
    try:
        trainer(max_epochs=2).fit(Model(), refused, ckpt_path=f"{folder}/step={step}.ckpt")
    except bl.StateError as error:
        assert all(said in str(error) for said in (place, f"batch {step} ", "ExactEpochs")), error
    else:
        raise AssertionError(step)
    assert refused.state_dict() == bl.DataLoader(rows, 10, **half).state_dict(), "the loader was changed"
    exact, callbacks = Model(), [ExactEpochs()]
    again = trainer(max_epochs=2, callbacks=callbacks)
    again.fit(exact, bl.DataLoader(rows, 10, **half), ckpt_path=f"{folder}/step={step}.ckpt")
    assert len(exact.seen) == {5: 3 + 5, 10: 5}[step]

documents = bl.SequenceDataset(tokens=[numpy.full(1 + sample % 16, sample) for sample in range(96)])
budget = {"batching": bl.TokenBudget(48, pool=8), "shuffle": True, "seed": 3, "output": "torch"}
loader = bl.DataLoader(documents, **budget)
lengths = [len(loader.plan(epoch)) for epoch in range(4)]
assert len(set(lengths)) > 1
try:
    trainer(max_epochs=4).fit(Model(), loader)
except bl.LoaderError as error:
    assert str(lengths[0]) in str(error) and "ExactEpochs" in str(error), error
else:
    raise AssertionError(lengths)
model = Model()
trainer(max_epochs=4, callbacks=[ExactEpochs()]).fit(model, bl.DataLoader(documents, **budget))
assert [sum(number == epoch for number, _ in model.seen) for epoch in range(4)] == lengths
"""
    )


def test_a_loader_in_two_trainers_at_once_is_refused(program):
    program(
        """
loader = bl.DataLoader(rows, 10)

class Nested(Callback):
    def on_train_batch_start(self, outer, module, batch, index):
        try:
            trainer(max_epochs=1, callbacks=[ExactEpochs()]).fit(Model(), loader)
        except bl.LoaderError as error:
            assert "Trainer" in str(error), error
            raise SystemExit
        raise AssertionError

try:
    trainer(max_epochs=1, callbacks=[ExactEpochs(), Nested()]).fit(Model(), loader)
except SystemExit:
    pass
trainer(max_epochs=1, callbacks=[ExactEpochs()]).fit(Model(), loader)  # released
"""
    )


COMBINED = """
from lightning.pytorch.utilities import CombinedLoader

class Pairs(Model):
    def training_step(self, batch, index):
        self.seen.append({name: plain(part) for name, part in batch.items()})
        return self.layer(torch.ones(1, 1)).sum()

def plain(part):
    if isinstance(part, (list, tuple)):
        return [plain(each) for each in part]
    return part.tolist() if hasattr(part, "tolist") else part

def loader(samples, seed, **options):
    return bl.DataLoader(bl.TensorDataset(torch.arange(samples)), 10, shuffle=True, seed=seed, **options)

def turns(end, **options):
    return bl.interleave({"a": loader(30, 4, **options), "b": loader(20, 5, **options)}, [2, 1], when_exhausted=end)

def several(count, **options):
    made = {"short": loader(20, 1, **options), "long": loader(50, 2, **options)}
    if count > 2:
        made["turns"] = turns("stop", **options)
        made["middle"] = loader(30, 3, **options)
    return made

def fit(model, combined, epochs=3, resume=None, **options):
    trainer(max_epochs=epochs, **options).fit(model, combined, ckpt_path=resume)

def saving(folder):
    held = ModelCheckpoint(dirpath=folder, filename="{step}", every_n_train_steps=1, save_top_k=-1)
    at_end = ModelCheckpoint(dirpath=folder, filename="end-{epoch}", save_top_k=-1)
    return {"callbacks": [held, at_end], "enable_checkpointing": True}

def every_step(make, name, steps, **options):
    folder = sys.argv[1] + "/" + name
    whole, model = make(), Pairs()
    fit(model, whole, **saving(folder), **options)
    assert len(model.seen) == steps, (name, len(model.seen))
    places = {f"step={step}": step for step in range(1, steps)}
    places |= {f"end-epoch={epoch}": steps // 3 * (epoch + 1) for epoch in range(2)}
    for place, step in places.items():
        resumed = Pairs()
        fit(resumed, make(), resume=f"{folder}/{place}.ckpt", **options)
        assert resumed.seen == model.seen[step:], (name, place)
    return model.seen

def passes(seen, name, length):
    batches = [str(part[name]) for part in seen if part[name] is not None]
    return [batches[first : first + length] for first in range(0, len(batches), length)]
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("mode", "steps"), [("min_size", 2), ("max_size", 5), ("max_size_cycle", 5)])
def test_loaders_side_by_side_resume_at_every_step(program, mode, steps):
    """Several loaders of different lengths, and a run of two that take turns: no pass repeats another."""
    program(
        COMBINED
        + f"""
for count in (2, 3):
    seen = every_step(lambda: CombinedLoader(several(count), "{mode}"), f"{mode}-{{count}}", 3 * {steps})
    for name in seen[0]:
        batches = [str(part[name]) for part in seen if part[name] is not None]
        assert len(set(batches)) == len(batches), (name, "a batch came again")

# Limits end epochs early, which then go on with the next one.
every_step(lambda: CombinedLoader(several(2), "{mode}"), "{mode}-limit", 6, limit_train_batches=2)
""",
        timeout=280,
    )


def test_lightning_itself_refuses_to_train_loaders_one_after_the_other(program):
    """``sequential`` is for evaluation, where each epoch is one of every loader."""
    program(
        COMBINED
        + """
try:
    fit(Pairs(), CombinedLoader(several(2), "sequential"))
except ValueError as error:
    assert "sequential" in str(error), error
else:
    raise AssertionError

class Validated(Model):
    def validation_step(self, batch, index, dataloader_idx=0):
        self.seen.append((dataloader_idx, plain(batch)))

model, combined = Validated(), CombinedLoader(several(2), "sequential")
for epoch in range(2):
    trainer().validate(model, combined)
expected = [
    (place, [batch.tolist()])
    for epoch in range(2)
    for place, each in enumerate(several(2).values())
    for batch in each.plan(0)
]
assert model.seen == expected
"""
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("end", ["stop", "repeat", "renormalise"])
def test_loaders_that_take_turns_resume_at_every_step(program, end):
    program(
        COMBINED
        + f"""
class Pairs(Model):
    def training_step(self, batch, index):
        self.seen.append(plain(batch))
        return self.layer(torch.ones(1, 1)).sum()

run = turns("{end}")
lengths = [len(list(run)) for _ in range(3)]
if len(set(lengths)) == 1:
    seen = every_step(lambda: turns("{end}"), "{end}", sum(lengths))
else:
    try:
        fit(Pairs(), turns("{end}"))
    except bl.LoaderError as error:
        assert all(str(length) in str(error) for length in lengths[:2]) and "ExactEpochs" in str(error), error
        assert "size" not in str(error) and "inf" not in str(error), error
    else:
        raise AssertionError(lengths)
    model = Pairs()
    fit(model, turns("{end}"), callbacks=[ExactEpochs()])
    seen = model.seen
again = turns("{end}")
assert seen == [[name, plain(batch)] for _ in range(3) for name, batch in again]
""",
        timeout=280,
    )


def test_a_loader_that_is_side_by_side_on_other_ranks_is_refused_or_restated(program):
    program(
        COMBINED
        + """
folder = sys.argv[1]
two = {"rank": 0, "world_size": 2}
for mode, rest in (("max_size_cycle", 3), ("min_size", 1)):
    make = lambda **options: CombinedLoader(several(2, **options), mode)
    fit(Pairs(), make(rank=0, world_size=1), **saving(folder + "/" + mode))
    step = {"max_size_cycle": 3, "min_size": 1}[mode]
    resume = f"{folder}/{mode}/step={step}.ckpt"
    try:
        fit(Pairs(), make(**two), resume=resume)
    except bl.StateError as error:
        assert f"batch {step} " in str(error) and "ExactEpochs" in str(error), error
    else:
        raise AssertionError
    exact = Pairs()
    fit(exact, make(**two), epochs=1, resume=resume, callbacks=[ExactEpochs()])
    assert len(exact.seen) == {"max_size_cycle": 1, "min_size": 1}[mode], (mode, len(exact.seen))
"""
    )


def test_validation_counts_each_sample_once(program):
    found = program(
        """
class Evaluated(Model):
    def validation_step(self, batch, index):
        x, label, place, weight = batch
        hits = (x[:, 0] % 2 == label).float()
        self.hits += torch.tensor([float((hits * weight).sum()), float(weight.sum())])

    def on_validation_epoch_start(self):
        self.hits = torch.zeros(2)

    def on_validation_epoch_end(self):
        total = self.all_gather(self.hits).reshape(-1, 2).sum(0)
        self.accuracy = total.tolist()

class Write(Callback):
    def on_validation_end(self, trainer, module):
        open(sys.argv[1] + f"/rank{trainer.global_rank}.json", "w").write(json.dumps(module.accuracy))

if __name__ == "__main__":
    odd = bl.TensorDataset(torch.arange(103.0)[:, None], torch.arange(103) % 3 % 2)
    loader = bl.DataLoader(odd, 10, uneven="mask")
    trainer(devices=2, strategy="ddp", callbacks=[Write()]).validate(Evaluated(), loader)
"""
    )
    hits = sum(sample % 2 == sample % 3 % 2 for sample in range(103))
    assert found == {"rank0": [hits, 103], "rank1": [hits, 103]}
