"""`BatchSampler`: the batches of epoch after epoch, for the loaders of others."""

import gc
import os
import pickle
import weakref
from itertools import chain

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

SIZES = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9]
RULES = [bl.FixedSize(4), bl.LengthBuckets(3, pool=2), bl.TokenBudget(12), bl.Packing(10, pool=5), bl.FixedSize(1)]


def batches(plan):
    return [batch.tolist() for batch in plan]


def sampler(rule=RULES[2], **options):
    return bl.BatchSampler(SIZES, batching=rule, shuffle=True, seed=7, **options)


def plan(rule=RULES[2], **options):
    return bl.Plan(sizes=SIZES, batching=rule, shuffle=True, seed=7, **options)


@given(
    rule=st.sampled_from(RULES),
    worlds=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    stops=st.lists(st.integers(0, 20), min_size=4, max_size=4),
    through_pickle=st.booleans(),
)
def test_a_chain_of_states_goes_on_as_if_it_never_stopped(rule, worlds, stops, through_pickle):
    """L4 and L5: the oracle is the list of all batches of each epoch, of which a world takes the next ones."""
    state, epoch, begun = sampler(rule).state_dict(), 0, 0
    for world, stop in zip(worlds, stops, strict=False):
        whole = batches(plan(rule).at_epoch(epoch))
        ranks = [sampler(rule, rank=rank, world_size=world, uneven="short") for rank in range(world)]
        one = bl.BatchSampler(SIZES, batching=rule, shuffle=True, seed=7, uneven="short", rank=0, world_size=world)
        state = one.state_dict() if epoch == begun == 0 else state
        steps = min(stop, (len(whole) - begun) // world)
        taken = []
        for rank in ranks:
            rank.load_state_dict(state)
            rank = pickle.loads(pickle.dumps(rank)) if through_pickle else rank
            iterator = iter(rank)
            taken.append([next(iterator) for _ in range(steps)])
            found = rank.state_dict() if steps else state
        dealt = [taken[place % world][place // world] for place in range(steps * world)]
        assert dealt == whole[begun : begun + steps * world]
        state, begun = found, begun + steps * world
        if begun == len(whole):
            epoch, begun = epoch + 1, 0
            assert (state["epoch"], state["batches"]) == (epoch, 0)
    last = sampler(rule, rank=0, world_size=1, uneven="short")
    last.load_state_dict(state)
    assert list(last) == batches(plan(rule).at_epoch(epoch))[begun:]
    assert list(last) == batches(plan(rule).at_epoch(epoch + 1))


def test_each_iteration_is_the_next_epoch_and_its_length_is_that_of_an_epoch():
    ours = sampler()
    for epoch in range(3):
        assert len(ours) == len(plan().at_epoch(ours.epoch))
        assert list(ours) == batches(plan().at_epoch(epoch))
        assert ours.epoch == epoch + 1


def test_iter_alone_spends_nothing():
    ours = sampler()
    first, second = iter(ours), iter(ours)
    assert ours.state_dict() == sampler().state_dict()
    assert list(second) == batches(plan())
    assert list(first) == batches(plan().at_epoch(1))


def test_set_epoch_keeps_the_place_of_a_state_of_that_epoch():
    ours = sampler()
    iterator = iter(ours)
    taken = [next(iterator) for _ in range(2)]
    state = ours.state_dict()
    other = sampler()
    other.load_state_dict(state)
    iter(other)
    other.set_epoch(0)
    assert taken + list(other) == batches(plan())
    other.load_state_dict(state)
    other.set_epoch(5)
    assert list(other) == batches(plan().at_epoch(5))


def test_a_state_after_the_last_batch_is_the_start_of_the_next_epoch():
    ours = sampler()
    iterator = iter(ours)
    for _ in range(len(ours)):
        next(iterator)
    assert (ours.state_dict()["epoch"], ours.state_dict()["batches"]) == (1, 0)


def test_a_state_of_batches_that_were_used_is_behind_those_handed_over():
    ours = sampler()
    everything = list(ours)
    state = ours.state_dict(batches=2)
    other = sampler()
    other.load_state_dict(state)
    assert list(other) == everything[2:]
    with refused(bl.ArgumentError, "batches", str(len(everything) + 1), str(len(everything))):
        ours.state_dict(batches=len(everything) + 1)


def test_a_sampler_takes_sizes_datasets_and_numbers():
    rows = bl.TensorDataset(numpy.arange(10))
    documents = bl.SequenceDataset(ids=[numpy.arange(size) for size in SIZES])
    for data, expected in [
        (10, 10),
        (rows, 10),
        (torch.utils.data.TensorDataset(torch.arange(10)), 10),
        (range(10), 10),
        (numpy.array(SIZES), len(SIZES)),
        (torch.tensor(SIZES), len(SIZES)),
    ]:
        assert sorted(chain.from_iterable(bl.BatchSampler(data, 4, True))) == list(range(expected))
    assert list(bl.BatchSampler(documents, batching=bl.TokenBudget(12), shuffle=True, seed=7)) == batches(plan())
    with refused(bl.ArgumentError, "data", "object"):
        bl.BatchSampler(object())
    with refused(bl.ArgumentError, "rank", "world_size"):
        bl.BatchSampler(10, world_size=2)


# torch's workers leave sockets behind.
@pytest.mark.filterwarnings("ignore:.*:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("num_workers", [0, 2])
def test_torch_gets_every_epoch(num_workers):
    ours = sampler()
    loader = torch.utils.data.DataLoader(
        torch.arange(len(SIZES)), batch_sampler=ours, num_workers=num_workers, multiprocessing_context=None
    )
    for epoch in range(2):
        assert [batch.tolist() for batch in loader] == batches(plan().at_epoch(epoch))
    iterator = iter(loader)
    used = [next(iterator).tolist() for _ in range(2)]
    other = sampler()
    other.load_state_dict(ours.state_dict(batches=2))
    assert used + list(other) == batches(plan().at_epoch(2))


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
@pytest.mark.filterwarnings("ignore:.*:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("num_workers", [0, 2])
def test_stateful_loaders_keep_the_place(num_workers):
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")

    def loader():
        return torchdata.StatefulDataLoader(torch.arange(len(SIZES)), batch_sampler=sampler(), num_workers=num_workers)

    whole = loader()
    assert [batch.tolist() for batch in whole] == batches(plan())
    iterator = iter(whole)
    used = [next(iterator).tolist() for _ in range(3)]
    other = loader()
    other.load_state_dict(whole.state_dict())
    assert used + [batch.tolist() for batch in other] == batches(plan().at_epoch(1))
    assert [batch.tolist() for batch in other] == batches(plan().at_epoch(2))


def test_accelerate_divides_the_batches_of_one_rank():
    data_loader = pytest.importorskip("accelerate.data_loader")
    shards = [
        data_loader.BatchSamplerShard(sampler(bl.FixedSize(2), rank=0, world_size=1), 2, index, even_batches=False)
        for index in range(2)
    ]
    first, second = (list(shard) for shard in shards)
    assert [batch for pair in zip(first, second, strict=True) for batch in pair] == batches(plan(bl.FixedSize(2)))
    with refused(bl.ArgumentError, "0", "2", "distributed=False"):
        list(data_loader.BatchSamplerShard(sampler(rank=0, world_size=2), 2, 0, even_batches=False))


def test_lightning_trains_on_every_epoch(tmp_path):
    lightning = pytest.importorskip("lightning")
    seen = []

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def training_step(self, batch, index):
            seen.append(batch.tolist())
            return self.weight.sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    loader = torch.utils.data.DataLoader(torch.arange(len(SIZES)), batch_sampler=sampler())
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    trainer = lightning.Trainer(max_epochs=2, default_root_dir=tmp_path, enable_model_summary=False, **options)
    with pytest.warns():
        trainer.fit(Model(), loader)
    assert seen == batches(plan()) + batches(plan().at_epoch(1))


def test_ranks_take_their_share(ranks):
    code = """
        import json, os, torch
        import batchloom as bl

        ours = bl.BatchSampler(list(range(1, 30)), batching=bl.TokenBudget(60), shuffle=True)
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="%d")
        torch.distributed.init_process_group("gloo")
        loader = torch.utils.data.DataLoader(torch.arange(29), batch_sampler=ours)
        print(json.dumps([[batch.tolist() for batch in loader] for _ in range(2)]))
        torch.distributed.barrier()  # a process that ends before the other has joined breaks its group
        torch.distributed.destroy_process_group()
        """
    found = ranks(code % (20_000 + os.getpid() % 20_000), 2)
    for epoch in range(2):
        steps = [
            bl.Plan(sizes=list(range(1, 30)), batching=bl.TokenBudget(60), shuffle=True, world_size=2, rank=rank)
            for rank in range(2)
        ]
        assert [rank[epoch] for rank in found] == [batches(step.at_epoch(epoch)) for step in steps]


def test_lists_hold_no_marks():
    with refused(bl.ArgumentError, "mask", "pad", "short"):
        bl.BatchSampler(22, 4, uneven="mask")


def test_an_iteration_keeps_no_variables_of_its_caller_alive():
    numbers = numpy.arange(10)
    sampler = bl.BatchSampler(10, 4)
    next(iter(sampler))
    alive = weakref.ref(numbers)
    del numbers
    gc.collect()
    assert alive() is None
