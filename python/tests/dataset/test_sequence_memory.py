"""Memory of sequences: values are borrowed, read late, and let go."""

import gc
import pickle
import sys
import weakref

import batchloom as bl
import numpy
import pyarrow
import pytest
import torch
from oracles import batching
from oracles.sequences import SIZES
from refusals import refused


def test_values_are_borrowed_and_read_when_blocks_are_formed():
    values = numpy.zeros(sum(SIZES))
    for data in (values, torch.from_numpy(values)):
        dataset = bl.SequenceDataset(x=(data, numpy.cumsum([0, *SIZES])))
        for rule in (bl.TokenBudget(1000), bl.Packing(1000)):
            loader = bl.DataLoader(dataset, batching=rule)
            for number in (7, 8):
                values[:] = number
                (batch,) = loader
                assert float(batch["x"].sum()) == number * sum(SIZES)


def test_arrow_and_jagged_values_are_borrowed():
    values = numpy.zeros(sum(SIZES))
    offsets = numpy.cumsum([0, *SIZES])
    lists = pyarrow.LargeListArray.from_arrays(
        pyarrow.array(offsets),
        pyarrow.Array.from_buffers(pyarrow.float64(), len(values), [None, pyarrow.py_buffer(values)]),
    )
    jagged = torch.nested.nested_tensor_from_jagged(torch.from_numpy(values), torch.from_numpy(offsets))
    for data in (pyarrow.chunked_array([lists]), jagged):
        loader = bl.DataLoader(bl.SequenceDataset(x=data), batching=bl.Packing(1000))
        values[:] = 7
        (batch,) = loader
        assert float(batch["x"].sum()) == 7 * sum(SIZES)
        values[:] = 0


def test_offsets_and_sizes_may_change_afterwards():
    offsets, sizes = numpy.cumsum([0, *SIZES]), numpy.array(SIZES)
    dataset = bl.SequenceDataset(x=(numpy.arange(offsets[-1]), offsets), sizes=sizes)
    offsets[:], sizes[:] = 0, 1
    assert dataset.sizes.tolist() == SIZES
    loader = bl.DataLoader(dataset, batching=bl.TokenBudget(20))
    assert sorted(len(row) - 1 for batch in loader for row in batching.held(batch)) == sorted(SIZES)
    assert len(dataset[4]["x"]) == 12
    dataset.sizes[:] = 5
    assert loader.plan(0) == bl.DataLoader(dataset, batching=bl.TokenBudget(20)).plan(0)


@pytest.mark.parametrize("what", ["shapes", "sizes"])
def test_shapes_and_sizes_of_the_very_type_may_change_afterwards(what):
    shapes, sizes = numpy.array([[2, 3], [1, 4]], numpy.uint32), numpy.array([7, 8], numpy.uint32)
    dataset = bl.SequenceDataset(x=(numpy.arange(10), shapes), sizes=sizes)
    {"shapes": shapes, "sizes": sizes}[what][:] = 1
    travelled = pickle.loads(pickle.dumps(dataset))
    assert travelled.sizes.tolist() == [7, 8]
    assert dataset[0]["x"].tolist() == travelled[0]["x"].tolist() == [[0, 1, 2], [3, 4, 5]]


MAPPED = """
    import sys
    import numpy
    import batchloom as bl
    from oracles.memory import resident_of

    path, rule = sys.argv[1], eval(sys.argv[2], {name: getattr(bl, name) for name in bl.__all__})
    values = numpy.memmap(path, dtype=numpy.uint8, mode="r", shape=(2**28,))
    offsets = numpy.arange(0, 2**28 + 1, 2**12) - numpy.arange(2**16 + 1) % 7
    offsets[0] = 0
    dataset = bl.SequenceDataset(x=(values, offsets))
    loader = bl.DataLoader(dataset, batching=rule, shuffle=True)
    len(loader), loader.plan().stats(), loader.state_dict(), loader.plan(3)[7]
    dataset.sizes, repr(dataset), repr(loader)
    loader.load_state_dict(loader.state_dict())
    assert resident_of(path) == 0, resident_of(path)
    batches = iter(loader)
    next(batches)
    assert 0 < resident_of(path) < 2**27, resident_of(path)
"""


@pytest.mark.law("L12")
@pytest.mark.parametrize("rule", ["TokenBudget(2**18)", "Packing(2**18)", "LengthBuckets(64)"])
def test_nothing_is_read_before_its_block_is_formed(script, tmp_path, rule):
    path = tmp_path / "values.bin"
    with path.open("wb") as file:
        file.truncate(2**28)
    script(MAPPED, path, rule)


def test_a_map_whose_file_was_cut(script, tmp_path):
    path = tmp_path / "values.bin"
    numpy.zeros(4_000_000, numpy.uint8).tofile(path)
    script(
        """
        import os
        import sys
        import numpy
        import batchloom as bl

        values = numpy.memmap(sys.argv[1], dtype=numpy.uint8, mode="r")
        dataset = bl.SequenceDataset(x=(values[100:], numpy.arange(0, 3_000_001, 1000)))
        loader = bl.DataLoader(dataset, batching=bl.TokenBudget(5000), shuffle=True)
        os.truncate(sys.argv[1], 4096)
        for attempt in (lambda: list(loader), lambda: bl.SequenceDataset(x=(values, [0, 5]))):
            try:
                attempt()
            except bl.DataError as error:
                assert "field x" in str(error) and "4096" in str(error), error
            else:
                raise AssertionError("read past the end of a file")
        """,
        path,
    )


def test_values_that_were_resized():
    values = torch.zeros(1000)
    loader = bl.DataLoader(bl.SequenceDataset(tokens=(values, [0, 500, 1000])), 2)
    values.resize_(10_000_000)
    with refused(bl.DataError, "field tokens", "resized"):
        next(iter(loader))


def blocks():
    gc.collect()
    return sys.getallocatedblocks()


MANY = 50_000


@pytest.mark.parametrize("way", ["list", "offsets", "arrow", "tensors"])
def test_many_sequences_are_not_many_objects(way):
    count = MANY if way != "tensors" else 10_000
    random = numpy.random.default_rng(0)
    offsets = numpy.concatenate([[0], numpy.cumsum(random.integers(0, 9, count))])
    values = numpy.arange(offsets[-1], dtype=numpy.int32)
    data = {
        "list": lambda: numpy.split(values, offsets[1:-1]),
        "offsets": lambda: (values, offsets),
        "arrow": lambda: pyarrow.chunked_array([pyarrow.LargeListArray.from_arrays(offsets, values)]),
        "tensors": lambda: list(torch.from_numpy(values).split(numpy.diff(offsets).tolist())),
    }[way]()
    early = blocks()
    dataset = bl.SequenceDataset(x=data)
    loader = bl.DataLoader(dataset, batching=bl.TokenBudget(4096), shuffle=True)
    next(iter(loader))
    if way in ("list", "tensors"):
        early -= count
        del data
    assert blocks() - early < 2000
    assert len(dataset) == count


def test_a_million_sequences_take_the_memory_of_their_numbers(script):
    script(
        """
        import numpy
        import batchloom as bl
        from oracles.memory import resident

        offsets = numpy.arange(0, 8_000_001, 8)
        values = numpy.zeros(8_000_000, numpy.int64)
        values[:] = 1
        early = resident()
        dataset = bl.SequenceDataset(x=(values, offsets))
        loader = bl.DataLoader(dataset, batching=bl.TokenBudget(8192), shuffle=True)
        count = sum(len(batch["index"]) for batch in loader)
        assert count == 1_000_000
        # Eight bytes for a start, four for a size, a few times over, and the blocks in flight.
        assert resident() - early < 120 << 20, resident() - early
        """
    )


BOUNDED = """
    import sys
    import time
    import numpy
    import batchloom as bl
    from oracles.memory import resident

    rule = eval(sys.argv[1], {name: getattr(bl, name) for name in bl.__all__})
    sizes = numpy.random.default_rng(0).lognormal(6, 1, 60_000).astype(int).clip(0, 8192)
    offsets = numpy.concatenate([[0], numpy.cumsum(sizes)])
    values = numpy.broadcast_to(numpy.float32(1), (offsets[-1],))
    loader = bl.DataLoader(bl.SequenceDataset(x=(values, offsets)), batching=rule, shuffle=True, num_threads=2)
    len(loader)
    early, most = resident(), 0
    for number, batch in enumerate(loader):
        del batch
        if number % 100 == 0:
            time.sleep(0.02)
            most = max(most, resident() - early)
    print(most)
"""


@pytest.mark.parametrize("rule", ["TokenBudget(65536)", "Packing(65536)"])
def test_bytes_in_flight_are_bounded(script, rule):
    # Blocks of 2 MiB and a batch, two ahead and one in use; and the pools of the plan.
    assert int(script(BOUNDED, rule)) < 26 << 20


def test_values_are_let_go_with_loader_and_dataset():
    class Owner(numpy.ndarray):
        pass

    values = numpy.arange(float(sum(SIZES))).view(Owner)
    alive = weakref.ref(values)
    loader = bl.DataLoader(bl.SequenceDataset(x=(values, numpy.cumsum([0, *SIZES]))), batching=bl.TokenBudget(20))
    batches = iter(loader)
    held = next(batches)
    del values, loader
    gc.collect()
    assert alive() is not None
    del batches
    gc.collect()
    assert alive() is None
    assert held["lengths"].sum() > 0
