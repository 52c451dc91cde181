"""Several budgets at once: what batches hold by each, with every option of a plan, and sizes by name of datasets."""

import itertools
import json
import pickle

import batchloom as bl
import numpy
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

LENGTHS = [3, 1, 7, 2, 12, 5, 1, 9, 4, 4, 11, 6, 0, 8, 2, 10, 5, 3, 3, 7, 1, 6, 12, 2, 9, 1, 1, 4, 8, 5, 2]
IMAGES = [place % 5 if place % 3 == 0 else 0 for place in range(len(LENGTHS))]
RULES = [
    bl.Packing({"x": 20, "images": 5}, pool=12),
    bl.Packing({"x": 14, "images": 4}, max_samples=3),
    bl.Packing({"images": 4, "x": 9}, oversize="split", pool=20),
    bl.Packing({"x": 20, "images": 3}, oversize="drop", order="decreasing"),
    bl.TokenBudget({"x": 30, "images": 6}, pool=12),
    bl.TokenBudget({"x": 24, "images": 4}, count="real", max_length_spread=6),
    bl.TokenBudget({"x": 11, "images": 5}, oversize="truncate", max_samples=4),
    bl.TokenBudget({"images": 3}, oversize="alone"),
]
names = st.sampled_from(["x", "images", "bonds"])


def named(rule):
    return str(rule).replace(" ", "")


def samples(lengths=LENGTHS, images=IMAGES):
    offsets = numpy.concatenate([[0], numpy.cumsum(lengths, dtype=numpy.int64)])
    return bl.SequenceDataset(x=(numpy.arange(offsets[-1]), offsets), sizes={"images": images})


def run(rule, dataset=None, world_size=1, rank=0, **options):
    options = {"shuffle": True, "seed": 3, "output": "numpy", "num_threads": 1} | options
    return bl.DataLoader(dataset or samples(), batching=rule, world_size=world_size, rank=rank, **options)


def lengths_of(batch):
    return numpy.diff(batch["cu_seqlens"]) if "cu_seqlens" in batch else batch["lengths"]


def counted(rule, name, batch, sizes):
    """What a budget counts of a batch, by definition."""
    each = (
        lengths_of(batch) if name == "x" else numpy.where(batch["index"] < 0, 0, numpy.asarray(sizes)[batch["index"]])
    )
    pads = isinstance(rule, bl.TokenBudget) and rule.count == "padded" and name == "x"
    return int(each.max() * len(each) if pads else each.sum())


def assert_within(rule, batches, sizes=IMAGES):
    for batch in batches:
        alone = len(batch["index"]) == 1 and rule.oversize == "alone"
        for name, limit in rule.max_tokens.items():
            assert alone or counted(rule, name, batch, sizes) <= limit, (name, batch)


def seen(batches):
    """The samples of batches, and the elements that they hold of each."""
    return [(batch["index"].tolist(), lengths_of(batch).tolist()) for batch in batches]


@pytest.mark.law("L1", "L6")
@pytest.mark.parametrize("rule", RULES, ids=named)
@pytest.mark.parametrize("uneven", ["pad", "mask", "short"])
@pytest.mark.parametrize("balance", [False, True])
def test_no_budget_is_exceeded_and_every_sample_comes(rule, uneven, balance):
    options = {"uneven": uneven, "balance": balance}
    for world_size in (1, 3):
        ranks = [run(rule, world_size=world_size, rank=rank, **options) for rank in range(world_size)]
        batches = list(itertools.chain.from_iterable(ranks))
        assert_within(rule, batches)
        stats = ranks[0].plan().stats()
        came = {sample for batch in batches for sample in batch["index"].tolist() if sample >= 0}
        lost = {
            sample
            for sample, pair in enumerate(zip(LENGTHS, IMAGES, strict=True))
            if rule.oversize == "drop"
            and any(size > rule.max_tokens.get(name, 99) for name, size in zip(("x", "images"), pair, strict=True))
        }
        assert came == set(range(len(LENGTHS))) - lost
        assert stats["dropped"] == len(lost)
        assert list(stats["budgets"]) == sorted(rule.max_tokens)
        assert stats["binding_fill"] == stats["budgets"][stats["binding"]]["fill"] == stats["efficiency"]
        assert stats["batches"] >= stats["lp_bound"]


@pytest.mark.law("L4", "L5")
@pytest.mark.parametrize("rule", RULES, ids=named)
def test_runs_resume_at_every_step_and_in_another_world(rule):
    whole = run(rule, uneven="short")
    epoch = seen(whole)
    for step in range(len(epoch) + 1):
        loader = run(rule, uneven="short")
        taken = list(itertools.islice(loader, step))
        state = json.loads(json.dumps(loader.state_dict()))
        again = run(rule, uneven="short")
        again.load_state_dict(state)
        assert seen(taken) + seen(again) == (epoch if step < len(epoch) else epoch + seen(whole))
        if not 0 < step < len(epoch):
            continue
        rest = []
        for rank in range(2):
            other = run(rule, uneven="short", world_size=2, rank=rank)
            other.load_state_dict(state)
            rest += seen(other)
        assert sorted(seen(taken) + rest) == sorted(epoch)


@pytest.mark.law("L1", "L6")
@pytest.mark.parametrize("rule", RULES, ids=named)
def test_draws_bans_keys_and_shards(rule):
    count = len(LENGTHS)
    for options in (
        {"ban": [1, 4, 30]},
        {"weights": numpy.arange(1, count + 1), "num_samples": 50},
        {"num_samples": 45},
        {"shard_size": 10},
        {"homogeneous_by": [place % 2 for place in range(count)]},
        {"shuffle": False},
        {"largest_first": True},
    ):
        batches = list(run(rule, **options))
        assert batches
        for batch in batches:
            assert_within(rule, [batch])
        plan = run(rule, **options).plan()
        for step in range(len(plan)):
            for name, limit in rule.max_tokens.items():
                if name == "images" and rule.oversize != "alone":
                    assert numpy.asarray(IMAGES)[plan[step]].sum() <= limit


@pytest.mark.law("L6")
def test_mixtures_by_tokens():
    half = len(LENGTHS) // 2
    first, second = samples(LENGTHS[:half], IMAGES[:half]), samples(LENGTHS[half:], IMAGES[half:])
    mixture = bl.Mixture({"a": first, "b": second}, weights={"a": 0.3, "b": 0.7}, by="tokens")
    rule = RULES[0]
    batches = list(run(rule, mixture))
    assert_within(rule, batches)
    assert_within(rule, run(rule, bl.ConcatDataset([first, second])))
    assert_within(rule, run(rule, samples().select(range(5, 25))), IMAGES[5:25])


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(0, 30)), min_size=1, max_size=80),
    st.dictionaries(names, st.integers(30, 90), min_size=1),
    st.booleans(),
    st.booleans(),
)
def test_every_division_is_within_budgets(rows, limits, packs, shuffle):
    sizes = {name: [row[place] for row in rows] for place, name in enumerate(("x", "images", "bonds"))}
    rule = bl.Packing(limits) if packs else bl.TokenBudget(limits, count="real")
    plan = bl.Plan(sizes=sizes, batching=rule, shuffle=shuffle)
    assert sorted(sample for batch in plan for sample in batch.tolist()) == list(range(len(rows)))
    for batch in plan:
        for name, limit in limits.items():
            assert numpy.asarray(sizes[name])[batch].sum() <= limit
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert bl.Plan(sizes=sizes, batching=type(rule)(dict(reversed(limits.items())), **_count(rule))) == bl.Plan(
        sizes=sizes, batching=rule
    )


def _count(rule):
    return {} if isinstance(rule, bl.Packing) else {"count": "real"}


def test_rules_are_values():
    rule = bl.Packing({"text": 9, "images": 3}, max_samples=2)
    same = bl.Packing({"images": 3, "text": 9}, max_samples=2)
    assert rule == same
    assert hash(rule) == hash(same)
    assert rule != bl.Packing({"text": 9}, max_samples=2)
    assert pickle.loads(pickle.dumps(rule)) == rule
    assert repr(rule).startswith("Packing(max_tokens={'text': 9, 'images': 3}")
    assert rule.max_tokens == {"text": 9, "images": 3}
    limits = {"text": 9}
    rule = bl.TokenBudget(limits)
    limits["text"] = 1
    assert rule.max_tokens["text"] == 9
    odd = bl.Plan(sizes={'a+b=%,"\\': [1, 2]}, batching=bl.Packing({'a+b=%,"\\': 3}))
    assert len(odd) == 1


def test_names_of_fields_need_no_sizes():
    random = numpy.random.default_rng(0)
    source, target = random.integers(1, 9, 40), random.integers(0, 20, 40)
    fields = {
        "source": [numpy.arange(count) for count in source],
        "target": [numpy.arange(count) for count in target],
    }
    dataset = bl.SequenceDataset(**fields, own_lengths=["target"], sizes={"pairs": "target", "cost": source * target})
    rule = bl.TokenBudget({"source": 40, "target": 70, "pairs": 90, "cost": 900}, multiple_of=4)
    for batch in bl.DataLoader(dataset, batching=rule, shuffle=True, output="numpy"):
        assert batch["source"].size <= 40
        assert batch["target"].size <= 70
        assert (source * target)[batch["index"]].sum() <= 900
    picked = dataset.select(range(3, 20))
    for each in (picked, pickle.loads(pickle.dumps(picked))):
        plan = bl.DataLoader(each, batching=rule).plan()
        assert sum(len(batch) for batch in plan) == 17
        assert plan.stats()["budgets"]["cost"]["sum"] == (source * target)[3:20].sum()
    # Numbers to sort by beside budgets for the lengths of fields.
    own = bl.SequenceDataset(source=fields["source"], sizes=source[::-1].copy())
    for batch in bl.DataLoader(own, batching=bl.TokenBudget({"source": 30}), output="numpy"):
        assert batch["source"].size <= 30


def test_samples_on_demand_and_in_chunks():
    nodes, edges = numpy.array(LENGTHS), numpy.array(LENGTHS) * 3 % 17
    rule = bl.Packing({"nodes": 20, "edges": 40})
    made = bl.MapDataset(LENGTHS, numpy.arange, sizes={"nodes": nodes, "edges": edges})
    chunked = bl.ChunkDataset(
        [16, 15],
        lambda chunk: {"x": [numpy.arange(count) for count in LENGTHS[16 * chunk : 16 * chunk + 16]]},
        lengths={"nodes": nodes, "edges": list(edges)},
    )
    for dataset in (made, chunked, made.select(range(20)), pickle.loads(pickle.dumps(made))):
        plan = bl.DataLoader(dataset, batching=rule, shuffle=True).plan()
        assert sum(len(batch) for batch in plan) == len(dataset)
        for batch in plan:
            rows = numpy.asarray(dataset.indices)[batch] if len(dataset) < len(LENGTHS) else batch
            assert nodes[rows].sum() <= 20
            assert edges[rows].sum() <= 40
    twice = bl.DataLoader(bl.Mixture({"a": made, "b": made}), batching=rule, shuffle=True).plan()
    assert max(edges[batch % len(edges)].sum() for batch in twice) <= 40
    assert twice.stats()["budgets"].keys() == {"nodes", "edges"}
    for batch in bl.DataLoader(made, batching=rule, output="numpy"):
        assert edges[batch[-1]].sum() <= 40
    found = bl.compare({"nodes": nodes, "edges": edges}, [rule, bl.Packing(20)])
    assert found.rules[0].stats["binding"] in ("nodes", "edges")


def test_one_number_keeps_its_fingerprint():
    plain = bl.Plan(sizes=LENGTHS, batching=bl.Packing(20), shuffle=True)
    named_too = bl.Plan(sizes={"x": LENGTHS, "images": IMAGES}, batching=bl.Packing(20), shuffle=True)
    assert plain.fingerprint == named_too.fingerprint
    assert "budgets" not in plain.stats()
    assert "binding" not in plain.stats()


def test_reports_name_the_budget_that_binds(tmp_path):
    plan = bl.Plan(sizes={"x": LENGTHS, "images": IMAGES}, batching=bl.Packing({"x": 20, "images": 9}), shuffle=True)
    plan.report(tmp_path / "plan.html")
    page = (tmp_path / "plan.html").read_text()
    assert "binding_fill" in page
    assert "images " in page
    assert "lp_bound" in plan._repr_html_()


def test_a_sample_that_exceeds_one_budget_alone():
    sizes = {"text": [50, 4, 5], "images": [0, 9, 1]}
    for policy in ("error", "truncate", "split"):
        with refused(bl.DataError, "sample 1", "size 9", '"images"', "budget of 8") as caught:
            bl.Plan(sizes=sizes, batching=bl.Packing({"text": 60, "images": 8}, oversize=policy))
        assert caught.value.__class__ is bl.DataError
    for policy in ("error", "truncate"):
        with refused(bl.DataError, "sample 1", "size 9", '"images"', "budget of 8"):
            bl.Plan(sizes=sizes, batching=bl.TokenBudget({"text": 60, "images": 8}, oversize=policy))
    with refused(bl.DataError, "sample 0", "size 50", '"text"', "budget of 40"):
        bl.DataLoader(
            bl.MapDataset([50, 4, 5], numpy.arange, sizes=sizes), batching=bl.Packing({"text": 40, "images": 9})
        ).plan()
    for rule, left in (
        (bl.Packing({"text": 40, "images": 8}, oversize="drop"), [2]),
        (bl.TokenBudget({"text": 40, "images": 8}, oversize="drop"), [2]),
        (bl.TokenBudget({"text": 40, "images": 8}, oversize="alone"), [0, 1, 2]),
        (bl.Packing({"text": 40, "images": 9}, oversize="truncate"), [0, 1, 2]),
        (bl.Packing({"text": 40, "images": 9}, oversize="split"), [0, 0, 1, 2]),
    ):
        plan = bl.Plan(sizes=sizes, batching=rule)
        assert sorted(sample for batch in plan for sample in batch.tolist()) == left


def test_bad_input_is_refused_before_the_first_batch():
    dataset = samples()
    with refused(bl.ArgumentError, '"image"', '"x"', '"images"'):
        bl.DataLoader(dataset, batching=bl.Packing({"image": 3})).plan()
    with refused(bl.ArgumentError, '"nodes"'):
        bl.Plan(sizes=LENGTHS, batching=bl.TokenBudget({"nodes": 30}))
    with refused(bl.DataError, "sizes['patches']", "sample 1", "-4"):
        bl.SequenceDataset(x=[[1], [2]], sizes={"patches": [3, -4]})
    with refused(bl.DataError, "sizes['patches']", "sample 0", "0.5"):
        bl.MapDataset([1, 2], sizes={"patches": [0.5, 1]})
    with refused(bl.DataError, "sizes['patches']", "3", "2 samples"):
        bl.MapDataset([1, 2], sizes={"nodes": [1, 2], "patches": [1, 2, 3]})
    with refused(bl.DataError, '"patches"', "3", "2 samples"):
        bl.SequenceDataset(x=[[1], [2]], sizes={"patches": [3, 4, 5]})
    with refused(bl.DTypeError, "sizes['patches']"):
        bl.SequenceDataset(x=[[1], [2]], sizes={"patches": [None, "a"]})
    with refused(bl.ArgumentError, '"x"'):
        bl.SequenceDataset(x=[[1], [2]], sizes={"x": [3, 4]})
    with refused(bl.ArgumentError, '"y"', '"x"'):
        bl.SequenceDataset(x=[[1], [2]], sizes={"patches": "y"})
    for given_names in ({}, {3: [1, 2]}, {"": [1, 2]}):
        with refused(bl.ArgumentError, "sizes"):
            bl.MapDataset([1, 2], sizes=given_names)
    for limits in ({}, {"x": 0}, {"x": -1}, {"x": 2.5}, {3: 4}, {"": 4}, {str(each): 1 for each in range(9)}):
        for rule in (bl.Packing, bl.TokenBudget):
            with refused(bl.ArgumentError, "max_tokens" if len(limits) < 9 else "budgets"):
                rule(limits)
    with refused(bl.ArgumentError, str(2**29)):
        bl.Packing({"x": 2**29})
    for option in ({"rows": 2}, {"rests": "continue"}):
        with refused(bl.ArgumentError, *option):
            bl.Plan(sizes={"x": [1, 2]}, batching=bl.Packing({"x": 5}, **option))
    with refused(bl.ArgumentError, "TokenBudget", "2"):
        images = bl.SequenceDataset(x=[numpy.zeros((2, 3)), numpy.zeros((4, 1))])
        bl.DataLoader(images, batching=bl.TokenBudget({"x": 30})).plan()


def test_fields_with_these_lengths_give_sizes_their_names(tmp_path):
    random = numpy.random.default_rng(0)
    lists = [random.integers(0, 9, length) for length in random.integers(0, 30, 90)]
    lengths = [len(each) for each in lists]
    table = pyarrow.table({"ids": pyarrow.array(lists, pyarrow.list_(pyarrow.int64())), "row": numpy.arange(90)})
    pyarrow.parquet.write_table(table, tmp_path / "lists.parquet", row_group_size=20)
    chunks = bl.ChunkDataset(
        [30] * 3, lambda chunk: {"ids": lists[30 * chunk : 30 * chunk + 30]}, lengths=lengths, columns=["ids"]
    )
    items = bl.MapDataset([{"ids": each} for each in lists], sizes=lengths, columns=["ids"])
    for dataset in (bl.open(tmp_path / "lists.parquet"), chunks, items):
        for rule in (bl.Packing({"ids": 64}), bl.TokenBudget({"ids": 200})):
            batches = list(bl.DataLoader(dataset, batching=rule, shuffle=True))
            assert sorted(itertools.chain(*(batch["index"].tolist() for batch in batches))) == list(range(90))
            assert all(batch["ids"].size <= 200 for batch in batches)
        with pytest.raises(bl.ArgumentError, match="no sizes of this name"):
            bl.DataLoader(dataset, batching=bl.Packing({"row": 64}))
