"""Tests for evictions in the database: stops, reservations, audit rows and starts."""

from datetime import timedelta

import pytest

from projects.models import Event, Phase
from projects.services.workloads import control
from scheduler.models import Eviction, Reservation
from scheduler.reports.invariants import check_invariants
from tests.scheduler.stage import Stage
from tests.support.present import present

WHOLE = [{"name": "worker", "replicas": 4, "gpu": 1}]
HALF = [{"name": "worker", "replicas": 2, "gpu": 1}]


@pytest.mark.shows("RAI-36", "RAI-67")
def test_borrowed_gpus_are_reclaimed_for_a_project_within_quota(stage: Stage) -> None:
    stage.cast.vision.quotas.update(gpu_milli=2000)
    stage.quota(stage.cast.speech, 2)
    own = stage.submit("own", roles=HALF)
    borrowed = stage.submit("borrowed", roles=HALF)
    stage.tick(2)
    assert (stage.phase(own), stage.phase(borrowed)) == (Phase.RUNNING, Phase.RUNNING)
    entitled = stage.submit("entitled", project=stage.cast.speech, roles=HALF)
    stage.tick()
    assert stage.phase(entitled) == Phase.RESERVED
    assert stage.phase(borrowed) == Phase.STOPPING
    stage.tick(2)
    assert stage.phase(entitled) in (Phase.STARTING, Phase.RUNNING)
    assert stage.phase(borrowed) == Phase.PENDING
    assert stage.phase(own) == Phase.RUNNING
    assert borrowed.preemptions == 1
    assert present(borrowed.backoff_until) > stage.clock.now()


def test_eviction_record_includes_victim_preemptor_rule_and_numbers(stage: Stage) -> None:
    low = stage.submit("low", roles=WHOLE, priority=10)
    stage.tick(2)
    stage.clock.advance(100)
    high = stage.submit("high", roles=HALF, priority=90)
    stage.tick()
    row = Eviction.objects.get()
    assert (row.kind, row.workload_id, row.preemptor_id) == ("preempt", low.pk, high.pk)
    assert (row.project_name, row.department_name, row.pool_name) == ("vision", "research", "local")
    assert (row.gpu_milli, row.entire_workload) == (4000, True)
    assert row.lost_gpu_seconds >= 400
    assert row.rule
    status = row.numbers["victim"][0]
    assert status["queue"] == "vision"
    assert status["allocated_before"]["gpu"] > status["allocated_after"]["gpu"]
    assert row.cycle is not None
    event = Event.objects.filter(workload_id=low.pk, kind="stopping").get()
    assert event.data["cycle"] == row.cycle


def test_capacity_is_reserved_while_victims_stop(stage: Stage) -> None:
    low = stage.submit("low", roles=WHOLE, priority=10, grace_period_seconds=30)
    stage.tick(2)
    stage.runtime.stubborn.update(stage.runtime.running())
    high = stage.submit("high", roles=WHOLE, priority=90)
    third = stage.submit("third", roles=HALF, priority=80)
    stage.tick(3)
    assert Reservation.objects.filter(workload=high).count() == 4
    assert [stage.phase(row) for row in (high, low, third)] == [Phase.RESERVED, Phase.STOPPING, Phase.PENDING]
    stage.clock.advance(31)
    stage.tick(2)
    assert stage.phase(high) == Phase.RUNNING
    assert stage.phase(third) == Phase.PENDING
    assert not Reservation.objects.exists()


def test_reservation_is_dropped_on_cancellation_or_expiry(stage: Stage) -> None:
    stage.submit("low", roles=WHOLE, priority=10, grace_period_seconds=3000)
    stage.tick(2)
    stage.runtime.stubborn.update(stage.runtime.running())
    high = stage.submit("high", roles=WHOLE, priority=90)
    stage.tick()
    control.cancel(actor=stage.cast.alice, workload=high)
    assert not Reservation.objects.exists()
    again = stage.submit("again", roles=WHOLE, priority=90)
    stage.tick()
    assert stage.phase(again) == Phase.RESERVED
    Reservation.objects.update(expires_at=stage.clock.now() - timedelta(seconds=1))
    stage.loop.tick(reconcile=False)
    reasons = Event.objects.filter(workload_id=again.pk).values_list("data__reason", flat=True)
    assert "ReservationDropped" in reasons


@pytest.mark.parametrize(
    ("run_seconds", "backoffs"),
    [(60, [5, 10, 20]), pytest.param(1, [5, 10, 10], marks=pytest.mark.heavy)],
)
def test_backoff_doubles_up_to_ten_times_the_length_of_the_evicted_run(
    stage: Stage, run_seconds: int, backoffs: list[int]
) -> None:
    low = stage.submit("low", roles=WHOLE, priority=10)
    waits = []
    for number in range(3):
        stage.clock.advance(600)
        stage.tick(2)
        assert stage.phase(low) == Phase.RUNNING
        low.refresh_from_db()
        high = stage.submit(f"high-{number}", roles=WHOLE, priority=90)
        stage.clock.advance(run_seconds - (stage.clock.now() - present(low.started_at)).total_seconds())
        stage.tick()
        low.refresh_from_db()
        waits.append((present(low.backoff_until) - low.since).total_seconds())
        stage.tick(3)
        control.cancel(actor=stage.cast.alice, workload=high)
        stage.tick(2)
    assert waits == backoffs
    assert low.preemptions == 3


@pytest.mark.heavy
@pytest.mark.shows("RAI-31", "RAI-32")
def test_moved_workload_restarts_on_another_node_without_backoff(stage: Stage) -> None:
    stage.cast.pool.node_placement = "spread"
    stage.cast.pool.save()
    one = [{"name": "worker", "replicas": 1, "gpu": 1}]
    first, second = stage.submit("first", roles=one), stage.submit("second", roles=one)
    stage.tick(2)
    assert len({stage.pods(row)[0].node_id for row in (first, second)}) == 2
    wide = stage.submit("wide", roles=[{"name": "worker", "replicas": 1, "gpu": 2}])
    stage.tick(4)
    assert [stage.phase(row) for row in (first, second, wide)] == [Phase.RUNNING] * 3
    assert sorted(row.run for row in (first, second)) == [1, 2]
    assert [row.preemptions for row in (first, second)] == [0, 0]
    row = Eviction.objects.get()
    assert (row.kind, row.preemptor_id) == ("consolidate", wide.pk)
    assert not Reservation.objects.exists()
    assert [
        invariant
        for invariant in check_invariants(stage.clock.now())
        if not invariant.ok and invariant.name != "one_leader"
    ] == []


def test_elastic_victim_is_scaled_down_before_other_victims_are_stopped(stage: Stage) -> None:
    growing = [{"name": "worker", "min": 1, "max": 4, "gpu": 1}]
    elastic = stage.submit("elastic", kind="elastic", roles=growing)
    stage.tick(4)
    assert len(stage.pods(elastic, "running")) >= 1
    grown = len(stage.pods(elastic, "running"))
    rival = stage.submit("rival", roles=[{"name": "worker", "replicas": 3, "gpu": 1}], priority=90)
    stage.tick(5)
    assert stage.phase(rival) == Phase.RUNNING
    assert stage.phase(elastic) == Phase.RUNNING
    assert elastic.run == 1
    assert len(stage.pods(elastic, "running")) == 1
    if grown > 1:
        assert {row.kind for row in Eviction.objects.all()} == {"shrink"}
        assert not Eviction.objects.filter(entire_workload=True).exists()


@pytest.mark.heavy
def test_reservation_that_exceeds_a_new_limit_is_dropped(stage: Stage) -> None:
    stage.submit("low", roles=WHOLE, priority=10, grace_period_seconds=30)
    stage.tick(2)
    stage.runtime.stubborn.update(stage.runtime.running())
    high = stage.submit("high", roles=WHOLE, priority=90)
    stage.tick(2)
    assert stage.phase(high) == Phase.RESERVED
    stage.cast.vision.quotas.update(gpu_milli=3000, limit_gpu_milli=3000, version=2)
    stage.clock.advance(31)
    stage.tick(2)
    assert stage.phase(high) == Phase.PENDING
    assert high.reason == "ProjectLimit"


@pytest.mark.heavy
def test_higher_priority_workload_cannot_use_reserved_resources(stage: Stage) -> None:
    stage.submit("low", roles=WHOLE, priority=10, grace_period_seconds=30)
    stage.tick(2)
    stage.runtime.stubborn.update(stage.runtime.running())
    middle = stage.submit("middle", roles=WHOLE, priority=50)
    stage.tick()
    assert stage.phase(middle) == Phase.RESERVED
    urgent = stage.submit("urgent", roles=WHOLE, priority=95)
    stage.tick(2)
    assert [stage.phase(middle), stage.phase(urgent)] == [Phase.RESERVED, Phase.PENDING]
    stage.clock.advance(31)
    stage.tick(2)
    middle.refresh_from_db()
    assert middle.run == 1  # the freed capacity stayed reserved for `middle`
    stage.tick(3)
    assert stage.phase(urgent) == Phase.RUNNING
    assert stage.phase(middle) == Phase.PENDING
    assert not Reservation.objects.exists()
    assert not stage.loop._runs[-1].outcome.stale
