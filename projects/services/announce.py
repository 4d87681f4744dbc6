"""Send change signals after the transaction commits."""

from collections.abc import Sequence
from functools import partial

from django.db import transaction

from projects import signals
from projects.models import Workload


def workload_changed(workload: Workload) -> None:
    workloads_changed([workload])


def workloads_changed(workloads: Sequence[Workload]) -> None:
    transaction.on_commit(lambda: _send_workload_changes(workloads), robust=True)


def _send_workload_changes(workloads: Sequence[Workload]) -> None:
    """Send one signal for each project with changed workloads."""
    by_project: dict[int, list[Workload]] = {}
    for workload in workloads:
        by_project.setdefault(workload.project_id, []).append(workload)
    for project_id, changed in by_project.items():
        signals.workloads_changed.send_robust(
            sender=Workload,
            workload_ids=[workload.pk for workload in changed],
            project_id=project_id,
            department_id=changed[0].project.department_id,
        )


def tenants_changed(*, department_id: int | None = None, project_id: int | None = None) -> None:
    transaction.on_commit(
        partial(
            signals.tenants_changed.send_robust,
            sender=None,
            department_id=department_id,
            project_id=project_id,
        ),
        robust=True,
    )
