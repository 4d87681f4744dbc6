"""Tests that docs/documents.md lists every key that the parsers accept."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from berth.core.spec import parse_workload
from berth.core.spec.workload import WorkloadSpec
from projects.services.quotas.documents import read_draft
from scheduler.simulator import simulate
from scheduler.simulator.scenario.schema import ScenarioDocument
from tests.cast import make_cast
from tests.cli.terminal import Terminal

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "documents.md").read_text()
DOCUMENTED = set(re.findall(r"`([a-z_]+)`", TEXT)) | set(re.findall(r"[{ ]([a-z_]+): ", TEXT))
EXAMPLES = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)]
DOCUMENTED_ELSEWHERE = {"ServiceSpec", "RouterSpec", "PortSpec"}  # documented on their own pages


def models(kind: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[type[BaseModel]]:
    """Yield a document's model and the models of its sections."""
    if kind in seen or kind.__name__ in DOCUMENTED_ELSEWHERE:
        return
    seen.add(kind)
    yield kind
    for field in kind.model_fields.values():
        for part in model_parts(field.annotation):
            yield from models(part, seen)


def model_parts(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from model_parts(inner)


@pytest.mark.parametrize("whole", [WorkloadSpec, ScenarioDocument])
def test_every_document_key_is_documented(whole: type[BaseModel]) -> None:
    kinds = list(models(whole, set()))
    keys = {f"{kind.__name__}.{key}": key for kind in kinds for key in kind.model_fields}
    assert {"RoleSpec.spread_per_node", "GroupSpec.need"} <= keys.keys()
    assert not [place for place, key in keys.items() if key not in DOCUMENTED]


def test_workload_examples_in_the_documentation_are_valid() -> None:
    workloads = [example for example in EXAMPLES if "command" in example]
    assert [parse_workload(example).name for example in workloads] == [
        "train", "split", "sweep", "evaluate", "pretrain",
    ]  # fmt: skip


@pytest.mark.django_db
def test_documented_quota_change_example_is_valid() -> None:
    (document,) = [example for example in EXAMPLES if "changes" in example]
    read = read_draft(make_cast().alice, document)
    assert (len(read.changes), read.comment) == (3, "for the paper deadline")


def test_documented_scenario_can_be_simulated() -> None:
    (scenario,) = [example for example in EXAMPLES if "format" in example]
    answer = simulate(scenario, until_stable=True)
    assert answer["workloads"]["waits"]["phase"] == "running"
    assert simulate(scenario)["workloads"]["waits"]["blockers"]


def test_quota_file_without_a_changes_key_is_rejected_and_its_keys_are_listed(
    terminal: Terminal, tmp_path: Path
) -> None:
    (file := tmp_path / "draft.yaml").write_text("change: []\nnote: n\n")
    result = terminal.run("quota", "preview", "-f", str(file))
    assert result.exit_code == 255
    assert result.stderr == (
        f"berth: {file} lacks the key `changes` (keys found: change, note)."
        " Write changes: [{project: NAME, pool: POOL, set: {gpu: 8}}].\n"
    )
