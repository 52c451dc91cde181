"""Names of the package that are imported only when they are used."""

import ast
from pathlib import Path

import batchloom as bl
import pytest


def test_an_import_of_the_package_loads_none_of_its_modules(interpreter):
    """Importing takes the time of the extension alone; modules are imported by the names that a program uses."""
    interpreter(
        """
        import sys
        import batchloom as bl

        loaded = {name for name in sys.modules if name.startswith("batchloom")}
        assert loaded == {"batchloom", "batchloom._native"}, loaded
        bl.DataLoader
        assert not [name for name in sys.modules if name.startswith("batchloom.dataset.windows")]
        """
    )


def test_checkers_and_programs_see_the_same_names():
    """The imports for type checkers are those that the names stand for."""
    tree = ast.parse(Path(bl.__file__).read_text(encoding="utf-8"))
    checked = next(node for node in tree.body if isinstance(node, ast.If)).body
    homes = {alias.asname: (node.module, alias.name) for node in checked for alias in node.names}
    lazy = {"integrations": ("batchloom", "integrations"), "from_ray": ("batchloom.integrations.ray", "from_ray")}
    assert homes == {name: (module, name) for name, module in bl._HOMES.items()} | lazy


@pytest.mark.parametrize("name", sorted({*bl.__all__} - {"__version__"}))
def test_each_name_is_that_of_its_module(name):
    """So pickles and documentation name the module, and a second look finds the same object."""
    value = getattr(bl, name)
    assert value is getattr(bl, name) is bl.__dict__[name]
    assert getattr(value, "__module__", bl._HOMES[name]) == bl._HOMES[name]


def test_a_star_imports_all_names(interpreter):
    interpreter(
        """
        from batchloom import *
        import batchloom

        assert set(batchloom.__all__) <= set(globals())
        assert open(__import__("os").devnull).read() == "" and batchloom.open is not open
        """
    )


def test_integrations_are_found_without_importing_a_framework(interpreter):
    interpreter(
        """
        import sys
        import batchloom as bl

        assert bl.integrations.__name__ == "batchloom.integrations"
        heavy = {"torch", "ray", "lightning", "pytorch_lightning", "accelerate", "transformers"}
        assert not heavy & set(sys.modules)
        assert not {"integrations", "from_ray"} & set(dir(bl))
        """
    )


@pytest.mark.parametrize("name", bl.integrations.FRAMEWORKS)
def test_each_integration_is_an_attribute(name, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    for package in {"hf": ("transformers", "accelerate")}.get(name, (name,)):
        pytest.importorskip(package)
    assert getattr(bl.integrations, name).__name__ == f"batchloom.integrations.{name}"


def test_the_dataset_of_ray():
    pytest.importorskip("ray")
    assert bl.from_ray is bl.integrations.ray.from_ray


@pytest.mark.parametrize("module", [bl, bl.integrations])
def test_other_names_are_attribute_errors(module):
    with pytest.raises(AttributeError, match="no attribute 'neither'"):
        module.neither  # noqa: B018
