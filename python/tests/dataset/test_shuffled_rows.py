"""`GroupDataset(shuffle_rows=True)`: the rows of a group in another order in each epoch, and nothing else changes."""

import dataclasses
import pickle

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import groups
from oracles.groups import Case, cases, held
from oracles.runs import resume_after


def shuffled(case, **options):
    rows = numpy.arange(len(case.ids))
    return bl.GroupDataset(
        numpy.array(case.ids),
        row=rows,
        wide=numpy.stack([rows, -rows, rows * 7], 1).astype(numpy.float32),
        layout=case.layout,
        max_rows=case.max_rows,
        oversize=case.oversize,
        shuffle_rows=True,
        **options,
    )


@pytest.mark.law("L1", "L5")
@given(case=cases(), world=st.integers(1, 3), epoch=st.integers(0, 3))
def test_rows_of_a_group_are_shuffled_and_groups_stay_where_they_are(case, world, epoch):
    dataset = shuffled(case)
    for rank in range(world):
        plain, mixed = (case.loader(world, rank, dataset=each) for each in (case.dataset(), dataset))
        steps = len(plain.plan(epoch))
        for step in range(steps):
            one, other = plain.replay(epoch, step), mixed.replay(epoch, step)
            assert list(one) == list(other)
            assert [sorted(rows) for rows in held(other)] == [sorted(rows) for rows in held(one)]
            rows = numpy.asarray(other["row"])
            there = rows >= 0
            assert numpy.array_equal(numpy.asarray(other["wide"])[there][:, 2], rows[there] * 7)


@given(case=cases(max_rows=None), seed=st.integers(0, 99))
def test_orders_are_a_function_of_seed_epoch_and_group(case, seed):
    case = dataclasses.replace(case, seed=seed)

    def orders(dataset, **options):
        loader = case.loader(dataset=dataset, **options)
        return [groups.seen(loader) for _ in range(2)]

    first = orders(shuffled(case), num_threads=1)
    assert first == orders(pickle.loads(pickle.dumps(shuffled(case))), num_threads=3)


def test_orders_differ_between_epochs_and_follow_every_permutation():
    loader = bl.DataLoader(bl.GroupDataset(numpy.zeros(3, int), x=numpy.arange(3), shuffle_rows=True), 1, seed=5)
    seen = [tuple(next(iter(loader))["x"].tolist()) for _ in range(200)]
    assert len(set(seen)) == 6


def test_the_first_rows_are_shuffled_with_truncate_and_random_rows_with_subsample():
    ids, x = numpy.zeros(9, int), numpy.arange(9)
    taken = {}
    for oversize in ("truncate", "subsample"):
        dataset = bl.GroupDataset(ids, x=x, max_rows=4, oversize=oversize, shuffle_rows=True)
        loader = bl.DataLoader(dataset, 1)
        taken[oversize] = [next(iter(loader))["x"].tolist() for _ in range(60)]
    assert all(sorted(rows) == [0, 1, 2, 3] for rows in taken["truncate"])
    assert len({tuple(sorted(rows)) for rows in taken["subsample"]}) > 30
    assert all(any(rows != sorted(rows) for rows in each) for each in taken.values())


@pytest.mark.parametrize("layout", ["concatenated", "padded"])
@pytest.mark.parametrize("ids", [(3, 3, 1, 1, 1, 7), (3, 1, 3, 7, 1, 1)], ids=["together", "scattered"])
def test_a_device_gathers_rows_in_the_same_order(layout, ids):
    case = Case(ids, rule=bl.FixedSize(2), layout=layout)
    x = torch.arange(len(ids))
    dataset = bl.GroupDataset(torch.tensor(ids), row=x, layout=layout, shuffle_rows=True)
    host, device = (bl.DataLoader(dataset, 2, shuffle=True, resident=where) for where in (False, True))
    for _ in range(3):
        assert groups.seen(host) == groups.seen(device)
    assert case.layout == layout


def test_a_resumed_run_has_the_orders_of_a_whole_one():
    query = numpy.repeat(numpy.arange(30), numpy.random.default_rng(0).integers(2, 9, 30))
    dataset = bl.GroupDataset(query, row=numpy.arange(len(query)), shuffle_rows=True)

    def loader():
        return bl.DataLoader(dataset, 4, shuffle=True)

    whole = groups.seen(loader())
    for step in range(len(whole)):
        assert groups.seen(resume_after(loader, step)) == whole[step:]


@pytest.mark.parametrize("value", ["yes", 2, None])
def test_what_is_no_truth(value):
    with pytest.raises(bl.ArgumentError, match="shuffle_rows"):
        bl.GroupDataset([1, 1], x=numpy.arange(2), shuffle_rows=value)
