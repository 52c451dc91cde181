"""JAX arrays in and out."""

import itertools

import batchloom as bl
import ml_dtypes
import numpy
import pytest

jax = pytest.importorskip("jax")

from hypothesis import assume, given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from jax import numpy as jnp  # noqa: E402
from oracles.runs import listed, runs  # noqa: E402
from refusals import refused  # noqa: E402

SHARED = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "float32", "complex64"]
FOREIGN = ["bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]
NARROWED = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}


def numpy_array(name, shape):
    dtype = numpy.dtype(getattr(ml_dtypes, name, name))
    return (numpy.arange(numpy.prod(shape)).reshape(shape) % 2).astype(dtype)


@pytest.mark.parametrize("name", SHARED + FOREIGN)
@pytest.mark.parametrize("shape", [(7,), (7, 3), (7, 16, 2), (7, 0)], ids=str)
def test_jax_in_jax_out(name, shape):
    X = jnp.asarray(numpy_array(name, shape))
    loader = bl.DataLoader(bl.TensorDataset(X), 3, shuffle=True)
    for samples, (batch,) in zip(loader.plan(0), loader, strict=True):
        assert isinstance(batch, jax.Array)
        assert (batch.dtype, batch.shape) == (X.dtype, (len(samples), *shape[1:]))
        assert numpy.array_equal(numpy.asarray(batch), numpy.asarray(X)[samples])


@pytest.mark.parametrize("name", SHARED + FOREIGN)
def test_numpy_in_jax_out(name):
    X = numpy_array(name, (7, 5))
    loader = bl.DataLoader(bl.TensorDataset(X), 3, output="jax")
    assert numpy.array_equal(numpy.concatenate([numpy.asarray(batch) for (batch,) in loader]), X)


@pytest.mark.parametrize("name", NARROWED)
def test_wide_types_are_narrowed_as_everywhere_in_jax(name):
    ((batch,),) = bl.DataLoader(bl.TensorDataset(numpy_array(name, (7, 5))), 7, output="jax")
    assert batch.dtype == NARROWED[name]
    assert numpy.array_equal(numpy.asarray(batch), numpy_array(name, (7, 5)))


def test_wide_types_stay_where_jax_is_told_so(interpreter):
    interpreter(
        """
        import jax
        jax.config.update("jax_enable_x64", True)
        import numpy
        import batchloom as bl

        for name in ("int64", "uint64", "float64", "complex128"):
            X = (2**40 + numpy.arange(7)).astype(name)
            ((batch,),) = bl.DataLoader(bl.TensorDataset(X), 7, output="jax")
            assert batch.dtype == name and (numpy.asarray(batch) == X).all(), name
            assert batch.unsafe_buffer_pointer() % 64 == 0
        """
    )


def test_jax_in_others_out():
    X = jnp.arange(10.0)
    for output in ("numpy", "torch"):
        loader = bl.DataLoader(bl.TensorDataset(X), 3, output=output)
        assert type(next(iter(loader))[0]).__module__ == output
        assert [value for batch in listed(loader) for value in batch] == list(range(10))


@given(run=runs(), world_size=st.integers(1, 5))
def test_jax_sees_the_same_order(run, world_size):
    assume(run.steps(0, world_size))
    loader = bl.DataLoader(
        bl.TensorDataset(jnp.arange(run.samples)), **run.options(), world_size=world_size, rank=world_size - 1
    )
    assert listed(loader) == run.seen(0, world_size, world_size - 1)


@pytest.mark.parametrize("width", [3, 16, 100])
def test_batches_share_the_memory_of_their_block(width):
    X = numpy.arange(100 * width, dtype=numpy.float32).reshape(100, width)
    batches = [batch for (batch,) in bl.DataLoader(bl.TensorDataset(X), 8, output="jax")]
    addresses = [batch.unsafe_buffer_pointer() for batch in batches]
    assert all(address % 64 == 0 for address in addresses)
    apart = {after - before for before, after in itertools.pairwise(addresses)}
    assert apart == {-(-8 * width * 4 // 64) * 64}


def test_kept_batches_never_change(interpreter):
    interpreter(
        """
        import jax
        import numpy
        import batchloom as bl

        X = numpy.arange(4096 * 1024, dtype=numpy.float32).reshape(4096, 1024)
        loader = bl.DataLoader(bl.TensorDataset(X), 32, shuffle=True, output="jax", num_threads=3)
        held = []
        for epoch in range(4):
            for number, (samples, (batch,)) in enumerate(zip(loader.plan(epoch), loader)):
                if epoch == 0 or number % 40 == 7:
                    held.append((samples, batch))
        del loader, batch
        for samples, batch in held:
            assert numpy.array_equal(numpy.asarray(batch), X[samples])
        """,
        BATCHLOOM_POISON=1,
    )


def test_giving_a_batch_away_harms_no_other():
    consume = jax.jit(lambda batch: batch * 0 - 1, donate_argnums=0)
    X = jnp.arange(60.0).reshape(20, 3)
    loader = bl.DataLoader(bl.TensorDataset(X), 4)
    batches = [batch for (batch,) in loader]
    consume(batches[0])
    rest = numpy.concatenate([numpy.asarray(batch) for batch in batches[1:]])
    assert numpy.array_equal(rest, numpy.asarray(X)[4:])
    assert numpy.array_equal(numpy.asarray(next(iter(loader))[0]), numpy.asarray(X)[:4])


def test_arrays_that_were_given_away_stay_as_long_as_the_dataset():
    X = jnp.arange(10.0) + 0
    loader = bl.DataLoader(bl.TensorDataset(X), 10)
    X.delete()
    assert listed(loader) == [list(range(10))]


def test_batches_go_through_jit_and_grad():
    X = jnp.arange(60.0).reshape(20, 3)
    gradient = jax.jit(jax.grad(lambda weight, batch: (batch @ weight).sum()))
    for (batch,) in bl.DataLoader(bl.TensorDataset(X), 4):
        assert numpy.allclose(gradient(jnp.ones(3), batch), numpy.asarray(batch).sum(0))


def test_named_fields():
    loader = bl.DataLoader(bl.TensorDataset(x=jnp.arange(10), y=numpy.arange(10)), 4)
    for batch in loader:
        assert isinstance(batch["x"], jax.Array)
        assert isinstance(batch["y"], numpy.ndarray)
        assert batch["x"].tolist() == batch["y"].tolist()


@pytest.mark.parametrize(
    "make",
    [lambda: jnp.ones(5, "int4"), lambda: jax.random.split(jax.random.key(0), 5)],
    ids=["int4", "keys"],
)
def test_element_types_that_no_batch_can_have(make):
    with refused(bl.DTypeError, "field 0"):
        bl.TensorDataset(make())


def test_arrays_on_several_devices(interpreter):
    interpreter(
        """
        import jax
        import numpy
        import batchloom as bl
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        mesh = Mesh(numpy.array(jax.devices()), ("rows",))
        spread = jax.device_put(jax.numpy.ones((4, 2)), NamedSharding(mesh, PartitionSpec("rows")))
        assert len(spread.devices()) == 2
        try:
            bl.TensorDataset(spread)
        except bl.Error as error:
            assert "field 0" in str(error), error
        else:
            raise AssertionError("half of the rows are elsewhere")
        """,
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )
