"""Random configurations of every kind of data: a dataset, the options of its loaders, and what a batch has to hold.

A configuration follows from its random numbers alone, so that the seed and the number of a failure repeat it. What a
batch holds is said by the oracles, slowly; the order of samples is the plan's, which the rules' definitions check.
"""

import contextlib
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import batchloom as bl
import numpy
from oracles import batching, graphs, groups, packed_rows, timed, tokens, windows
from oracles.devices import blocks
from oracles.sequences import padded
from oracles.windows import pretended

# The ways in which the batches of one order are made: on the host and, pretended, on a device.
HOST = (
    {},
    {"num_threads": 1},
    {"num_threads": 3, "prefetch": 3},
    {"prefetch": 0},
    {"resident": False, "output": "torch"},
    {"output": "torch"},
)
DEVICE = ({"device": "meta"}, {"device": "meta", "resident": False})


@dataclass(frozen=True)
class Configuration:
    """A dataset and the options of its loaders.

    Attributes:
        text: Says all of it.
        dataset: The dataset.
        options: The options of its loaders; ``uneven`` and ``drop_last`` among them.
        check: Compares a batch with what its samples are, by definition.
        sizes: The sizes that rules see; ``None`` where samples are all alike.
        ways: Options of loaders that change no value.
    """

    text: str
    dataset: Any
    options: dict[str, Any]
    check: Callable[[Any, Sequence[int]], None]
    sizes: list[int] | None
    ways: tuple[dict[str, Any], ...]

    @property
    def counting(self):
        """The rule as it counts: samples one after the other have no padding, so that every row counts and no other."""
        concatenated = self.text.startswith(("groups", "graphs")) and "layout='concatenated'" in self.text
        is_budget = isinstance(self.rule, bl.TokenBudget)
        return replace(self.rule, count="real") if concatenated and is_budget else self.rule

    @property
    def rule(self):
        """The rule of batching."""
        return self.options.get("batching") or bl.FixedSize(self.options["batch_size"])

    def loader(self, way, world_size=1, rank=0, **more):
        """Make a loader."""
        inside = {} if way.get("device") is None else {"output": "torch"}
        with pretended(), blocks(2000) if inside else contextlib.nullcontext():
            options = self.options | inside | way | more
            return bl.DataLoader(self.dataset, **options, world_size=world_size, rank=rank)


def drawn(random):
    """Draw a configuration."""
    return random.choice(KINDS)(random)


def same(found, expected):
    """Check that an array of any framework has these values, and is of this type."""
    found = numpy.asarray(found)
    assert found.dtype == expected.dtype, (found.dtype, expected.dtype)
    assert numpy.array_equal(found, expected)


def order(random, shuffles=(False, True, True)):
    """Draw the options of the order and of ranks."""
    return {
        "shuffle": random.choice(shuffles),
        "seed": random.choice([0, 1, random.getrandbits(64)]),
        "uneven": random.choice(["pad", "short"]),
    }


def rows(random):
    """Rows of several arrays."""
    count, shape = random.randint(1, 300), random.choice([(), (3,), (2, 5), (0,), (17,)])
    dtype = random.choice(["float32", "int64", "uint8", "float16", "bool", "complex64"])
    wide = numpy.random.default_rng(count).integers(0, 256, (count, *shape)).astype(dtype)
    if random.random() < 0.3:
        wide = numpy.asfortranarray(wide)
    numbers = numpy.arange(count)
    options = order(random, (False, True, True, "runs")) | {
        "batch_size": random.randint(1, 40),
        "drop_last": random.random() < 0.3,
    }
    if random.random() < 0.2 and options["shuffle"] is not False:
        options["shard_size"] = random.randint(options["batch_size"], count + 40)

    def check(batch, samples):
        assert batch[0].tolist() == list(samples)
        same(batch[1], wide[list(samples)])

    text = f"rows {count} {shape} {dtype} {options}"
    return Configuration(text, bl.TensorDataset(numbers, wide), options, check, None, HOST + DEVICE)


def sequences(random):
    """Sequences of any lengths, padded or packed by any rule."""
    sizes, rule = lengths(random), drawn_rule(random)
    options = order(random) | {"batching": rule, "balance": random.random() < 0.2}
    samples = numpy.split(numpy.arange(sum(sizes)), numpy.cumsum(sizes)[:-1])
    side, value = random.choice(["right", "left"]), random.choice([0, -1, 7])
    if not isinstance(rule, bl.Packing):
        options |= {"pad_side": side, "pad_value": value}
    whole = [list(sample[: batching.taken(rule, len(sample))]) for sample in samples]
    cut = [numpy.array(sample, numpy.int64) for sample in whole]

    def check(batch, chosen):
        expected = padded(cut, list(chosen), value, side, batching.multiple(rule))
        for name, values in zip(("x", "attention_mask", "lengths", "index"), (*expected, list(chosen)), strict=True):
            same(batch[name], numpy.asarray(values))

    def check_packed(batch, chosen):
        found = batching.held(batch)
        assert [sample for sample, *_ in found] == list(chosen)
        for sample, *values in found:
            first = values[0] - int(samples[sample][0]) if values else 0
            assert values == list(samples[sample][first : first + len(values)])
            assert rule.oversize == "split" or values == whole[sample]

    text = f"sequences {sizes} {options}"
    packs = isinstance(rule, bl.Packing)
    return Configuration(text, batching.dataset(sizes), options, check_packed if packs else check, sizes, HOST + DEVICE)


def rows_of_packs(random):
    """Packs as rows of one shape, whole or continued in later rows."""
    sizes = lengths(random)
    rule = bl.Packing(
        random.randint(1, 60),
        max_samples=random.choice([None, random.randint(1, 9)]),
        oversize=random.choice([None, "split", "drop", "truncate"]),
        order=random.choice(["random", "decreasing"]),
        pool=random.choice([None, "all", random.randint(1, 70)]),
        rows=random.randint(1, 4),
        rests=random.choice(["none", "continue"]),
    )
    value = random.choice([0, -1, 7])
    options = order(random) | {"batching": rule, "balance": random.random() < 0.2, "pad_value": value}
    samples = numpy.split(numpy.arange(sum(sizes)), numpy.cumsum(sizes)[:-1])

    def check(batch, chosen):
        packed_rows.check(batch, rule, value=value)
        found = batching.flat(packed_rows.parts(batch))
        assert [sample for sample, _ in found] == list(chosen)
        for sample, values in found:
            first = values[0] - int(samples[sample][0]) if values else 0
            assert values == list(samples[sample][first : first + len(values)])
            assert (
                rule.rests == "continue"
                or rule.oversize == "split"
                or len(values) == batching.taken(rule, sizes[sample])
            )

    text = f"rows of packs {sizes} {options}"
    return Configuration(text, batching.dataset(sizes), options, check, sizes, HOST + DEVICE)


def lengths(random):
    """Draw lengths: any, equal ones, none, on the edges of budgets, and some that dwarf the others."""
    count = random.randint(1, 80)
    return random.choice(
        [
            lambda: [random.randint(0, 40) for _ in range(count)],
            lambda: [random.randint(0, 40)] * count,
            lambda: [0] * count,
            lambda: [random.choice([0, 1, 7, 8, 9, 15, 16, 17, 40]) for _ in range(count)],
            lambda: [40 >> place % 7 for place in range(count)],
        ]
    )()


def drawn_rule(random):
    """Draw a rule of any kind."""
    pool = random.choice([None, "all", random.randint(1, 70)])
    multiple, policy = random.choice([1, 1, 2, 8]), random.choice(["error", "alone", "drop", "truncate"])
    most = random.choice([None, random.randint(1, 9)])
    shared = {"max_samples": most, "multiple_of": multiple, "oversize": policy, "pool": pool}
    spread = random.choice([None, random.randint(0, 12)])
    return random.choice(
        [
            lambda: bl.FixedSize(random.randint(1, 20)),
            lambda: bl.LengthBuckets(random.randint(1, 9), pool=pool, multiple_of=multiple),
            lambda: bl.TokenBudget(
                random.randint(8, 90), count=random.choice(["padded", "real"]), max_length_spread=spread, **shared
            ),
            lambda: bl.CostOptimal(
                bl.CostModel(random.randint(0, 300), random.randint(0, 9), random.randint(1, 3)),
                max_tokens=random.choice([None, random.randint(8, 200)]),
                **shared,
            ),
            lambda: bl.Packing(
                random.randint(1, 60),
                max_samples=most,
                oversize=random.choice(["error", "drop", "truncate", "split"]),
                order=random.choice(["random", "decreasing"]),
                pool=pool,
            ),
        ]
    )()


def whole_groups(random):
    """Groups of rows, one after the other or padded."""
    names = [random.randint(-5, 6) for _ in range(random.randint(1, 25))]
    ids = [name for name in names for _ in range(random.randint(1, 6))]
    if random.random() < 0.5:
        ids.sort()
    rule = drawn_rule(random)
    layout = random.choice(["concatenated", "padded"])
    if isinstance(rule, bl.Packing) and (layout == "padded" or rule.oversize == "split"):
        rule = bl.FixedSize(random.randint(1, 5))
    options = order(random)
    case = groups.Case(
        tuple(ids),
        rule,
        layout,
        random.choice([None, random.randint(1, 7)]),
        shuffle=options["shuffle"],
        seed=options["seed"],
    )

    def check(batch, chosen):
        rows = case.rows(chosen)
        assert groups.held(batch) == rows
        if layout == "padded":
            places, mask = groups.padded(rows, multiple_of=batching.multiple(rule))
            same(batch["row"], places)
            same(batch["mask"], mask)

    options |= {"batching": rule, "pad_value": -1}
    return Configuration(f"groups {case}", case.dataset(), options, check, case.sizes, HOST + DEVICE)


def large_graphs(random):
    """Graphs one after the other, whose edges count the nodes of the batch."""
    rule = drawn_rule(random)
    while getattr(rule, "oversize", None) in ("truncate", "split"):
        rule = drawn_rule(random)
    nodes = lengths(random)
    edges = [random.randint(0, 2 * count) if count else 0 for count in nodes]
    held = [graphs.Graph.draw(*size, seed) for seed, size in enumerate(zip(nodes, edges, strict=True))]
    options = order(random) | {"batching": rule, "fields": {"edge_index": bl.Field(offset_by="x")}}
    of = random.choice(["max", "sum", "x", "edges"])
    given = {"own_lengths": {"edges": ("edge_index", "edge_attr")}, "dim": {"edge_index": 1}, "of": of}
    dataset = bl.SequenceDataset(**graphs.fields_of(held), **given, layout="concatenated")

    def check(batch, chosen):
        for name, expected in graphs.batch_of([held[sample] for sample in chosen]).items():
            same(batch[name], expected.numpy())

    size = {"max": max, "sum": lambda *both: sum(both), "x": lambda nodes, _: nodes, "edges": lambda _, edges: edges}[
        of
    ]
    text = f"graphs {nodes} {edges} {of} layout='concatenated' {options}"
    return Configuration(text, dataset, options, check, list(map(size, nodes, edges)), HOST + DEVICE)


def streams(random):
    """Pieces of a stream of documents."""
    options = order(random, tokens.SHUFFLES)
    while True:
        corpus = tokens.Corpus(
            tuple(random.choice([random.randint(0, 2), random.randint(0, 25)]) for _ in range(random.randint(1, 40))),
            seq_len=random.randint(1, 30),
            separator=random.choice([None, tokens.SEPARATOR]),
            shuffle=options["shuffle"],
            batch_size=random.randint(1, 8),
            seed=options["seed"],
            kind=random.choice(["int16", "int32", "int64"]),
            jitter=random.random() < 0.3,
        )
        if corpus.pieces():
            break

    def check(batch, samples, epoch=0):
        assert tokens.lists(batch) == corpus.batch(stream(epoch), samples)
        assert [str(field.dtype).removeprefix("torch.") for field in batch[:2]] == ["int64"] * 2

    known = {}

    def stream(epoch):
        if epoch not in known:
            known[epoch] = corpus.epoch(epoch)
        return known[epoch]

    options |= {"batch_size": corpus.batch_size}
    return Configuration(f"stream {corpus}", corpus.dataset(), options, check, None, HOST)


def slid(random):
    """Windows of series, as views and as copies."""
    horizon, gap, input_len = random.randint(0, 4), random.randint(0, 3), random.randint(1, 6)
    while True:
        label_len, short = random.randint(0, input_len + gap) if horizon else 0, random.choice(["pad", "drop"])
        most_lead = input_len - 1
        if short == "drop" and horizon:
            most_lead = min(most_lead, input_len + gap - label_len)
        shape = windows.Shape(
            tuple(random.randint(0, 30) for _ in range(random.randint(1, 4))),
            input_len,
            horizon,
            label_len,
            gap if horizon else 0,
            random.randint(1, 4),
            random.choice(["start", "end"]),
            short,
            random.choice(["windows", "series"]),
            random.randint(0, most_lead),
            random.random() < 0.3,
        )
        if shape.windows():
            break
    options = order(random, (False, True, "runs")) | {
        "batch_size": random.randint(1, 12),
        "drop_last": random.random() < 0.2,
    }
    places, masked, placed = shape.windows(), random.random() < 0.3, random.random() < 0.3
    clocks = clocked(random, shape) if random.random() < 0.3 else None

    def check(batch, samples):
        expected = shape.stack(list(samples), places) if masked else shape.data(list(samples), places)
        for part, values in zip(batch.values() if placed or clocks else batch, expected, strict=False):
            same(part, values)
        if clocks:
            rows, exists = clocks.batch([places[sample] for sample in samples])
            same(batch["row"], rows)
            same(batch["row_mask"], exists)
            expected = [*expected, rows, exists, *([None] if placed else [])]  # and the time of each window
        if placed:
            assert batch["index"].tolist() == list(samples)
            assert batch["series"].tolist() == [places[sample][0] for sample in samples]
            assert batch["start"].tolist() == [places[sample][1] - places[sample][2] for sample in samples]
            assert len(batch) == len(expected) + 3
        else:
            assert len(batch) == len(expected)

    ways = (*HOST, *DEVICE, {"buffers": "own"}, {"device": "meta", "buffers": "own"})
    dataset = (clocks or shape).dataset(mask=masked, index=placed)
    if random.random() < 0.1:
        dataset = pickle.loads(pickle.dumps(dataset))
    text = f"windows {shape} {options} mask={masked} index={placed} clocks={clocks}"
    return Configuration(text, dataset, options, check, None, ways)


def clocked(random, shape):
    """Rows with separate times beside the windows of a shape, in any unit."""

    def growing(count):
        return tuple(sorted(random.sample(range(-40, 40), count)))

    clock = timed.Clock(
        tuple(growing(random.randint(0, 12)) for _ in shape.lengths),
        tuple(random.randint(-30, 30) for _ in range(random.randint(1, 4))),
        random.choice(["last", "nearest"]),
        random.choice([None, random.randint(0, 9)]),
        kind=random.choice(["int", "float", "ns", "mixed"]),
        width=random.choice([(), (3,)]),
    )
    return timed.Clocked(shape, tuple(map(growing, shape.lengths)), clock)


KINDS = (rows, sequences, sequences, rows_of_packs, whole_groups, large_graphs, streams, slid)
