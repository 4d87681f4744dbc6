"""Tests for the plugin registry and parameter validation."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from pools.plugins import Image, Plugin, PluginError, transform_all
from pools.plugins.builtin import ALL
from pools.plugins.facts import Cluster
from pools.plugins.parameters import Parameter, Secret, parameter_problems, parameter_schema, secret_variables
from pools.plugins.registry import available_plugins, unavailable_plugins

PACKAGE = '''
from pools.plugins import Plugin

def metered(*, unit: str = "s") -> Plugin:
    """Measures what is called."""
    return Plugin.create("metered").with_transform(lambda image, cluster: image.with_pip(f"meter[{unit}]"))

def torch() -> Plugin:
    return Plugin("torch")
'''
ENTRIES = """[berth.plugins]
metered = berth_meter:metered
torch = berth_meter:torch
broken = berth_meter:nothing
Bad Name = berth_meter:metered
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a package with a plugin: a module and the metadata that pip writes."""
    (tmp_path / "berth_meter.py").write_text(PACKAGE)
    dist_info = tmp_path / "berth_meter-1.0.dist-info"
    dist_info.mkdir()
    (dist_info / "METADATA").write_text("Metadata-Version: 2.1\nName: berth-meter\nVersion: 1.0\n")
    (dist_info / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(str(tmp_path))
    available_plugins.cache_clear()
    yield
    available_plugins.cache_clear()
    sys.modules.pop("berth_meter", None)


@pytest.mark.shows("PLG-46")
def test_plugin_from_an_installed_package_works_like_a_built_in_plugin(package: None) -> None:
    metered = available_plugins()["metered"]
    assert (metered.source, metered.summary) == ("berth-meter", "Measures what is called.")
    assert metered.schema["properties"] == {"unit": {"type": "string", "default": "s"}}
    plugin = metered.build_plugin({"unit": "ms"})
    assert transform_all([plugin], Image(), Cluster("any")).pip == ("meter[ms]",)


def test_broken_or_conflicting_packages_do_not_affect_other_plugins(package: None) -> None:
    assert set(available_plugins()) == set(ALL) | {"metered"}
    assert available_plugins()["torch"].source == ""
    why = unavailable_plugins()
    assert "Berth has a built-in plugin" in why["torch"]
    assert "cannot be loaded: AttributeError" in why["broken"]
    assert "lowercase" in why["Bad Name"]


def test_built_in_plugins_have_a_summary_and_typed_parameters() -> None:
    for name in ALL:
        plugin = available_plugins()[name]
        assert plugin.summary.endswith(".")
        for schema in plugin.schema["properties"].values():
            assert schema.keys() & {"type", "anyOf"}
    assert available_plugins()["huggingface"].secrets == {"token": "HF_TOKEN"}
    assert available_plugins()["huggingface"].schema["properties"]["token"]["writeOnly"] is True


@pytest.mark.parametrize(
    ("name", "parameters", "expected"),
    [
        ("torch", {"backend": "ncll"}, "backend: is not allowed; received 'ncll'; allowed: '', 'nccl', "),
        ("torch", {"bakend": "nccl"}, "bakend: unknown parameter. Did you mean `backend`?"),
        ("torch", {"cuda": 12.8}, "cuda: is not text; received 12.8; allowed: a release in"),
        ("torch", {"cuda": "twelve"}, "cuda: is not allowed; received 'twelve'; allowed: a release"),
        (
            "torch",
            {"extras": ["torchtext"]},
            "extras[0]: is not allowed; received 'torchtext'; allowed: 'tor",
        ),
        ("torch", {"index": "https://me:pw@host/simple"}, "index: is not allowed"),
        ("mps", {"thread_percentage": 0}, "thread_percentage: is not allowed; received 0; allowed: a whole"),
        ("mps", {"thread_percentage": True}, "thread_percentage: is not a whole number; received True"),
        ("mps", {"memory_limit": "0=8G; reboot"}, "memory_limit: is not allowed"),
        ("mig", {}, "profiles: is missing; allowed: profiles as 3g.20gb"),
        ("mig", {"profiles": "$(reboot)"}, "profiles: is not allowed"),
        ("joblib", {"n_jobs": 2}, "n_jobs: unknown parameter; allowed: no parameters"),
        ("huggingface", {"token": 17}, "token: is not text; received (a secret); allowed: text"),
        ("accelerate", {"fsdp_config": {"a": [1]}}, "fsdp_config.a: is not allowed; received [1]; allowed: "),
        ("jax", ["cuda"], "document: is not a mapping; received ['cuda']"),
    ],
)
def test_error_for_an_invalid_parameter_names_its_path(name: str, parameters: Any, expected: str) -> None:
    (problem,) = parameter_problems(available_plugins()[name].schema, parameters)
    assert str(problem).startswith(expected)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("torch", {"backend": "nccl", "extras": ["torchvision"], "cuda": "12.6", "index": "default"}),
        ("accelerate", {"fsdp": True, "fsdp_config": {"offload_params": True}}),
        ("accelerate", {"deepspeed": {"zero_stage": 3}}),
        ("huggingface", {"token": "hf_x"}),
        ("mig", {"profiles": "1g.5gb+me,19"}),
    ],
)
def test_plugin_is_built_from_valid_parameters(name: str, parameters: dict[str, Any]) -> None:
    assert list(parameter_problems(available_plugins()[name].schema, parameters)) == []
    assert available_plugins()[name].build_plugin(parameters).name == name


def test_parameter_schema_is_derived_from_keyword_parameters() -> None:
    def plugin(
        path: str,
        *,
        mode: Literal["a", "b"] = "a",
        sizes: Annotated[list[int], Parameter("In MiB", minimum=1)] = [],  # noqa: B006
        key: Annotated[str, Secret("KEY")] = "",
        token: Annotated[str | None, Secret("TOKEN")] = None,
    ) -> Plugin:
        return Plugin("plugin")

    schema = parameter_schema(plugin)
    assert schema["required"] == ["path"]
    assert schema["properties"]["mode"] == {"type": "string", "enum": ["a", "b"], "default": "a"}
    assert schema["properties"]["sizes"]["items"] == {"type": "integer"}
    assert secret_variables(schema) == {"key": "KEY", "token": "TOKEN"}
    with pytest.raises(PluginError, match="cannot be passed by name"):
        parameter_schema(lambda *names: None)


def test_factory_that_does_not_return_a_plugin_is_rejected() -> None:
    bad = available_plugins()["torch"].__class__("torch", lambda: Plugin("other"), {"properties": {}})
    with pytest.raises(PluginError, match="the factory of plugin torch returned Plugin"):
        bad.build_plugin({})
    with pytest.raises(PluginError, match="deepspeed and fsdp are mutually exclusive"):
        available_plugins()["accelerate"].build_plugin({"fsdp": True, "deepspeed": True})
