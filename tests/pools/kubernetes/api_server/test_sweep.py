"""Test that an unresponsive cluster does not delay the sweep of pods on other clusters."""

import uuid
from pathlib import Path

import pytest

from berth.db.loops import lease
from pools import services
from pools.kubernetes.api_server.credentials import Connection
from pools.kubernetes.cluster import PoolAccess
from pools.kubernetes.settings import KubernetesSettings
from scheduler.loop.context import SchedulerContext
from scheduler.loop.dispatch.cleanup.sweep import sweep
from tests.contracts.kubernetes.stage import fake_kubernetes_stage
from tests.contracts.pods import running
from tests.fakes.kubernetes import FakeCluster, serve
from tests.pools.stage import START, SYSTEM


@pytest.mark.django_db(transaction=True)
def test_unresponsive_cluster_does_not_block_cleanup_of_other_pods(tmp_path: Path) -> None:
    services.create_pool(actor=SYSTEM, name="prod", provider="local", runtime="local")
    broken = FakeCluster()
    broken.add_node("node-1")
    first, second = sorted(str(uuid.uuid4()) for _ in range(2))
    with serve(broken) as url, fake_kubernetes_stage(tmp_path / "runtime") as stage:
        clusters = stage.clusters
        stage.access["broken"] = PoolAccess(clusters.get(Connection(url)), KubernetesSettings())
        stage.runtime.start(stage.order(first, "sleep", "inf", pool="broken"))
        stage.runtime.start(stage.long(second))
        for pod_id in (first, second):
            running(stage.runtime, pod_id)
        broken.is_down = True
        held_lease = lease.acquire("scheduler", "first", 60)
        assert held_lease is not None
        context = SchedulerContext(held_lease=held_lease, runtimes=lambda pool: stage.runtime)
        notes = [note for note in sweep(START, context) if note]
        assert notes == [f"Pod {second} was running without a row and was stopped."]
