"""Gradients of updates in two real processes are those of one large batch, by the code of the guide as it stands."""

from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[3] / "docs" / "evaluation.md"

# Labels are counted over all ranks; each process takes as many of them as there are for it, one after the other.
RANKS = """
import json, os, re, sys
import batchloom as bl, numpy, torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)
page = open(sys.argv[1], encoding="utf-8").read()
(code,) = [block for block in re.findall(r"^```python\\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
           if block.startswith("def add_gradients(")]
guide = {"torch": torch}
exec(code, guide)

dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=int(os.environ["RANK"]), world_size=2)
process, processes = dist.get_rank(), dist.get_world_size()
rng = numpy.random.default_rng(0)
documents = [rng.integers(0, 50, length) for length in rng.integers(1, 40, 120)]
answers = [numpy.where(rng.random(len(document)) < 0.4, -100, document) for document in documents]
lengths = [len(document) for document in documents]


class Keeps:
    # An optimizer that keeps the gradients of each update.
    def __init__(self, model):
        self.parameters, self.found = list(model.parameters()), []

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None

    def step(self):
        grads = [parameter.grad for parameter in self.parameters]
        self.found.append([grad.full_tensor() if hasattr(grad, "full_tensor") else grad.clone() for grad in grads])


def model_of():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Embedding(50, 6), torch.nn.Tanh(), torch.nn.Linear(6, 50)).double()


def one_large_batch(plan, update, kind, labels_of, banned):
    # The gradients by definition: each sample alone, no padding, no weights.
    model, terms = model_of(), []
    for step in update.steps:
        held = plan.step(step)
        for batch, count in zip(held.batches, held.counts):
            for sample in [sample for sample in batch if sample not in banned][:count]:
                tokens, labels = labels_of(int(sample))
                nll = torch.nn.functional.cross_entropy(
                    model(tokens), labels, reduction="none", ignore_index=-100)[labels != -100]
                if len(nll):
                    terms.append(nll)
    loss = {
        "token-mean": lambda: torch.cat(terms).mean(),
        "sequence-mean": lambda: torch.stack([nll.mean() for nll in terms]).mean(),
        "sequence-sum": lambda: torch.stack([nll.sum() for nll in terms]).mean(),
    }[kind]()
    loss.backward()
    return loss.item(), [parameter.grad for parameter in model.parameters()]


def next_tokens(sample):
    tokens = torch.from_numpy(documents[sample])
    return tokens, torch.cat([tokens[1:], torch.tensor([-100])])


def answered(sample):
    return torch.from_numpy(documents[sample]), torch.from_numpy(answers[sample])


def piece(sample):
    stream = torch.from_numpy(numpy.concatenate(documents))
    return stream[sample * 16 : sample * 16 + 16], stream[sample * 16 + 1 : sample * 16 + 17]


made = bl.SequenceDataset(input_ids=documents), {"labels": "input_ids"}, next_tokens
held = bl.SequenceDataset(input_ids=documents, labels=answers)
held = held, {"label_counts": held.count_labels("labels")}, answered
stream = bl.TokenDataset(numpy.concatenate(documents), seq_len=16), {}, piece

token, mean, total = "token-mean", "sequence-mean", "sequence-sum"
cost = bl.CostModel(per_token=1, per_pair=1 / 16)
fixed, buckets, budget = bl.FixedSize(7), bl.LengthBuckets(6), bl.TokenBudget(128)
optimal, packs = bl.CostOptimal(cost, max_tokens=200), bl.Packing(96)
settings = [  # ranks, steps of an update, rule, loss, data, options
    (2, 1, fixed, token, made, {"uneven": "mask"}), (2, 4, fixed, mean, held, {}), (4, 3, fixed, total, made, {}),
    (6, 2, fixed, mean, made, {"uneven": "mask"}), (2, 2, buckets, token, held, {}),
    (2, 3, buckets, mean, made, {"uneven": "mask"}), (4, 4, buckets, total, held, {"uneven": "mask"}),
    (6, 1, buckets, token, made, {"drop_last": True}), (2, 4, budget, token, made, {}),
    (2, 5, budget, mean, held, {"uneven": "mask"}), (4, 2, budget, total, made, {"balance": cost}),
    (6, 3, budget, mean, made, {"ban": [3, 17, 90]}), (2, 3, optimal, token, held, {"ban": [1, 2, 64]}),
    (4, 1, optimal, mean, made, {}), (2, 8, optimal, total, held, {"uneven": "mask"}),
    (2, 1, packs, token, made, {"balance": cost}), (2, 4, packs, mean, made, {"uneven": "mask"}),
    (4, 3, packs, total, held, {"balance": cost, "balance_within": "update"}),
    (6, 2, packs, token, held, {"uneven": "mask"}), (4, 3, fixed, token, stream, {"uneven": "mask"}),
]
wraps = {"ddp": torch.nn.parallel.DistributedDataParallel, "fsdp": lambda bare: fully_shard(bare, mesh=mesh)}
mesh = dist.init_device_mesh("cpu", (processes,))
worst, updates = [], 0
for world_size, accumulate, rule, kind, (dataset, labelled, labels_of), options in settings:
    assert world_size % processes == 0
    bare = model_of()
    model = wraps[sys.argv[3]](bare)
    optimizer = Keeps(model)
    ranks = range(process * world_size // processes, (process + 1) * world_size // processes)
    loaders = [
        bl.DataLoader(dataset, batching=rule, shuffle=True, seed=3, accumulate=accumulate, loss=kind, rank=rank,
                      world_size=world_size, output="torch", **labelled, **options)
        for rank in ranks
    ]
    of_ranks = [list(loader) for loader in loaders]

    class Batches:
        # The batches of several ranks in one process, as one rank with as many times the steps would take them.
        class plan_of_all:
            updates = loaders[0].plan(0).updates

            @staticmethod
            def update(number):
                class update:
                    steps = range(len(loaders[0].plan(0).update(number).steps) * len(ranks))
                return update

        def plan(self):
            return self.plan_of_all

        def __iter__(self):
            for step in zip(*of_ranks):
                for batch in step:
                    if dataset is stream[0]:
                        names = ["input_ids", "labels", *(["index", "weight"] if options else [])]
                        batch = dict(zip([*names, "loss_weight", "loss_denominator"], batch, strict=True))
                    yield batch

    losses = guide["train_epoch"](model, optimizer, Batches(), averages=processes)
    plan = loaders[0].plan(0)
    assert len(optimizer.found) == len(losses) == plan.updates
    for number, (found, loss) in enumerate(zip(optimizer.found, losses)):
        expected_loss, expected = one_large_batch(plan, plan.update(number), kind, labels_of, options.get("ban", ()))
        all_losses = [None] * processes
        dist.all_gather_object(all_losses, float(loss))
        worst.append(abs(sum(all_losses) - expected_loss) / expected_loss)
        for gradient, definition in zip(found, expected):
            worst.append(float((gradient - definition).abs().max() / definition.abs().max()))
        updates += 1
print(json.dumps({"settings": len(settings), "updates": updates, "worst": max(worst)}))
dist.destroy_process_group()
"""


@pytest.mark.law("L3")
@pytest.mark.parametrize("wrapped", ["ddp", "fsdp"])
def test_gradients_of_two_processes_are_those_of_one_large_batch(ranks, wrapped, tmp_path):
    for found in ranks(RANKS, 2, GUIDE, tmp_path / "store", wrapped, timeout=200):
        assert found["settings"] == 20
        assert found["updates"] > 60
        assert found["worst"] < 1e-6
