"""Test the Kubernetes runtime where a cluster or an order is unusual."""

from collections.abc import Iterator
from dataclasses import replace
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


def test_pod_missing_from_a_late_watch_has_not_ended(
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


@pytest.mark.parametrize(("devices", "visible"), [((), ["void"]), ((0, 1), [])])
def test_document_cannot_choose_the_visible_gpus(
    stage: FakeKubernetesStage, devices: tuple[int, ...], visible: list[str]
) -> None:
    every = {"NVIDIA_VISIBLE_DEVICES": "all"}
    order = stage.order("p-1", env={**every, "RANK": "0"}, secret_env=every, devices=devices)
    stage.runtime.start(replace(order, address_env=("NVIDIA_VISIBLE_DEVICES",)))
    variables = stage.cluster.pod("p-1")["spec"]["containers"][0]["env"]
    named = [variable for variable in variables if variable["name"] == "NVIDIA_VISIBLE_DEVICES"]
    assert [variable.get("value") for variable in named] == visible
    assert {"name": "RANK", "value": "0"} in variables
