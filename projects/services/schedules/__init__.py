"""Schedules: workloads that are submitted at the times of a cron expression."""

from projects.services.schedules.control import (
    delete_schedule,
    may_change,
    pause_schedule,
    require_change_permission,
    resume_schedule,
    run_now,
    set_schedule,
)
from projects.services.schedules.runs import has_due_runs, submit_due_runs
from projects.services.schedules.values import (
    ScheduleValues,
    check_values,
    next_run_times,
    preview_due_times,
)

__all__ = [
    "ScheduleValues",
    "check_values",
    "delete_schedule",
    "has_due_runs",
    "may_change",
    "next_run_times",
    "pause_schedule",
    "preview_due_times",
    "require_change_permission",
    "resume_schedule",
    "run_now",
    "set_schedule",
    "submit_due_runs",
]
