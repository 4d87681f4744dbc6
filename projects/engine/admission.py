"""Warnings about requests that can hardly be satisfied."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from berth.core.amounts import RESOURCES, Amounts, Bounds

SPOKEN = {"gpu": "GPUs", "cpu": "CPU", "memory_mib": "memory"}


@dataclass(frozen=True, slots=True)
class Held:
    """A quota and a limit by their owner."""

    owner: str
    quota: Bounds
    limit: Bounds


def oversold(department: Held, projects: Iterable[Held]) -> dict[str, tuple[int, int]]:
    """Resources of which the projects' quotas add up to more than the department's: (sum, quota)."""
    projects = tuple(projects)
    found: dict[str, tuple[int, int]] = {}
    for i, resource in enumerate(RESOURCES):
        bound = department.quota[i]
        if bound is None:
            continue
        total = sum(quota for p in projects if (quota := p.quota[i]) is not None)
        if total > bound:
            found[resource] = (total, bound)
    return found


def submission_warnings(
    asked: Amounts, preemptible: bool, path: Sequence[Held], department_oversold: bool
) -> list[str]:
    """Sentences for the person who submits; `path` is project, then department."""
    said: list[str] = []
    for held in path:
        for resource in held.limit.exceeded_by(asked):
            said.append(
                f"It requests more {SPOKEN[resource]} than the limit of {held.owner}. "
                "It cannot start as specified."
            )
        if not preemptible:
            for resource in held.quota.exceeded_by(asked):
                said.append(
                    f"It is non-preemptible and requests more {SPOKEN[resource]} than the quota of "
                    f"{held.owner}. It cannot start before the quota is raised."
                )
    if department_oversold and not preemptible:
        said.append(
            "The quotas of the department's projects add up to more than the department's own: "
            "non-preemptible work may have to wait although the project is within its quota."
        )
    return said
