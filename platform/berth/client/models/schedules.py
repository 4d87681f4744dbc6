# Generated from the OpenAPI document by `python -m berth.client.generate`; do not edit.
"""Response models for schedules."""

from datetime import datetime

from berth.client.models.base import Model
from berth.client.models.mixins import ScheduleMixin


class Schedule(ScheduleMixin, Model):
    name: str
    project: str = ""
    cron: str = ""
    time_zone: str = ""
    overlap: str = ""
    template: str | None = None
    """None if the schedule has a document of its own."""
    owner: str | None = None
    """User whose permissions the runs use."""
    next_at: datetime | None = None
    """Next due time; None while paused."""
    paused_at: datetime | None = None
    pause_message: str = ""
    changed_by: str = ""
    changed_at: datetime
    version: int = 0


class ScheduleDetail(Schedule):
    text: str | None = None
    """Workload document in YAML; None if a template is named."""
    next_runs: list[datetime] = []
    """The next 5 due times; empty while paused."""


class ScheduleRun(Model):
    id: int
    due_at: datetime
    outcome: str = ""
    message: str = ""
    started_by: str | None = None
    """User who started the run manually; None for scheduled runs."""
    workload: str | None = None
    """Name of the workload or array; None if it was deleted."""
    workload_id: str | None = None
    array_id: str | None = None
    phase: str | None = None
    """Current phase or, for an array, current state."""
