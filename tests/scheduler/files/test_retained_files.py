"""Tests that the files of failed pods are kept exactly for the requested time."""

from datetime import timedelta
from typing import Any

import pytest

from berth.core.errors import Forbidden, Invalid
from pools.models import NodePool
from projects.models import Audit, Event, Pod, Workload
from projects.services import workloads
from projects.services.retained_files import (
    find_pod_with_retained_files,
    pods_with_retained_files,
    release_files,
)
from tests.scheduler.arrays.test_arrays import submit_array, tasks
from tests.scheduler.crashes import CrashingScheduler
from tests.scheduler.stage import Stage

ONE = [{"name": "worker", "replicas": 1, "gpu": 1}]


def failed(stage: Stage, **changes: Any) -> tuple[Workload, Pod]:
    workload = stage.submit(**{"roles": ONE, "keep_failed_pod": "30m", **changes})
    stage.tick(2)
    (pod,) = stage.pods(workload, "running")
    stage.finish(workload, 1)
    stage.tick(2)
    return workload, pod


def sweep(stage: Stage, seconds: float) -> tuple[str, ...]:
    stage.clock.advance(seconds)
    stage.loop.swept_at = None
    stage.tick()
    return stage.runtime.list_pods()


def test_files_of_a_failed_pod_are_kept_for_the_requested_time(stage: Stage) -> None:
    workload, pod = failed(stage)
    assert stage.phase(workload) == "failed"
    (row,) = pods_with_retained_files(workload, stage.clock.now())
    workload.refresh_from_db()
    assert (row.pk, row.allocation.released_at is not None) == (pod.pk, True)
    assert sweep(stage, 29 * 60) == (str(pod.pk),)
    assert sweep(stage, 120) == ()
    assert not pods_with_retained_files(workload, stage.clock.now()).exists()


@pytest.mark.parametrize(
    ("exit_code", "changes"), [(0, {}), (1, {"keep_failed_pod": None}), (1, {"keep_failed_pod": "1s"})]
)
def test_files_are_kept_only_after_a_failure_and_on_request(
    stage: Stage, exit_code: int, changes: dict[str, Any]
) -> None:
    workload = stage.submit(**{"roles": ONE, "keep_failed_pod": "30m", **changes})
    stage.tick(2)
    stage.finish(workload, exit_code)
    stage.tick(2)
    assert sweep(stage, 120) == ()


def test_retry_starts_a_new_pod_while_the_failed_pods_files_are_kept(stage: Stage) -> None:
    workload, pod = failed(stage, retry=[{"on": ["pod_failed"], "backoff": 1}])
    stage.tick(3, seconds=1)
    (again,) = stage.pods(workload, "running")
    assert (again.pk != pod.pk, again.files_until) == (True, None)
    assert set(sweep(stage, 120)) == {str(pod.pk), str(again.pk)}


def test_only_the_latest_failed_pods_keep_their_files(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("projects.services.retained_files.PODS_MAX", 2)
    workload, _ = failed(stage, retry=[{"on": ["pod_failed"], "backoff": 1}])
    for _ in range(2):
        stage.tick(4, seconds=1)
        stage.finish(workload, 1)
        stage.tick(2, seconds=1)
    assert [pod.run for pod in pods_with_retained_files(workload, stage.clock.now())] == [3, 2]


@pytest.mark.heavy
def test_tasks_of_an_array_share_the_limit_on_retained_pods(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("projects.services.retained_files.PODS_MAX", 2)
    single, _ = failed(stage)
    array = submit_array(stage, keep_failed_pod="30m", array={"tasks": 3, "max_running": 1})
    for task in tasks(array):
        while not stage.pods(task, "running"):
            stage.tick(seconds=1)
        stage.finish(task, 1)
        stage.tick(2, seconds=1)
    with_files = Workload.objects.filter(pods__files_until__gt=stage.clock.now())
    assert set(with_files.values_list("array_index", flat=True)) == {None, 1, 2}
    assert [pod.workload_id for pod in pods_with_retained_files(single, stage.clock.now())] == [single.pk]


@pytest.mark.heavy
def test_ended_pod_that_still_has_a_process_is_stopped_and_keeps_its_files(stage: Stage) -> None:
    workload = stage.submit(roles=ONE, keep_failed_pod="30m")
    stage.tick(2)
    (pod,) = stage.pods(workload, "running")
    now = stage.clock.now()
    ended = {"state": "failed", "ended_at": now, "files_until": now + timedelta(minutes=30)}
    Pod.objects.filter(pk=pod.pk).update(**ended)
    assert sweep(stage, 120) == (str(pod.pk),)
    assert ("stop", str(pod.pk)) in stage.runtime.calls
    assert str(pod.pk) not in stage.runtime.running()


@pytest.mark.parametrize("point", ["reports.written", "reports.before_end", "reports.done"])
def test_files_are_kept_once_despite_a_crash_while_the_failure_is_recorded(stage: Stage, point: str) -> None:
    workload = stage.submit(roles=ONE, keep_failed_pod="30m")
    stage.tick(2)
    (pod,) = stage.pods(workload, "running")
    stage.finish(workload, 1)
    scheduler = CrashingScheduler(stage, point)
    while stage.phase(workload) != "failed":
        scheduler.tick()
    assert scheduler.deaths
    assert [row.pk for row in pods_with_retained_files(workload, stage.clock.now())] == [pod.pk]


@pytest.mark.heavy
def test_early_deletion_of_files_is_audited_once(stage: Stage) -> None:
    workload, pod = failed(stage)
    carol, now = stage.cast.carol, stage.clock.now()
    assert find_pod_with_retained_files(carol, workload, "worker-0", 1, now).pk == pod.pk
    assert release_files(actor=carol, workload=workload, now=now, pod="worker-9") == 0
    assert release_files(actor=carol, workload=workload, now=now) == 1
    assert release_files(actor=carol, workload=workload, now=now) == 0
    assert Audit.objects.filter(action="delete_files").count() == 1
    assert Event.objects.get(kind="files_deleted").message == (
        "Files of the failed pod worker-0 of run 1 deleted by carol."
    )
    assert sweep(stage, 120) == ()


def test_viewers_cannot_read_or_delete_the_files(stage: Stage) -> None:
    workload, _ = failed(stage)
    now = stage.clock.now()
    with pytest.raises(Forbidden):
        find_pod_with_retained_files(stage.cast.erin, workload, None, None, now)
    with pytest.raises(Forbidden):
        release_files(actor=stage.cast.erin, workload=workload, now=now)


@pytest.mark.heavy
def test_files_of_a_deleted_workload_are_deleted(stage: Stage) -> None:
    workload, pod = failed(stage)
    workloads.delete(actor=stage.cast.carol, workload=workload)
    assert str(pod.pk) not in sweep(stage, 120)


def test_retention_time_over_the_limit_is_rejected(stage: Stage, settings: Any) -> None:
    settings.BERTH_KEEP_FAILED_POD_SECONDS = 3600
    with pytest.raises(Invalid, match=r"keep_failed_pod: is more than this installation allows.*at most 1h"):
        stage.submit(roles=ONE, keep_failed_pod="61m")
    settings.BERTH_KEEP_FAILED_POD_SECONDS = 0
    with pytest.raises(Invalid, match="is disabled on this installation"):
        stage.submit(roles=ONE, keep_failed_pod="1m")
    settings.BERTH_KEEP_FAILED_POD_SECONDS = 3600
    for wrong in ("0s", -5, "soon", "31d"):
        with pytest.raises(Invalid, match="keep_failed_pod"):
            stage.submit(roles=ONE, keep_failed_pod=wrong)
    NodePool.objects.update(runtime="kubernetes")
    stage.submit(roles=ONE, keep_failed_pod="1m", image="docker.io/library/python:3.12")


@pytest.mark.heavy
def test_lowered_retention_limit_applies_to_later_failures(stage: Stage, settings: Any) -> None:
    workload = stage.submit(roles=ONE, keep_failed_pod="30m")
    settings.BERTH_KEEP_FAILED_POD_SECONDS = 300
    stage.tick(2)
    stage.finish(workload, 1)
    stage.tick(2)
    (pod,) = stage.pods(workload)
    assert pod.files_until is not None
    assert pod.files_until - stage.clock.now() <= timedelta(seconds=300)
