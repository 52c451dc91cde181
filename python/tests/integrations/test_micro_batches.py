"""The adapters of the guide, as they stand there, beside the functions of verl and TRL that they replace.

A peer that is not installed is skipped: ``pip install --no-deps verl==0.9.1 trl==1.16.0`` is enough, as the planners
are read from the wheels.
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


@few
@given(lengths=rollouts, ranks=st.integers(1, 4), stages=st.integers(1, 3))
def test_a_schedule_of_slime_has_every_sample_on_one_rank(lengths, ranks, stages):
    lengths = lengths * ranks * stages
    partitions, indices, count = guide.schedule(lengths, ranks, 4000, stages)
    assert sorted(set(flat(partitions))) == list(range(len(lengths)))
    assert count % stages == 0
    assert all(len(of_rank) == count for of_rank in indices)
    for partition, of_rank in zip(partitions, indices, strict=True):
        assert flat(of_rank) == list(range(len(partition)))
        for places in of_rank:
            assert len(places) == 1 or sum(lengths[partition[place]] for place in places) <= 4000


@few
@given(lengths=rollouts)
def test_ranges_of_unirl_cover_an_order_of_the_samples(lengths):
    order, ranges = guide.plan_ranges(lengths, 8192)
    assert sorted(order) == list(range(len(lengths)))
    assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
    assert ranges[-1][1] == len(order)
    assert all(sum(lengths[sample] for sample in order[start:end]) <= 8192 for start, end in ranges)
