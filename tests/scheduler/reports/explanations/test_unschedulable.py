"""Tests for workloads that no pool can ever run."""

import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType

import pytest
from django.core import mail
from django.db import connection
from django.test import override_settings

from berth.core.errors import RateLimited
from pools.models import Node
from projects.models import Delivery, Event, Phase, Workload
from projects.services.notifications.subscriptions import subscribe
from projects.services.workloads.prediction import Prediction, dry_run
from scheduler.models import QueueStatus
from scheduler.reports.queues.queue_list import queue_length, queued_workloads
from scheduler.reports.queues.starved import find_shortfalls
from scheduler.reports.what_if.slots import MAX_DRY_RUNS, dry_run_slot
from tests.cast import training
from tests.scheduler.stage import Stage
from tests.support.present import present

MANY = [{"name": "worker", "replicas": 10_000, "gpu": 0}]
MAX_CALLS = 500_000  # Python function calls; a call per replica and node would exceed the limit


def count_calls(run: Callable[[], object]) -> int:
    """Count the Python function calls of `run` in this thread. This measures effort independently of the
    machine.
    """
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def gang(gpus: int) -> list[dict[str, object]]:
    return [{"name": "worker", "replicas": gpus, "gpu": 1}]


@pytest.fixture
def unschedulable_workload(stage: Stage) -> Workload:
    """Submit a workload that requests more GPUs than the pool has at its maximum size."""
    pool = stage.cast.pool
    most = (pool.nodes_max or pool.nodes_min) * pool.gpus_per_node
    return stage.submit("impossible", roles=gang(most + 1), priority=90)


@pytest.mark.shows("RAI-53")
def test_unschedulable_workload_has_no_queue_position(stage: Stage, unschedulable_workload: Workload) -> None:
    stage.tick()
    unschedulable_workload.refresh_from_db()
    assert (unschedulable_workload.phase, unschedulable_workload.reason) == (Phase.PENDING, "Unschedulable")
    explanation = present(unschedulable_workload.explanation)
    assert explanation["queue_position"] is None
    assert explanation["blockers"][0]["reason"] == "ExceedsPoolMax"
    assert unschedulable_workload.message == explanation["blockers"][0]["message"]
    assert "GPUs" in unschedulable_workload.message
    pool = stage.cast.pool
    assert unschedulable_workload not in queued_workloads(stage.cast.alice, pool)
    assert queue_length(pool).workloads == 0


def test_unschedulable_workload_gets_no_fair_share_and_is_not_reported_as_starved(
    stage: Stage, unschedulable_workload: Workload
) -> None:
    stage.submit("borrower", project=stage.cast.ads, roles=gang(4))
    stage.tick(2)
    status = QueueStatus.objects.get(project=unschedulable_workload.project, pool=stage.cast.pool)
    assert (status.requested[0], status.share[0]) == (0, 0)
    assert find_shortfalls(stage.cast.alice, [stage.cast.pool]) == []


def test_workload_is_schedulable_again_when_the_pools_maximum_is_raised(
    stage: Stage, unschedulable_workload: Workload
) -> None:
    stage.tick()
    pool = stage.cast.pool
    pool.nodes_max = 1000
    pool.save(update_fields=["nodes_max"])
    stage.tick()
    unschedulable_workload.refresh_from_db()
    assert unschedulable_workload.reason != "Unschedulable"
    assert present(unschedulable_workload.explanation)["queue_position"] == 1


@pytest.mark.heavy
def test_pausing_a_pool_makes_no_workload_unschedulable(stage: Stage) -> None:
    pool = stage.cast.pool
    pool.nodes_max, pool.paused = 1000, True
    pool.save(update_fields=["nodes_max", "paused"])
    workload = stage.submit("later", roles=gang(400))
    stage.tick()
    workload.refresh_from_db()
    assert workload.reason != "Unschedulable"
    assert present(workload.explanation)["queue_position"] == 1


def test_several_schedulers_notify_the_owner_of_an_unschedulable_workload_only_once(
    stage: Stage, unschedulable_workload: Workload
) -> None:
    user = stage.cast.alice.user
    subscribe(actor=stage.cast.alice, scope=user, to="alice@example.org", events=["failed"])
    stage.tick(3, seconds=30)
    stage.loop = stage.new_loop()  # a new loop has no record of earlier writes
    stage.tick(2, seconds=30)
    (delivery,) = Delivery.objects.filter(workload_id=unschedulable_workload.pk)
    assert (delivery.kind, delivery.to) == ("unschedulable", "alice@example.org")
    unschedulable_workload.refresh_from_db()
    assert delivery.content["message"] == unschedulable_workload.message
    assert Event.objects.filter(workload_id=unschedulable_workload.pk, kind="unschedulable").count() == 1


@pytest.mark.heavy
def test_owner_without_subscriptions_is_notified_by_email(
    stage: Stage, unschedulable_workload: Workload
) -> None:
    user = stage.cast.alice.user
    user.email = "alice@example.org"
    user.save(update_fields=["email"])
    with override_settings(BERTH_SENDS_MAIL=True):
        stage.tick(2)
    assert [row.to for row in Delivery.objects.filter(workload_id=unschedulable_workload.pk)] == [
        "alice@example.org"
    ]
    assert mail.outbox == []  # the task queue sends the mail


@pytest.mark.heavy
def test_ten_thousand_replicas_of_one_user_do_not_delay_a_cycle(stage: Stage) -> None:
    many = stage.submit("many", roles=MANY)
    small = stage.submit("small", project=stage.cast.ads)
    assert count_calls(stage.tick) < MAX_CALLS
    assert stage.phase(small) == Phase.STARTING
    assert stage.phase(many) == Phase.PENDING
    assert many.reason == "Unschedulable"
    assert "pods" in many.message


@pytest.mark.parametrize("role", [{"replicas": 100_000}, {"min": 1, "max": 100_000}])
def test_dry_run_of_a_hundred_thousand_replicas_completes(stage: Stage, role: dict[str, int]) -> None:
    document = training("asked", project="vision", roles=[{"name": "worker", "gpu": 0, **role}])
    answers: list[Prediction] = []
    ask = partial(dry_run, actor=stage.cast.alice, document=document, now=stage.clock.now())
    assert count_calls(lambda: answers.append(ask())) < MAX_CALLS
    assert answers[0].outcome == ("unschedulable" if "replicas" in role else "would_start")


def test_background_dry_runs_leave_slots_for_users(stage: Stage) -> None:
    project, over, is_held = stage.cast.vision, threading.Event(), threading.Event()

    def search_in_background() -> None:
        with dry_run_slot(project, is_background=True):
            is_held.set()
            over.wait(120)
        connection.close()

    other = threading.Thread(target=search_in_background)
    other.start()
    assert is_held.wait(120)
    try:
        with pytest.raises(RateLimited), dry_run_slot(project, is_background=True):
            pass
        result = dry_run(actor=stage.cast.alice, document=training("asked", project="vision"))
        assert result.outcome == "would_start"
    finally:
        over.set()
        other.join(30)


def test_dry_runs_are_rate_limited_per_project(stage: Stage) -> None:
    # Each concurrent dry run has its own connection, as in a web process.
    project, over = stage.cast.vision, threading.Event()
    inside = threading.Barrier(MAX_DRY_RUNS + 1)

    def hold() -> None:
        with dry_run_slot(project):
            inside.wait(120)
            over.wait(120)
        connection.close()

    others = [threading.Thread(target=hold) for _ in range(MAX_DRY_RUNS)]
    for thread in others:
        thread.start()
    inside.wait(120)
    try:
        with pytest.raises(RateLimited, match="vision already has the maximum of 3 dry runs in progress"):
            dry_run(actor=stage.cast.alice, document=training("asked", project="vision"))
        elsewhere = dry_run(actor=stage.cast.alice, document=training("asked", project="ads"))
        assert elsewhere.outcome == "would_start"
    finally:
        over.set()
        for thread in others:
            thread.join(30)
    again = dry_run(actor=stage.cast.alice, document=training("asked", project="vision"))
    assert again.outcome == "would_start"


def test_pending_reason_of_a_workload_with_reserved_nodes_mentions_booting_nodes(stage: Stage) -> None:
    Node.objects.update(state="booting")
    workload = stage.submit("early")
    stage.tick()
    assert stage.phase(workload) == Phase.RESERVED
    assert workload.reason == "WaitingForScaleUp"
    assert workload.message.endswith("once 1 node has booted.")
    stage.tick(seconds=5)
    workload.refresh_from_db()
    assert workload.reason == "WaitingForScaleUp"
    assert [blocker["message"] for blocker in present(workload.explanation)["blockers"]] == [
        "Capacity is reserved on 1 booting node."
    ]


@pytest.mark.heavy
def test_backoff_reason_after_a_failed_run_does_not_mention_evictions(stage: Stage) -> None:
    workload = stage.submit("fails", restart_policy={"kind": "on_failure", "max_restarts": 5})
    stage.tick(2, seconds=5)
    stage.finish(workload, exit_code=1)
    stage.tick(2, seconds=1)
    assert stage.phase(workload) == Phase.PENDING
    assert workload.reason == "Backoff"
    assert workload.message.endswith(" UTC, after 1 failed run.")
