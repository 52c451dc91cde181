"""The HF Trainer: resume in mid-epoch and evaluation on several processes, through the mixin."""

import pytest

pytest.importorskip("accelerate", reason="scripts/setup --integrations installs it")
pytest.importorskip("transformers", reason="scripts/setup --integrations installs it")

HEAD = """
import json
import os
import sys
import warnings

warnings.simplefilter("ignore")
if "RANK" in os.environ:
    os.environ["LOCAL_RANK"] = os.environ["RANK"]
import numpy
import torch
import transformers
from transformers import Trainer, TrainingArguments

import batchloom as bl
from batchloom.integrations.hf import TrainerMixin

transformers.logging.set_verbosity_error()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(1, 1), []

    def forward(self, x, labels=None):
        if self.training:
            self.seen.append(x[:, 0].tolist())
        logits = self.layer(x)
        return {"loss": logits.mean(), "logits": x}


class OurTrainer(TrainerMixin, Trainer):
    pass


def arguments(**options):
    quiet = {"report_to": [], "disable_tqdm": True, "logging_strategy": "no", "use_cpu": True, "learning_rate": 1e-6}
    usual = {"output_dir": sys.argv[1], "save_strategy": "no", "num_train_epochs": 3}
    return TrainingArguments(**{**usual, **quiet, **options})


def loader(**options):
    rows = bl.TensorDataset(x=torch.arange(100.0)[:, None], labels=torch.arange(100))
    return bl.DataLoader(rows, **{"batch_size": 10, "shuffle": True, **options})
"""


@pytest.mark.parametrize("accumulated", [1, 3])
def test_each_checkpoint_goes_on_exactly(script, tmp_path, accumulated):
    script(
        HEAD
        + f"""
options = {{"gradient_accumulation_steps": {accumulated}}}
whole = Model()
trained = OurTrainer(whole, arguments(save_strategy="steps", save_steps=2, **options), train_dataset=loader())
trained.train()
plan = loader().plan
assert [list(map(int, batch)) for batch in whole.seen] == [b.tolist() for epoch in range(3) for b in plan(epoch)]
steps = trained.state.global_step
for step in range(2, steps, 2):
    resumed = Model()
    again = OurTrainer(resumed, arguments(**options), train_dataset=loader())
    again.train(resume_from_checkpoint=sys.argv[1] + f"/checkpoint-{{step}}")
    epoch, rest = divmod(step, -(-10 // {accumulated}))
    assert resumed.seen == whole.seen[epoch * 10 + rest * {accumulated} :], step
    assert again.state.global_step == steps
""",
        tmp_path,
        timeout=110,
    )


TURNS = (
    HEAD
    + """
SIZES = {"a": 70, "b": 31}
path, end = sys.argv[1], sys.argv[2]


# One goes round faster than the other, so that epochs may have different lengths.
def made():
    rows = {name: bl.TensorDataset(x=torch.arange(float(size))[:, None]) for name, size in SIZES.items()}
    parts = {name: bl.DataLoader(part, 10, shuffle=True, seed=len(part), uneven="mask") for name, part in rows.items()}
    return bl.interleave(parts, [2, 1], when_exhausted=end)


def told(step):
    name, batch = step
    return [name, batch["x"][:, 0].tolist(), batch["weight"].tolist()]


class Mean(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x, weight):
        return (self.layer(x)[:, 0] * weight).mean()


class Turns(TrainerMixin, Trainer):
    def __init__(self, **options):
        super().__init__(Mean(), arguments(**options))
        self.remove_callback(transformers.PrinterCallback)
        self.seen = []

    def compute_loss(self, model, inputs, *arguments, **options):
        self.seen.append(told(inputs))
        return model(inputs[1]["x"], inputs[1]["weight"])

    def get_train_dataloader(self):
        return made()


trained = Turns(save_strategy="steps", save_steps=1)
trained.train()
run = made()
assert (run.rank, run.world_size) == (trained.args.process_index, trained.args.world_size)
assert trained.seen == [told(step) for epoch in range(3) for step in run]
steps = trained.state.global_step
assert steps == len(trained.seen)
trained.accelerator.wait_for_everyone()
for step in range(1, steps):
    again = Turns()
    again.train(resume_from_checkpoint=f"{path}/checkpoint-{step}")
    assert again.seen == trained.seen[step:], step
    assert again.state.global_step == steps
print(json.dumps(trained.seen))
trained.accelerator.wait_for_everyone()
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
"""
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("end", ["stop", "repeat", "renormalise"])
@pytest.mark.parametrize("world_size", [1, 2])
def test_loaders_that_take_turns_resume_at_every_step(ranks, world_size, end, tmp_path, monkeypatch):
    """The same order as without a stop on each rank; on all of them together each pass has each sample once."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    found = ranks(TURNS, world_size, tmp_path, end, timeout=280)
    assert len({tuple(name for name, _, _ in rank) for rank in found}) == 1, "ranks take turns alike"
    for wanted, size in (("a", 70), ("b", 31)):
        real = [
            int(sample)
            for step in zip(*found, strict=True)
            for name, samples, weights in step
            for sample, weight in zip(samples, weights, strict=True)
            if name == wanted and weight
        ]
        passes = [real[first : first + size] for first in range(0, len(real), size)]
        assert [sorted(samples) for samples in passes[:-1]] == [list(range(size))] * (len(passes) - 1)
        assert len(passes) > 1
        assert len(set(passes[-1])) == len(passes[-1])


def test_a_loader_of_the_method_and_batches_without_marks(script, tmp_path):
    script(
        HEAD
        + """
class Ids(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.epochs = torch.nn.Linear(1, 1), []

    def forward(self, input_ids, attention_mask):
        return {"loss": self.layer((input_ids * attention_mask).float().mean().reshape(1, 1)).sum()}


class WithMethod(TrainerMixin, Trainer):
    def get_train_dataloader(self):
        documents = [numpy.full(1 + sample % 16, sample) for sample in range(96)]
        dataset = bl.SequenceDataset(input_ids=documents)
        return bl.DataLoader(dataset, batching=bl.TokenBudget(48, pool=8), shuffle=True, seed=3, output="torch")


trainer = WithMethod(Ids(), arguments())
loader = trainer.get_train_dataloader()
lengths = [len(loader.plan(epoch)) for epoch in range(3)]
assert len(set(lengths)) > 1
trainer.train()
assert trainer.state.global_step == sum(lengths) == trainer.state.max_steps
""",
        tmp_path,
    )


def test_bad_input_is_refused(script, tmp_path):
    script(
        HEAD
        + """
def refused(kind, work, *said):
    try:
        work()
    except kind as error:
        assert all(value in str(error) for value in said), error
    else:
        raise AssertionError(said)

OurTrainer(Model(), arguments(max_steps=12, save_strategy="steps", save_steps=6), train_dataset=loader()).train()
path = sys.argv[1] + "/checkpoint-6"
other = loader(rank=1, world_size=2)
foreign = OurTrainer(Model(), arguments(), train_dataset=other)
refused(bl.ArgumentError, foreign.train, "rank 1 of 2", "0 of 1")

state = json.load(open(path + "/trainer_state.json"))
held = state["stateful_callbacks"]["batchloom"]["attributes"]["state"]
held["worlds"], held["batches"] = [[2, 3]], 6
state["global_step"] = 3
json.dump(state, open(path + "/trainer_state.json", "w"))
fewer = OurTrainer(Model(), arguments(max_steps=12), train_dataset=loader())
refused(bl.StateError, lambda: fewer.train(resume_from_checkpoint=path), "max_steps=12", "num_train_epochs")
fewer = OurTrainer(Model(), arguments(gradient_accumulation_steps=4), train_dataset=loader())
refused(bl.StateError, lambda: fewer.train(resume_from_checkpoint=path), "6", "4", "gradient_accumulation_steps")

model = Model()
halved = OurTrainer(model, arguments(), train_dataset=loader())
halved.train(resume_from_checkpoint=path)
assert halved.state.global_step == 30 and len(model.seen) == 24
assert halved.lr_scheduler.last_epoch == 30

del state["stateful_callbacks"]["batchloom"]
json.dump(state, open(path + "/trainer_state.json", "w"))
foreign = OurTrainer(Model(), arguments(), train_dataset=loader())
refused(bl.StateError, lambda: foreign.train(resume_from_checkpoint=path), "checkpoint-6", "TrainerMixin")
""",
        tmp_path,
        timeout=110,
    )


EVALUATE = (
    HEAD
    + """
def metrics(found):
    samples = found.predictions[:, 0]
    return {"samples": len(samples), "distinct": len(set(samples.tolist())), "sum": float(samples.sum())}

rows = bl.TensorDataset(x=torch.arange(103.0)[:, None], labels=torch.arange(103))
evaluated = bl.DataLoader(rows, 8, uneven=sys.argv[2])
trainer = OurTrainer(Model(), arguments(per_device_eval_batch_size=8), compute_metrics=metrics, eval_dataset=evaluated)
trainer.remove_callback(transformers.PrinterCallback)
for _ in range(2):
    found = trainer.evaluate()
assert len(trainer.predict(evaluated).predictions) == 103
try:
    trainer.evaluate(bl.DataLoader(rows, 8, uneven="short"))
    assert trainer.args.world_size == 1
except bl.ArgumentError as error:
    assert "short" in str(error) and trainer.args.world_size > 1, error
print(json.dumps([found["eval_samples"], found["eval_distinct"], found["eval_sum"]]))
if torch.distributed.is_initialized():
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
"""
)


@pytest.mark.parametrize("uneven", ["pad", "mask"])
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_evaluation_counts_each_sample_once(ranks, tmp_path, monkeypatch, world_size, uneven):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    assert ranks(EVALUATE, world_size, tmp_path, uneven) == [[103, 103, 103 * 102 / 2]] * world_size


def free_port():
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
