"""The laws, for groups of rows: whole, once, in order, whatever their ids are called and wherever their rows lie."""

import contextlib
import itertools
import pickle
from collections import Counter
from dataclasses import replace
from functools import partial

import batchloom as bl
import numpy
import pytest
import torch
from batchloom.collate.schema import field_views
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles import batching
from oracles.groups import Case, assert_batch, cases, held, ids, members, packings, padding_rules, seen
from oracles.runs import assert_resumes, chained, few, fractions

worlds = st.integers(1, 4)
subsampled = {"max_rows": st.integers(1, 4), "oversize": "subsample"}


def flat(batches):
    return list(itertools.chain(*batches))


# L1, L8, L9, L10: every group once, whole, its rows in order, every field of the same rows


@pytest.mark.law("L9")
@given(case=cases(), epoch=st.integers(0, 3), side=st.sampled_from(["right", "left"]))
def test_batches_are_their_definition(case, epoch, side):
    loader = case.loader(pad_side=side)
    loader.set_epoch(epoch)
    plan, expected, length = loader.plan(), case.plan(epoch=epoch), len(loader)
    assert [groups.tolist() for groups in plan] == expected
    batches = list(loader)
    assert length == len(batches) == len(plan)
    for groups, batch in zip(expected, batches, strict=True):
        assert_batch(case, batch, groups, side)


@pytest.mark.law("L1", "L8")
@given(case=cases())
def test_every_group_comes_once_and_whole(case):
    assume(case.ordinary and case.max_rows is None)
    rows = seen(case.loader())
    assert sorted(flat(rows)) == sorted(case.members)
    assert Counter(flat(flat(rows))) == Counter(range(len(case.ids)))


@pytest.mark.parametrize("shuffle", [False, True])
def test_every_group_comes_once_for_all_counts(shuffle):
    for groups, batch_size in itertools.product(range(1, 14), range(1, 16)):
        sizes = [1 + place * 5 % 4 for place in range(groups)]
        rows = numpy.repeat(numpy.arange(groups), sizes)
        dataset = bl.GroupDataset(rows, numpy.arange(len(rows)))
        loader = bl.DataLoader(dataset, batch_size, shuffle=shuffle)
        batches = list(loader)
        assert len(batches) == -(-groups // batch_size)
        counts = [len(set(found.tolist())) for found, _ in batches]
        assert counts == [batch_size] * (groups // batch_size) + [groups % batch_size] * (groups % batch_size > 0)
        assert sorted(numpy.concatenate([places for _, places in batches])) == list(range(len(rows)))


# L2: what the groups are called does not matter, nor how many threads there are


@given(case=cases(), random=st.randoms(use_true_random=False))
def test_other_names_for_the_same_groups_change_nothing(case, random):
    names = sorted(set(case.ids))
    other = dict(zip(names, random.sample(range(-(2**60), 2**60), len(names)), strict=True))
    texts = [f"query {other[name]}" for name in case.ids]
    expected = seen(case.loader())
    assert seen(case.loader(dataset=case.dataset(numpy.array([other[name] for name in case.ids])))) == expected
    assert seen(case.loader(dataset=case.dataset(texts))) == expected


@given(names=ids, rule=padding_rules | packings, random=st.randoms(use_true_random=False))
def test_where_rows_lie_does_not_matter(names, rule, random):
    """Rows in another order, the first ones of groups still in theirs and each group's among themselves."""
    case = Case(names, rule)
    assume(batching.refused(case.counting, case.sizes) is None and case.ordinary)
    groups = case.members
    turns = [number for number, rows in enumerate(groups) for _ in rows[1:]]
    random.shuffle(turns)
    queues = [iter(rows) for rows in groups]
    order = [next(queues[number]) for number in itertools.chain(range(len(groups)), turns)]
    moved = case.dataset(numpy.array(names)[order], row=numpy.array(order))
    assert seen(case.loader(dataset=moved)) == seen(case.loader())


@pytest.mark.law("L2")
@few
@given(case=cases() | cases(**subsampled), threads=st.integers(2, 5), prefetch=st.integers(0, 3))
def test_threads_change_nothing(case, threads, prefetch):
    loaders = [case.loader(num_threads=1), case.loader(num_threads=threads, prefetch=prefetch)]
    for _ in range(2):
        assert seen(loaders[0]) == seen(loaders[1])


@pytest.mark.parametrize("layout", ["concatenated", "padded"])
@pytest.mark.parametrize("spread", [False, True], ids=["together", "scattered"])
def test_batches_of_many_pieces_by_many_threads(layout, spread):
    """Larger than what one thread fills at a time, rows of widths that are copied in different ways."""
    random = numpy.random.default_rng(0)
    names = numpy.repeat(numpy.arange(900), random.integers(1, 9, 900))
    names = random.permutation(names) if spread else names
    rows = numpy.arange(len(names))
    wide = numpy.broadcast_to(rows[:, None], (len(rows), 150)).astype(numpy.int64)
    arrays = {"row": rows, "wide": wide, "turned": numpy.asfortranarray(wide[:, :20]), "none": wide[:, :0]}
    dataset = bl.GroupDataset(names, **arrays, layout=layout)
    groups = members(names)
    for batch_size in (7, 400):
        loader = bl.DataLoader(dataset, batch_size, shuffle=True, num_threads=3, pad_value=-1)
        for chosen, batch in zip(loader.plan(), loader, strict=True):
            assert held(batch) == [groups[group] for group in chosen]
            row = batch["row"][..., None]
            assert (batch["wide"] == row).all()
            assert (batch["turned"] == row).all()
            assert batch["none"].shape == (*batch["row"].shape, 0)
            known = batch["row"].ravel()[batch["row"].ravel() >= 0]
            first = names[[groups[group][0] for group in chosen]]
            assert (batch["group_ids"] == (names[known] if layout == "concatenated" else first)).all()


# L3, L4, L5: ranks, and going on after any step


@pytest.mark.law("L4")
@few
@given(case=cases() | cases(**subsampled), world_size=worlds, threads=st.integers(1, 3))
def test_resume_at_every_step(case, world_size, threads):
    rank = world_size - 1
    loader = case.loader(world_size, rank)
    plans = [loader.plan(epoch) for epoch in range(2)]
    assume(len(plans[0]))
    expected = [seen(loader) for _ in plans]
    assert list(map(len, expected)) == list(map(len, plans))
    resumed = replace(case, seed=case.seed // 2).loader(world_size, rank, num_threads=threads)
    assert_resumes(case.loader(world_size, rank), lambda: resumed, expected, seen)


@pytest.mark.law("L5")
@few
@given(
    case=cases(uneven="short") | cases(uneven="short", **subsampled),
    chain=st.lists(st.tuples(worlds, fractions), max_size=3),
    end=worlds,
)
def test_any_chain_of_worlds_delivers_each_batch_once(case, chain, end):
    loader = case.loader()
    before = ((case.loaders(world_size), stop) for world_size, stop in chain)
    assert chained(loader.state_dict(), before, case.loaders(end), seen) == seen(loader)


@pytest.mark.law("L3")
@given(case=cases(), world_size=worlds)
def test_ranks_take_as_many_steps_and_know_the_rows_of_each(case, world_size):
    loaders = case.loaders(world_size)
    plans = [loader.plan() for loader in loaders]
    batches = [seen(loader) for loader in loaders]
    lengths = {len(taken) for taken in batches}
    assert len(lengths) == 1 or (case.uneven == "short" and max(lengths) - min(lengths) == 1)
    for number in range(max(lengths)):
        groups = flat(taken[number] for taken in batches if number < len(taken))
        for plan in plans:
            step = plan.step(number)
            assert (step.samples, step.tokens) == (len(groups), len(flat(groups)))


@given(case=cases(uneven="short"))
def test_stats_are_a_recount(case):
    batches, stats = list(case.loader()), case.loader().plan().stats()
    sizes = [len(rows) for batch in batches for rows in held(batch)]
    size = [batch["row"].size for batch in batches]
    assert (stats["batches"], stats["samples"], stats["tokens"]) == (len(batches), len(case.sizes), sum(case.sizes))
    assert (stats["real"], stats["padded"], stats["largest"]) == (sum(sizes), sum(size), max(size))
    assert stats["dropped"] == len(case.sizes) - len(sizes)
    assert stats["dropped_tokens"] + stats["truncated_tokens"] == sum(case.sizes) - sum(sizes)
    assert stats["padding"] == pytest.approx(1 - sum(sizes) / sum(size))


# L6: budgets count rows


@pytest.mark.law("L6")
@given(case=cases(rule=batching.budgets | batching.optimals | packings))
def test_budgets_count_rows(case):
    rule = case.counting
    for batch in case.loader():
        sizes = [len(rows) for rows in held(batch)]
        assert sizes
        alone = len(sizes) == 1 and batching.too_large(rule, sizes[0]) and batching.policy(rule) == "alone"
        assert alone or rule.max_samples is None or len(sizes) <= rule.max_samples
        # Cost is that of padded batches, whatever the layout.
        counted = batch["row"].size if not isinstance(rule, bl.CostOptimal) else len(sizes) * max(sizes)
        counted = sum(sizes) if batching.counts_real(rule) else counted
        assert alone or rule.max_tokens is None or counted <= rule.max_tokens
        spread = getattr(rule, "max_length_spread", None)
        assert spread is None or max(sizes) - min(sizes) <= spread


def test_a_budget_counts_padding_only_where_there_is_any():
    names = numpy.repeat([0, 1, 2, 3], [9, 1, 1, 1])
    counts = {}
    for layout in ("concatenated", "padded"):
        dataset = bl.GroupDataset(names, names, layout=layout)
        counts[layout] = len(bl.DataLoader(dataset, batching=bl.TokenBudget(12)))
    assert counts == {"concatenated": 1, "padded": 2}


def test_packing_fills_batches():
    sizes = numpy.random.default_rng(0).integers(1, 9, 2000)
    loader = bl.DataLoader(bl.GroupDataset(numpy.repeat(numpy.arange(2000), sizes)), batching=bl.Packing(64))
    assert len(loader) == -(-int(sizes.sum()) // 64)
    assert loader.plan().stats()["efficiency"] > 0.99


# L7: another order for each seed and epoch


@pytest.mark.law("L7")
def test_seeds_and_epochs_differ_and_epochs_follow_by_themselves():
    case = Case(tuple(range(40)) * 3)
    epochs = {}
    for seed in range(3):
        loader = replace(case, seed=seed).loader()
        for epoch in range(3):
            assert loader.plan().epoch == epoch
            epochs[seed, epoch] = str(seen(loader))
    assert len(set(epochs.values())) == 9
    loader = case.loader()
    loader.set_epoch(2)
    assert str(seen(loader)) == epochs[0, 2]
    assert seen(replace(case, shuffle=False).loader())[0] == [[0, 40, 80], [1, 41, 81], [2, 42, 82]]


# Groups that are longer than max_rows


def thinned(case, epoch=0, **more):
    """The rows that are taken of each group, by the group's first row of all."""
    loader = case.loader(**more)
    loader.set_epoch(epoch)
    owner = {row: number for number, rows in enumerate(case.members) for row in rows}
    return {owner[rows[0]]: rows for rows in flat(seen(loader))}


@few
@given(
    names=ids,
    most=st.integers(1, 5),
    seed=st.integers(0, 2**64 - 1),
    batch_size=st.integers(1, 9),
    shuffle=st.booleans(),
    layout=st.sampled_from(["concatenated", "padded"]),
    epoch=st.integers(0, 3),
)
def test_a_subsample_depends_on_seed_epoch_and_group_alone(names, most, seed, batch_size, shuffle, layout, epoch):
    case = Case(names, bl.FixedSize(1), max_rows=most, oversize="subsample", seed=seed)
    expected = thinned(case, epoch)
    for rows, group in zip(case.members, sorted(expected), strict=True):
        taken = expected[group]
        assert len(taken) == min(len(rows), most)
        assert sorted(set(taken)) == taken
        assert set(taken) <= set(rows)
    other = replace(case, rule=bl.FixedSize(batch_size), shuffle=shuffle, layout=layout)
    assert thinned(other, epoch) == expected
    assert thinned(replace(other, rule=bl.LengthBuckets(batch_size)), epoch) == expected
    assert thinned(replace(other, ids=tuple(f"q{name}" for name in names)), epoch) == expected


def test_subsamples_are_fair_and_differ_between_groups_epochs_and_seeds():
    count, size, most = 3000, 5, 2
    case = Case(tuple(range(count)) * size, bl.FixedSize(count), max_rows=most, oversize="subsample", shuffle=False)
    picks = {}
    for seed, epoch in itertools.product(range(2), range(2)):
        taken = thinned(replace(case, seed=seed), epoch)
        picks[seed, epoch] = [tuple(row // count for row in taken[group]) for group in range(count)]
        chances = Counter(picks[seed, epoch])
        # Ten pairs, 300 of each expected, a standard deviation of 16.
        assert len(chances) == 10
        assert all(220 < found < 380 for found in chances.values())
    for one, other in itertools.combinations(picks.values(), 2):
        # As often as chance has it: one in ten.
        assert 200 < sum(a == b for a, b in zip(one, other, strict=True)) < 400


@given(names=ids, most=st.integers(1, 6), oversize=st.sampled_from(["truncate", "subsample"]))
def test_what_is_left_out_is_counted(names, most, oversize):
    case = Case(names, max_rows=most, oversize=oversize)
    sizes = [len(rows) for rows in case.members]
    stats = case.dataset().stats()
    assert (stats.groups, stats.rows, stats.longest) == (len(sizes), sum(sizes), max(sizes))
    assert stats.longer_groups == sum(size > most for size in sizes)
    assert stats.rows_left_out == sum(max(size - most, 0) for size in sizes)
    assert case.loader().plan().stats()["real"] == stats.rows - stats.rows_left_out


@pytest.mark.parametrize("rule", [bl.TokenBudget(5, oversize="truncate"), bl.Packing(5, oversize="truncate")])
def test_a_rule_that_truncates_takes_first_rows_of_groups_that_are_not_too_long(rule):
    names = numpy.repeat([1, 2], [10, 6])
    dataset = bl.GroupDataset(names, numpy.arange(16), max_rows=8, oversize="subsample")
    taken = [rows.tolist() for _, rows in bl.DataLoader(dataset, batching=rule)]
    assert [10, 11, 12, 13, 14] in taken


# L4 again: what interrupts the making of a batch loses none


@pytest.mark.parametrize("layout", ["concatenated", "padded"])
def test_interrupts_between_arrays_lose_nothing(layout, monkeypatch):
    names = numpy.arange(300) % 50
    dataset = bl.GroupDataset(names, numpy.arange(300), layout=layout)
    calls, received = [], []
    expected = [batch[1].tolist() for batch in bl.DataLoader(dataset, 2, shuffle=True)]

    def interrupted(take, lent):
        calls.append(take)
        if len(calls) in (1, 2, 5, 9, 40):
            raise KeyboardInterrupt
        return take(lent)

    def views(*options):
        return [field._replace(one=partial(interrupted, field.one)) for field in field_views(*options)]

    monkeypatch.setattr("batchloom.delivery.host.field_views", views)
    batches = iter(bl.DataLoader(dataset, 2, shuffle=True))
    while len(received) < len(expected):
        with contextlib.suppress(KeyboardInterrupt):
            received.append(next(batches)[1].tolist())
    assert received == expected
    assert next(batches, None) is None


# L11: what is held stays as it is

KEEP = """
    import sys
    import numpy
    import batchloom as bl

    layout, oversize = sys.argv[1:]
    random = numpy.random.default_rng(0)
    names = random.permutation(numpy.repeat(numpy.arange(1500), random.integers(1, 16, 1500)))
    rows = numpy.arange(len(names))
    wide = numpy.broadcast_to(rows[:, None], (len(rows), 64))
    options = {"max_rows": 8, "oversize": oversize} if oversize != "error" else {}
    dataset = bl.GroupDataset(names, row=rows, wide=wide, layout=layout, **options)
    loader = bl.DataLoader(dataset, 50, shuffle=True, num_threads=3, pad_value=-1)

    def check(batch):
        row = batch["row"]
        assert (batch["wide"] == row[..., None]).all()
        if layout == "padded":
            assert ((row >= 0) == batch["mask"]).all()
            owners = numpy.where(row >= 0, names[row], batch["group_ids"][:, None])
            assert (owners == batch["group_ids"][:, None]).all()
        else:
            assert (names[row] == batch["group_ids"]).all()
            assert len(set(batch["group_ids"])) == len(batch["offsets"]) - 1 <= 50

    held, count = [], 0
    for epoch in range(3):
        for batch in loader:
            count += 1
            check(batch)
            if count % 3 == 0:
                held.append(batch)
            del batch
    del loader, dataset
    for batch in held:
        check(batch)
    assert len(held) == 30
"""


@pytest.mark.law("L11")
@pytest.mark.parametrize(("layout", "oversize"), [("concatenated", "error"), ("padded", "subsample")])
def test_kept_batches_never_change(script, layout, oversize):
    script(KEEP, layout, oversize, BATCHLOOM_POISON=1)


@pytest.mark.parametrize("layout", ["concatenated", "padded"])
def test_batches_are_the_consumers_own(layout):
    case = Case((3, 1, 3, 2, 2, 1), layout=layout, shuffle=False)
    dataset = case.dataset()
    for _ in range(2):
        (batch,) = case.loader(dataset=dataset)
        assert_batch(case, batch, [0, 1, 2])
        for array in batch.values():
            assert array.flags.c_contiguous
            assert array.ctypes.data % 64 == 0
            array[...] = 0


# Other processes


@given(case=cases() | cases(**subsampled))
def test_a_dataset_that_travels_gives_the_same_batches(case):
    travelled = pickle.loads(pickle.dumps(case.dataset()))
    assert seen(case.loader(dataset=travelled)) == seen(case.loader())
    assert travelled.stats() == case.dataset().stats()


@pytest.mark.parametrize("layout", ["concatenated", "padded"])
@pytest.mark.parametrize("rule", [bl.FixedSize(3), bl.TokenBudget(12), bl.CostOptimal(bl.CostModel(5, 1, 0))], ids=str)
def test_a_plan_that_travels_is_the_same_plan(layout, rule):
    plan = Case((1, 1, 1, 1, 1, 1, 2, 3, 4, 4), rule, layout).loader().plan()
    travelled = pickle.loads(pickle.dumps(plan))
    assert travelled.stats() == plan.stats()
    assert [batch.tolist() for batch in travelled] == [batch.tolist() for batch in plan]
    assert travelled == plan


RANK = """
    import json
    import os
    import sys
    import torch
    import torch.distributed as distributed
    import batchloom as bl

    path, stop = sys.argv[1:]
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    distributed.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=world)
    names = torch.arange(300) * 7 % 41
    dataset = bl.GroupDataset(names, rows=torch.arange(300), max_rows=6, oversize="subsample")
    loader = bl.DataLoader(dataset, batching=bl.TokenBudget(20), shuffle=True, seed=3, uneven="short")
    assert (loader.rank, loader.world_size) == (rank, world)
    plan, seen = loader.plan(), []
    for step, batch in zip(range(int(stop)), loader):
        total = torch.tensor([len(batch["rows"]), len(batch["offsets"]) - 1])
        distributed.all_reduce(total)
        assert total.tolist() == [plan.step(step).tokens, plan.step(step).samples]
        seen.append(batch["rows"].tolist())
    print(json.dumps({"seen": seen, "state": loader.state_dict()}))
    distributed.barrier()
    distributed.destroy_process_group()
"""


def test_ranks_that_talk_and_a_world_that_changes(ranks, tmp_path):
    found = ranks(RANK, 2, tmp_path / "meeting", 4)
    assert found[0]["state"] == found[1]["state"]
    dataset = bl.GroupDataset(torch.arange(300) * 7 % 41, rows=torch.arange(300), max_rows=6, oversize="subsample")
    options = {"batching": bl.TokenBudget(20), "shuffle": True, "uneven": "short"}
    received = flat(rank["seen"] for rank in found)
    for rank in range(3):
        loader = bl.DataLoader(dataset, **options, seed=9, rank=rank, world_size=3)
        loader.load_state_dict(found[0]["state"])
        received += [batch["rows"].tolist() for batch in loader]
    whole = [batch["rows"].tolist() for batch in bl.DataLoader(dataset, **options, seed=3)]
    assert sorted(received) == sorted(whole)
