"""Tests that pools reach their desired size, with database rows and a faulty provider."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from pools import selectors, services
from pools.engine.victims import LostWork
from pools.models import Node, NodePool, ScalingEvent
from tests.fakes.provider import FakeProvider
from tests.pools.stage import SYSTEM, Stage, pool

pytestmark = pytest.mark.django_db
shows = pytest.mark.shows


@shows("SKY-02", "SKY-79")
def test_nodes_of_a_fixed_pool_are_requested_once() -> None:
    stage = Stage(pool(4))
    assert stage.reconcile()
    assert stage.states() == dict.fromkeys(range(4), "ready")
    node = stage.node(1)
    assert (node.name, node.gpus, node.devices, node.address) == ("small-1", 2, ["0", "1"], "10.0.0.1")
    assert stage.provider.count("provision") == 1
    assert not stage.reconcile()
    stage.check()


@shows("SKY-80", "SKY-81")
def test_fixed_pool_replaces_lost_nodes_and_ignores_demand() -> None:
    stage = Stage(pool(4))
    stage.reconcile()
    stage.provider.vanish(stage.node(2).instance_id)
    assert not stage.report(queued=50)
    assert not stage.reconcile(), "there is no second listing before the next tick"
    stage.pass_time(15)
    assert stage.reconcile()
    assert stage.states() == dict.fromkeys((0, 1, 3, 4), "ready")
    assert stage.history()[-4:] == ["lost", "terminate", "ready", "provision"]
    assert stage.nodes_desired == 4
    stage.check()


@shows("SKY-22")
@pytest.mark.parametrize(("tick", "seconds"), [(None, 15), (4, 4), (60, 60)])
def test_lost_instance_is_detected_at_the_next_tick(tick: int | None, seconds: int) -> None:
    stage = Stage(pool(2, **({} if tick is None else {"reconcile_tick": tick})))
    stage.reconcile()
    stage.provider.vanish(stage.node(1).instance_id)
    stage.pass_time(seconds - 1)
    assert not stage.reconcile()
    stage.pass_time(1)
    assert stage.reconcile()
    assert stage.history()[-4:] == ["lost", "terminate", "ready", "provision"]
    stage.check()


@shows("SKY-03", "SKY-05", "SKY-06", "SKY-83")
@pytest.mark.parametrize(("nodes", "threshold"), [(4, 4), ({"min": 8, "desired": 4}, 4)])
def test_pool_is_operational_once_enough_nodes_are_ready(nodes: object, threshold: int) -> None:
    stage = Stage(pool(nodes), FakeProvider(boots_immediately=False))
    stage.reconcile()
    ids = [instance.instance_id for instance in stage.provider.living()]
    assert len(ids) == stage.nodes_desired, "all nodes are ordered from the start"
    for count, instance_id in enumerate(ids, start=1):
        stage.provider.boot(instance_id)
        stage.pass_time(5)
        stage.reconcile()
        stage.pool.refresh_from_db()
        assert selectors.is_operational(stage.pool) == (count >= threshold)
    assert set(stage.states().values()) == {"ready"}


def test_new_node_is_requested_then_booting_then_ready() -> None:
    stage = Stage(pool(1), FakeProvider(boots_immediately=False))
    stage.reconcile()
    assert stage.states() == {0: "requested"}
    stage.provider.hidden.add(stage.node(0).instance_id)
    stage.pass_time(5)
    stage.reconcile()
    assert stage.states() == {0: "requested"}, "a listing may lag behind"
    stage.provider.hidden.clear()
    stage.pass_time(5)
    stage.reconcile()
    assert stage.states() == {0: "booting"}
    stage.provider.boot()
    stage.pass_time(5)
    stage.reconcile()
    assert stage.states() == {0: "ready"}
    assert ScalingEvent.objects.filter(kind="ready").get().reason == "ready after 15 s"
    assert stage.provider.count("provision") == 1


def test_node_that_never_becomes_ready_is_terminated_and_replaced() -> None:
    stage = Stage(pool(1, boot_timeout=60), FakeProvider(boots_immediately=False))
    stage.reconcile()
    first = stage.node(0).instance_id
    for _ in range(7):
        stage.pass_time(15)
        stage.reconcile()
    assert stage.node(0).instance_id != first
    event = ScalingEvent.objects.get(kind="lost")
    assert event.reason == "not ready within 60 s"
    stage.check()


@shows("SKY-12", "SKY-13", "SKY-23", "SKY-84")
def test_demand_scales_up_an_elastic_pool() -> None:
    stage = Stage(pool((4, 6)))
    stage.reconcile()
    assert stage.report(queued=12, running=4, capacity=8)
    assert stage.nodes_desired == 6
    stage.reconcile()
    assert stage.states() == dict.fromkeys(range(6), "ready")
    event = ScalingEvent.objects.get(kind="autoscale")
    assert (event.before, event.after, event.data["rule"]) == (4, 6, "queued")
    assert event.data["pressure"]["nodes"] == 4
    assert not stage.report(queued=12, running=4, capacity=12), "the pool never exceeds its maximum"


@shows("SKY-42", "SKY-43", "SKY-66", "SKY-68", "SKY-86")
def test_idle_pool_shrinks_without_further_demand_reports() -> None:
    stage = Stage(pool((2, 6)))
    stage.report(queued=12)
    stage.reconcile()
    stage.pass_time(1)
    stage.report(capacity=12)
    stage.pass_time(60)
    stage.reconcile()
    assert stage.nodes_desired == 6
    stage.pass_time(1)
    assert stage.reconcile()
    assert stage.nodes_desired == 2
    assert stage.states() == {0: "ready", 1: "ready", **dict.fromkeys(range(2, 6), "draining")}
    drained = ScalingEvent.objects.filter(kind="drain").order_by("pk")
    assert [event.node.ordinal for event in drained if event.node] == [5, 4, 3, 2]
    for ordinal in (5, 4, 3, 2):
        assert services.mark_node_emptied(stage.node(ordinal))
    stage.reconcile()
    assert len(stage.provider.living()) == 2
    stage.check()


@shows("SKY-44")
def test_missing_demand_report_does_not_change_the_desired_number_of_nodes() -> None:
    stage = Stage(pool((2, 6)))
    stage.reconcile()
    stage.pass_time(3600)
    stage.reconcile()
    assert stage.nodes_desired == 2
    assert "autoscale" not in stage.history()


@shows("SKY-40", "SKY-46")
def test_demand_report_without_effect_writes_no_event_and_starts_no_cooldown() -> None:
    stage = Stage(pool((1, 6)))
    stage.report(queued=4)
    stage.reconcile()
    stage.pool.refresh_from_db()
    scaled_at = stage.pool.last_scaled_at
    stage.pass_time(10)
    assert not stage.report(running=4, capacity=4)
    assert not stage.report(running=1, capacity=4), "scaling down waits for the cooldown"
    stage.pool.refresh_from_db()
    assert stage.pool.last_scaled_at == scaled_at
    assert stage.pool.pressure is not None
    assert stage.pool.pressure["running"] == 1000, "the report is stored anyway"
    stage.pass_time(30)
    stage.reconcile()
    assert stage.history().count("autoscale") == 1


@shows("SKY-27", "SKY-45")
def test_pool_is_scaled_to_the_number_of_nodes_set_by_another_process() -> None:
    stage = Stage(pool((0, 8)))
    stage.resize(5)
    stage.reconcile()
    assert len(stage.states()) == 5
    stage.resize(3)
    stage.settle()
    assert stage.states() == dict.fromkeys(range(3), "ready")


@pytest.mark.heavy
@shows("SKY-39")
def test_all_nodes_of_an_expired_pool_are_terminated() -> None:
    stage = Stage(pool(2, expires_at="2026-01-01T01:00:00Z"))
    stage.settle()
    assert len(stage.states()) == 2
    stage.pass_time(3600)
    stage.settle()
    assert stage.states() == {}
    assert stage.provider.living() == ()
    stage.pool.refresh_from_db()
    assert not selectors.is_operational(stage.pool)


@pytest.mark.heavy
@shows("SKY-67")
def test_nodes_with_the_least_work_to_lose_are_drained_first() -> None:
    stage = Stage(pool((0, 8)))
    stage.resize(4)
    stage.reconcile()
    stage.resize(2)
    seconds_lost = {3: 900, 2: 10, 1: 20}
    work = {stage.node(n).pk: LostWork(gpu_seconds=seconds, pods=1) for n, seconds in seconds_lost.items()}
    stage.reconcile(work_to_lose=work)
    assert stage.states() == {0: "ready", 1: "draining", 2: "draining", 3: "ready"}
    assert not selectors.overdue_drains(stage.now).exists()
    stage.pass_time(600)
    assert [node.ordinal for node in selectors.overdue_drains(stage.now)] == [2, 1]


@pytest.mark.heavy
def test_query_count_does_not_grow_with_the_number_of_drained_nodes() -> None:
    counts = []
    for most in (3, 7):
        stage = Stage(pool((0, 8)) if most == 3 else NodePool.objects.get())
        stage.resize(most)
        stage.settle()
        stage.resize(1)
        with CaptureQueriesContext(connection) as draining:
            assert stage.reconcile()
        services.mark_nodes_emptied(Node.objects.all(), at=stage.now)
        with CaptureQueriesContext(connection) as ending:
            assert stage.reconcile()
        assert stage.states() == {0: "ready"}
        counts.append((len(draining), len(ending)))
    assert counts[0] == counts[1]


def test_reconcile_pass_over_a_settled_pool_reads_only_the_pool_and_its_nodes() -> None:
    stage = Stage(pool((0, 8)))
    stage.resize(3)
    stage.settle()
    assert not stage.reconcile(), "the listing was due"
    with CaptureQueriesContext(connection) as statements:
        assert not stage.reconcile()
    assert len(statements) == 2


@pytest.mark.heavy
@shows("SKY-71", "SKY-72", "SKY-73")
def test_late_completion_of_a_reverted_drain_is_ignored() -> None:
    stage = Stage(pool((0, 8)))
    stage.resize(4)
    stage.reconcile()
    stage.resize(1)
    stage.reconcile()
    node = stage.node(3)
    stage.resize(6)
    stage.reconcile()
    assert stage.states() == dict.fromkeys(range(6), "ready")
    assert stage.history().count("drain_aborted") == 3
    assert not services.mark_node_emptied(node)
    assert not stage.reconcile()
    stage.check()


def test_manual_drain_is_not_reverted_and_its_node_is_replaced() -> None:
    stage = Stage(pool((0, 8)))
    stage.resize(2)
    stage.reconcile()
    services.drain_node(actor=SYSTEM, node=stage.node(1), reason="a fan is loud")
    stage.reconcile()
    assert stage.states() == {0: "ready", 1: "draining", 2: "ready"}
    stage.settle()
    assert stage.states() == {0: "ready", 2: "ready"}
    stage.check()
