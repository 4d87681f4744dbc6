"""Tests for explanations, dry runs and database constraints."""

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from berth.core.errors import Conflict, Invalid
from projects.models import Phase, Pod, Workload
from projects.services.workloads.prediction import dry_run
from scheduler.models import Allocation, DeviceClaim
from scheduler.reports.explanations.workload import explain
from scheduler.reports.health import health_document
from scheduler.reports.invariants import check_invariants
from tests.cast import training
from tests.scheduler.stage import Stage

FOUR = [{"name": "worker", "replicas": 4, "gpu": 1}]


def test_explanation_of_a_pending_workload_includes_its_queues(stage: Stage) -> None:
    stage.submit("first", roles=FOUR)
    second = stage.submit("second", preemptible=False)
    stage.tick(2)
    second.refresh_from_db()
    explanation = explain(stage.cast.dave, second)
    assert explanation.reason == explanation.blockers[0]["reason"] == second.reason
    assert (explanation.queue_position, explanation.explained_at) == (1, stage.clock.now())
    assert explanation.queue["project"]["name"] == "vision"
    assert explanation.queue["project"]["allocated"]["gpu"] == 4
    assert explanation.queue["department"]["quota"]["gpu"] == 4


def test_remaining_backoff_is_computed_when_the_explanation_is_read(stage: Stage) -> None:
    workload = stage.submit()
    until = stage.clock.now() + timedelta(seconds=90)
    Workload.objects.filter(pk=workload.pk).update(preemptions=1, backoff_until=until)
    stage.tick()
    workload.refresh_from_db()
    written_at = workload.explained_at
    stage.clock.advance(30)
    stage.tick()
    workload.refresh_from_db()
    (blocker,) = explain(stage.cast.dave, workload, stage.clock.now()).blockers
    assert blocker["numbers"]["seconds"] == 60
    assert blocker["message"] == f"Restart delay until {until:%Y-%m-%d %H:%M:%S} UTC, after 1 eviction."
    assert workload.explained_at == written_at


def test_dry_run_predicts_a_start_or_a_pending_reason_and_stores_nothing(stage: Stage) -> None:
    document = {**training("one"), "project": "vision"}
    assert dry_run(actor=stage.cast.dave, document=document).outcome == "would_start"
    stage.submit("first", roles=FOUR)
    stage.tick(2)
    prediction = dry_run(actor=stage.cast.dave, document={**document, "preemptible": False})
    assert prediction.outcome == "would_stay_pending"
    assert prediction.blockers
    assert Workload.objects.count() == 1
    with pytest.raises(Conflict):
        dry_run(actor=stage.cast.dave, document={**document, "name": "first"})
    with pytest.raises(Invalid):
        dry_run(actor=stage.cast.dave, document={**document, "roles": []})


def test_dry_run_agrees_with_the_next_cycle(stage: Stage) -> None:
    stage.submit("low", roles=FOUR, priority=10)
    stage.tick(2)
    document = {**training("high", roles=FOUR, priority=90), "project": "vision"}
    prediction = dry_run(actor=stage.cast.dave, document=document, now=stage.clock.now())
    assert (prediction.outcome, [eviction["workload"] for eviction in prediction.evictions]) == (
        "would_evict",
        ["low"],
    )
    high = stage.submit("high", roles=FOUR, priority=90)
    stage.tick()
    assert stage.phase(high) == Phase.RESERVED


def test_health_check_names_a_violated_invariant_and_otherwise_passes(stage: Stage) -> None:
    stage.submit()
    stage.tick(2)
    assert [check_result for check_result in check_invariants(timezone.now()) if not check_result.ok] == []
    report = health_document(timezone.now())
    assert report["leader"]["holder"] == "first"
    assert report["last_cycle"]["applied"] == 1
    DeviceClaim.objects.all().delete()
    assert [
        check_result.name for check_result in check_invariants(timezone.now()) if not check_result.ok
    ] == ["claims_match_allocations"]


def test_ended_pod_with_allocated_devices_is_reported(stage: Stage) -> None:
    workload = stage.submit()
    stage.tick(2)
    Pod.objects.filter(workload=workload).update(state="succeeded", ended_at=timezone.now())
    broken = {
        check_result.name: check_result.detail
        for check_result in check_invariants(timezone.now())
        if not check_result.ok
    }
    assert list(broken) == ["allocations_match_live_pods"]
    assert str(stage.pods(workload)[0].pk) in broken["allocations_match_live_pods"]
    Allocation.objects.update(released_at=timezone.now())
    broken = {
        check_result.name: check_result.detail
        for check_result in check_invariants(timezone.now())
        if not check_result.ok
    }
    assert list(broken) == ["claims_match_allocations", "holdings_are_counted_right"]


def test_database_rejects_a_second_allocation_of_a_device(stage: Stage) -> None:
    stage.submit()
    stage.tick(2)
    claim = DeviceClaim.objects.get(node__name="local-0", device=0)
    with pytest.raises(Exception, match="would have 1001 thousandths allocated"):
        DeviceClaim.objects.create(allocation=_other(claim), node=claim.node, device=claim.device, milli=1)
    with pytest.raises(Exception, match="has no device 2"):
        DeviceClaim.objects.create(allocation=claim.allocation, node=claim.node, device=2, milli=1)


def _other(claim: DeviceClaim) -> Allocation:
    return Allocation.objects.exclude(pk=claim.allocation_id).get()


def test_database_rejects_changes_to_evictions(stage: Stage) -> None:
    stage.submit("low", roles=FOUR, priority=10)
    stage.tick(2)
    stage.submit("high", roles=FOUR, priority=90)
    stage.tick()
    with connection.cursor() as cursor:
        for statement in ("UPDATE scheduler_eviction SET rule = ''", "DELETE FROM scheduler_eviction"):
            with pytest.raises(Exception, match="append-only"):
                cursor.execute(statement)
