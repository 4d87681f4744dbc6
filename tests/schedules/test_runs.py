"""Tests for the runs of schedules, which the services process submits."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection

from berth.core.errors import Conflict, Invalid
from berth.core.problems import Problem
from berth.core.wording.problem_sentences import describe_problem
from berth.db.loops import lease
from projects.elastic.rounds import ServiceLoop
from projects.models import (
    Audit,
    Delivery,
    Membership,
    Phase,
    Schedule,
    ScheduleRun,
    Subscription,
    Template,
    Workload,
)
from projects.services import schedules, tenants, workloads
from projects.services.schedules import ScheduleValues, submit_due_runs
from projects.services.workloads.templates import set_template
from tests.cast import Cast
from tests.fakes.clock import FixedClock
from tests.schedules.schedule_rows import HOUR, NOON, TEXT, end_all, make_schedule, outcomes
from tests.support.crashes import killed_at

ARRAY = f"{TEXT}array: {{tasks: 2}}\n"


def test_run_is_submitted_at_its_due_time_for_the_owner(cast: Cast) -> None:
    schedule = make_schedule(cast)
    assert schedule.next_at == NOON + HOUR
    assert submit_due_runs(NOON + HOUR - timedelta(seconds=1)) == 0
    assert submit_due_runs(NOON + HOUR) == 1
    assert submit_due_runs(NOON + HOUR) == 0
    (run,) = schedule.runs.all()
    workload = Workload.objects.get()
    assert (run.due_at, run.outcome, run.workload) == (NOON + HOUR, "submitted", workload)
    assert (workload.name, workload.submitted_by) == ("nightly", cast.dave.user)
    assert Audit.objects.filter(action="submit", object_name="nightly", actor="dave").exists()
    schedule.refresh_from_db()
    assert schedule.next_at == NOON + 2 * HOUR


def test_array_is_submitted_with_all_of_its_tasks(cast: Cast) -> None:
    schedule = make_schedule(cast, text=ARRAY)
    assert submit_due_runs(NOON + HOUR) == 1
    run = schedule.runs.get()
    assert run.array is not None
    assert run.array.tasks.count() == 2
    submit_due_runs(NOON + 2 * HOUR)
    assert outcomes(schedule) == ["submitted", "skipped"]


def test_template_is_read_when_the_run_is_due(cast: Cast) -> None:
    set_template(actor=cast.dave, project=cast.vision, name="train", text=TEXT)
    schedule = make_schedule(cast, text="", template="train")
    set_template(actor=cast.dave, project=cast.vision, name="train", text=TEXT.replace("train.py", "new.py"))
    submit_due_runs(NOON + HOUR)
    workload = schedule.runs.get().workload
    assert workload is not None
    assert (workload.name, workload.spec["command"]) == ("nightly", "python new.py")


@pytest.mark.parametrize("point", ["schedule.processed", "schedule.done"])
def test_each_due_run_is_submitted_once_despite_a_killed_process(cast: Cast, point: str) -> None:
    schedule = make_schedule(cast)

    with killed_at(point):
        submit_due_runs(NOON + HOUR)
    assert Workload.objects.count() == (point == "schedule.done")
    submit_due_runs(NOON + HOUR)
    submit_due_runs(NOON + HOUR)
    assert outcomes(schedule) == ["submitted"]
    assert Workload.objects.count() == 1


def test_two_processes_submit_a_due_run_only_once(cast: Cast) -> None:
    schedule = make_schedule(cast)
    start = threading.Barrier(4)

    def process() -> int:
        try:
            start.wait()
            return submit_due_runs(NOON + HOUR)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        submitted = [future.result() for future in [threads.submit(process) for _ in range(4)]]
    assert sum(submitted) == 1
    assert outcomes(schedule) == ["submitted"]


def test_only_the_latest_missed_run_is_submitted(cast: Cast) -> None:
    schedule = make_schedule(cast)
    assert submit_due_runs(NOON + 30 * HOUR + timedelta(minutes=20)) == 1
    (run,) = schedule.runs.all()
    assert run.due_at == NOON + 30 * HOUR
    assert run.message == "Earlier due times passed without a run."
    schedule.refresh_from_db()
    assert schedule.next_at == NOON + 31 * HOUR


def test_skip_policy_omits_the_run_while_the_previous_run_is_live(cast: Cast) -> None:
    schedule = make_schedule(cast)
    for hours in (1, 2):
        submit_due_runs(NOON + hours * HOUR)
    assert outcomes(schedule) == ["submitted", "skipped"]
    assert schedule.runs.latest("due_at").message == "The previous run, nightly, had not ended."
    end_all()
    submit_due_runs(NOON + 3 * HOUR)
    assert outcomes(schedule) == ["submitted", "skipped", "submitted"]


def test_queue_policy_submits_one_run_after_the_previous_run(cast: Cast) -> None:
    schedule = make_schedule(cast, overlap="queue")
    for hours in (1, 2, 3):
        submit_due_runs(NOON + hours * HOUR)
    assert outcomes(schedule) == ["submitted", "queued", "skipped"]
    end_all()
    assert submit_due_runs(NOON + 3 * HOUR + timedelta(minutes=5)) == 1
    assert outcomes(schedule) == ["submitted", "submitted", "skipped"]
    assert Workload.objects.exclude(phase=Phase.CANCELLED).count() == 1


def test_replace_policy_cancels_the_previous_run(cast: Cast) -> None:
    schedule = make_schedule(cast, overlap="replace")
    submit_due_runs(NOON + HOUR)
    first = Workload.objects.get()
    submit_due_runs(NOON + 2 * HOUR)
    first.refresh_from_db()
    assert (first.phase, outcomes(schedule)) == (Phase.CANCELLED, ["submitted", "queued"])
    assert submit_due_runs(NOON + 2 * HOUR + timedelta(seconds=5)) == 1
    assert outcomes(schedule) == ["submitted", "submitted"]
    assert Workload.objects.filter(phase=Phase.PENDING).count() == 1


def test_schedule_is_paused_if_its_owner_loses_the_role(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "BERTH_SENDS_MAIL", True)
    Subscription.objects.create(
        project=cast.vision, to="team@example.org", channel="mail", events=["schedule"]
    )
    schedule = make_schedule(cast)
    Membership.objects.filter(user=cast.dave.user).delete()
    assert submit_due_runs(NOON + HOUR) == 0
    schedule.refresh_from_db()
    assert (schedule.paused_at, schedule.next_at) == (NOON + HOUR, None)
    assert schedule.pause_message == "dave may no longer submit to vision."
    assert Workload.objects.count() == 0
    deliveries = Delivery.objects.order_by("to")
    assert [row.to for row in deliveries] == ["dave@example.org", "team@example.org"]
    assert deliveries[0].content["message"] == "The schedule is paused: dave may no longer submit to vision."
    with pytest.raises(Conflict, match="Edit the schedule to become its owner"):
        schedules.resume_schedule(actor=cast.carol, schedule=schedule)
    values = ScheduleValues("0 * * * *", text=TEXT)
    schedules.set_schedule(actor=cast.carol, project=cast.vision, name="nightly", values=values, now=NOON)
    resumed = schedules.resume_schedule(actor=cast.carol, schedule=schedule, now=NOON + 5 * HOUR)
    assert resumed.next_at == NOON + 6 * HOUR
    assert submit_due_runs(NOON + 6 * HOUR) == 1
    assert Workload.objects.get().submitted_by == cast.carol.user


def test_schedule_of_a_deleted_user_is_paused(cast: Cast) -> None:
    schedule = make_schedule(cast)
    assert cast.dave.user is not None
    cast.dave.user.delete()
    submit_due_runs(NOON + HOUR)
    schedule.refresh_from_db()
    assert schedule.pause_message == "The owner may no longer submit to vision."


def test_rejected_run_is_recorded_with_its_reason_and_the_schedule_continues(cast: Cast) -> None:
    Subscription.objects.create(
        project=cast.vision, to="team@example.org", channel="mail", events=["schedule"]
    )
    set_template(actor=cast.dave, project=cast.vision, name="train", text=TEXT)
    schedule = make_schedule(cast, text="", template="train")
    Template.objects.all().delete()
    assert submit_due_runs(NOON + HOUR) == 0
    run = schedule.runs.get()
    assert run.outcome == "rejected"
    assert run.message.startswith("Template 'train' does not exist.")
    assert (
        Delivery.objects.get().content["message"].startswith("The run of 2026-06-01 13:00 UTC was rejected:")
    )
    set_template(actor=cast.dave, project=cast.vision, name="train", text=TEXT)
    assert submit_due_runs(NOON + 2 * HOUR) == 1


def test_rejection_reason_names_objects_in_words_rather_than_paths(cast: Cast) -> None:
    text = "command: x\npools: [night]\nroles: [{gpu: 1}]\n"
    set_template(actor=cast.dave, project=cast.vision, name="train", text=TEXT)
    schedule = make_schedule(cast, text="", template="train")
    Template.objects.update(text=text)
    submit_due_runs(NOON + HOUR)
    assert schedule.runs.get().message == f"Node pool 'night' does not exist. Allowed: {cast.pool.name}."


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        (
            Problem("roles[0].gpu", "is not a whole number", "1.5", "0 to 64"),
            "GPUs of role 1 is not a whole number (received 1.5). Allowed: 0 to 64.",
        ),
        (Problem("pool", "does not exist", "'trian'", "Did you mean `train`?"),
         "Pool 'trian' does not exist. Did you mean `train`?"),
        (Problem("", "not a mapping"), "The document: not a mapping."),
    ],
)  # fmt: skip
def test_reasons_for_rejected_runs_are_complete_sentences(problem: Problem, sentence: str) -> None:
    assert describe_problem(problem) == sentence


def test_scheduled_run_with_a_name_in_use_is_rejected(cast: Cast) -> None:
    schedule = make_schedule(cast)
    document = {"name": "nightly", "command": "true", "roles": [{"gpu": 1}]}
    workloads.submit(actor=cast.dave, project=cast.vision, document=document)
    submit_due_runs(NOON + HOUR)
    run = schedule.runs.get()
    assert run.outcome == "rejected"
    assert "already has a live workload named nightly" in run.message


def test_paused_schedule_submits_no_runs_and_does_not_catch_up(cast: Cast) -> None:
    schedule = make_schedule(cast, overlap="queue")
    submit_due_runs(NOON + HOUR)
    submit_due_runs(NOON + 2 * HOUR)
    schedules.pause_schedule(actor=cast.dave, schedule=schedule, now=NOON + 2 * HOUR)
    assert outcomes(schedule) == ["submitted", "skipped"]
    end_all()
    assert submit_due_runs(NOON + 9 * HOUR) == 0
    schedules.resume_schedule(actor=cast.dave, schedule=schedule, now=NOON + 9 * HOUR)
    assert submit_due_runs(NOON + 9 * HOUR) == 0
    assert submit_due_runs(NOON + 10 * HOUR) == 1


def test_deleting_a_project_deletes_its_schedules(cast: Cast) -> None:
    make_schedule(cast)
    tenants.delete_project(actor=cast.alice, project=cast.vision)
    assert not Schedule.objects.exists()
    assert submit_due_runs(NOON + HOUR) == 0


def test_schedule_history_keeps_the_newest_runs(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("projects.services.schedules.runs.RUNS_KEPT", 3)
    schedule = make_schedule(cast)
    for hours in range(1, 6):
        submit_due_runs(NOON + hours * HOUR)
        end_all()
    assert [run.due_at for run in schedule.runs.order_by("due_at")] == [NOON + h * HOUR for h in (3, 4, 5)]


def test_broken_schedule_does_not_stop_other_schedules(cast: Cast) -> None:
    broken = make_schedule(cast, "broken")
    Schedule.objects.filter(pk=broken.pk).update(time_zone="Nowhere/Else")
    make_schedule(cast)
    assert submit_due_runs(NOON + HOUR) == 1
    assert Workload.objects.get().name == "nightly"


def test_number_of_schedules_is_limited(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("projects.services.schedules.control.MAX_PER_PROJECT", 2)
    for name in ("a", "b"):
        make_schedule(cast, name)
    with pytest.raises(Conflict, match="already has 2 schedules"):
        make_schedule(cast, "c")


def test_schedule_with_a_deadline_in_its_document_is_rejected(cast: Cast) -> None:
    with pytest.raises(Invalid, match=r"document\.deadline: cannot be scheduled"):
        make_schedule(cast, text=f"{TEXT}deadline: 2030-01-01T00:00:00Z\n")


def test_services_process_submits_due_runs(cast: Cast) -> None:
    clock = FixedClock(NOON)
    schedule = make_schedule(cast)
    held = lease.acquire("services", "first", 60)
    context: Any = None
    loop = ServiceLoop(
        clock=clock, build_reconcile_context=lambda fence: context, held=held, _renewed=time.monotonic()
    )
    for _ in range(3):
        with ThreadPoolExecutor(1) as loop._threads:
            loop.step("tick")
        clock.advance(2400)
    assert outcomes(schedule) == ["submitted"]
    assert ScheduleRun.objects.get().due_at == NOON + HOUR
