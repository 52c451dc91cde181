"""Windows over the memory of their series: the same batches, no copy, and never a view where a batch is owned."""

import gc
import itertools
import json

import batchloom as bl
import jax.numpy
import ml_dtypes
import numpy
import pytest
import torch
from batchloom.dataset.base import samples_of
from hypothesis import given
from hypothesis import strategies as st
from oracles.windows import Shape, equal, loader_of, pretended, shapes
from refusals import refused

# Views of every layout


def base(rows=40):
    return (numpy.arange(rows * 6) % 251).reshape(rows, 6)


LAYOUTS = {
    "plain": lambda: base().astype(numpy.float32),
    "float64": lambda: base().astype(numpy.float64),
    "int16": lambda: base().astype(numpy.int16),
    "uint8": lambda: base().astype(numpy.uint8),
    "bool": lambda: base() % 3 == 0,
    "complex": lambda: base() * 1j,
    "float16": lambda: base().astype(numpy.float16),
    "bfloat16": lambda: base().astype(ml_dtypes.bfloat16),
    "backwards": lambda: base()[::-1],
    "backwards and every other": lambda: base(80)[::-2],
    "columns backwards": lambda: base()[:, ::-1],
    "both backwards": lambda: base()[::-1, ::-1],
    "fortran": lambda: numpy.asfortranarray(base()),
    "some columns": lambda: base()[:, 1:5:2],
    "every third row": lambda: base(120)[::3],
    "one column": lambda: base()[:, 2],
    "one column backwards": lambda: base()[::-1, 2],
    "three dimensions": lambda: base().reshape(40, 2, 3),
    "three dimensions turned": lambda: base().reshape(40, 2, 3).transpose(0, 2, 1)[:, ::-1],
    "one feature": lambda: base()[:, :1],
    "no feature": lambda: base()[:, :0],
    "one row again and again": lambda: numpy.broadcast_to(base()[3], (40, 6)),
    "one value a row": lambda: numpy.broadcast_to(base()[:, :1], (40, 6)),
    "record": lambda: numpy.rec.fromarrays([base()[:, 0].astype("i2"), base()[:, 1] / 2], names="a,b")["b"],
    "read-only": lambda: numpy.frombuffer(base().astype("f4").tobytes(), "f4").reshape(40, 6),
    "torch": lambda: torch.tensor(base()),
    "torch transposed": lambda: torch.tensor(numpy.ascontiguousarray(base().T)).T,
    "torch bfloat16": lambda: torch.tensor(base()).bfloat16(),
    "torch half": lambda: torch.tensor(base()).half(),
    "torch column": lambda: torch.tensor(base())[:, 3],
    "torch every other": lambda: torch.tensor(base(80))[::2, ::2],
    "torch expanded": lambda: torch.tensor(base())[:, :1].expand(40, 6),
    "torch conjugate": lambda: torch.tensor(base() * 1j).conj(),
    "torch negative": lambda: torch.tensor(base() * 1j).conj().imag,
    "torch with gradient": lambda: torch.tensor(base() / 2).requires_grad_(),
    "jax": lambda: jax.numpy.asarray(base().astype("f4")),
}


def listed(array):
    """An array of whatever framework and type as lists of numbers."""
    if isinstance(array, torch.Tensor):
        array = array.detach().resolve_conj().resolve_neg()
        array = (array.float() if array.dtype in (torch.bfloat16, torch.half) else array).numpy()
    array = numpy.asarray(array)
    return array.astype(complex if array.dtype.kind == "c" else float).tolist()


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("output", [None, "torch", "numpy"])
def test_views_are_equal_to_copies_in_every_layout(name, output):
    values = LAYOUTS[name]()
    expected = listed(values)
    dataset = bl.WindowDataset(values, 5, 2, stride=2, label_len=1, mask=True)
    ways = [{}, {"buffers": "own"}, {"resident": False}, {"shuffle": "runs"}, {"shuffle": True}]
    # torch has no views on what runs backwards: that goes through in shards, which may begin anywhere.
    ways += [{"resident": max(dataset.stats(4).viewed_bytes * 3, 1)}]
    if output == "torch":
        ways += [{"device": "meta"}, {"device": "meta", "resident": False}, {"device": "meta", "shuffle": True}]
    for options in ways:
        with pretended():
            loader = bl.DataLoader(dataset, batch_size=4, output=output, **options)
        for samples, (x, y, mask, target_mask) in zip(loader.plan(0), loader, strict=True):
            starts = [dataset.place(int(k)).start for k in samples]
            assert listed(x) == [expected[start : start + 5] for start in starts]
            assert listed(y) == [expected[start + 4 : start + 7] for start in starts]
            assert listed(mask) == [[1.0] * 5] * len(samples)
            assert listed(target_mask) == [[1.0] * 3] * len(samples)
            assert all(
                str(array.dtype).removeprefix("torch.") == samples_of(dataset).array_windows.spans["x"].field.dtype
                for array in (x, y)
            )


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_memory_maps_are_read_where_they_are(tmp_path, mode, order):
    path = tmp_path / "series.bin"
    path.write_bytes(base().astype(numpy.float32).tobytes("F" if order == "F" else "C"))
    values = numpy.memmap(path, dtype=numpy.float32, mode=mode, shape=(40, 6), order=order)
    loader = bl.DataLoader(bl.WindowDataset(values, 5, 2), batch_size=4)
    held = []
    for samples, (x, y) in zip(loader.plan(0), loader, strict=True):
        assert numpy.shares_memory(x, values)
        assert numpy.shares_memory(y, values)
        assert not x.flags.writeable
        held.append((samples, x, y))
    del values, loader, x, y
    gc.collect()
    for samples, x, y in held:
        assert x.tolist() == [base()[k : k + 5].tolist() for k in samples]
        assert y.tolist() == [base()[k + 5 : k + 7].tolist() for k in samples]


def memory(array):
    """The addresses that an array lies between, strides of any sign."""
    if isinstance(array, torch.Tensor):
        last = sum((size - 1) * stride for size, stride in zip(array.shape, array.stride(), strict=True))
        return array.data_ptr(), array.data_ptr() + (last + 1) * array.element_size()
    return numpy.lib.array_utils.byte_bounds(array)


def inside(array, other):
    (first, end), (low, high) = memory(array), memory(other)
    return low <= first and end <= high


def overlap(array, other):
    (first, end), (low, high) = memory(array), memory(other)
    return first < high and low < end


KINDS = {"numpy": numpy.asarray, "torch": torch.as_tensor}
kinds, sizes = st.sampled_from(list(KINDS)), st.integers(1, 9)


@given(shape=shapes(), kind=kinds, order=st.sampled_from([False, "runs"]), size=sizes)
def test_neighbours_are_views_and_all_else_is_owned(shape, kind, order, size):
    values = KINDS[kind](numpy.concatenate(shape.arrays()).astype(numpy.float32))
    dataset = bl.WindowDataset((values, shape.offsets()), **shape.options())
    loader = bl.DataLoader(dataset, batch_size=size, shuffle=order)
    for samples, batch in zip(loader.plan(0), loader, strict=True):
        for array in batch[: 1 + bool(shape.horizon)]:
            if shape.is_view(samples.tolist()):
                assert inside(array, values)
                assert kind == "torch" or not array.flags.writeable
            else:
                assert not overlap(array, values)
                assert kind == "torch" or array.flags.writeable


OWNED = [
    {"shuffle": True},
    {"buffers": "own"},
    {"buffers": "own", "shuffle": "runs"},
    {"buffers": "own", "resident": False},
    {"buffers": "own", "resident": 10_000},
    {"shuffle": True, "resident": False},
    {"shuffle": True, "resident": 10_000},
]
ON_DEVICE = [{"device": "meta", **options} for options in OWNED]


@pytest.mark.law("W4")
@given(shape=shapes(), kind=kinds, options=st.sampled_from(OWNED + ON_DEVICE), size=sizes)
def test_who_writes_to_an_owned_batch_changes_nothing_else(shape, kind, options, size):
    values = KINDS[kind](numpy.concatenate(shape.arrays()))
    dataset = bl.WindowDataset((values, shape.offsets()), **shape.options(), mask=True)
    with pretended():
        loader = bl.DataLoader(dataset, batch_size=size, **options)
    held = []
    for epoch in range(2):
        for samples, batch in zip(loader.plan(epoch), loader, strict=True):
            assert equal(batch, shape.stack(samples))
            for array in batch:
                array[...] = 0
                assert not overlap(array, values)
                assert not any(overlap(array, other) for other in held if array.size and other.size)
                held.append(array)
            assert all((numpy.asarray(array) == 0).all() for array in batch)
    assert numpy.array_equal(values, numpy.concatenate(shape.arrays()))


@pytest.mark.parametrize("options", OWNED + ON_DEVICE, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fortran", [False, True])
def test_owned_batches_are_compact(options, kind, fortran):
    values = numpy.arange(160.0).reshape(40, 4)
    values = KINDS[kind](numpy.asfortranarray(values) if fortran else values)
    with pretended():
        loader = bl.DataLoader(bl.WindowDataset(values, 5, 2, mask=True), batch_size=4, **options)
    for array in itertools.chain(*loader):
        assert array.is_contiguous() if isinstance(array, torch.Tensor) else array.flags.c_contiguous


@pytest.mark.parametrize("kind", KINDS)
def test_patches_that_are_copied_are_owned(kind):
    values = KINDS[kind](numpy.arange(40.0).reshape(20, 2))
    loader = bl.DataLoader(bl.WindowDataset(values, 5, patch_len=3, patch_stride=1), batch_size=4, buffers="own")
    for (x,) in loader:
        before = numpy.asarray(x[:, :, 1:]).copy()
        x[:, :, 0] = -1
        assert numpy.asarray(x[:, :, 1:]).tolist() == before.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_one_window_is_owned(kind):
    values = KINDS[kind](numpy.arange(40.0).reshape(20, 2))
    dataset = bl.WindowDataset(values, 5, 2, targets=0)
    for array in dataset[3]:
        assert not overlap(array, values)
        array[...] = -1
    assert numpy.asarray(values).tolist() == numpy.arange(40.0).reshape(20, 2).tolist()


def test_jax_is_never_given_a_view():
    values = numpy.arange(80.0, dtype=numpy.float32).reshape(40, 2)
    for options in ({}, {"resident": True}, {"resident": False}, {"resident": 300}, {"shuffle": "runs"}):
        loader = bl.DataLoader(bl.WindowDataset(values, 5, 2), batch_size=4, output="jax", **options)
        batches = list(itertools.chain(*loader))
        bounds = [(array.unsafe_buffer_pointer(), array.nbytes) for array in batches]
        first, end = memory(values)
        assert not any(address < end and first < address + size for address, size in bounds)
        assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(sorted(bounds)))


@pytest.mark.law("L11")
@pytest.mark.parametrize("mode", ["views", "rows", "shards", "torch", "torch rows", "device", "device rows", "copy"])
def test_kept_batches_outlive_loader_dataset_and_series(mode):
    shape = Shape((60, 70), 5, 2)
    dataset = shape.dataset()
    loader = loader_of(dataset, mode, 4)
    batches = [batch for _ in range(2) for batch in loader]
    samples = [samples for epoch in range(2) for samples in loader.plan(epoch)]
    del loader, dataset
    gc.collect()
    junk = [numpy.full(1000, -1) for _ in range(200)]
    assert all(equal(batch, shape.data(rows)) for rows, batch in zip(samples, batches, strict=True))
    del junk


def test_views_do_not_remember_the_mode_of_their_consumer():
    """A loader that served an evaluation in inference mode serves a training."""
    values = torch.arange(80.0).reshape(40, 2)
    for options in ({}, {"resident": False}, {"resident": 400}, {"shuffle": True}, {"device": "meta"}):
        with pretended():
            loader = bl.DataLoader(bl.WindowDataset(values, 5, 2), batch_size=4, output="torch", **options)
        with torch.inference_mode():
            batches = iter(loader)
            next(batches)
        assert not any(array.is_inference() for batch in (next(batches), *loader) for array in batch)


# Where the rows are: resident, batch by batch, and as many as fit


@given(shape=shapes(), size=sizes, more=st.integers(0, 400), kind=kinds, device=st.booleans())
def test_shards_of_any_size_hold_every_window(shape, size, more, kind, device):
    values = KINDS[kind](numpy.concatenate(shape.arrays()))
    dataset = bl.WindowDataset((values, shape.offsets()), **shape.options(), mask=True)
    limit = 2 * dataset.stats(size).viewed_bytes + more
    options = {"device": "meta"} if device else {}
    for order in (False, "runs"):
        with pretended():
            loader = bl.DataLoader(dataset, batch_size=size, shuffle=order, resident=limit, **options)
        for epoch in range(2):
            for samples, batch in zip(loader.plan(epoch), loader, strict=True):
                assert equal(batch, shape.stack(samples))
    assert numpy.array_equal(values, numpy.concatenate(shape.arrays()))


def test_consecutive_batches_share_a_shard_that_fits():
    values = torch.arange(1000.0)
    for limit, shards in ((10_000, 1), (1000, 10), (2 * 35 * 4, 33)):
        loader = bl.DataLoader(bl.WindowDataset(values, 6), batch_size=30, resident=limit)
        storages = {}
        held = []
        for (x,) in loader:
            held.append(x)
            storages[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        assert abs(len(storages) - shards) <= 1
        assert all(size <= limit / 2 for size in storages.values()) or shards == 1
        assert shards == 1 or not any(overlap(x, values) for x in held)


@pytest.mark.parametrize(("free", "shards"), [(None, 1), (8000, 1), (7999, 3), (1600, 11)])
def test_half_of_the_free_memory_of_a_device_is_used(free, shards):
    with pretended() as device, pytest.MonkeyPatch.context() as patch:
        patch.setattr("batchloom.arrays.torch.free_memory", lambda device: free)
        dataset = bl.WindowDataset(torch.arange(1000.0), 6)  # 4000 bytes
        loader = bl.DataLoader(dataset, batch_size=30, device=device)
        batches = [x for _ in range(2) for (x,) in loader]
        assert torch.equal(torch.cat(batches)[:, 0], torch.arange(995.0).repeat(2))
        storages = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in batches}
        # The rows of an epoch are moved again in the next, unless all are there.
        assert abs(len(storages) - (shards if shards == 1 else 2 * shards)) <= 2
        assert shards == 1 or max(storages.values()) <= free / 4
        for resident, count in ((True, 1), (False, len(loader))):
            if resident and free is not None and free < 4000:
                with refused(bl.DeviceError, "4000 bytes", str(free), "resident", "False"):
                    bl.DataLoader(dataset, batch_size=30, device=device, resident=resident)
                continue
            loader = bl.DataLoader(dataset, batch_size=30, device=device, resident=resident)
            assert len({x.untyped_storage().data_ptr() for x in [x for (x,) in loader]}) == count


def test_what_is_free_for_a_batch_and_the_next_is_enough():
    """A batch of 10 covers 16 rows of 16 bytes; half of what is free does not hold two, but all of it does."""
    dataset = bl.WindowDataset(torch.zeros(100, 4), 5, 2)
    with pretended() as device, pytest.MonkeyPatch.context() as patch:
        patch.setattr("batchloom.arrays.torch.free_memory", lambda device: 512)
        for resident in ("auto", False):
            loader = bl.DataLoader(dataset, 10, device=device, resident=resident)
            assert loader.placement.reason == "the rows of each batch move"
            assert len(list(loader)) == 10
        patch.setattr("batchloom.arrays.torch.free_memory", lambda device: 511)
        for resident in ("auto", False):
            with refused(bl.DeviceError, "256 bytes", "511", "cpu", "smaller"):
                bl.DataLoader(dataset, 10, device=device, resident=resident)


def test_rows_batch_by_batch_are_a_copy_of_just_these():
    values = torch.arange(100.0)
    loader = bl.DataLoader(bl.WindowDataset(values, 6, 2), batch_size=10, resident=False)
    for x, y in loader:
        assert x.untyped_storage().nbytes() == (len(x) + 7) * 4
        assert x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
        assert not overlap(x, values)


@pytest.mark.parametrize("device", [None, "meta"])
def test_a_limit_that_is_too_small_is_refused(device):
    dataset = bl.WindowDataset(numpy.zeros((100, 2)), 5, 2)  # a batch of 10 covers 16 rows of 16 bytes
    with refused(bl.ArgumentError, "resident", "256 bytes", "511"):
        bl.DataLoader(dataset, batch_size=10, resident=511, device=device)
    assert len(list(bl.DataLoader(dataset, batch_size=10, resident=512, device=device))) == 10


@pytest.mark.parametrize(
    "options", [{"balance": True}, {"largest_first": True}, {"batch_size": 1000}, {"batch_size": 2**64 - 1}]
)
def test_options_that_change_nothing(options):
    shape = Shape((50, 40), 5, 2)
    for mode in ("views", "copy", "rows", "device"):
        loader = loader_of(shape.dataset(), mode, **{"batch_size": 8, **options})
        for samples, batch in zip(loader.plan(0), loader, strict=True):
            assert equal(batch, shape.data(samples))


def test_no_rows_are_moved_in_vain():
    """Runs of neighbours in random order: what lies between two of them is not moved, though it would fit."""
    values = torch.arange(1000.0)
    loader = bl.DataLoader(bl.WindowDataset(values, 6), batch_size=10, shuffle="runs", resident=3000)
    batches = [x for (x,) in loader]
    storages = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in batches}
    assert sum(storages.values()) <= len(batches) * 15 * 4


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"resident": False},
        {"buffers": "own"},
        {"shuffle": True},
        {"shuffle": True, "resident": False},
        {"resident": 20_000},
    ],
)
def test_the_device_without_values(options, named):
    past = {"more": torch.zeros(107)} if named else None
    series = [torch.zeros(100, 4), torch.zeros(7, 4)]
    dataset = bl.WindowDataset(series, 8, 2, mask=True, patch_len=4, targets=[0, 1], past=past)
    loader = bl.DataLoader(dataset, batch_size=16, device="meta", **options)
    for samples, batch in zip(loader.plan(0), loader, strict=True):
        size = len(samples)
        assert not named or batch["more"].device.type == "meta"
        x, y, mask, _ = (batch[name] for name in ("x", "y", "mask", "target_mask")) if named else batch
        assert {array.device.type for array in (x, y, mask)} == {"meta"}
        assert (x.shape, y.shape, mask.shape) == ((size, 4, 2, 4), (size, 2, 2), (size, 8))


# Memory

PEAK = """
    import itertools
    import json
    import sys
    import numpy
    import batchloom as bl

    def peak():
        return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))

    def forget():
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")

    options = json.loads(sys.argv[1])
    if "output" in options or "device" in options:
        import torch
    values = numpy.zeros((800_000, 16), numpy.float32)  # 51 MB
    values[:] = numpy.arange(800_000)[:, None]
    dataset = bl.WindowDataset(values, 336, 96)
    stats = dataset.stats(512)
    assert stats.stacked_bytes > 20e9
    loader = bl.DataLoader(dataset, batch_size=512, num_threads=1, prefetch=1, **options)
    steps = int(sys.argv[2])
    for x, y in itertools.islice(loader, 3):  # what is claimed once
        assert x[0, 0, 0] + 336 == y[0, 0, 0]
    forget()
    before, number = peak(), 0
    for _ in range(3):
        for x, y in itertools.islice(loader, steps):
            assert x[0, 0, 0] + 336 == y[0, 0, 0]
            number += len(x)
    print(peak() - before, stats.gathered_bytes, stats.viewed_bytes, number)
"""


@pytest.mark.parametrize(
    ("options", "steps", "most"),
    [
        ({}, 2000, 2 << 20),
        ({"shuffle": "runs", "output": "torch"}, 2000, 4 << 20),
        ({"resident": False}, 2000, 2 << 20),
        ({"resident": 16 << 20}, 2000, 18 << 20),
        ({"buffers": "own"}, 20, 48 << 20),
        ({"shuffle": True}, 20, 48 << 20),
    ],
    ids=["views", "runs", "rows", "shards", "copy", "random"],
)
def test_peak_memory_is_the_series_and_a_batch(monkeypatch, script, options, steps, most):
    # What is freed goes back to the system at once: the C library would learn from the first shard to keep the others.
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", str(1 << 20))
    grown, gathered, viewed, number = map(int, script(PEAK, json.dumps(options), steps).split())
    assert gathered == 512 * 432 * 64
    assert viewed == (511 + 432) * 64
    assert number == 3 * min(800_000 - 431, steps * 512)
    # A block of one batch with the consumer, one ahead, and one between.
    assert grown < most, f"{grown / 2**20:.1f} MiB"


GROWTH = """
    import sys
    import numpy
    import batchloom as bl
    from oracles.memory import resident

    modes = {"views": {}, "copy": {"buffers": "own"}, "rows": {"resident": False}, "shards": {"resident": 100_000}}
    values = [numpy.ones((length, 8), numpy.float32) for length in (3000, 40, 5)]
    loader = bl.DataLoader(bl.WindowDataset(values, 24, 8, short="pad"), 32, shuffle="runs", **modes[sys.argv[1]])

    def epochs(count):
        for number in range(count):
            for batch in loader:
                if number % 3 == 0 and len(batch[0]) < 32:
                    break
            loader.load_state_dict(loader.state_dict())

    epochs(50)
    early = resident()
    epochs(250)
    print(resident() - early)
"""


@pytest.mark.parametrize("mode", ["views", "copy", "rows", "shards"])
def test_resident_memory_is_flat_over_epochs(script, mode):
    assert int(script(GROWTH, mode)) < 4 << 20
