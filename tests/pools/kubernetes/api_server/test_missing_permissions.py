"""Tests for a service account that lacks one permission.

The error names the permission, and work continues once the permission is granted.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pools.kubernetes.api_server.api import Unreachable
from pools.kubernetes.preview.permissions import PERMISSIONS
from pools.runtimes.base import RuntimeFailure
from tests.contracts.kubernetes.stage import POOL, FakeKubernetesStage, fake_kubernetes_stage
from tests.contracts.pods import ended, poll_until, running

Step = Callable[[FakeKubernetesStage], Any]
SECRETS = {"PASSWORD": "x"}


def start(stage: FakeKubernetesStage) -> None:
    stage.runtime.start(stage.order("p-1", "train", secret_env=SECRETS))


def read_nodes(stage: FakeKubernetesStage) -> None:
    assert [node["metadata"]["name"] for node in stage.access[POOL].cluster.mirror.nodes()] == ["node-1"]


STEPS: dict[tuple[str, str], Step] = {
    ("list", "nodes"): read_nodes,
    ("watch", "nodes"): read_nodes,
    ("get", "namespaces"): start,
    ("create", "namespaces"): start,
    ("list", "pods"): lambda stage: stage.runtime.get_reports(["p-0"]),
    ("watch", "pods"): lambda stage: stage.runtime.get_reports(["p-0"]),
    ("get", "pods"): lambda stage: stage.runtime.stop("p-0", 0),
    ("create", "pods"): start,
    ("delete", "pods"): lambda stage: stage.runtime.stop("p-0", 0),
    ("get", "pods/log"): lambda stage: stage.runtime.read_log("p-0", 0, 100),
    ("create", "secrets"): start,
}


def test_every_required_permission_is_tested() -> None:
    assert set(STEPS) == {(each.verb, each.resource) for each in PERMISSIONS if each.is_required}


@pytest.mark.parametrize("permission", STEPS, ids=" ".join)
def test_missing_permission_is_reported_until_it_is_granted(
    tmp_path: Path, permission: tuple[str, str]
) -> None:
    verb, resource = permission
    with fake_kubernetes_stage(tmp_path / "runtime") as stage:
        if "namespaces" not in permission:
            stage.runtime.start(stage.long("p-0"))
            running(stage.runtime, "p-0")
            stage.restart()
        stage.cluster.forbid(verb, resource)
        message = poll_until(lambda: rejection(stage, permission), bool)
        assert f'cannot {verb} resource "{resource}"' in message
        stage.cluster.rejections.clear()
        poll_until(lambda: rejection(stage, permission), lambda message: message == "")
        if verb in ("get", "delete") and resource == "pods":
            ended(stage.runtime, "p-0")
        elif STEPS[permission] is start:
            running(stage.runtime, "p-1")


def rejection(stage: FakeKubernetesStage, permission: tuple[str, str]) -> str:
    """Run the step that needs the permission. Return its error, or an empty string if it succeeds."""
    try:
        STEPS[permission](stage)
    except (RuntimeFailure, Unreachable) as error:
        return str(error)
    return ""
