"""Set, delete, pause, resume and run schedules."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.db import transaction
from django.utils import timezone

from berth.core.errors import Conflict, Forbidden, NotFound
from berth.db.writes.references import check_foreign_keys
from projects.access import Action, may, require
from projects.actor import Actor
from projects.engine.due_times import next_due_time
from projects.models import Project, Schedule, ScheduleRun
from projects.models.schedules import RunOutcome
from projects.services.project_rows import audit_change, check_version, may_change_row, next_version
from projects.services.schedules.runs import delete_old_runs, find_live_run, submit_document
from projects.services.schedules.values import ScheduleValues, check_values, cron_expression, lock_template
from projects.services.workloads.submission_view import SubmissionView

MAX_PER_PROJECT = 100
COLUMNS = ("cron", "time_zone", "overlap", "text", "template")


def set_schedule(
    *,
    actor: Actor,
    project: Project,
    name: str,
    values: ScheduleValues,
    expected_version: int | None = None,
    now: datetime | None = None,
) -> Schedule:
    """Create or change a schedule.

    The user becomes its owner. If `expected_version` is 0, the schedule must not exist yet. A run that is
    already due uses the new values. Raises Invalid, PreconditionFailed, Forbidden, NotFound, or Conflict if
    the project has too many schedules.
    """
    require(actor, Action.SUBMIT, project)
    at = now or timezone.now()
    first = check_values(actor, project, name, values, at)
    with check_foreign_keys(project.name, created="this schedule"):
        rows = Schedule.objects.select_for_update(of=("self",)).select_related("project__department")
        stored = rows.filter(project=project, name=name).first()
        check_version(stored, expected_version, "schedule")
        if stored is None and Schedule.objects.filter(project=project).count() >= MAX_PER_PROJECT:
            raise Conflict(f"{project.name} already has {MAX_PER_PROJECT} schedules. Delete one first.")
        if stored is not None:
            require_change_permission(actor, stored)
        if values.template:
            lock_template(project, values.template)
        before = schedule_values(stored) if stored else None
        schedule = stored or Schedule(project=project, name=name, version=0)
        schedule.cron, schedule.time_zone = cron_expression(values.cron), values.time_zone
        schedule.overlap, schedule.text, schedule.template = values.overlap, values.text, values.template
        schedule.owner = actor.user
        is_due = schedule.next_at is not None and schedule.next_at <= at
        if schedule.paused_at is None and not is_due:
            schedule.next_at = first
        if before != schedule_values(schedule):
            _save_schedule(actor, schedule)
            audit_change(actor, "set_schedule", schedule, before, schedule_values(schedule))
    return schedule


def delete_schedule(*, actor: Actor, schedule: Schedule, expected_version: int | None = None) -> None:
    """Delete a schedule and its run history. Submitted workloads are kept."""
    with transaction.atomic():
        locked = _lock_schedule(actor, schedule)
        check_version(locked, expected_version, "schedule")
        audit_change(actor, "delete_schedule", locked, schedule_values(locked))
        locked.delete()


def pause_schedule(*, actor: Actor, schedule: Schedule, now: datetime | None = None) -> Schedule:
    """Stop a schedule from submitting runs, and skip its queued run. Submitted runs are not affected.
    Idempotent.
    """
    with transaction.atomic():
        locked = _lock_schedule(actor, schedule)
        if locked.paused_at is None:
            locked.paused_at, locked.next_at = now or timezone.now(), None
            locked.pause_message = f"Paused by {actor.name}."
            locked.runs.filter(outcome=RunOutcome.QUEUED).update(
                outcome=RunOutcome.SKIPPED, message="The schedule was paused."
            )
            _save_schedule(actor, locked)
            audit_change(actor, "pause_schedule", locked)
    return locked


def resume_schedule(*, actor: Actor, schedule: Schedule, now: datetime | None = None) -> Schedule:
    """Resume a schedule from its next due time.

    Idempotent. Raises Conflict if the owner may not submit to the project.
    """
    with transaction.atomic():
        locked = _lock_schedule(actor, schedule)
        if locked.paused_at is not None:
            owner = locked.owner
            if owner is None or not may(Actor.for_user(owner), Action.SUBMIT, locked.project):
                name = "The owner" if owner is None else owner.get_username()
                project = locked.project.name
                raise Conflict(f"{name} may not submit to {project}. Edit the schedule to become its owner.")
            locked.paused_at, locked.pause_message = None, ""
            locked.next_at = next_due_time(locked.cron, ZoneInfo(locked.time_zone), now or timezone.now())
            _save_schedule(actor, locked)
            audit_change(actor, "resume_schedule", locked)
    return locked


def run_now(*, actor: Actor, schedule: Schedule, now: datetime | None = None) -> ScheduleRun:
    """Submit a run with the user's permissions, even if the schedule is paused.

    Raises the same errors as a submission, and Conflict while the previous run has not ended.
    """
    require(actor, Action.SUBMIT, schedule.project)
    with transaction.atomic():
        # A submission locks the project. To avoid deadlocks, lock the project before the schedule.
        SubmissionView(actor, locks=True).load_projects([schedule.project.name])
        rows = Schedule.objects.select_for_update(of=("self",)).select_related("project__department")
        locked = rows.filter(pk=schedule.pk).first()
        if locked is None:
            raise NotFound("This schedule has been deleted.")
        live = find_live_run(locked)
        if live is not None:
            raise Conflict(f"The previous run has not ended. Cancel {live} first, or wait until it ends.")
        run = ScheduleRun(schedule=locked, due_at=now or timezone.now(), started_by=actor.name)
        run.outcome = RunOutcome.SUBMITTED
        submit_document(locked, run, actor, run.due_at)
        run.save(force_insert=True)
        delete_old_runs(locked)
        audit_change(actor, "run_schedule", locked)
    return run


def may_change(actor: Actor, schedule: Schedule) -> bool:
    """Return whether the user is a project admin, or the owner with permission to submit to the project."""
    return may_change_row(actor, schedule.project, schedule.owner_id)


def require_change_permission(actor: Actor, schedule: Schedule) -> None:
    require(actor, Action.VIEW, schedule.project)
    if not may_change(actor, schedule):
        raise Forbidden(
            "Only the owner of this schedule and admins of its project may change it. Ask one of them."
        )


def schedule_values(schedule: Schedule) -> dict[str, Any]:
    owner = schedule.owner.get_username() if schedule.owner else None
    return {**{name: getattr(schedule, name) for name in COLUMNS}, "owner": owner}


def _lock_schedule(actor: Actor, schedule: Schedule) -> Schedule:
    """Return the locked schedule. Raises NotFound, or Forbidden if the user may not change the schedule."""
    rows = Schedule.objects.select_for_update(of=("self",)).select_related("project__department", "owner")
    locked = rows.filter(pk=schedule.pk).first()
    if locked is None:
        raise NotFound("This schedule has been deleted.")
    require_change_permission(actor, locked)
    return locked


def _save_schedule(actor: Actor, schedule: Schedule) -> None:
    schedule.version = next_version(schedule.version)
    schedule.changed_by, schedule.retry_at = actor.name, None
    schedule.save()
