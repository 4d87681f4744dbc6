"""Break one engine rule at a time and check that a test fails."""

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

from scheduler.simulator.scenario.parse import Loader
from tests.engine.reference.clusters import clusters

ROOT = Path(__file__).resolve().parents[2]
ENGINE = "scheduler/engine"
COPIED_FOLDERS = (ENGINE, "scheduler/simulator", "platform/berth/core", "tests/engine")
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


MUTATIONS = [Mutation(**fields) for fields in yaml.load(FILE.read_text(encoding="utf-8"), Loader)]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_line_to_mutate_occurs_exactly_once(mutation: Mutation) -> None:
    source = (ROOT / ENGINE / mutation.file).read_text(encoding="utf-8")
    assert source.count(mutation.line) == 1
    assert mutation.line != mutation.broken


def test_readme_lists_the_mutations() -> None:
    rows = "".join(f"| {mutation.name} | {mutation.noticed_by} |\n" for mutation in MUTATIONS)
    assert TABLE + rows in (ROOT / ENGINE / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def mutant_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the files that a mutant needs, and add a file with random clusters."""
    place = tmp_path_factory.mktemp("engine")
    for part in COPIED_FOLDERS:
        shutil.copytree(ROOT / part, place / part, ignore=shutil.ignore_patterns("__pycache__"))
    for package in ("scheduler", "platform/berth"):
        (place / package / "__init__.py").touch()
    (place / "clusters.json").write_text(json.dumps(random_clusters()), encoding="utf-8")
    return place


def random_clusters() -> list[dict[str, Any]]:
    documents: list[dict[str, Any]] = []

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
        documents.append(document)

    gather()
    return documents


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_unmutated_engine_passes_all_checks(mutant_copy: Path) -> None:
    assert broken_by(mutant_copy) == []


@pytest.mark.heavy
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_engine_mutation_is_detected(mutant_copy: Path, mutation: Mutation) -> None:
    path = mutant_copy / ENGINE / mutation.file
    source = path.read_text(encoding="utf-8")
    path.write_text(source.replace(mutation.line, mutation.broken), encoding="utf-8")
    try:
        assert mutation.noticed_by in broken_by(mutant_copy)
    finally:
        path.write_text(source, encoding="utf-8")


def broken_by(mutant_copy: Path) -> list[str]:
    """Return the stories that fail and the invariants that are violated in the copy."""
    process = subprocess.run(
        [sys.executable, "-m", "tests.engine.mutant", "clusters.json"],
        cwd=mutant_copy,
        env={
            **os.environ,
            "PYTHONPATH": f"{mutant_copy}:{mutant_copy / 'platform'}",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout)
    return [*result["invariants"], *result["stories"]]
