"""Tests for recovery after the scheduler is killed between any two steps."""

import pytest
from django.db import connection

from berth.db.loops import crash_points, lease
from berth.db.loops.lease import LeadershipLost
from pools.models import Node
from projects.models import Event, Phase, Pod
from scheduler.models import Eviction, Reservation
from tests.scheduler.crashes import CrashingScheduler
from tests.scheduler.stage import Stage
from tests.support.crashes import listening

POINTS = (
    "reports.looked",
    "reports.written",
    "reports.before_end",
    "reports.done",
    "cycle.observed",
    "cycle.decided",
    "commit.locked",
    "commit.evicted",
    "commit.placed",
    "commit.bound",
    "commit.before_end",
    "commit.done",
    "dispatch.before_start",
    "dispatch.started",
    "dispatch.before_stop",
    "dispatch.stopped",
    "cycle.before_end",
    "cycle.done",
)
# After pods are started. Crashes at the other points are heavy.
AFTER_WRITES = {"dispatch.started"}
WHOLE = [{"name": "worker", "replicas": 4, "gpu": 1}]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in AFTER_WRITES else pytest.mark.heavy) for name in POINTS]
)
def test_scheduler_recovers_from_a_crash_at_any_point(stage: Stage, name: str) -> None:
    life = CrashingScheduler(stage, name)
    low = stage.submit("low", roles=WHOLE, priority=10)
    life.until(low, Phase.RUNNING)
    high = stage.submit("high", roles=WHOLE, priority=90)
    life.until(high, Phase.RUNNING)
    assert stage.phase(low) == Phase.PENDING
    stage.finish(high)
    life.until(high, Phase.COMPLETED)
    life.until(low, Phase.RUNNING)
    stage.finish(low)
    life.until(low, Phase.COMPLETED)
    assert life.deaths
    assert [(row.run, row.preemptions, row.restarts) for row in (low, high)] == [(2, 1, 0), (1, 0, 0)]
    assert Eviction.objects.count() == 1
    assert stage.runtime.running() == ()
    ends = Pod.objects.values_list("workload__name", "run", "state")
    assert sorted(set(ends)) == [("high", 1, "succeeded"), ("low", 1, "stopped"), ("low", 2, "succeeded")]


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["reservations.before_end", "reservations.done"])
def test_reservation_on_a_cordoned_node_is_dropped_only_once_despite_crashes(stage: Stage, name: str) -> None:
    low = stage.submit("low", roles=WHOLE, priority=10)
    stage.tick(2)
    stage.runtime.stubborn |= {str(pod.pk) for pod in stage.pods(low)}
    high = stage.submit("high", roles=WHOLE, priority=90)
    stage.tick()
    assert stage.phase(high) == Phase.RESERVED
    Node.objects.filter(reservations__workload=high).update(state="cordoned")
    life = CrashingScheduler(stage, name)
    life.until(high, Phase.PENDING)
    assert life.deaths
    dropped = Event.objects.filter(workload_id=high.pk, data__reason="ReservationDropped")
    assert dropped.count() == 1
    assert not Reservation.objects.exists()


def expire_lease() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE berth_db_lease SET expires_at = clock_timestamp() - interval '1 second'")


def test_replaced_leader_cannot_write(stage: Stage) -> None:
    old = stage.loop
    workload = stage.submit()
    held_lease = old.context.held_lease
    expire_lease()
    stage.loop = stage.new_loop("second")
    assert lease.acquire("scheduler", "first", 60) is None
    with pytest.raises(LeadershipLost):
        old.tick()
    assert old.context.held_lease == held_lease
    assert stage.phase(workload) == Phase.PENDING
    assert not stage.runtime.calls or {call for call, _ in stage.runtime.calls} == {"look"}
    stage.tick(2)
    assert stage.phase(workload) == Phase.RUNNING


def test_successor_takes_over_in_the_middle_of_a_tick(stage: Stage) -> None:
    # Another process becomes leader between the old leader's decision and commit.
    workload = stage.submit()
    old = stage.loop

    def overtake(name: str) -> None:
        if name == "cycle.decided":
            crash_points.set_listener(None)
            expire_lease()
            stage.loop = stage.new_loop("second")
            stage.loop.tick()

    with listening(overtake), pytest.raises(LeadershipLost):
        old.tick()
    stage.tick()
    assert stage.phase(workload) == Phase.RUNNING
    assert (workload.run, len(stage.pods(workload))) == (1, 2)
