"""Explanations, predictions and invariants."""

import pytest
from django.db import connection
from django.utils import timezone

from berth.core.errors import Conflict, Invalid
from projects.models import Phase, Pod, Workload
from projects.services.workloads.prediction import dry_run
from scheduler.models import Allocation, DeviceClaim
from scheduler.reports.explanations.workload import explain
from scheduler.reports.health import health
from scheduler.reports.invariants import check
from tests.cast import training
from tests.scheduler.stage import Stage

FOUR = [{"name": "worker", "replicas": 4, "gpu": 1}]


def test_a_waiting_workload_is_explained_with_its_queues(stage: Stage) -> None:
    stage.submit("first", roles=FOUR)
    second = stage.submit("second", preemptible=False)
    stage.tick(2)
    second.refresh_from_db()
    told = explain(stage.cast.dave, second)
    assert told.reason == told.blockers[0]["reason"] == second.reason
    assert (told.queue_position, told.explained_at) == (1, stage.clock.now())
    assert told.queue["project"]["name"] == "vision"
    assert told.queue["project"]["allocated"]["gpu"] == 4
    assert told.queue["department"]["quota"]["gpu"] == 4


def test_a_dry_run_says_start_wait_or_evict_and_stores_nothing(stage: Stage) -> None:
    document = {**training("one"), "project": "vision"}
    assert dry_run(acting=stage.cast.dave, document=document).outcome == "would_start"
    stage.submit("first", roles=FOUR)
    stage.tick(2)
    foreseen = dry_run(acting=stage.cast.dave, document={**document, "preemptible": False})
    assert foreseen.outcome == "would_wait"
    assert foreseen.blockers
    assert Workload.objects.count() == 1
    with pytest.raises(Conflict):
        dry_run(acting=stage.cast.dave, document={**document, "name": "first"})
    with pytest.raises(Invalid):
        dry_run(acting=stage.cast.dave, document={**document, "roles": []})


def test_a_dry_run_and_the_next_cycle_agree(stage: Stage) -> None:
    stage.submit("low", roles=FOUR, priority=10)
    stage.tick(2)
    document = {**training("high", roles=FOUR, priority=90), "project": "vision"}
    foreseen = dry_run(acting=stage.cast.dave, document=document, now=stage.clock.now())
    assert (foreseen.outcome, [gone["workload"] for gone in foreseen.evictions]) == ("would_evict", ["low"])
    high = stage.submit("high", roles=FOUR, priority=90)
    stage.tick()
    assert stage.phase(high) == Phase.RESERVED


def test_the_laws_hold_on_a_working_cluster_and_a_breach_is_named(stage: Stage) -> None:
    stage.submit()
    stage.tick(2)
    assert [law for law in check(timezone.now()) if not law.ok] == []
    told = health(timezone.now())
    assert told["leader"]["holder"] == "first"
    assert told["last_cycle"]["applied"] == 1
    DeviceClaim.objects.all().delete()
    assert [law.name for law in check(timezone.now()) if not law.ok] == ["claims_match_allocations"]


def test_a_pod_that_ended_and_still_holds_something_is_named(stage: Stage) -> None:
    workload = stage.submit()
    stage.tick(2)
    Pod.objects.filter(workload=workload).update(state="succeeded", ended_at=timezone.now())
    broken = {law.name: law.detail for law in check(timezone.now()) if not law.ok}
    assert list(broken) == ["allocations_match_live_pods"]
    assert str(stage.pods(workload)[0].pk) in broken["allocations_match_live_pods"]
    Allocation.objects.update(released_at=timezone.now())
    broken = {law.name: law.detail for law in check(timezone.now()) if not law.ok}
    assert list(broken) == ["claims_match_allocations", "holdings_are_counted_right"]


def test_the_database_refuses_to_sell_a_device_twice(stage: Stage) -> None:
    stage.submit()
    stage.tick(2)
    claim = DeviceClaim.objects.get(node__name="local-0", device=0)
    with pytest.raises(Exception, match="would be sold to 1001 thousandths"):
        DeviceClaim.objects.create(allocation=_other(claim), node=claim.node, device=claim.device, milli=1)
    with pytest.raises(Exception, match="has no device 2"):
        DeviceClaim.objects.create(allocation=claim.allocation, node=claim.node, device=2, milli=1)


def _other(claim: DeviceClaim):
    from scheduler.models import Allocation

    return Allocation.objects.exclude(pk=claim.allocation_id).get()


def test_the_database_refuses_to_rewrite_an_eviction(stage: Stage) -> None:
    stage.submit("low", roles=FOUR, priority=10)
    stage.tick(2)
    stage.submit("high", roles=FOUR, priority=90)
    stage.tick()
    with connection.cursor() as cursor:
        for statement in ("UPDATE scheduler_eviction SET rule = ''", "DELETE FROM scheduler_eviction"):
            with pytest.raises(Exception, match="append-only"):
                cursor.execute(statement)
