"""Importing: no framework, no thread, any order."""

import pytest


def test_importing_imports_no_framework(interpreter):
    interpreter(
        """
        import sys
        import batchloom as bl

        heavy = {"torch", "jax", "jaxlib", "ml_dtypes", "tensorflow", "pandas", "scipy"}
        assert not heavy & set(sys.modules), heavy & set(sys.modules)

        import numpy
        loader = bl.DataLoader(bl.TensorDataset(numpy.arange(10)), 3)
        list(loader), loader.plan(), loader.state_dict()
        assert not heavy & set(sys.modules), heavy & set(sys.modules)
        """
    )


def test_importing_starts_no_thread(interpreter):
    interpreter(
        """
        import os
        import numpy

        before = len(os.listdir("/proc/self/task"))
        import batchloom
        import batchloom.loader.loader, batchloom.collate.schema, batchloom.ranks.ranks
        assert len(os.listdir("/proc/self/task")) == before
        """
    )


def test_importing_reads_no_environment_and_prints_nothing(interpreter):
    assert interpreter("import batchloom", RANK="nonsense", BATCHLOOM_POISON="1") == ""


@pytest.mark.parametrize("order", ["torch batchloom", "batchloom torch"])
def test_order_of_imports(interpreter, order):
    interpreter(
        f"""
        import importlib
        for name in "{order}".split():
            importlib.import_module(name)
        import sys
        bl, torch = sys.modules["batchloom"], sys.modules["torch"]
        loader = bl.DataLoader(bl.TensorDataset(torch.arange(10), torch.ones(10, 3)), 4, shuffle=True)
        assert [tuple(x.shape) for _, x in loader] == [(4, 3), (4, 3), (2, 3)]
        """
    )


@pytest.mark.parametrize("output", ["torch", "jax"])
def test_output_imports_what_it_needs(interpreter, output):
    pytest.importorskip(output)
    interpreter(
        f"""
        import sys
        import numpy
        import batchloom as bl

        loader = bl.DataLoader(bl.TensorDataset(numpy.arange(10)), 4, output="{output}")
        assert "{output}" in sys.modules
        (batch,) = next(iter(loader))
        assert type(batch).__module__.startswith("{output}"), type(batch)
        """
    )


def test_everything_public_is_there(interpreter):
    out = interpreter(
        """
        import batchloom as bl
        assert sorted(bl.__all__) == bl.__all__ or set(bl.__all__) <= set(dir(bl))
        for name in bl.__all__:
            assert getattr(bl, name).__doc__, name
        print(bl.__version__)
        """
    )
    assert out.count(".") == 2


def test_modules_of_the_package_are_not_among_its_names(interpreter):
    out = interpreter(
        """
        import types
        import batchloom as bl, batchloom.loader.loader, batchloom.arrays.numpy

        print([name for name in dir(bl) if isinstance(getattr(bl, name), types.ModuleType)])
        assert {"DataLoader", "__version__"} <= set(dir(bl))
        """
    )
    assert out.strip() == "[]"
