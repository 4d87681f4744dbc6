"""Tests that the documentation matches the actual commands, options, files and examples."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from django.urls import Resolver404, resolve
from typer.main import get_command

from berth.cli.main import app
from berth.core.spec import parse_workload
from scheduler.simulator import simulate

ROOT = Path(__file__).resolve().parents[3]
PAGES = [*sorted(ROOT.glob("*.md")), ROOT / "examples" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SCENARIOS = sorted((ROOT / "examples" / "scenarios").glob("*.yaml"))


def commands() -> list[str]:
    """Return each line that calls `berth` in a code block or in a scenario's comments."""
    # Another test compares the pages of the reference with the commands.
    pages = [page for page in PAGES if page.name != "cli.md" and page.parent.name != "cli"]
    texts = [block for page in pages for block in re.findall(r"```\n(.*?)```", page.read_text(), re.DOTALL)]
    texts += [re.sub(r"(?m)^#\s*", "", file.read_text()) for file in SCENARIOS]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    return sorted(
        {
            re.split(r" +#| [|<>] (?=(?:[^']*'[^']*')*[^']*$)", line)[0]  # split only outside quotes
            for line in lines
            if line.startswith("berth ") and "--install" not in line
        }
    )


@pytest.mark.parametrize("line", commands())
def test_every_documented_command_parses(line: str) -> None:
    command = get_command(app)
    words = shlex.split(line)[1:]
    with command.make_context("berth", words) as group:
        name, subcommand, rest = command.resolve_command(group, [*group._protected_args, *group.args])  # type: ignore[attr-defined]
        context = subcommand.make_context(name, rest, parent=group)
        if hasattr(subcommand, "resolve_command"):
            inner, leaf, left = subcommand.resolve_command(context, [*context._protected_args, *context.args])
            leaf.make_context(inner, left, parent=context)


def test_every_relative_link_in_the_guides_resolves() -> None:
    dead = [
        f"{page.name}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
        if not target.startswith("http") and not link_resolves(page, target)
    ]
    assert not dead


def link_resolves(page: Path, target: str) -> bool:
    """Return whether a link leads to a file or, if it begins with a slash, to a page of Berth."""
    if not target.startswith("/"):
        return (page.parent / target).exists()
    try:
        resolve(target)
    except Resolver404:
        return False
    return True


@pytest.mark.parametrize("page", ["docs/tour.md", "CONTRIBUTING.md"])
def test_every_path_in_the_guides_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    named = re.findall(r"`((?:platform/|berth/|scheduler/|projects/|pools/|tests/|templates/)[\w/.]*)`", text)
    assert len(named) > 10
    assert not [path for path in named if not any((ROOT / top / path).exists() for top in (".", "platform"))]


@pytest.mark.parametrize(
    "file", sorted((ROOT / "examples" / "main-job").glob("*.yaml")), ids=lambda f: f.name
)
def test_example_files_are_valid_workloads(file: Path) -> None:
    spec = parse_workload(yaml.safe_load(file.read_text()))
    assert sum(role.minimum * role.gpu for role in spec.all_roles) == 4


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda f: f.name)
def test_example_scenarios_can_be_simulated(file: Path) -> None:
    assert simulate(file, until_stable=True)["format"] == "berth.plan/1"


@pytest.mark.heavy
def test_reclaim_scenario_evicts_the_younger_borrower() -> None:
    answer = simulate(ROOT / "examples" / "scenarios" / "reclaim.yaml", until_stable=True)
    first = [
        (decision["kind"], decision["workload"], decision["for"])
        for decision in answer["cycles"][0]["decisions"]
    ]
    assert ("reclaim", "younger", "ranking") in first
    assert {name: workload["phase"] for name, workload in answer["workloads"].items()} == {
        "older": "running", "younger": "running", "ranking": "completed",
    }  # fmt: skip
