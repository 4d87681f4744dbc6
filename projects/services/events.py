"""Record workload events."""

from typing import Any

from projects.models import Event, Workload


def record(
    kind: str, workload: Workload, message: str, *, actor: str, data: dict[str, Any] | None = None
) -> None:
    """Store one event in the caller's transaction."""
    Event.objects.create(
        kind=kind,
        project_id=workload.project_id,
        workload_id=workload.pk,
        subject=workload.name,
        message=message,
        data=data or {},
        actor=actor,
    )
