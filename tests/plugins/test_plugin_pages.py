"""Tests that every plugin has a documentation page with working examples."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pools.plugins import Cluster, Image, bootstrap_all, decorate_all, transform_all
from pools.plugins.builtin import ALL
from pools.plugins.declared import parse_plugins
from pools.plugins.parameters import parameter_schema
from pools.plugins.registry import SECRET_PLACEHOLDER, RegisteredPlugin, available_plugins

PAGES = Path(__file__).resolve().parents[2] / "docs" / "plugins"
README = (PAGES / "README.md").read_text()


def blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("name", sorted(ALL))
def test_plugin_page_documents_every_parameter_with_a_valid_example(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text()
    assert f"[{name}]({name}.md)" in README
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(
        available_plugins()[name].schema["properties"]
    )
    for example in blocks(page, "yaml"):
        plugins, problems = parse_plugins(yaml.safe_load(example)["plugins"])
        assert problems == ()
        assert name in [each.name for each in plugins]


@pytest.mark.parametrize("name", ["huggingface", "mps"])
def test_scripts_on_a_plugin_page_match_the_plugins_scripts(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text()
    cluster = Cluster("any", gpus_per_node=1, cuda=True)
    plugin = available_plugins()[name].build_plugin(
        {"token": SECRET_PLACEHOLDER} if name == "huggingface" else {}
    )
    (operation,) = bootstrap_all([plugin], cluster)
    (shown,) = blocks(page, "sh")
    assert shown.startswith(f"operation_0() {{ # {operation.title}\n{operation.script}\n}}\n")


@pytest.mark.shows("PLG-46")
def test_example_plugin_is_short_and_works(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks(README, "python")
    assert len([line for line in code.splitlines() if line.strip()]) < 30
    space: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), space)
    stopwatch = space["stopwatch"]
    plugin = RegisteredPlugin("stopwatch", stopwatch, parameter_schema(stopwatch)).build_plugin({"digits": 1})
    image = transform_all([plugin], Image(), Cluster("train"))
    assert (image.pip, dict(image.env)) == (("rich",), {"STOPWATCH_POOL": "train"})
    timed = decorate_all([plugin], divmod)
    assert [timed(7, 2), timed(9, 2)] == [(3, 1), (4, 1)]
    assert capsys.readouterr().out == "divmod took 0.0 s\n" * 2
