"""Tests that deleted workloads leave no files on machines."""

from types import SimpleNamespace

import pytest
from django.db import connection
from django_q.models import OrmQ

from berth.db.loops.lease import LeadershipLost
from pools.runtimes.base import RuntimeFailure
from projects.models import Leftover, Phase, Workload
from projects.services.workloads import control
from scheduler import tasks
from scheduler.loop.dispatch.cleanup.leftovers import (
    RETRY_INTERVAL,
    delete_logs_of_deleted_workloads,
    queue_workspace_deletions,
)
from tests.scheduler.stage import Stage


def ended(stage: Stage) -> Workload:
    workload = stage.submit(roles=[{"name": "worker", "replicas": 2, "gpu": 1}])
    stage.tick(2)
    for pod in stage.pods(workload):
        stage.runtime.write(str(pod.pk), b"loss 0.1\n")
    stage.finish(workload)
    stage.tick(2)
    assert stage.phase(workload) == Phase.COMPLETED
    return workload


def logs(stage: Stage, pods: list[str]) -> list[bytes]:
    return [stage.runtime.read_log(pod, 0, 100).data for pod in pods]


def run_queued_tasks(stage: Stage) -> int:
    waiting = OrmQ.objects.order_by("pk")
    for row in waiting:
        task = row.task
        assert task["func"] == "scheduler.tasks.clear_workspace"
        tasks.clear_workspace(*task["args"])
        row.delete()
    return len(waiting)


@pytest.fixture(autouse=True)
def same_runtime(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "load_wiring", lambda: SimpleNamespace(runtime_for=lambda pool: stage.runtime))


def test_logs_and_workspace_are_deleted_with_the_workload(stage: Stage) -> None:
    workload = ended(stage)
    pods = [str(pod.pk) for pod in stage.pods(workload)]
    name = str(workload.pk)
    assert logs(stage, pods) == [b"loss 0.1\n"] * 2
    control.delete(actor=stage.cast.alice, workload=workload)
    assert sum(delete_logs_of_deleted_workloads(stage.loop.context)) == 2
    assert logs(stage, pods) == [b"", b""]
    assert not set(pods) & set(stage.runtime.list_pods())
    assert sum(queue_workspace_deletions(stage.clock.now(), stage.loop.context)) == 1
    assert ("drop_workspace", name) not in stage.runtime.calls, "the loop does not wait for the deletion"
    assert run_queued_tasks(stage) == 1
    assert ("drop_workspace", name) in stage.runtime.calls
    assert not Leftover.objects.exists()
    assert sum(delete_logs_of_deleted_workloads(stage.loop.context)) == 0


def test_scheduler_loop_cleans_up_deleted_workloads(stage: Stage) -> None:
    control.delete(actor=stage.cast.alice, workload=ended(stage))
    stage.clock.advance(120)
    stage.tick()
    assert run_queued_tasks(stage) == 1
    assert not Leftover.objects.exists()


@pytest.mark.heavy
def test_workspace_deletion_is_requeued_only_if_it_was_lost(stage: Stage) -> None:
    control.delete(actor=stage.cast.alice, workload=ended(stage))
    now = stage.clock.now()
    assert [sum(queue_workspace_deletions(now, stage.loop.context)) for _ in range(2)] == [1, 0]
    OrmQ.objects.all().delete()  # the queue lost the job
    assert sum(queue_workspace_deletions(now + RETRY_INTERVAL, stage.loop.context)) == 1
    assert run_queued_tasks(stage) == 1
    assert sum(queue_workspace_deletions(now + 2 * RETRY_INTERVAL, stage.loop.context)) == 0


def test_workspace_deletion_is_idempotent(stage: Stage) -> None:
    control.delete(actor=stage.cast.alice, workload=ended(stage))
    left = Leftover.objects.get(kind="workspace")
    assert [tasks.clear_workspace(left.pk) for _ in range(2)] == [True, False]


@pytest.mark.heavy
def test_failed_workspace_cleanup_is_retried_later(stage: Stage) -> None:
    workload = ended(stage)
    control.delete(actor=stage.cast.alice, workload=workload)
    stage.runtime.next("drop_workspace", RuntimeFailure("the disk is unavailable"))
    left = Leftover.objects.get(kind="workspace")
    with pytest.raises(RuntimeFailure):
        tasks.clear_workspace(left.pk)
    assert Leftover.objects.filter(name=str(workload.pk)).exists()
    tasks.clear_workspace(left.pk)
    assert not Leftover.objects.filter(name=str(workload.pk)).exists()


@pytest.mark.heavy
def test_workload_that_never_ran_needs_no_cleanup(stage: Stage) -> None:
    workload = control.cancel(actor=stage.cast.alice, workload=stage.submit())
    control.delete(actor=stage.cast.alice, workload=workload)
    assert not Leftover.objects.exists()


def test_former_leader_neither_deletes_nor_queues_deletions(stage: Stage) -> None:
    control.delete(actor=stage.cast.alice, workload=ended(stage))
    former = stage.loop.context
    expire_lease()
    stage.new_loop("second")
    with pytest.raises(LeadershipLost):
        sum(delete_logs_of_deleted_workloads(former))
    with pytest.raises(LeadershipLost):
        sum(queue_workspace_deletions(stage.clock.now(), former))
    assert Leftover.objects.count() == 3
    assert not OrmQ.objects.exists()


def expire_lease() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE berth_db_lease SET expires_at = clock_timestamp() - interval '1 second'")
