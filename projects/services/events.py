"""Record workload events."""

from collections.abc import Iterable
from typing import Any

from berth.db.writes.bulk_rows import insert_rows
from berth.db.writes.new_rows import new_row
from projects.models import Event, Workload


def record(
    kind: str, workload: Workload, message: str, *, actor: str, data: dict[str, Any] | None = None
) -> None:
    """Store one event in the caller's transaction."""
    build(kind, workload, message, actor=actor, data=data).save(force_insert=True)


def build(
    kind: str, workload: Workload, message: str, *, actor: str, data: dict[str, Any] | None = None
) -> Event:
    """Return an unsaved event."""
    return new_row(
        Event,
        kind=kind,
        project_id=workload.project_id,
        workload_id=workload.pk,
        subject=workload.name,
        message=message,
        data=data or {},
        actor=actor,
    )


def record_all(new_events: Iterable[Event]) -> None:
    """Store events in the caller's transaction, in one query."""
    insert_rows([*new_events])
