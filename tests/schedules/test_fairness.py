"""Tests for schedules that fail, wait or are changed while others are due."""

from datetime import timedelta

import pytest
from django.db import transaction

from projects.models import Phase, Project, Schedule, ScheduleRun, Workload
from projects.services import announce, schedules, tenants
from projects.services.schedules import has_due_runs, submit_due_runs
from projects.services.workloads.templates import set_template
from tests.cast import Cast
from tests.schedules.schedule_rows import HOUR, NOON, TEXT, end_all, make_schedule, outcomes
from tests.support.second_connection import run_on_second_connection

MINUTE = timedelta(minutes=1)


@pytest.fixture
def two_schedules_per_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("projects.services.schedules.runs.SCHEDULES_PER_PASS", 2)


def test_replace_policy_waits_for_a_run_that_is_stopping(cast: Cast) -> None:
    schedule = make_schedule(cast, overlap="replace")
    submit_due_runs(NOON + HOUR)
    Workload.objects.update(phase=Phase.STOPPING, next_phase=Phase.FAILED)
    submit_due_runs(NOON + 2 * HOUR)
    assert outcomes(schedule) == ["submitted", "queued"]
    schedule.refresh_from_db()
    assert (schedule.next_at, schedule.retry_at) == (NOON + 3 * HOUR, None)
    end_all(Phase.FAILED)
    assert submit_due_runs(NOON + 2 * HOUR + MINUTE) == 1


def test_failing_schedules_do_not_delay_other_projects(cast: Cast, two_schedules_per_pass: None) -> None:
    for name in ("a", "b", "c"):
        make_schedule(cast, name)
    Schedule.objects.update(time_zone="Nowhere/Else", next_at=NOON)
    other = make_schedule(cast, project=cast.ads)
    submit_due_runs(NOON + HOUR)
    assert outcomes(other) == ["submitted"]


@pytest.mark.heavy
def test_failing_schedules_do_not_block_healthy_schedules_of_their_project(
    cast: Cast, two_schedules_per_pass: None
) -> None:
    for name in ("a", "b"):
        make_schedule(cast, name)
    Schedule.objects.update(time_zone="Nowhere/Else")
    healthy = make_schedule(cast, "c")
    submit_due_runs(NOON + HOUR)
    assert outcomes(healthy) == []
    submit_due_runs(NOON + HOUR)
    assert outcomes(healthy) == ["submitted"]
    assert not has_due_runs(NOON + HOUR + MINUTE)


def test_failed_schedule_is_retried_later_and_after_an_edit(cast: Cast) -> None:
    schedule = make_schedule(cast)
    Schedule.objects.update(time_zone="Nowhere/Else")
    submit_due_runs(NOON + HOUR)
    schedule.refresh_from_db()
    assert (schedule.next_at, schedule.retry_at) == (NOON + HOUR, NOON + HOUR + 5 * MINUTE)
    assert has_due_runs(NOON + HOUR + 5 * MINUTE)
    make_schedule(cast, now=NOON + HOUR + MINUTE)
    assert submit_due_runs(NOON + HOUR + MINUTE) == 1


@pytest.mark.heavy
def test_recovered_schedule_is_no_longer_delayed(cast: Cast) -> None:
    schedule = make_schedule(cast)
    Schedule.objects.update(retry_at=NOON + HOUR)
    assert submit_due_runs(NOON + HOUR) == 1
    schedule.refresh_from_db()
    assert schedule.retry_at is None


def test_schedules_of_different_projects_take_turns(cast: Cast, two_schedules_per_pass: None) -> None:
    for name in ("a", "b", "c"):
        make_schedule(cast, name)
    other = make_schedule(cast, project=cast.ads)
    assert submit_due_runs(NOON + HOUR) == 2
    assert outcomes(other) == ["submitted"]


def test_slow_schedule_pass_leaves_remaining_schedules_to_the_next_pass(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("projects.services.schedules.runs.PASS_SECONDS", -1.0)
    for name in ("a", "b"):
        make_schedule(cast, name)
    assert [submit_due_runs(NOON + HOUR) for _ in range(3)] == [1, 1, 0]


def test_queued_runs_are_skipped_while_the_previous_run_is_live(cast: Cast) -> None:
    schedule = make_schedule(cast, overlap="queue")
    for hours in (1, 2):
        submit_due_runs(NOON + hours * HOUR)
    assert outcomes(schedule) == ["submitted", "queued"]
    assert not has_due_runs(NOON + 2 * HOUR)
    end_all()
    assert has_due_runs(NOON + 2 * HOUR)


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_schedule_history_keeps_live_and_queued_runs(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, overlap: str
) -> None:
    monkeypatch.setattr("projects.services.schedules.runs.RUNS_KEPT", 2)
    schedule = make_schedule(cast, overlap=overlap)
    for hours in range(1, 7):
        submit_due_runs(NOON + hours * HOUR)
    first = ["submitted", "queued"] if overlap == "queue" else ["submitted"]
    assert outcomes(schedule) == [*first, "skipped", "skipped"]
    end_all()
    submit_due_runs(NOON + 7 * HOUR)
    assert Workload.objects.filter(phase=Phase.PENDING).count() == 1


def test_manual_run_of_a_schedule_also_deletes_old_runs(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("projects.services.schedules.runs.RUNS_KEPT", 2)
    schedule = make_schedule(cast)
    for minutes in range(4):
        schedules.run_now(actor=cast.dave, schedule=schedule, now=NOON + minutes * MINUTE)
        end_all()
    assert schedule.runs.count() == 2


def test_manual_run_locks_the_project_before_the_schedule(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = make_schedule(cast)
    free: list[list[str]] = []

    def lock_project() -> list[str]:
        with transaction.atomic():
            rows = Project.objects.select_for_update(of=("self",), skip_locked=True)
            return [project.name for project in rows.filter(name="vision")]

    def check(locked: Schedule) -> None:
        free.append(run_on_second_connection(lock_project))

    monkeypatch.setattr("projects.services.schedules.control.find_live_run", check)
    schedules.run_now(actor=cast.dave, schedule=schedule, now=NOON)
    assert free == [[]]


def test_schedule_pass_without_changes_announces_nothing(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = make_schedule(cast, overlap="queue")
    for hours in (1, 2):
        submit_due_runs(NOON + hours * HOUR)
    announced: list[object] = []
    monkeypatch.setattr(announce, "tenants_changed", lambda **ids: announced.append(ids))
    # Select the schedule although its previous run is live, as if a user had run it just after the selection.
    monkeypatch.setattr("projects.services.schedules.runs._due_schedules", lambda now: Schedule.objects.all())
    assert submit_due_runs(NOON + 2 * HOUR) == 0
    assert announced == []
    submit_due_runs(NOON + 3 * HOUR)
    assert announced == [{"project_id": schedule.project_id}]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("deadline: 2026-06-02T00:00:00Z\n", "Deadline cannot be scheduled"),
        ("kind: service\nservice: {engine: openai}\n", "Kind cannot be scheduled"),
    ],
)
def test_run_is_rejected_if_its_edited_template_cannot_be_scheduled(
    cast: Cast, change: str, reason: str
) -> None:
    set_template(actor=cast.dave, project=cast.vision, name="train", text=TEXT)
    schedule = make_schedule(cast, text="", template="train")
    set_template(actor=cast.dave, project=cast.vision, name="train", text=TEXT + change)
    assert submit_due_runs(NOON + HOUR) == 0
    run = ScheduleRun.objects.get(schedule=schedule)
    assert run.outcome == "rejected"
    assert reason in run.message


def test_schedule_edit_after_a_due_time_does_not_lose_the_run(cast: Cast) -> None:
    make_schedule(cast)
    text = TEXT.replace("train.py", "new.py")
    schedule = make_schedule(cast, text=text, now=NOON + HOUR + MINUTE)
    assert submit_due_runs(NOON + HOUR + MINUTE) == 1
    run = schedule.runs.get()
    assert run.workload is not None
    assert (run.due_at, run.workload.spec["command"]) == (NOON + HOUR, "python new.py")
    schedule.refresh_from_db()
    assert schedule.next_at == NOON + 2 * HOUR


def test_schedule_edit_before_a_due_time_changes_the_due_time(cast: Cast) -> None:
    make_schedule(cast)
    schedule = make_schedule(cast, cron="30 * * * *", now=NOON + MINUTE)
    assert schedule.next_at == NOON + 30 * MINUTE


def test_project_with_a_failed_schedule_can_be_deleted(cast: Cast) -> None:
    make_schedule(cast)
    Schedule.objects.update(retry_at=NOON + HOUR)
    tenants.delete_project(actor=cast.alice, project=cast.vision)
    assert not Schedule.objects.exists()
