"""Samples of every kind for random draws, with the values that a place of a batch has to hold, and how they are read.

A place has an index and a weight, where the batch is marked, and the values of all fields of its sample as one list.
What a batch holds beside the values of samples (masks, positions, sources) is compared as it is read.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import batchloom as bl
import numpy
from oracles import groups, tokens, windows

LONGEST = 17
IGNORED = -100
HOST = (
    {"num_threads": 1},
    {"num_threads": 3, "prefetch": 3},
    {"prefetch": 0},
    {"output": "torch"},
    {"output": "jax"},
)
WAYS = (
    *HOST,
    {"output": "torch", "resident": False},
    {"output": "torch", "resident": True, "buffers": "static"},
    {"output": "torch", "device": "meta"},
    {"output": "torch", "device": "meta", "resident": False},
)

Place = tuple[int | None, float, list[Any]]


@dataclass(frozen=True)
class Data:
    """Samples of one kind.

    Attributes:
        dataset: The dataset, or the mixture.
        values: The values of each sample: a list of numbers.
        rule: A rule that goes with the kind.
        options: Options of every loader.
        ways: Options of loaders that change no value.
        name: Makes the name of a sample, for bans, of its number.
        rows: Lists the values of each place of a batch, given its fields by name.
        fields: The names of fields, where batches are tuples.
        labels: True if the second half of the values of a sample is labels, which losses ignore without weight.
        beside: What a batch holds beside the values of each sample, by field.
        dtypes: The types of fields, by name.
        sizes: The sizes of samples by the names of budgets, where the rule has several.
    """

    dataset: Any
    values: list[list[Any]]
    rule: Any
    options: dict[str, Any]
    ways: tuple[dict[str, Any], ...] = WAYS
    name: Callable[[int], Any] = int
    rows: Callable[[dict[str, Any]], list[list[Any]]] = lambda fields: fields["x"]
    fields: tuple[str, ...] = ()
    labels: bool = False
    beside: dict[str, list[Any]] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, list[int]] = field(default_factory=dict)

    def named(self, batch: Any) -> dict[str, Any]:
        """Return the fields of a batch by name."""
        return dict(batch.items() if hasattr(batch, "items") else zip(self.fields, batch, strict=False))

    def places(self, batch: Any) -> list[Place]:
        """List the places of a batch."""
        fields = {name: numpy.asarray(field).tolist() for name, field in self.named(batch).items()}
        rows = self.rows(fields)
        index, weight = fields.get("index", [None] * len(rows)), fields.get("weight", [1] * len(rows))
        return list(zip(index, weight, rows, strict=True))

    def require(self, samples: list[int], batch: Any, places: list[Place], marked: bool, ban: Sequence[int]) -> None:
        """Check the places of a batch against the samples that the plan names, and what it holds beside them."""
        fields = self.named(batch)
        assert {"index", "weight"} <= set(fields) or not marked
        for name, dtype in self.dtypes.items():
            # JAX has types of its own.
            found = str(fields[name].dtype).removeprefix("torch.")
            assert found == dtype or framework(fields[name]) == "jaxlib", (found, dtype)
        for sample, (index, weight, values) in zip(samples, places, strict=True):
            assert weight in (0, 1)
            assert index in (None, sample if weight else -1)
            assert not (weight and sample in ban), sample
            expected = self.cleared(self.values[sample]) if sample in ban else self.values[sample]
            assert values == (expected if weight else self.ignored(expected)), (sample, values)
        for name, sizes in self.sizes.items():
            assert sum(sizes[sample] for sample in samples) <= self.rule.max_tokens[name], (name, samples)
        for name, of in self.beside.items():
            found = numpy.asarray(fields[name]).tolist()
            for sample, (_, weight, _), value in zip(samples, places, found, strict=True):
                assert not weight or value == of[sample], (name, sample, value)

    def ignored(self, values: list[Any]) -> list[Any]:
        """Return the values of a sample whose labels are ignored."""
        half = len(values) // 2
        return values[:half] + [IGNORED] * half if self.labels else values

    def cleared(self, values: list[Any]) -> list[Any]:
        """Return what is left of the values of a sample that is banned."""
        return self.ignored([0] * len(values))


def framework(array: Any) -> str:
    """Return the framework of an array."""
    return type(array).__module__.partition(".")[0]


def rows(draw):
    """Rows, one of whose fields may be converted."""
    count = draw.randint(4, 90)
    values = numpy.arange(count * 2, dtype=draw.choice(["float32", "int32", "uint8"])).reshape(count, 2)
    options, samples, dtype = {}, values, str(values.dtype)
    if draw.random() < 0.3:
        options = {"fields": {"x": bl.Field(scale=0.5, mean=3.0, std=[0.25, 2.0])}}
        samples, dtype = (values * numpy.float32(0.5) - numpy.float32(3)) / numpy.float32([0.25, 2]), "float32"
    elif draw.random() < 0.3:
        dtype = draw.choice(["float64", "int64", "float32"])
        options = {"fields": {"x": bl.Field(dtype=dtype)}}
    dataset, rule = bl.TensorDataset(x=values), bl.FixedSize(draw.randint(1, 9))
    return Data(dataset, samples.tolist(), rule, options, dtypes={"x": dtype})


def some_rows(draw):
    """Rows of which some were chosen, in another order, and some more than once."""
    of = draw.randint(4, 60)
    chosen = [draw.randrange(of) for _ in range(draw.randint(4, 90))]
    values = numpy.arange(of * 2.0, dtype="float32").reshape(of, 2)
    dataset = bl.TensorDataset(x=values).select(chosen)
    return Data(dataset, values[chosen].tolist(), bl.FixedSize(draw.randint(1, 9)), {})


def sequences(draw):
    """Sequences of any length, with labels or without."""
    count = draw.randint(4, 60)
    samples = [[100 * k + place for place in range(draw.randint(0, LONGEST))] for k in range(count)]
    arrays = [numpy.array(sample, numpy.int64) for sample in samples]
    if draw.random() < 0.3:
        images = [draw.choice([0, 0, draw.randint(0, 5)]) for _ in samples]
        dataset = bl.SequenceDataset(x=arrays, sizes={"images": images})
        return Data(dataset, samples, rule_of_budgets(draw), {}, rows=parts("x"), sizes={"images": images})
    dataset = bl.SequenceDataset(x=arrays)
    if draw.random() < 0.6:
        return Data(dataset, samples, rule_of_lengths(draw, LONGEST), {}, rows=parts("x"))
    labelled = [sample + ([*sample[1:], IGNORED] if sample else []) for sample in samples]
    options = {"labels": "x"}
    return Data(dataset, labelled, rule_of_lengths(draw, LONGEST), options, rows=parts("x", "labels"), labels=True)


def rule_of_lengths(draw, longest):
    """Draw a rule that takes samples of so many elements."""
    size, pool = draw.randint(longest, 90), draw.choice([None, "all", 20])
    return draw.choice(
        [
            bl.FixedSize(draw.randint(1, 9)),
            bl.LengthBuckets(draw.randint(1, 9)),
            bl.TokenBudget(size, pool=pool),
            bl.Packing(size, pool=pool),
        ]
    )


def rule_of_budgets(draw):
    """Draw a rule that limits elements and images, or images alone."""
    limits = {"images": draw.randint(5, 15)} | draw.choice([{}, {"x": draw.randint(LONGEST, 90)}])
    pool = draw.choice([None, "all", 20])
    return draw.choice([bl.TokenBudget(limits, pool=pool), bl.Packing(limits, pool=pool)])


def parts(*names):
    """Return what reads sequences, packed or padded: the elements of each field, one after the other."""

    def read(fields):
        return [list(itertools.chain(*part)) for part in zip(*(cut(fields, name) for name in names), strict=True)]

    return read


def cut(fields, name):
    """Return what a field holds of each sample, and check what lies beside it."""
    rows = fields[name]
    if "cu_seqlens" in fields:
        ends = fields["cu_seqlens"]
        assert (ends[0], ends[-1]) == (0, len(rows))
        lengths = [end - start for start, end in itertools.pairwise(ends)]
        assert fields["position_ids"] == list(itertools.chain(*map(range, lengths)))
        return [rows[start:end] for start, end in itertools.pairwise(ends)]
    longest = max(map(len, rows))
    masks = [[place < length for place in range(longest)] for length in fields["lengths"]]
    assert [list(map(bool, mask)) for mask in fields["attention_mask"]] == masks
    padding = {IGNORED if name == "labels" else 0}
    assert all(set(row[length:]) <= padding for row, length in zip(rows, fields["lengths"], strict=True))
    return [row[:length] for row, length in zip(rows, fields["lengths"], strict=True)]


def mixture(draw):
    """Rows of several sources."""
    counts = [draw.randint(3, 40) for _ in range(draw.randint(1, 3))]
    values = numpy.arange(sum(counts) * 2, dtype=numpy.int64).reshape(-1, 2)
    parts = numpy.split(values, numpy.cumsum(counts)[:-1])
    sources = {f"source {place}": bl.TensorDataset(x=part) for place, part in enumerate(parts)}
    weights = draw.choice([None, {name: draw.randint(1, 5) for name in sources}])
    mixed = bl.Mixture(sources, weights, when_exhausted=draw.choice(["stop", "repeat", "renormalise"]))
    names = [(name, sample) for name, source in sources.items() for sample in range(len(source))]
    # They are formed on the host.
    source = [mixed.names.index(name) for name, _ in names]
    rule = bl.FixedSize(draw.randint(1, 9))
    return Data(mixed, values.tolist(), rule, {}, HOST, names.__getitem__, beside={"source": source})


def whole_groups(draw):
    """Groups of rows, one after the other or padded: the id of its group and the number of each row."""
    names = [draw.randint(1, 30) for _ in range(draw.randint(4, 40))]
    ids = tuple(itertools.chain(*([name] * draw.randint(1, 6) for name in names)))
    layout = draw.choice(["concatenated", "padded"])
    case = groups.Case(ids, layout=layout)
    longest = max(case.sizes)
    rule = rule_of_lengths(draw, longest)
    while layout == "padded" and isinstance(rule, bl.Packing):
        rule = rule_of_lengths(draw, longest)
    dataset = case.dataset(x=numpy.arange(len(ids)) + 1)

    def read(fields):
        rows, marks = fields["x"], fields["group_ids"]
        if layout == "concatenated":
            assert (fields["offsets"][0], fields["offsets"][-1]) == (0, len(rows))
            return [list(zip(marks[a:b], rows[a:b], strict=True)) for a, b in itertools.pairwise(fields["offsets"])]
        found = zip(marks, rows, fields["mask"], strict=True)
        lengths = [mask.index(False) if False in mask else len(mask) for mask in fields["mask"]]
        assert not any(any(mask[length:] + row[length:]) for (_, row, mask), length in zip(found, lengths, strict=True))
        return [[(mark, row) for row in line[:length]] for mark, line, length in zip(marks, rows, lengths, strict=True)]

    values = [[(ids[row], row + 1) for row in rows] for rows in case.members]
    flat = [list(itertools.chain(*rows)) for rows in values]
    return Data(dataset, flat, rule, {}, rows=lambda fields: [list(itertools.chain(*rows)) for rows in read(fields)])


def slid(draw):
    """Windows of series: the steps before and the steps after."""
    shape = windows.Shape(
        tuple(draw.randint(6, 30) for _ in range(draw.randint(1, 3))),
        draw.randint(1, 6),
        horizon=draw.randint(1, 3),
        stride=draw.randint(1, 2),
        short=draw.choice(["pad", "drop"]),
    )
    places = shape.windows()
    if len(places) < 4:
        return slid(draw)
    masked = draw.random() < 0.3 or shape.short == "pad"
    parts = [[part.tolist() for part in shape.window(place)[2:]] for place in places]
    beside = {"series": [series for series, _, _ in places], "start": [start - none for _, start, none in places]}
    if masked:
        beside |= {"mask": [mask for mask, _ in parts], "target_mask": [mask for _, mask in parts]}
    values = [[part.ravel().tolist() for part in shape.window(place)[:2]] for place in places]

    def read(fields):
        rows = zip(numpy.array(fields["x"]), numpy.array(fields["y"]), strict=True)
        return [[*x.ravel().tolist(), *y.ravel().tolist()] for x, y in rows]

    dataset = shape.dataset(mask=masked, index=True)
    ways = (*WAYS, {"buffers": "own"})
    rule = bl.FixedSize(draw.randint(1, 9))
    return Data(dataset, [x + y for x, y in values], rule, {}, ways, rows=read, beside=beside)


def streams(draw):
    """Pieces of a stream, which shuffled pieces alone keep: tokens, and the tokens after them."""
    corpus = tokens.Corpus(
        tuple(draw.randint(0, 25) for _ in range(draw.randint(2, 20))),
        seq_len=draw.randint(1, 9),
        separator=draw.choice([None, tokens.SEPARATOR]),
        kind=draw.choice(["int16", "int32", "int64"]),
    )
    if corpus.pieces() < 4:
        return streams(draw)
    stream = corpus.epoch()
    pieces = [corpus.piece(stream, place * corpus.seq_len) for place in range(corpus.pieces())]
    return Data(
        corpus.dataset(),
        [inputs + labels for inputs, labels, *_ in pieces],
        bl.FixedSize(draw.randint(1, 9)),
        {"shuffle": "chunks"},
        HOST,
        rows=lambda fields: [a + b for a, b in zip(fields["input_ids"], fields["labels"], strict=True)],
        fields=(*tokens.NAMES, "index", "weight"),
        labels=True,
        beside={name: [piece[place] for piece in pieces] for place, name in enumerate(tokens.NAMES[2:], 2)},
    )


KINDS = (rows, some_rows, sequences, sequences, mixture, whole_groups, slid, streams)
