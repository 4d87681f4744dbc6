"""Tests for the task queue with real processes that are killed midway."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import DatabaseError, transaction
from django.utils import timezone
from django_q.models import OrmQ, Schedule

from berth.server.api.models import StoredResponse
from projects.models import ApiToken, Audit, Delivery, Event, Leftover
from scheduler import tasks
from scheduler.loop.dispatch.cleanup.leftovers import RETRY_INTERVAL, queue_workspace_deletions
from scheduler.management.commands import prune
from scheduler.models import Cycle
from scheduler.schedules import PERIODIC_TASKS, sync_schedules
from tests.cast import Cast, make_cast
from tests.journeys.installation import PATIENCE, until
from tests.scheduler.stage import Stage
from tests.support.present import present

FILES = 4000


@pytest.fixture
def queue(child_env: dict[str, str], tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Start a task queue on this test's database as in production, and stop the queue afterwards."""
    started: list[subprocess.Popen[bytes]] = []
    # This secret signs tasks.
    env = {**child_env, "BERTH_HOME": str(tmp_path), "BERTH_SECRET_KEY": settings.SECRET_KEY}

    def start() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "django", "qcluster"]
        log = (tmp_path / "queue.log").open("ab")
        process = subprocess.Popen(command, env=env, start_new_session=True, stdout=log, stderr=log)
        started.append(process)
        return process

    yield start
    for process in started:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


@pytest.mark.heavy
def test_workspace_deletion_continues_after_the_task_queue_is_killed(
    stage: Stage, queue: Callable[[], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    stage.cast.pool.runtime = "local"
    stage.cast.pool.save()
    left = Leftover.objects.create(pool=stage.cast.pool, kind="workspace", name="5e7f-many-files")
    place = tmp_path / "run" / "workspaces" / left.name
    for number in range(40):
        (place / str(number)).mkdir(parents=True)
        for part in range(FILES // 40):
            (place / str(number) / str(part)).touch()
    assert sum(queue_workspace_deletions(stage.clock.now(), stage.loop.context)) == 1
    first = queue()
    deadline = time.monotonic() + PATIENCE
    while len(list(place.iterdir())) == 40:  # with short pauses: the deletion takes a fraction of a second
        assert time.monotonic() < deadline
        time.sleep(0.002)
    kill(first)
    assert place.exists(), "the deletion was interrupted"
    assert Leftover.objects.exists()
    stage.clock.advance(RETRY_INTERVAL.total_seconds())
    assert sum(queue_workspace_deletions(stage.clock.now(), stage.loop.context)) == 1, (
        "the next tick queues it again"
    )
    queue()
    until(lambda: not Leftover.objects.exists())
    assert not place.exists()


@pytest.fixture
def cast(transactional_db: None) -> Cast:
    return make_cast()


def test_periodic_tasks_are_registered_once_and_updated(cast: Cast) -> None:
    assert sync_schedules() == len(PERIODIC_TASKS)
    assert sync_schedules() == 0
    expected = sorted(Schedule.objects.values_list("name", "func", "minutes"))
    Schedule.objects.filter(name=PERIODIC_TASKS[0].name).update(minutes=999)
    Schedule.objects.create(name=PERIODIC_TASKS[1].name, func="nonsense")
    Schedule.objects.create(name="berth: former task", func="removed")
    Schedule.objects.create(name="another application's", func="theirs")
    sync_schedules()
    rows = Schedule.objects.filter(name__startswith="berth: ")
    assert sorted(rows.values_list("name", "func", "minutes")) == expected
    assert Schedule.objects.filter(name="another application's").exists()


def test_scheduler_loop_registers_the_periodic_tasks(stage: Stage) -> None:
    stage.tick()
    assert Schedule.objects.filter(name__startswith="berth: ").count() == len(PERIODIC_TASKS)


def test_cleanup_task_deletes_only_expired_data(cast: Cast) -> None:
    now = timezone.now()
    user = cast.dave.user
    for name, ends, revoked in (
        ("long over", now - timedelta(days=31), None),
        ("long revoked", None, now - timedelta(days=31)),
        ("just over", now - timedelta(days=1), None),
        ("lives", None, None),
    ):
        ApiToken.objects.create(user=user, name=name, digest=name, expires_at=ends, revoked_at=revoked)
    for days in (1, 31):
        Cycle.objects.create(at=now - timedelta(days=days), epoch=1, trigger="tick", snapshot=b"x")
        StoredResponse.objects.create(user=user, key=f"{days}", created_at=now - timedelta(days=days - 0.5))
    Cycle.objects.create(at=now, epoch=1, trigger="tick", snapshot=b"x")
    for days, state in ((91, "delivered"), (91, "pending"), (1, "delivered")):
        Delivery.objects.create(
            at=now - timedelta(days=days),
            kind="failed",
            workload_id=uuid.uuid4(),
            project_id=1,
            to="a@b.c",
            channel="mail",
            content={},
            state=state,
            next_attempt_at=now,
            ended_at=None if state == "pending" else now,
        )
    tasks.delete_expired()
    tasks.delete_expired()
    assert set(ApiToken.objects.values_list("name", flat=True)) == {"just over", "lives"}
    assert Cycle.objects.count() == 2
    assert list(StoredResponse.objects.values_list("key", flat=True)) == ["1"]
    assert sorted(Delivery.objects.values_list("state", flat=True)) == ["delivered", "pending"]


def test_prune_reports_and_audits_its_deletions(cast: Cast) -> None:
    for day in (1, 20):
        Event.objects.create(at=f"2026-01-{day:02}T12:00:00Z", kind="x", subject="s", message="m", actor="a")
    with pytest.raises(DatabaseError), transaction.atomic():
        Event.objects.all().delete()
    out = StringIO()
    call_command("prune", "--before=2026-01-10", stdout=out)
    assert "projects_event: 1 rows are older" in out.getvalue()
    assert Event.objects.count() == 2
    call_command("prune", "--before=2026-01-10", "--yes", stdout=out)
    assert [event.at.day for event in Event.objects.all()] == [20]
    assert present(Audit.objects.get(action="prune").after)["projects_event"] == 1
    with pytest.raises(DatabaseError), transaction.atomic():
        Event.objects.all().delete()


def test_interrupted_prune_still_audits_its_deletions(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    Event.objects.create(at="2026-01-01T12:00:00Z", kind="x", subject="s", message="m", actor="a")
    monkeypatch.setattr(prune, "HISTORY", (prune.HISTORY[0], ("no_such_table", "nothing")))
    with pytest.raises(DatabaseError):
        call_command("prune", "--before=2026-01-10", "--yes", stdout=StringIO())
    assert not Event.objects.exists()
    assert Audit.objects.get(action="prune").after == {"before": "2026-01-10", "projects_event": 1}


def test_prune_up_to_a_future_time_is_rejected(cast: Cast) -> None:
    with pytest.raises(CommandError, match="is not in the past"):
        call_command("prune", "--before=2999-01-01", "--yes")


def test_task_queued_in_a_rolled_back_transaction_does_not_run(cast: Cast) -> None:
    # A rolled-back change leaves no task behind.
    from django_q.tasks import async_task

    with pytest.raises(ZeroDivisionError), transaction.atomic():
        async_task("scheduler.tasks.delete_expired")
        raise ZeroDivisionError
    assert not OrmQ.objects.exists()
