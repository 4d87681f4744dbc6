"""Break one engine rule at a time and check that tests notice."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.engine.reference.clusters import clusters

ROOT = Path(__file__).resolve().parents[2]
ENGINE = "scheduler/engine"
COPIED = (ENGINE, "scheduler/simulator", "platform/berth/core", "tests/engine")
CLUSTERS = 300
FILE = Path(__file__).with_name("mutations.yaml")
TABLE = "| broken on purpose | noticed by |\n|---|---|\n"


@dataclass(frozen=True)
class Mutation:
    name: str
    file: str
    line: str
    broken: str
    noticed_by: str


MUTATIONS = [Mutation(**told) for told in yaml.safe_load(FILE.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_what_is_broken_is_there_once(mutation: Mutation) -> None:
    source = (ROOT / ENGINE / mutation.file).read_text(encoding="utf-8")
    assert source.count(mutation.line) == 1
    assert mutation.line != mutation.broken


def test_the_readme_says_what_notices() -> None:
    rows = "".join(f"| {mutation.name} | {mutation.noticed_by} |\n" for mutation in MUTATIONS)
    assert TABLE + rows in (ROOT / ENGINE / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a mutant needs, and made-up clusters to look at."""
    place = tmp_path_factory.mktemp("engine")
    for part in COPIED:
        shutil.copytree(ROOT / part, place / part, ignore=shutil.ignore_patterns("__pycache__"))
    for package in ("scheduler", "platform/berth"):
        (place / package / "__init__.py").touch()
    (place / "clusters.json").write_text(json.dumps(made_up()), encoding="utf-8")
    return place


def made_up() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    @settings(
        max_examples=CLUSTERS,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(document=st.one_of(clusters(), clusters(time_based=True)))
    def gather(document: dict[str, Any]) -> None:
        found.append(document)

    gather()
    return found


@pytest.mark.heavy
def test_nothing_is_noticed_of_the_engine_as_it_is(copy: Path) -> None:
    assert noticed(copy) == []


@pytest.mark.heavy
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_broken_rule_is_noticed(copy: Path, mutation: Mutation) -> None:
    path = copy / ENGINE / mutation.file
    source = path.read_text(encoding="utf-8")
    path.write_text(source.replace(mutation.line, mutation.broken), encoding="utf-8")
    try:
        assert mutation.noticed_by in noticed(copy)
    finally:
        path.write_text(source, encoding="utf-8")


def noticed(copy: Path) -> list[str]:
    """By which laws, on the made-up clusters, and by which stories."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.mutant", "clusters.json"],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": f"{copy}:{copy / 'platform'}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    return [*told["laws"], *told["stories"]]
