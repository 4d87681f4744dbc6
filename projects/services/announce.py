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
    for workload in workloads:
        signals.workload_changed.send_robust(
            sender=Workload,
            workload_id=workload.pk,
            project_id=workload.project_id,
            department_id=workload.project.department_id,
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
