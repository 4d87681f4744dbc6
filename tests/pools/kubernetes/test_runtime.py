"""Test the Kubernetes runtime where a cluster or an order is unusual."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pools.kubernetes.mirror import Mirror
from pools.runtimes.base import PodState, RuntimeFailure
from tests.contracts.kubernetes_stage import FakeKubernetesStage, fake_kubernetes_stage
from tests.contracts.pods import running
from tests.fakes.kubernetes.store import Refusal


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[FakeKubernetesStage]:
    with fake_kubernetes_stage(tmp_path / "runtime") as stage:
        yield stage


def test_pod_that_a_late_watch_does_not_show_has_not_ended(
    stage: FakeKubernetesStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.runtime.start(stage.long("p-1"))
    running(stage.runtime, "p-1")
    monkeypatch.setattr(Mirror, "own_pods", lambda mirror: {})
    assert stage.runtime.get_reports(["p-1"])["p-1"].state is PodState.RUNNING
    stage.cluster.refusals["get", "pods"] = Refusal(500, "InternalError", "try again")
    with pytest.raises(RuntimeFailure):
        stage.runtime.get_reports(["p-1"])
    stage.cluster.refusals.clear()
    stage.cluster.store.remove("pods", stage.namespace, "p-1")
    assert stage.runtime.get_reports(["p-1"])["p-1"].state is PodState.EXITED
