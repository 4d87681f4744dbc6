"""Tests that a lower CPU load limit scales down running elastic workloads."""

import pytest

from pools import services
from projects.models import Phase
from scheduler.models import Eviction
from tests.scheduler.stage import Stage


@pytest.mark.shows("PAD-32")
def test_lower_load_limit_scales_a_running_workload_down_only_once(stage: Stage) -> None:
    # A job of 1 to 3 replicas uses all 3 CPUs. A limit of 0.8 leaves room for two replicas.
    node = stage.node(2, cpu_milli=3000)
    selector = {"berth.test/node": "small"}
    node.labels = selector
    node.save(update_fields=["labels"])
    workload = stage.submit(
        roles=[{"name": "trainer", "min": 1, "max": 3, "cpu": 1, "node_selector": selector}]
    )
    stage.tick(3)
    assert len(stage.pods(workload, "running")) == 3

    pool = stage.cast.pool
    pool.refresh_from_db()
    services.edit_pool(actor=stage.cast.alice, pool=pool, changes={"cpu_load_limit": 800})
    stage.tick(3)
    assert len(stage.pods(workload, "running")) == 2
    eviction = Eviction.objects.get()
    assert (eviction.kind, eviction.workload_name) == ("shrink", "train-1")
    assert "the pool allocates at most 80% of a node's CPU" in eviction.rule

    stage.tick(5, seconds=60)
    assert stage.phase(workload) == Phase.RUNNING
    assert len(stage.pods(workload, "running")) == 2
    assert Eviction.objects.count() == 1
