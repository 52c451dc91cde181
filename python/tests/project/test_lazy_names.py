"""Names of the package that are imported only when they are used."""

import batchloom as bl
import pytest


def test_integrations_are_found_without_importing_a_framework(script):
    script(
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
def test_each_integration_is_an_attribute(name):
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
