"""Create schedules and their runs for tests."""

from datetime import UTC, datetime, timedelta
from typing import Any

from projects.models import ArrayState, Phase, Project, Schedule, Workload, WorkloadArray
from projects.services import schedules
from projects.services.schedules import ScheduleValues
from tests.cast import Cast

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
TEXT = "command: python train.py\nroles: [{gpu: 1}]\n"


def make_schedule(
    cast: Cast,
    name: str = "nightly",
    project: Project | None = None,
    now: datetime = NOON,
    **changes: Any,
) -> Schedule:
    """Create or change a schedule, by default an hourly schedule in project vision."""
    values = ScheduleValues(**{"cron": "0 * * * *", "text": TEXT, **changes})
    actor = cast.dave if project is None else cast.alice
    return schedules.set_schedule(
        actor=actor, project=project or cast.vision, name=name, values=values, now=now
    )


def outcomes(schedule: Schedule) -> list[str]:
    return [run.outcome for run in schedule.runs.order_by("due_at")]


def end_all(phase: str = Phase.CANCELLED) -> None:
    Workload.objects.update(phase=phase, ended_at=NOON)
    WorkloadArray.objects.update(state=ArrayState.CANCELLED, ended_at=NOON)
