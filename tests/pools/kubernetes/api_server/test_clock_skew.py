"""Test that no pod or node is lost if the cluster's clock differs from Berth's."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pools.kubernetes.nodes import read_inventory
from pools.kubernetes.settings import KubernetesSettings
from pools.runtimes.base import PodCause, PodState
from tests.contracts.kubernetes.stage import POOL, FakeKubernetesStage, fake_kubernetes_stage
from tests.contracts.pods import ended, poll_until, running

HOUR = timedelta(hours=1)


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_unplaceable_pod_fails_after_30_seconds_on_the_clusters_clock(
    tmp_path: Path, ahead: timedelta
) -> None:
    with fake_kubernetes_stage(tmp_path / "runtime") as stage:
        stage.cluster.clock_ahead = ahead
        stage.cluster.add_foreign_pod("theirs", "node-1", gpus=8)
        stage.runtime.start(stage.order("p-1", "train", devices=(0,)))
        poll_until(lambda: stage.runtime.get_reports(["p-1"])["p-1"].progress != "")
        assert stage.runtime.get_reports(["p-1"])["p-1"].state is PodState.STARTING
        make_older(stage, "p-1", timedelta(seconds=31))
        report = ended(stage.runtime, "p-1")
        assert report.cause is PodCause.LOST
        assert "could not place the pod: 0/1 nodes are available" in report.message


def make_older(stage: FakeKubernetesStage, name: str, age: timedelta) -> None:
    """Move the time at which the pod became unschedulable into the past."""
    pod = stage.cluster.pod(name)
    (condition,) = pod["status"]["conditions"]
    since = datetime.fromisoformat(condition["lastTransitionTime"]) - age
    changed = {**condition, "lastTransitionTime": since.strftime("%Y-%m-%dT%H:%M:%SZ")}
    status = {**pod["status"], "conditions": [changed]}
    stage.cluster.store.put("pods", {**pod, "metadata": {**pod["metadata"]}, "status": status})


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_unresponsive_node_is_lost_after_two_minutes_on_the_clusters_clock(
    tmp_path: Path, ahead: timedelta
) -> None:
    with fake_kubernetes_stage(tmp_path / "runtime") as stage:
        stage.cluster.clock_ahead = ahead
        stage.cluster.set_ready("node-1", "Unknown", "Kubelet stopped posting node status.")
        cluster = stage.access[POOL].cluster
        nodes, now = cluster.mirror.nodes(), datetime.now(UTC) + cluster.api.clock_skew
        for passed, is_gone in ((timedelta(0), False), (timedelta(minutes=3), True)):
            inventory = read_inventory(nodes, (), KubernetesSettings(), now + passed, lambda pod: False)
            assert inventory.nodes["node-1"].is_gone(inventory.at) is is_gone


def test_end_time_of_a_pod_is_never_in_the_future(tmp_path: Path) -> None:
    with fake_kubernetes_stage(tmp_path / "runtime") as stage:
        stage.cluster.clock_ahead = HOUR
        stage.runtime.start(stage.long("p-1"))
        running(stage.runtime, "p-1")
        stage.end_pod("p-1", 0)
        ended_at = ended(stage.runtime, "p-1").ended_at
        assert ended_at is not None
        assert ended_at <= datetime.now(UTC)
