"""Random runs over samples that are read a chunk at a time.

Each run draws chunks of any sizes, read by a function or from files of Parquet or lines of JSON, a window or memory for
it, lists or rows, a rule, threads and ranks. Every batch is compared with the samples that the plan names, every sample
has to come once, also where the number of ranks changes in the middle of an epoch, and the counts of the store have to
keep their bounds.
"""

import itertools
import random
import tempfile
from pathlib import Path

import batchloom as bl
import numpy
from campaign.files import in_files
from campaign.tally import reported

OF_ROWS = 24  # bytes of a row of three numbers
LONGEST = 14  # elements of a list


def campaign(tally, seed, first=0, most=None):
    """Run until time is up, or for ``most`` runs.

    Raises:
        FindingError: A batch is wrong, a sample is missing, or a bound does not hold.
    """
    for number in tally.numbers(first, most):
        with reported("chunks", seed, number) as told:
            check(random.Random(f"chunks/{seed}/{number}"), tally, told)


def check(draw, tally, told):
    """Draw a run and check two epochs of it, and one in which the number of ranks changes."""
    with tempfile.TemporaryDirectory() as folder:
        check_in(draw, tally, told, Path(folder))


def check_in(draw, tally, told, folder):
    """Draw a run, whose files lie in a folder, and check it."""
    sizes = [draw.choice([0, 1, 2, draw.randrange(40)]) for _ in range(draw.randrange(1, 25))]
    sizes = [max(sizes)] * len(sizes) if draw.random() < 0.3 else sizes
    sizes = sizes if any(sizes) else [1]
    has_lists = draw.random() < 0.5
    make = lists_in_chunks if has_lists else rows_in_chunks
    dataset, values = make(draw, sizes)
    if draw.random() < 0.5:
        dataset = in_files(draw, folder, sizes, values, has_lists)
        tally.add("files")
    rule = draw.choice(
        [bl.TokenBudget(40), bl.LengthBuckets(4), bl.Packing(20), bl.FixedSize(5)]
        if has_lists
        else [bl.FixedSize(draw.randrange(1, 12))]
    )
    options = {"batching": rule, "shuffle": draw.random() < 0.8, "seed": draw.randrange(100), "uneven": "short"}
    options |= {"num_threads": draw.randrange(1, 5), "prefetch": draw.choice([None, 0, 1, 3])}
    told.append(f"{sizes}, {dataset}, {dataset.chunks_open} open, memory {dataset.memory}, {values}, {options}")
    loader = bl.DataLoader(dataset, **options)
    for _ in range(2):
        seen = epoch(loader, values, tally)
        assert sorted(seen) == list(range(sum(sizes)))
    if dataset.memory is not None and len(set(sizes)) == 1 and rule.batch_size <= sizes[0]:
        assert dataset.counts.most_bytes <= dataset.memory, dataset.counts
    change_ranks(draw, dataset, options, values, sum(sizes), tally)
    tally.add("runs")


def rows_in_chunks(draw, sizes):
    """Return rows in chunks, and the number of each."""
    ends = numpy.cumsum(sizes)
    numbers = numpy.arange(ends[-1])

    def read(chunk):
        own = numbers[ends[chunk] - sizes[chunk] : ends[chunk]]
        return {"x": own[:, None] * numpy.arange(1, 4), "index": own}

    largest = max(sizes) * (OF_ROWS + 8)
    window = draw.choice([{"chunks_open": draw.randrange(1, 9)}, {"memory": largest * draw.randrange(5, 12)}])
    return bl.ChunkDataset(sizes, read, **window), [[k, 2 * k, 3 * k] for k in numbers.tolist()]


def lists_in_chunks(draw, sizes):
    """Return lists in chunks, and the elements of each."""
    ends = numpy.cumsum(sizes)
    lengths = [draw.randrange(1, LONGEST + 1) for _ in range(ends[-1])]
    values = [[draw.randrange(1, 99) for _ in range(length)] for length in lengths]

    def read(chunk):
        own = values[ends[chunk] - sizes[chunk] : ends[chunk]]
        return {"x": (numpy.array(list(itertools.chain(*own)), int), numpy.cumsum([0, *map(len, own)]))}

    return bl.ChunkDataset(sizes, read, lengths=lengths, chunks_open=draw.randrange(1, 9)), values


def epoch(batches, values, tally):
    """Check each batch, and return the samples in their order."""
    seen = []
    for batch in batches:
        samples = batch["index"].tolist()
        if "cu_seqlens" in batch:
            found = [batch["x"][first:end].tolist() for first, end in itertools.pairwise(batch["cu_seqlens"].tolist())]
        else:
            found = [row[: len(values[sample])].tolist() for sample, row in zip(samples, batch["x"], strict=True)]
        assert found == [values[sample] for sample in samples], samples
        seen += samples
        tally.add("batches")
    return seen


def change_ranks(draw, dataset, options, values, count, tally):
    """Check an epoch that several numbers of ranks share."""
    state, seen = None, []
    for _ in range(draw.randrange(2, 4)):
        world = draw.randrange(1, 6)
        loaders = [bl.DataLoader(dataset, **options, rank=rank, world_size=world) for rank in range(world)]
        if state is not None:
            for loader in loaders:
                loader.load_state_dict(state)
        steps = draw.randrange(1 + max(0, min(loader.remaining for loader in loaders) - 1))
        for loader in loaders:
            seen += epoch(itertools.islice(loader, steps), values, tally)
        state = loaders[0].state_dict()
        if not steps:
            continue
        tally.add("resumes")
    last = bl.DataLoader(dataset, **options)
    last.load_state_dict(state)
    seen += epoch(last, values, tally)
    assert sorted(seen) == list(range(count))
