"""Tests that an engine failure in one pool is reported and does not block other pools."""

from typing import Any

import pytest

from pools.models import NodePool
from projects.models import Phase, Quota
from scheduler.engine.decide import decide
from scheduler.engine.model import Snapshot
from scheduler.engine.plan import Plan
from scheduler.models import Cycle
from scheduler.reports.health import health_document
from tests.scheduler.stage import Stage, decide_by
from tests.support.present import present

ONE = [{"name": "worker", "replicas": 1, "gpu": 1}]


@pytest.fixture
def failing_pool(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> NodePool:
    pool = NodePool.objects.create(
        name="cursed",
        provider="fake",
        runtime="fake",
        nodes_min=0,
        nodes_max=1,
        gpus_per_node=2,
        cpu_milli=8000,
        memory_mib=16384,
        operational_since=stage.clock.now(),
        nodes_desired=1,
        pressure={"queued": 2000, "running": 0, "capacity": 0, "nodes": 0, "gang_nodes": 1},
    )
    stage.node(0, pool=pool)
    Quota.objects.create(project=stage.cast.vision, pool=pool, gpu_milli=2000)

    def fail_for_cursed_pools(snapshot: Snapshot, *more: Any) -> Plan:
        if any(pool.name == "cursed" for pool in snapshot.pools):
            raise ZeroDivisionError("no share")
        return decide(snapshot, *more)

    decide_by(monkeypatch, fail_for_cursed_pools)
    return pool


def test_broken_pool_is_skipped_and_reported_by_the_health_check(
    stage: Stage, failing_pool: NodePool
) -> None:
    here, there = stage.submit("here", pools=["local"], roles=ONE), stage.submit("there", pools=["cursed"])
    either = stage.submit("either", pools=["cursed", "local"], roles=ONE)
    after = stage.submit("after", pools=["local"], roles=ONE, after=[{"workload": "there"}])
    stage.tick(2)
    phases = [stage.phase(row) for row in (here, either, there, after)]
    assert phases == [Phase.RUNNING, Phase.RUNNING, Phase.PENDING, Phase.PENDING]
    cycle = health_document(stage.clock.now())["last_cycle"]
    assert cycle["id"] == Cycle.objects.latest("id").pk
    assert [note for note in cycle["notes"] if "Pool cursed was skipped" in note]
    assert "ZeroDivisionError" in cycle["notes"][-1]


def test_skipped_pool_keeps_its_last_reported_demand(stage: Stage, failing_pool: NodePool) -> None:
    stage.submit("there", pools=["cursed"])
    stage.tick(2)
    failing_pool.refresh_from_db()
    assert present(failing_pool.pressure)["queued"] == 2000


def test_workloads_in_a_skipped_pool_keep_running_and_are_not_placed_twice(
    stage: Stage, failing_pool: NodePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as healthy:
        decide_by(healthy, decide)
        stays = stage.submit("stays", pools=["cursed", "local"], roles=ONE)
        stage.tick(2)
    assert (stage.phase(stays), stays.pool) == (Phase.RUNNING, failing_pool)
    stage.tick(3)
    assert (stage.phase(stays), len(stage.pods(stays))) == (Phase.RUNNING, 1)


def test_failed_joint_decision_is_recorded_once_if_each_pool_succeeds_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = stage.submit()
    calls: list[int] = []

    def fail_every_second_call(snapshot: Snapshot) -> Plan:
        calls.append(1)
        if len(calls) % 2:
            raise RuntimeError("no idea")
        return decide(snapshot)

    decide_by(monkeypatch, fail_every_second_call)
    stage.tick(3)
    assert stage.phase(workload) == Phase.PENDING
    rows = Cycle.objects.filter(notes__contains=["decide failed: RuntimeError('no idea')"])
    assert rows.count() == 1
