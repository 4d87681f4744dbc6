"""Warn about workloads that quotas or limits prevent from starting."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from berth.core.values.amounts import RESOURCES, Amounts, Bounds

RESOURCE_NAMES = {"gpu": "GPUs", "cpu": "CPU", "memory_mib": "memory"}


@dataclass(frozen=True, slots=True)
class Allowance:
    """Quota and limit of a project or department."""

    owner: str
    quota: Bounds
    limit: Bounds


def oversubscribed_resources(
    department: Allowance, projects: Iterable[Allowance]
) -> dict[str, tuple[int, int]]:
    """Return (total of project quotas, department quota) for each oversubscribed resource."""
    projects = tuple(projects)
    totals: dict[str, tuple[int, int]] = {}
    for index, resource in enumerate(RESOURCES):
        department_quota = department.quota[index]
        if department_quota is None:
            continue
        total = sum(quota for p in projects if (quota := p.quota[index]) is not None)
        if total > department_quota:
            totals[resource] = (total, department_quota)
    return totals


def submission_warnings(
    requested: Amounts, preemptible: bool, path: Sequence[Allowance], is_department_oversold: bool
) -> list[str]:
    """Return warnings about limits and quotas for the submitter.

    `path` contains the project's allowance, followed by its department's.
    """
    warnings: list[str] = []
    for allowance in path:
        for resource in allowance.limit.exceeded_resources(requested):
            warnings.append(
                f"The workload requests more {RESOURCE_NAMES[resource]} than the limit of {allowance.owner}, "
                "so it cannot start as specified."
            )
        if not preemptible:
            for resource in allowance.quota.exceeded_resources(requested):
                warnings.append(
                    f"The workload is non-preemptible and requests more {RESOURCE_NAMES[resource]} than "
                    f"the quota of {allowance.owner}, so it cannot start until the quota is raised."
                )
    if is_department_oversold and not preemptible:
        warnings.append(
            "The quotas of the department's projects add up to more than the department's own quota: "
            "non-preemptible workloads may stay pending although the project is within its quota."
        )
    return warnings
