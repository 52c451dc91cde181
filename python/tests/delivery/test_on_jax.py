"""Batches on devices of JAX and over shardings, with four devices of the CPU, and with two processes."""

import socket
import subprocess
import sys
import textwrap

import batchloom as bl
import numpy
import pytest

jax = pytest.importorskip("jax")

from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402
from refusals import refused  # noqa: E402

FOUR = """
    import os
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
    import batchloom as bl
    import jax
    import numpy
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    X, y = numpy.arange(80, dtype=numpy.float32).reshape(40, 2), numpy.arange(40, dtype=numpy.int32)
    dataset = bl.TensorDataset(x=X, y=y)
    whole = NamedSharding(Mesh(numpy.array(jax.devices()), ("data",)), PartitionSpec("data"))

    def said(function):
        try:
            function()
        except bl.Error as error:
            return f"{type(error).__name__} {error}"
        raise AssertionError("no error")
"""


def four(interpreter, code):
    return interpreter(textwrap.dedent(FOUR) + textwrap.dedent(code))


def on_one():
    return NamedSharding(Mesh(numpy.array(jax.devices()[:1]), ("data",)), PartitionSpec("data"))


def test_batches_are_on_the_device(interpreter):
    four(
        interpreter,
        """
        for device in jax.devices():
            loader = bl.DataLoader(dataset, 7, shuffle=True, output="jax", device=device)
            assert loader.placement.mode == "streamed" and loader.placement.device == str(device)
            for samples, batch in zip(loader.plan(0), loader, strict=True):
                assert all(array.devices() == {device} for array in batch.values())
                assert (numpy.asarray(batch["x"]) == X[samples]).all() and (numpy.asarray(batch["y"]) == samples).all()
        """,
    )


def test_batches_are_sharded(interpreter):
    four(
        interpreter,
        """
        loader = bl.DataLoader(dataset, 8, shuffle=True, output="jax", device=whole)
        total = jax.jit(lambda batch: batch["x"].sum())
        for samples, batch in zip(loader.plan(0), loader, strict=True):
            assert batch["x"].sharding == whole and len(batch["x"].addressable_shards) == 4
            assert (numpy.asarray(batch["x"]) == X[samples]).all()
            assert total(batch) == X[samples].sum()
        # One for each field, in a tuple too.
        alone = NamedSharding(whole.mesh, PartitionSpec())
        loader = bl.DataLoader(bl.TensorDataset(X, y), 8, output="jax", device={0: whole, 1: alone})
        x, labels = next(iter(loader))
        assert x.sharding == whole and labels.sharding == alone and len(labels.addressable_shards[0].data) == 8
        """,
    )


def test_patches_and_sequences_are_sharded_too(interpreter):
    four(
        interpreter,
        """
        windows = bl.WindowDataset(X, input_len=8, horizon=0, patch_len=4, patch_stride=2)
        (expected,) = next(iter(bl.DataLoader(windows, 4, output="numpy")))
        (x,) = next(iter(bl.DataLoader(windows, 4, output="jax", device=whole, drop_last=True)))
        assert x.sharding == whole and (numpy.asarray(x) == expected).all()
        documents = [numpy.arange(length, dtype=numpy.int32) for length in (3, 5, 2, 7, 1, 4, 6, 2)]
        sequences = bl.SequenceDataset(input_ids=documents)
        expected = next(iter(bl.DataLoader(sequences, 8, output="numpy")))
        batch = next(iter(bl.DataLoader(sequences, 8, output="jax", device=whole, drop_last=True)))
        for name, array in batch.items():
            assert array.sharding == whole and (numpy.asarray(array) == expected[name]).all(), name
        """,
    )


def test_errors_name_what_to_change(interpreter):
    four(
        interpreter,
        """
        error = said(lambda: next(iter(bl.DataLoader(dataset, 6, output="jax", device=whole))))
        assert "ArgumentError field x of a batch has shape (6, 2)" in error and "drop_last=True" in error, error
        error = said(lambda: bl.TensorDataset(jax.device_put(X, whole)))
        assert error == (
            "DeviceError field 0 is sharded over 4 devices; expected one array: use jax.device_get"
        ), error
        error = said(lambda: bl.TensorDataset(jax.device_put(X, jax.devices()[2])))
        first, second, third, _ = jax.devices()
        assert error == (
            f"DeviceError field 0 is on {third}; expected an array on the first device of the CPU: use jax.device_get"
        ), error
        error = said(lambda: bl.DataLoader(dataset, 8, device=second))
        assert error == (
            f'ArgumentError device is {second}, of JAX, but batches are of numpy; expected output="jax"'
        ), error
        """,
    )


def test_arguments_that_contradict_each_other():
    dataset = bl.TensorDataset(x=numpy.zeros((4, 2), numpy.float32), y=numpy.zeros(4, numpy.float32))
    with refused(bl.ArgumentError, "sharding", "numpy", 'output="jax"'):
        bl.DataLoader(dataset, 2, device=on_one())
    with refused(bl.ArgumentError, "field 'y'", "'x', 'y'"):
        bl.DataLoader(dataset, 2, output="jax", device={"x": on_one()})
    with refused(bl.ArgumentError, "device has a sharding for 'z'", "'x', 'y'"):
        bl.DataLoader(dataset, 2, output="jax", device={"x": on_one(), "y": on_one(), "z": on_one()})
    with refused(bl.ArgumentError, "device has a sharding for 1", "one for each of 0"):
        bl.DataLoader(bl.TensorDataset(numpy.zeros(4)), 2, output="jax", device={0: on_one(), 1: on_one()})
    # The fields of samples on demand are known with the first batch.
    on_demand = bl.MapDataset([{"x": numpy.float32(number)} for number in range(4)])
    loader = bl.DataLoader(on_demand, 2, output="jax", device={"x": on_one(), "z": on_one()})
    with refused(bl.ArgumentError, "device has a sharding for 'z'", "one for each of 'x'"):
        next(iter(loader))
    assert len(list(bl.DataLoader(on_demand, 2, output="jax", device={"x": on_one()}))) == 2
    with refused(bl.ArgumentError, "field x", "3", "jax.sharding.Sharding"):
        bl.DataLoader(dataset, 2, output="jax", device={"x": 3, "y": on_one()})
    with refused(bl.ArgumentError, "resident=True", "torch"):
        bl.DataLoader(dataset, 2, output="jax", device=jax.devices()[0], resident=True)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(2**31, "int64"), (-(2**31) - 1, "int64"), (2**32, "uint64"), (1e39, "float64"), (1e39j, "complex128")],
)
def test_numbers_that_jax_does_not_hold_are_errors(value, dtype):
    values = numpy.zeros((8, 3), dtype)
    values[5, 1] = value
    batches = iter(bl.DataLoader(bl.TensorDataset(values), 4, output="jax"))
    with refused(bl.DataError, dtype, "jax_enable_x64"):
        list(batches)


@pytest.mark.parametrize(("value", "dtype"), [(2**31 - 1, "int64"), (-(2**31), "int64"), (2**32 - 1, "uint64")])
def test_numbers_at_the_border_fit(value, dtype):
    ((batch,),) = bl.DataLoader(bl.TensorDataset(numpy.full(3, value, dtype)), 3, output="jax")
    assert numpy.asarray(batch).tolist() == [value] * 3


def test_numbers_without_a_value_stay_as_they_are():
    values = numpy.array([numpy.inf, -numpy.inf, numpy.nan, 1.5])
    ((batch,),) = bl.DataLoader(bl.TensorDataset(values), 4, output="jax")
    assert numpy.array_equal(numpy.asarray(batch), values, equal_nan=True)


def test_narrowing_is_said_once(interpreter):
    interpreter(
        """
        import warnings
        import batchloom as bl
        import numpy

        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(2):
                bl.DataLoader(bl.TensorDataset(x=numpy.zeros(4), y=numpy.arange(4)), 2, output="jax")
        assert len(said) == 1, said
        assert "field x is float64, of which JAX makes float32" in str(said[0].message), said[0].message
        """
    )


PROCESS = """
    import sys
    import jax
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    number, port = int(sys.argv[1]), sys.argv[2]
    jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=number)

    import batchloom as bl
    import numpy
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    X = numpy.arange(80, dtype=numpy.float32).reshape(40, 2)
    whole = NamedSharding(Mesh(numpy.array(jax.devices()), ("data",)), PartitionSpec("data"))
    options = dict(shuffle=True, output="jax")
    loader = bl.DataLoader(bl.TensorDataset(x=X), 4, device=whole, **options)
    assert (loader.rank, loader.world_size) == (number, 2), "as jax.distributed says"
    plan, total = loader.plan(0), jax.jit(lambda x: x.sum(axis=0))
    steps = 0
    for number, batch in enumerate(loader):
        step = plan.step(number)
        assert batch["x"].shape == (8, 2)
        (shard,) = batch["x"].addressable_shards
        assert (numpy.asarray(shard.data) == X[step.batches[jax.process_index()]]).all()
        samples = numpy.concatenate(step.batches)
        assert (numpy.asarray(total(batch["x"])) == X[samples].sum(axis=0)).all()
        steps += 1
    assert steps == len(loader) == 5
    sequences = bl.SequenceDataset(input_ids=[numpy.arange(length, dtype=numpy.int32) for length in (1, 2, 3, 4)])
    try:
        bl.DataLoader(sequences, 2, device=whole, **options)
    except bl.ArgumentError as error:
        assert "spans 2 processes" in str(error), error
    else:
        raise AssertionError("batches of two shapes in one array")
    print("done")
"""


def test_two_processes_make_one_array():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        port = str(found.getsockname()[1])
    command = [sys.executable, "-c", textwrap.dedent(PROCESS)]
    processes = [
        subprocess.Popen([*command, str(number), port], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for number in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=120)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output
        assert "done" in output
