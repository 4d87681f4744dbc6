"""Build eviction audit rows from the rows of the evicted workloads."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from projects.models import Workload
from scheduler.models import Eviction


def eviction_row(
    workload: Workload, pool_id: int, pool_name: str, *, at: datetime, kind: str, rule: str,
    pods: Iterable[tuple[str, int]], preemptor: Workload | None = None, **columns: Any,
) -> Eviction:  # fmt: skip
    """Return an unsaved audit row for an evicted workload.

    `pods` contains the role and index of each evicted pod.
    """
    project = workload.project
    row = Eviction(
        at=at,
        kind=kind,
        pool_id=pool_id,
        pool_name=pool_name,
        workload_id=workload.pk,
        workload_name=workload.name,
        project_id=project.pk,
        project_name=project.name,
        department_id=project.department_id,
        department_name=project.department.name,
        rule=rule,
        pods=[{"role": role, "index": index} for role, index in pods],
        **columns,
    )
    if preemptor is not None:
        row.preemptor_id = preemptor.pk
        row.preemptor_name = preemptor.name
        row.preemptor_project_id = preemptor.project_id
        row.preemptor_project_name = preemptor.project.name
    return row
