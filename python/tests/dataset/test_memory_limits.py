"""The limit of memory maps: batches do not depend on it, and pages beyond it return to the system."""

import ctypes
import mmap
import os
import pickle
from itertools import product

import batchloom as bl
import numpy
import pytest
from batchloom.dataset.base import samples_of
from oracles.memory import resident_of
from refusals import refused

ROWS, WIDTH = 6000, 8


def rows(values):
    return bl.TensorDataset(x=values.reshape(-1, WIDTH), y=values.reshape(-1, WIDTH)[:, 0])


def sequences(values):
    return bl.SequenceDataset(x=(values, numpy.arange(0, len(values) + 1, 2 * WIDTH)))


def groups(values):
    return bl.GroupDataset(numpy.arange(len(values)) // 13, x=values)


def windows(values):
    return bl.WindowDataset(values.reshape(-1, WIDTH).view(numpy.float64), input_len=24, horizon=5)


def tokens(values):
    return bl.TokenDataset(values, 32, documents=numpy.append(numpy.arange(0, len(values), 1000), len(values)))


KINDS = {each.__name__: each for each in (rows, sequences, groups, windows, tokens)}
WHOLE = {
    "whole": lambda dataset: dataset,
    "selected": lambda dataset: dataset.select(range(3, len(dataset.indices) - 4)),
    "split": lambda dataset: dataset.split(first=0.7, rest=0.3)[0],
    "joined": lambda dataset: dataset.concat(dataset),
    "mixed": lambda dataset: bl.Mixture({"a": dataset, "b": dataset}, weights={"a": 3, "b": 1}),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A file of 8-byte integers."""
    path = tmp_path_factory.mktemp("limits") / "values.bin"
    numpy.random.default_rng(0).integers(0, 1 << 40, ROWS * WIDTH).tofile(path)
    return path


def epochs(dataset, **options):
    """The batches of two epochs, as bytes, where the second one is resumed in the middle."""
    loader = bl.DataLoader(dataset, 16, **options)
    batches = [as_bytes(batch) for batch in loader]
    begun = iter(loader)
    batches += [as_bytes(next(begun)) for _ in range(3)]
    resumed = bl.DataLoader(dataset, 16, **options)
    resumed.load_state_dict(loader.state_dict())
    return batches + [as_bytes(batch) for batch in resumed]


def as_bytes(batch):
    values = batch.values() if isinstance(batch, dict) else batch
    return [numpy.asarray(value).tobytes() for value in values]


@pytest.mark.law("L2", "L4")
@pytest.mark.parametrize(("kind", "part", "shuffle"), [*product(KINDS, WHOLE, [True, False, "runs"])])
def test_batches_do_not_depend_on_the_limit(path, kind, part, shuffle):
    if shuffle == "runs" and kind not in ("windows", "tokens"):
        pytest.skip("other kinds have no runs")
    if part == "mixed" and shuffle == "runs":
        pytest.skip("mixtures have no runs")
    if part == "split" and kind == "windows":
        pytest.skip("windows are split by time")
    make, choose = KINDS[kind], WHOLE[part]
    values = numpy.fromfile(path, numpy.int64)
    wanted = epochs(choose(make(values)), shuffle=shuffle)
    for mode in ("r", "r+"):
        limited = make(numpy.memmap(path, numpy.int64, mode)).with_memory(1)
        assert epochs(choose(limited), shuffle=shuffle) == wanted


def test_pages_return_and_changes_stay(tmp_path):
    """Of a map that is written to as well."""
    path, size = tmp_path / "rows.bin", 8 << 20
    path.touch()
    os.truncate(path, size)
    values = numpy.memmap(path, numpy.uint8, "r+").reshape(-1, 1 << 16)
    values[5] = 7
    dataset = bl.TensorDataset(values).with_memory(1)
    loader = bl.DataLoader(dataset, 8, num_threads=1, prefetch=1)
    values.sum()
    assert resident_of(str(path)) == size
    batches = iter(loader)
    (first,) = next(batches)
    assert sum(row.sum() for row in first) in (0, 7 << 16)
    batches.close()
    assert resident_of(str(path)) < size
    assert values[5].sum() == 7 << 16


FILE_ROWS, FILE_WIDTH = 3000, 64


@pytest.fixture
def wide(tmp_path):
    """A file of rows of 512 bytes, whose name has what lists of maps write in other ways."""
    path = tmp_path / "a (deleted) file, äöü.bin"
    numpy.arange(FILE_ROWS * FILE_WIDTH).tofile(path)
    return path


def rows_of(path, mode="r"):
    return numpy.memmap(path, numpy.int64, mode).reshape(-1, FILE_WIDTH)


def taken(dataset, **options):
    """The first number of each row, in the order of the data."""
    loader = bl.DataLoader(dataset, 64, shuffle=True, **options)
    rows = numpy.concatenate([numpy.asarray(batch[0] if isinstance(batch, tuple) else batch) for batch in loader])
    numbers = numpy.concatenate([numpy.asarray(numbers) for numbers in loader.plan(0)])
    assert (rows == rows[:, :1] + numpy.arange(FILE_WIDTH)).all()
    return rows[numpy.argsort(numbers), 0]


WANTED = numpy.arange(FILE_ROWS) * FILE_WIDTH


@pytest.mark.parametrize("kind", ["rows", "sequences", "tokens"])
@pytest.mark.parametrize("shards", [1, 3])
def test_rows_are_read_without_pages(wide, kind, shards):
    """Of one map or of several of them, by any kind of samples that lie as they are delivered."""
    each = FILE_ROWS // shards
    parts = [rows_of(wide)[part * each : (part + 1) * each] for part in range(shards)]
    values = parts[0] if shards == 1 else bl.ChunkedArray(parts)
    offsets = numpy.arange(FILE_ROWS + 1)
    dataset = {
        "rows": lambda: bl.TensorDataset(values),
        "sequences": lambda: bl.SequenceDataset(x=(values, offsets)),
        "tokens": lambda: bl.TokenDataset(
            rows_of(wide).reshape(-1) if shards == 1 else bl.ChunkedArray([part.reshape(-1) for part in parts]),
            FILE_WIDTH - 1,
        ),
    }[kind]()
    limited = dataset.with_memory(1)
    samples_of(limited).release_pages()
    seen = [as_bytes(batch) for batch in bl.DataLoader(limited, 64, shuffle=True, num_threads=2)]
    assert resident_of(str(wide)) == 0
    assert seen == [as_bytes(batch) for batch in bl.DataLoader(dataset, 64, shuffle=True)]
    assert resident_of(str(wide)) > 0


def test_a_limit_above_the_maps_reads_no_file(wide):
    dataset = bl.TensorDataset(rows_of(wide)).with_memory("1GB")
    assert (taken(dataset) == WANTED).all()
    assert resident_of(str(wide)) > 0


@pytest.mark.parametrize("change", ["gone", "other", "same name"])
def test_a_file_that_is_not_at_its_path_any_more(wide, change):
    """Rows are copied from the map, which keeps the file that it was made of."""
    values = rows_of(wide)
    if change != "same name":
        wide.unlink()
    if change == "other":
        numpy.zeros(FILE_ROWS * FILE_WIDTH, numpy.int64).tofile(wide)
    if change == "same name":
        other = wide.with_name("other")
        numpy.zeros(FILE_ROWS * FILE_WIDTH, numpy.int64).tofile(other)
        other.rename(wide)
    assert (taken(bl.TensorDataset(values).with_memory(1)) == WANTED).all()


@pytest.mark.parametrize("first", ["old", "new"])
def test_two_files_whose_maps_the_system_names_alike(wide, first):
    """One that is gone, and one with the name that lists of maps have for it."""
    maps = {"old": rows_of(wide)}
    wide.unlink()
    other = wide.with_name(f"{wide.name} (deleted)")
    numpy.full(FILE_ROWS * FILE_WIDTH, -1).tofile(other)
    maps["new"] = rows_of(other)
    fields = dict(sorted(maps.items(), key=lambda item: item[0] != first))
    for batch in bl.DataLoader(bl.TensorDataset(**fields).with_memory(1), 64):
        assert (batch["new"] == -1).all()
        assert (batch["old"] == batch["old"][:, :1] + numpy.arange(FILE_WIDTH)).all()


def test_a_file_that_leaves_its_path_stays_open(wide):
    dataset = bl.TensorDataset(rows_of(wide)).with_memory(1)
    wide.unlink()
    numpy.zeros(FILE_ROWS * FILE_WIDTH, numpy.int64).tofile(wide)
    assert (taken(dataset) == WANTED).all()


@pytest.mark.parametrize("first", [1, 100, 1024])
def test_maps_that_begin_within_the_file(wide, first):
    """At a page or between two, and an array that begins within the map."""
    values = numpy.memmap(wide, numpy.int64, "r", first * 8 * FILE_WIDTH).reshape(-1, FILE_WIDTH)[3:]
    limited = bl.TensorDataset(values).with_memory(1)
    samples_of(limited).release_pages()
    assert (taken(limited) == WANTED[first + 3 :]).all()
    assert resident_of(str(wide)) == 0


def test_writes_to_the_file_are_read(wide):
    values = rows_of(wide, "r+")
    dataset = bl.TensorDataset(values).with_memory(1)
    values += 5
    assert (taken(dataset) == WANTED + 5).all()
    with open(wide, "r+b") as file:
        numpy.arange(FILE_ROWS * FILE_WIDTH).tofile(file)
    assert (taken(dataset) == WANTED).all()


def test_a_file_that_is_cut_is_an_error_of_the_batch(wide):
    """A copy from the map would end the process, as pyarrow does not tell that the file was cut."""
    pyarrow = pytest.importorskip("pyarrow")
    values = numpy.frombuffer(pyarrow.memory_map(str(wide)).read_buffer(), numpy.int64).reshape(-1, FILE_WIDTH)
    dataset = bl.TensorDataset(values).with_memory(1)
    loader = bl.DataLoader(dataset, 64, shuffle=True)
    os.truncate(wide, wide.stat().st_size // 2)
    with refused(bl.DataError, str(wide), "cannot be read", "512 bytes"):
        list(loader)
    numpy.arange(FILE_ROWS * FILE_WIDTH).tofile(wide)  # mended
    assert (taken(dataset) == WANTED).all()


def open_files():
    return len(os.listdir("/proc/self/fd"))


def test_fields_and_datasets_share_open_files(wide):
    before = open_files()
    values = {name: rows_of(wide) for name in "abc"}
    held = open_files()
    limited = [bl.TensorDataset(**values).with_memory(1) for _ in range(3)]
    assert open_files() == held + 1
    del limited, values
    assert open_files() == before


def test_rows_with_gaps_open_no_file(wide):
    values = rows_of(wide)
    before = open_files()
    limited = bl.TensorDataset(values[:, ::2]).with_memory(1)
    assert open_files() == before
    rows = numpy.concatenate([x for (x,) in bl.DataLoader(limited, 64)])
    assert (rows == values[:, ::2]).all()


def test_a_joined_dataset_reads_files(wide):
    plain = bl.TensorDataset(rows_of(wide))
    limited = pickle.loads(pickle.dumps(plain.concat(plain)[1:].with_memory(1)))
    samples_of(limited).release_pages()
    rows = numpy.concatenate([x[:, 0] for (x,) in bl.DataLoader(limited, 64, shuffle=True)])
    assert (numpy.sort(rows) == numpy.sort(numpy.append(WANTED[1:], WANTED))).all()
    assert (limited.memory, resident_of(str(wide))) == (1, 0)


def test_a_limit_that_is_raised_reads_no_file(wide):
    dataset = bl.TensorDataset(rows_of(wide)).with_memory(1)
    before = open_files()
    raised = dataset.with_memory("1GB")
    del dataset
    assert open_files() == before - 1
    assert (taken(raised) == WANTED).all()
    assert resident_of(str(wide)) > 0


MEBIBYTE_ROWS = 256


@pytest.fixture
def large(tmp_path):
    """A file of 12 MiB, in rows of 4 KB."""
    path = tmp_path / "rows.bin"
    numpy.arange(12 * MEBIBYTE_ROWS * 512).tofile(path)
    return path


WAYS = {
    "rows": (lambda plain: plain, True),
    "the middle": (lambda plain: plain[MEBIBYTE_ROWS:-MEBIBYTE_ROWS], True),
    "joined": (lambda plain: plain.concat(plain), True),
    "permuted": (lambda plain: plain.select(numpy.random.default_rng(0).permutation(len(plain))), False),
    "every second": (lambda plain: plain[::2], False),
    "joined, permuted": (lambda plain: plain.concat(plain.select(numpy.arange(len(plain))[::-1])), False),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shard", [1, 2, 5])
def test_orders_in_shards_within_the_limit_copy_from_maps(large, way, shard):
    """Two shards of two MiB lie within five MiB. Smaller and larger shards, and rows in another order, are read."""
    make, lie_in_order = WAYS[way]
    plain = make(bl.TensorDataset(numpy.memmap(large, numpy.int64, "r").reshape(-1, 512)))
    limited = plain.with_memory(5 << 20)
    samples_of(limited).release_pages()
    orders = {"shuffle": True, "shard_size": shard * MEBIBYTE_ROWS}
    seen = [(as_bytes(batch), resident_of(str(large))) for batch in bl.DataLoader(limited, 64, prefetch=1, **orders)]
    assert any(resident for _, resident in seen) == (shard == 2 and lie_in_order)
    assert [batch for batch, _ in seen] == [as_bytes(batch) for batch in bl.DataLoader(plain, 64, **orders)]


def test_arrays_that_torch_shares_keep_how_rows_are_read(wide):
    torch = pytest.importorskip("torch")
    beside = torch.arange(FILE_ROWS)
    plain = bl.TensorDataset(rows_of(wide), beside)
    limits = {1: plain.with_memory(1), 1 << 30: plain.with_memory("1GB")}
    beside.share_memory_()
    for limit, dataset in limits.items():
        samples_of(dataset).release_pages()
        assert (taken(dataset) == WANTED).all()
        assert (resident_of(str(wide)) == 0) == (limit == 1)


def test_a_pipe_where_the_file_was_is_not_opened(wide):
    values = rows_of(wide)
    wide.unlink()
    os.mkfifo(wide)
    assert (taken(bl.TensorDataset(values).with_memory(1)) == WANTED).all()


def test_names_of_files_that_are_no_text(tmp_path, wide):
    path = os.fsencode(tmp_path) + b"/\xff.bin"
    numpy.arange(FILE_ROWS * FILE_WIDTH).tofile(path)
    with open(path, "rb") as file:
        other = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    values = numpy.frombuffer(other, numpy.int64).reshape(-1, FILE_WIDTH)
    for each in (values, rows_of(wide)):
        assert (taken(bl.TensorDataset(each).with_memory(1)) == WANTED).all()


def test_half_of_the_files_that_a_process_may_open_stay_free(script, wide):
    code = """
        import os, resource, sys
        import batchloom as bl
        import numpy

        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        taken = [open("/dev/null") for _ in range(30)]
        before = len(os.listdir("/proc/self/fd"))
        dataset = bl.TensorDataset(numpy.memmap(sys.argv[1], numpy.int64, "r").reshape(-1, 64)).with_memory(1)
        loader = bl.DataLoader(dataset, 64, shuffle=True)
        rows = numpy.sort(numpy.concatenate([x[:, 0] for (x,) in loader]))
        assert (rows == 64 * numpy.arange(len(rows))).all()
        assert len(os.listdir("/proc/self/fd")) <= before + 2
        print("good")
    """
    assert script(code, wide).strip() == "good"


def test_more_files_than_may_be_open(script, tmp_path):
    """Some are read, and rows of others are copied from their maps."""
    values = numpy.arange(300 * 2 * FILE_WIDTH).reshape(300, 2, FILE_WIDTH)
    for number, each in enumerate(values):
        each.tofile(tmp_path / f"{number}.bin")
    code = """
        import glob, os, sys
        import batchloom as bl
        import numpy

        count, width = 300, 64
        paths = [f"{sys.argv[1]}/{number}.bin" for number in range(count)]
        maps = [numpy.memmap(path, numpy.int64, "r").reshape(-1, width) for path in paths]
        before = len(os.listdir("/proc/self/fd"))
        dataset = bl.TensorDataset(bl.ChunkedArray(maps)).with_memory(1)
        assert 0 < len(os.listdir("/proc/self/fd")) - before <= 256
        rows = numpy.sort(numpy.concatenate([x[:, 0] for (x,) in bl.DataLoader(dataset, 7, shuffle=True)]))
        assert (rows == width * numpy.arange(2 * count)).all()
        del dataset
        assert len(os.listdir("/proc/self/fd")) <= before + 1
        print("good")
    """
    assert script(code, tmp_path).strip() == "good"


def test_another_process_reads_files_too(script, wide):
    """One that is spawned takes the limit with its pickle."""
    limited = pickle.loads(pickle.dumps(bl.TensorDataset(rows_of(wide)).with_memory(1)))
    samples_of(limited).release_pages()
    assert (taken(limited) == WANTED).all()
    assert resident_of(str(wide)) == 0
    part = limited.split(a=0.5, b=0.5)[1]
    assert len(list(bl.DataLoader(part, 64, shuffle=True))) > 0
    assert resident_of(str(wide)) == 0


def test_a_private_map_keeps_its_changes(path):
    values = numpy.memmap(path, numpy.int64, "c")
    values[:] = numpy.arange(len(values))
    with refused(bl.ArgumentError, "memory", "1MB", "map of a file"):
        rows(values).with_memory("1MB")
    both = bl.TensorDataset(x=values, y=numpy.memmap(path, numpy.int64, "r")).with_memory(1)
    x = numpy.concatenate([x for x, _ in map(dict.values, bl.DataLoader(both, 64))])
    assert (x == numpy.arange(len(values))).all()
    assert (values == numpy.arange(len(values))).all()
    # Also where a view of windows or a stream of tokens lets go of pages by itself.
    stream = bl.TokenDataset(values, 32)
    assert samples_of(stream).location.pages(1).mapped == 0
    samples_of(stream).location.pages(1).release()
    assert (values == numpy.arange(len(values))).all()


def test_a_private_map_that_is_read_only_now_keeps_its_changes(path):
    """As does that of a library whose addresses were written to it."""
    values = numpy.memmap(path, numpy.int64, "c")
    values[:] = 7
    library = ctypes.CDLL(None)
    start, size = values.ctypes.data, values.nbytes
    assert library.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(size), mmap.PROT_READ) == 0
    with refused(bl.ArgumentError, "memory", "map of a file"):
        rows(values).with_memory(1)
    assert (values == 7).all()


def test_tensors_that_torch_maps(tmp_path):
    """They are borrowed; torch maps privately by default, so its pages are unmapped where they are shared alone."""
    torch = pytest.importorskip("torch")
    path = str(tmp_path / "rows.pt")
    torch.save({"x": torch.arange(400_000).reshape(-1, WIDTH)}, path)
    private = torch.load(path, mmap=True)["x"]
    with refused(bl.ArgumentError, "memory", "1000", "map of a file"):
        bl.TensorDataset(x=private).with_memory(1000)
    with torch.serialization.set_default_mmap_options(mmap.MAP_SHARED):
        shared = torch.load(path, mmap=True)["x"]
    limited = bl.TensorDataset(x=shared).with_memory(1000)
    for seed, dataset in product(range(2), (bl.TensorDataset(x=private), limited)):
        loader = bl.DataLoader(dataset, 64, shuffle=True, seed=seed)
        plan = loader.plan(0)
        for batch, numbers in zip(loader, plan, strict=True):
            assert (batch["x"][:, 0].numpy() == WIDTH * numpy.asarray(numbers)).all()
    shared.sum()
    samples_of(limited).release_pages()
    assert (shared[:, 0] == WIDTH * torch.arange(len(shared))).all()


def test_memory_that_is_no_file_stays():
    with mmap.mmap(-1, 1 << 20) as memory:  # shared, and no file
        values = numpy.frombuffer(memory, numpy.int64)
        values[:] = 3
        with refused(bl.ArgumentError, "memory", "map of a file"):
            rows(values).with_memory(1)
        assert (values == 3).all()
        del values
    with refused(bl.ArgumentError, "memory", "map of a file"):
        bl.TensorDataset(numpy.zeros((4, 2))).with_memory(1)


def test_the_limit_goes_along(path):
    """With selections, splits, pickles and processes; limits that are put together add up."""
    plain = rows(numpy.memmap(path, numpy.int64, "r"))
    limited = plain.with_memory("2MB")
    assert (plain.memory, limited.memory) == (None, 2_000_000)
    assert limited.select([1, 2]).memory == limited[3:9].memory == limited.take(2).memory == 2_000_000
    assert [part.memory for part in limited.split(a=0.5, b=0.5)] == [2_000_000] * 2
    assert pickle.loads(pickle.dumps(limited)).memory == pickle.loads(pickle.dumps(limited[3:9])).memory == 2_000_000
    assert limited.concat(limited, plain).memory == 4_000_000
    assert plain.concat(plain).memory is None
    assert bl.Mixture({"a": plain, "b": limited}).dataset.memory == 2_000_000
    assert limited.with_memory(5).memory == 5


@pytest.mark.parametrize("memory", [0, -1, "much", "1 QB", 1.5, None])
def test_no_number_of_bytes(path, memory):
    with refused((bl.ArgumentError, TypeError), "memory"):
        rows(numpy.memmap(path, numpy.int64, "r")).with_memory(memory)


def test_chunks_have_their_limit_where_they_are_made():
    chunks = bl.ChunkDataset([4], lambda chunk: numpy.zeros((4, 2)))
    with refused(bl.ArgumentError, "memory", "'1MB'", "chunk"):
        chunks.with_memory("1MB")


RESIDENT = """
    import sys
    import batchloom as bl
    import numpy

    path, kind, owner, limit = sys.argv[1:]
    limit = int(limit)

    def resident():
        line = next(line for line in open("/proc/self/status") if line.startswith("RssFile"))
        return int(line.split()[1]) << 10

    if owner == "numpy":
        values = numpy.memmap(path, numpy.int64, "r")
    elif owner == "torch":
        import torch
        size = __import__("os").stat(path).st_size // 8
        values = torch.from_file(path, shared=True, size=size, dtype=torch.int64)
    else:
        import pyarrow
        values = numpy.frombuffer(pyarrow.memory_map(path).read_buffer(), numpy.int64)
    rows = values.reshape(-1, 8192)
    make = {
        "rows": lambda rows: bl.TensorDataset(rows),
        "sequences": lambda rows: bl.SequenceDataset(x=(rows, numpy.arange(0, len(rows) + 1))),
        "groups": lambda rows: bl.GroupDataset(numpy.arange(len(rows)), rows),
        "windows": lambda rows: bl.WindowDataset(rows.view(numpy.float64), input_len=1, horizon=0),
        "tokens": lambda rows: bl.TokenDataset(rows.reshape(-1), 8192),
    }
    if kind == "joined":
        half = len(rows) // 2
        dataset = bl.TensorDataset(rows[:half]).with_memory(limit // 2)
        dataset = dataset.concat(bl.TensorDataset(rows[half:]).with_memory(limit - limit // 2))
    elif kind == "mixed":
        half = len(rows) // 2
        parts = [bl.TensorDataset(part).with_memory(limit // 2) for part in (rows[:half], rows[half:])]
        dataset = bl.Mixture(dict(zip("ab", parts)), when_exhausted="renormalise")
    elif kind == "selected":
        dataset = bl.TensorDataset(rows).with_memory(limit)[:-3]
    else:
        dataset = make[kind](rows).with_memory(limit)
    loader = bl.DataLoader(dataset, 8, shuffle=True, num_threads=1, prefetch=1)
    early, most, seen = resident(), 0, 0
    for batch in loader:
        seen += 1
        most = max(most, resident() - early)
    assert seen == len(loader) >= len(rows) // 8 - 1, (seen, len(loader), len(rows))
    print(most)
"""
CASES = [
    *(("numpy", kind) for kind in ("rows", "sequences", "groups", "windows", "tokens", "joined", "mixed", "selected")),
    ("torch", "rows"),
    ("pyarrow", "rows"),
]


@pytest.mark.parametrize(("owner", "kind"), CASES)
def test_memory_stays_below_the_limit(script, tmp_path, owner, kind):
    """Plus what the blocks in preparation read, each row in one or two pieces of 64 KiB that the system maps."""
    path, size, limit = tmp_path / "rows.bin", 208 << 20, 1 << 20
    path.touch()
    os.truncate(path, size)
    assert int(script(RESIDENT, path, kind, owner, limit)) < limit + (48 << 20)
