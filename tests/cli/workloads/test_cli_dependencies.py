"""Tests for dependencies on the command line."""

import shlex
from pathlib import Path

import pytest
import yaml

from projects.models import Workload
from tests.cast import Cast
from tests.cli.conftest import Berth, token_of
from tests.cli.terminal import Terminal

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.django_db(transaction=True)


def test_dependency_options_set_the_after_section(terminal: Terminal) -> None:
    options = ["--after", "prepare", "--after", "data/export:any", "--after-tasks", "sweep:failed"]
    result = terminal.run("submit", "-n", "eval", "--array", "0-3", *options, "--print", "--", "true")
    assert yaml.safe_load(result.stdout)["after"] == [
        {"workload": "prepare"},
        {"workload": "data/export", "state": "any"},
        {"workload": "sweep", "state": "failed", "tasks": "same"},
    ]


def test_error_names_the_option_with_an_unknown_dependency_state(terminal: Terminal) -> None:
    result = terminal.run("submit", "-n", "eval", "--after", "prepare:done", "--print", "--", "true")
    assert result.exit_code == 2
    assert "--after: is not an allowed value; received 'done'" in result.stderr
    assert "; allowed: completed, failed, any." in result.stderr


def test_documented_example_runs_unchanged(berth: Berth, cast: Cast) -> None:
    guide = (ROOT / "docs" / "researchers" / "many-runs.md").read_text()
    example = guide.partition("## Run workloads one after another")[2].split("```")[1]
    lines = [line.partition("  #")[0] for line in example.strip().splitlines()]
    token = token_of(cast.dave)
    outputs = [berth(*words(line), BERTH_TOKEN=token) for line in lines]
    assert [output.returncode for output in outputs] == [0, 0, 0, 0], outputs
    described = outputs[-1].stdout
    assert "Depends on" in described
    assert "vision/prepare" in described
    assert "Required by" in described
    assert "vision/cleanup" in described
    assert Workload.objects.get(name="cleanup").spec["after"] == [{"workload": "train", "state": "any"}]


def words(line: str) -> list[str]:
    program, *arguments = shlex.split(line)
    assert program == "berth"
    return arguments
