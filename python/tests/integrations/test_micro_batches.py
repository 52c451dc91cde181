"""The adapters of the guide, as they stand there, beside the functions of others that they replace.

A peer that is not installed is skipped: ``pip install --no-deps verl==0.9.1 trl==1.16.0`` is enough, as the planners
are read from the wheels. ``BENCH_PEERS`` names a folder with checkouts of slime and UniRL.
"""

import itertools
import re
import sys
import types
from pathlib import Path

import batchloom as bl
import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))
peers = pytest.importorskip("bench.balance.peers")
sys.path.remove(str(ROOT))

PAGE = (ROOT / "docs" / "planning-micro-batches.md").read_text(encoding="utf-8")
BLOCKS = [block for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)]
ADAPTERS = [block for block in BLOCKS if block.startswith(("def ", "class "))]
SPACE = {"bl": bl, "np": numpy}
for adapter in ADAPTERS:
    exec(adapter, SPACE)
guide = types.SimpleNamespace(**SPACE)


def flat(parts):
    """All elements of some lists, in order."""
    return list(itertools.chain(*parts))


rollouts = st.lists(st.integers(1, 4096), min_size=1, max_size=64)
few = settings(max_examples=60)


@pytest.fixture(scope="module")
def verl():
    found = peers.load_verl()
    if found is None:
        pytest.skip("verl is not installed")
    return found


@pytest.fixture(scope="module")
def trl():
    found = peers.load_trl()
    if found is None:
        pytest.skip("trl is not installed")
    return found


@pytest.fixture(scope="module")
def slime():
    found = peers.load_slime()
    if found is None:
        pytest.skip("no checkout of slime")
    return found


@pytest.fixture(scope="module")
def unirl():
    found = peers.load_unirl()
    if found is None:
        pytest.skip("no checkout of UniRL")
    return found


def test_an_adapter_has_twenty_lines_at_most():
    functions = [part for block in ADAPTERS for part in block.strip().split("\n\n\n")]
    assert len(functions) == 5
    assert all(len([line for line in part.splitlines() if line.strip()]) <= 20 for part in functions)


@few
@given(lengths=rollouts, parts=st.integers(1, 8), equal=st.booleans())
def test_partitions_are_as_even_as_those_of_verl(verl, lengths, parts, equal):
    lengths = (lengths * parts)[: len(lengths) // parts * parts or parts] if equal else lengths * parts
    work = verl.calculate_workload(torch.tensor(lengths)).tolist()
    theirs = verl.get_seqlen_balanced_partitions(work, k_partitions=parts, equal_size=equal)
    ours = guide.get_seqlen_balanced_partitions(work, k_partitions=parts, equal_size=equal)
    assert sorted(flat(ours)) == list(range(len(lengths)))
    assert all(part == sorted(part) and part for part in ours)
    assert len(ours) == parts
    if equal:
        assert {len(part) for part in ours} == {len(lengths) // parts}
    most = [max(sum(work[sample] for sample in part) for part in found) for found in (ours, theirs)]
    assert most[0] <= most[1] * 1.001


@few
@given(lengths=rollouts, cap=st.integers(4096, 16_384), least=st.integers(1, 3), stages=st.integers(1, 2))
def test_micro_batches_are_no_more_than_those_of_verl(verl, lengths, cap, least, stages):
    mask = torch.zeros(len(lengths), 4096, dtype=torch.int64)
    for sample, length in enumerate(lengths):
        mask[sample, :length] = 1
    batch = {"input_ids": mask, "attention_mask": mask}
    options = {"num_batches_divided_by": stages}
    try:
        _, theirs = verl.rearrange_micro_batches(batch, cap, min_num_micro_batch=least, **options)
    except (ValueError, AssertionError):
        return  # fewer samples than micro-batches
    ours = guide.rearrange_micro_batches(lengths, cap, least=least, **options)
    assert sorted(flat(ours)) == sorted(flat(theirs)) == list(range(len(lengths)))
    assert len(ours) <= len(theirs)
    assert len(ours) >= least
    assert len(ours) % stages == 0
    assert all(sum(lengths[sample] for sample in part) <= cap for part in ours)
    # What verl restores with its lists, it restores with ours.
    results = torch.tensor([float(length) for part in ours for length in (lengths[sample] for sample in part)])
    assert verl.restore_dynamic_batch(results, ours).tolist() == lengths


@few
@given(lengths=rollouts, size=st.integers(1, 4))
def test_groups_of_verl_stay_in_a_micro_batch(verl, lengths, size):
    lengths = lengths * size
    ours = guide.rearrange_micro_batches(lengths, 4096 * size, force_group_size=size)
    for part in ours:
        assert sorted(part) == [
            sample for sample in range(len(lengths)) if sample // size in {at // size for at in part}
        ]


@few
@given(lengths=st.lists(st.integers(1, 600), max_size=200), ranks=st.integers(1, 4), budget=st.integers(256, 1024))
def test_rows_of_a_stream_fill_ranks_and_are_no_more_than_those_of_trl(trl, lengths, ranks, budget):
    stream = [peers.make_sample(number, length) for number, length in enumerate(lengths)]
    theirs = list(trl(stream, ranks, budget, {"batch/dropped_oversize_total": []}))
    ours = list(guide.TokenBudgetBatcher(stream, ranks, budget))
    taken = [sample["number"] for rows in ours for row in rows for sample in row]
    fitting = [number for number, length in enumerate(lengths) if length <= budget]
    assert len(taken) == len(set(taken))
    assert set(taken) <= set(fitting)
    # The end of the stream waits for more samples, as TRL's open micro-batch does; the oldest have gone.
    assert len(fitting) - len(taken) < ranks
    assert sorted(taken) == fitting[: len(taken)]
    for rows in ours:
        assert len(rows) == ranks
        assert all(rows)
        assert all(sum(sample["n"] for sample in row) <= budget for row in rows)
    assert len(ours) <= len(theirs) + 2


SHAPE = {"hidden_size": 64, "num_attention_heads": 4, "num_query_groups": 2, "vocab_size": 1000, "kv_channels": 16}
SLIME = types.SimpleNamespace(
    **SHAPE, ffn_hidden_size=256, num_experts=None, num_layers=2, use_dynamic_batch_size=True,
    max_tokens_per_gpu=4000, balance_data=True, balance_by_flops=False,
)  # fmt: skip


def parallel(ranks, stages):
    sizes = {"dp_size": ranks, "cp_size": 1, "vpp_size": min(stages, 2)}
    return sizes | {"microbatch_group_size_per_vp_stage": stages}


def check_schedule(schedule, lengths, kept, stages):
    """The invariants that slime documents: every kept sample on one rank, equal counts, the cap."""
    partitions, indices, counts, _ = schedule
    assert sorted(flat(partitions)) == kept
    assert all(count % stages == 0 for count in counts)
    assert all(len(of_rank) == sum(counts) for of_rank in indices)
    for partition, of_rank in zip(partitions, indices, strict=True):
        assert flat(of_rank) == list(range(len(partition)))
        for places in of_rank:
            assert len(places) == 1 or sum(lengths[partition[place]] for place in places) <= SLIME.max_tokens_per_gpu


schedules = given(
    lengths=rollouts, ranks=st.integers(1, 4), stages=st.integers(1, 3), each=st.integers(1, 3), steps=st.integers(1, 2)
)


def rollouts_of_slime(lengths, ranks, stages, each, steps):
    """Lengths of samples, the rollout of each, and the rollouts of a step; some rollouts are too many."""
    lengths = lengths * ranks * stages * steps
    owners = [7 * (sample // each) for sample in range(len(lengths))]
    return lengths, owners, max(len(set(owners)) // steps, 1)


@few
@schedules
def test_a_schedule_of_slime_has_every_sample_on_one_rank(lengths, ranks, stages, each, steps):
    lengths, owners, size = rollouts_of_slime(lengths, ranks, stages, each, steps)
    options = {"global_batch_size": size, "rollout_indices": owners}
    try:
        schedule = guide.build_dp_schedule(SLIME, parallel(ranks, stages), lengths, **options)
    except AssertionError:
        return  # fewer samples than micro-batches
    chosen = set(list(dict.fromkeys(owners))[: len(set(owners)) // size * size])
    check_schedule(schedule, lengths, [sample for sample, owner in enumerate(owners) if owner in chosen], stages)
    assert schedule[3] == [size] * len(schedule[2])


@few
@schedules
def test_micro_batches_are_no_more_and_no_less_even_than_those_of_slime(slime, lengths, ranks, stages, each, steps):
    lengths, owners, size = rollouts_of_slime(lengths, ranks, stages, each, steps)
    options = {"global_batch_size": size, "rollout_indices": owners}
    config = parallel(ranks, stages)
    try:
        theirs = slime.build_dp_schedule(SLIME, config, lengths, **options)
    except AssertionError:
        return  # fewer samples than micro-batches
    one, two = (slime.calculate_fwd_flops([length], SLIME) for length in (1, 2))
    cost = bl.CostModel(per_token=one - (two - 2 * one) / 2, per_pair=(two - 2 * one) / 2)
    ours = guide.build_dp_schedule(SLIME, config, lengths, **options, cost=cost)
    check_schedule(theirs, lengths, sorted(flat(theirs[0])), stages)
    check_schedule(ours, lengths, sorted(flat(theirs[0])), stages)
    assert ours[3] == theirs[3]
    assert all(count <= other for count, other in zip(ours[2], theirs[2], strict=True))
    if ours[2] == theirs[2] and len(ours[2]) == 1:
        work = [slime.calculate_fwd_flops([length], SLIME) for length in lengths]
        most = [max(sum(work[sample] for sample in part) for part in found[0]) for found in (ours, theirs)]
        assert most[0] <= most[1] * 1.001


def check_ranges(order, plan, lengths, updates, budget):
    """Each update keeps its samples, in ranges one behind the other that hold the budget."""
    size = len(lengths) // updates
    assert len(plan) == updates
    for number, ranges in enumerate(plan):
        block = range(number * size, (number + 1) * size)
        assert sorted(order[start] for start in block) == list(block)
        assert [start for start, _ in ranges] == [block.start, *(end for _, end in ranges[:-1])]
        assert ranges[-1][1] == block.stop
        for start, end in ranges:
            assert end - start == 1 or sum(lengths[sample] for sample in order[start:end]) <= budget


@few
@given(lengths=rollouts, updates=st.integers(1, 3), more=st.integers(0, 2))
def test_ranges_of_unirl_cover_an_order_of_the_samples(lengths, updates, more):
    lengths = lengths * updates
    agree = lambda count: min(count + more, len(lengths) // updates)  # noqa: E731
    order, plan = guide.plan_ranges(lengths, 4000, updates, agree)
    check_ranges(order, plan, lengths, updates, 4000)
    counts = [len(ranges) for ranges in guide.plan_ranges(lengths, 4000, updates)[1]]
    assert [len(ranges) for ranges in plan] == [agree(count) for count in counts]


class Part:
    """The samples of a rank, as UniRL's planner asks them."""

    def __init__(self, lengths, order=None):
        self.batch_size, self.order, self.conditions = len(lengths), order, {}
        self.segment = types.SimpleNamespace(lengths=torch.tensor(lengths))
        self.select = lambda order: Part([lengths[sample] for sample in order], order)


@few
@given(lengths=rollouts, updates=st.integers(1, 3), budget=st.integers(1000, 9000))
def test_micro_batches_are_no_more_than_those_of_unirl(unirl, lengths, updates, budget):
    lengths = lengths * updates
    part, theirs = unirl(token_budget=budget, cost_model="sum").arrange(
        Part(lengths), num_updates=updates, micro_batch_size=1
    )
    check_ranges(part.order, theirs, lengths, updates, budget)
    order, ours = guide.plan_ranges(lengths, budget, updates)
    check_ranges(order, ours, lengths, updates, budget)
    assert all(len(ranges) <= len(others) for ranges, others in zip(ours, theirs, strict=True))
