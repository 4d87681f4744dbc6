"""Submit the due runs of schedules.

Each run is stored in one transaction with its workload and the next due time, so it is submitted exactly
once. If several due times have passed, only the latest run is submitted.
"""

import logging
import time
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Window
from django.db.models.functions import Greatest, RowNumber

from berth.core.errors import BerthError, Conflict, Invalid, NotFound
from berth.core.problems import Problem
from berth.core.wording.problem_sentences import describe_error
from berth.db.loops.crash_points import crash_point
from projects.access import Action, may
from projects.actor import Actor
from projects.engine.due_times import latest_due_time, next_due_time
from projects.models import ArrayState, Schedule, ScheduleRun, Workload, WorkloadArray
from projects.models.schedules import Overlap, RunOutcome
from projects.models.workloads import LIVE_PHASES
from projects.services import announce, arrays, workloads
from projects.services.notifications.notify import notify_about_schedule
from projects.services.schedules.values import parse_schedulable_document, schedule_document
from projects.services.workloads.submission_view import SubmissionView

log = logging.getLogger(__name__)

BERTH = Actor.system("schedules")
RUNS_KEPT = 100  # number of runs kept per schedule
SCHEDULES_PER_PASS = 1000
PASS_SECONDS = 10.0  # maximum duration of a pass; the next pass processes the remaining schedules
RETRY_AFTER = timedelta(minutes=5)  # delay before a schedule that could not be processed is retried
IS_LIVE = Q(workload__phase__in=LIVE_PHASES) | Q(array__state=ArrayState.ACTIVE)


def has_due_runs(now: datetime) -> bool:
    """Return whether any run is due or queued for submission. This takes one cheap query."""
    return _due_schedules(now).exists()


def submit_due_runs(now: datetime) -> int:
    """Submit runs that are due or queued.

    Return the number of submitted runs. Projects take turns, and a failing schedule does not delay other
    schedules.
    """
    since = Greatest("next_at", "retry_at")
    turn = Window(RowNumber(), partition_by=F("project"), order_by=[since.asc(), F("pk").asc()])
    due = _due_schedules(now).annotate(since=since, turn=turn).order_by("turn", "since", "pk")
    deadline = time.monotonic() + PASS_SECONDS
    submitted = 0
    for pk, project in list(due.values_list("pk", "project__name")[:SCHEDULES_PER_PASS]):
        try:
            submitted += _process_schedule(pk, project, now)
        except Exception:
            log.exception("the schedule %s could not be processed", pk)
            Schedule.objects.filter(pk=pk).update(retry_at=now + RETRY_AFTER)
        if time.monotonic() > deadline:
            break
    return submitted


def _due_schedules(now: datetime) -> QuerySet[Schedule]:
    """Return schedules with a due run, or with a queued run whose previous run has ended."""
    runs = ScheduleRun.objects.filter(schedule=OuterRef("pk"))
    is_ready = Exists(runs.filter(outcome=RunOutcome.QUEUED)) & ~Exists(runs.filter(IS_LIVE))
    rows = Schedule.objects.filter(Q(retry_at=None) | Q(retry_at__lte=now))
    return rows.filter(Q(next_at__lte=now) | Q(paused_at=None) & is_ready)


def find_live_run(schedule: Schedule) -> Workload | WorkloadArray | None:
    """Return the workload or array of the schedule's live run, or None if no run is live."""
    run = schedule.runs.filter(IS_LIVE).select_related("workload__project", "array__project").first()
    return None if run is None else run.workload or run.array


def submit_document(schedule: Schedule, run: ScheduleRun, actor: Actor, now: datetime) -> None:
    """Submit the schedule's document for a run. Raises the same errors as a submission."""
    document = schedule_document(schedule)
    spec = parse_schedulable_document(document)
    if schedule.template and spec.uses_personal_secrets:
        allowed = "a project or pool secret, because others can change the template"
        raise Invalid([Problem("secrets", "cannot be personal in a template", "", allowed)])
    if document.get("array") is not None:
        run.array = arrays.submit(actor=actor, document=document, now=now).array
    else:
        run.workload = workloads.submit(actor=actor, document=document, project=schedule.project, now=now)


def _process_schedule(pk: int, project: str, now: datetime) -> int:
    """Process one schedule in a transaction. Return the number of submitted runs."""
    with transaction.atomic():
        # A submission locks the project. To avoid deadlocks, lock the project before the schedule.
        SubmissionView(BERTH, locks=True).load_projects([project])
        rows = Schedule.objects.select_for_update(of=("self",), skip_locked=True)
        rows = rows.select_related("project__department", "owner")
        schedule = rows.filter(pk=pk, paused_at=None).first()
        if schedule is None:
            return 0
        owner = schedule.owner
        if owner is None or not may(Actor.for_user(owner), Action.SUBMIT, schedule.project):
            _pause_schedule(schedule, now)
            return 0
        next_at = schedule.next_at
        runs = [run for run in (_submit_queued_run(schedule, now), _submit_due_run(schedule, now)) if run]
        if schedule.retry_at is not None:
            Schedule.objects.filter(pk=pk).update(retry_at=None)
        if runs or schedule.next_at != next_at:
            announce.tenants_changed(project_id=schedule.project_id)
        crash_point("schedule.processed")
    crash_point("schedule.done")
    return sum(run.outcome == RunOutcome.SUBMITTED for run in runs)


def _submit_queued_run(schedule: Schedule, now: datetime) -> ScheduleRun | None:
    run = schedule.runs.filter(outcome=RunOutcome.QUEUED).first()
    if run is None or find_live_run(schedule) is not None:
        return None
    _submit_run(schedule, run, now)
    run.save()
    return run


def _submit_due_run(schedule: Schedule, now: datetime) -> ScheduleRun | None:
    """Submit, queue or skip the run for the latest due time. Return the run, or None if none is due."""
    if schedule.next_at is None or schedule.next_at > now:
        return None
    zone = ZoneInfo(schedule.time_zone)
    due = latest_due_time(schedule.cron, zone, schedule.next_at, now)
    run = ScheduleRun(schedule=schedule, due_at=due, outcome=RunOutcome.SUBMITTED)
    if due > schedule.next_at:
        run.message = "Earlier due times passed without a run."
    _save_next_due_time(schedule, next_due_time(schedule.cron, zone, now), now)
    if schedule.runs.filter(due_at=due).exists():
        return None
    live = find_live_run(schedule)
    if live is None:
        _submit_run(schedule, run, now)
    elif schedule.overlap == Overlap.SKIP:
        run.outcome, run.message = RunOutcome.SKIPPED, f"The previous run, {live}, had not ended."
    elif schedule.runs.filter(outcome=RunOutcome.QUEUED).exists():
        run.outcome, run.message = RunOutcome.SKIPPED, "Another run was queued already."
    else:
        run.outcome, run.message = RunOutcome.QUEUED, f"Waiting for the previous run, {live}, to end."
        if schedule.overlap == Overlap.REPLACE:
            _cancel_live_run(live, now)
    run.save(force_insert=True)
    delete_old_runs(schedule)
    return run


def _submit_run(schedule: Schedule, run: ScheduleRun, now: datetime) -> None:
    """Submit the run with the owner's permissions. If it is rejected, notify the owner."""
    assert schedule.owner is not None
    if run.outcome == RunOutcome.QUEUED:
        run.message = ""
    run.outcome, run.decided_at = RunOutcome.SUBMITTED, now
    try:
        with transaction.atomic():
            submit_document(schedule, run, Actor.for_user(schedule.owner), now)
    except BerthError as error:
        run.outcome, run.workload, run.array = RunOutcome.REJECTED, None, None
        run.message = describe_error(error)
        message = f"The run of {run.due_at:%Y-%m-%d %H:%M} UTC was rejected: {run.message}"
        notify_about_schedule(schedule, message, now)


def _cancel_live_run(live: Workload | WorkloadArray, now: datetime) -> None:
    """Cancel a workload or array. If that fails, only write a log message."""
    try:
        if isinstance(live, WorkloadArray):
            arrays.cancel(actor=BERTH, array=live, now=now)
        else:
            workloads.cancel(actor=BERTH, workload=live, now=now)
    except (Conflict, NotFound) as error:
        log.info("%s was not cancelled: %s", live, error)


def _pause_schedule(schedule: Schedule, now: datetime) -> None:
    name = "The owner" if schedule.owner is None else schedule.owner.get_username()
    message = f"{name} may no longer submit to {schedule.project.name}."
    _save_next_due_time(schedule, None, now, message)
    schedule.runs.filter(outcome=RunOutcome.QUEUED).update(outcome=RunOutcome.SKIPPED, message=message)
    notify_about_schedule(schedule, f"The schedule is paused: {message}", now)
    announce.tenants_changed(project_id=schedule.project_id)


def _save_next_due_time(
    schedule: Schedule,
    next_at: datetime | None,
    now: datetime,
    message: str = "The schedule never fires again.",
) -> None:
    """Store the next due time, or pause the schedule if there is none."""
    schedule.next_at = next_at
    if next_at is None:
        schedule.paused_at, schedule.pause_message = now, message
    schedule.save(update_fields=["next_at", "paused_at", "pause_message"])


def delete_old_runs(schedule: Schedule) -> None:
    """Delete all but the newest runs. Keep live and queued runs, because later runs depend on them."""
    newest = schedule.runs.order_by("-due_at", "-id").values_list("pk", flat=True)[:RUNS_KEPT]
    old = schedule.runs.exclude(pk__in=list(newest)).exclude(outcome=RunOutcome.QUEUED)
    old.exclude(IS_LIVE).delete()
