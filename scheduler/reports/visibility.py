"""Redaction of other projects' workloads.

Each party to an eviction sees the other's project and size, and the numbers of the queue that it competes
with, but no names of the other's workloads.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from berth.core.values.amounts import MILLI
from berth.core.wording.words import format_number, indefinite_article
from projects.access import fully_visible_departments, is_platform_admin, visible_projects
from projects.actor import Actor
from scheduler.engine.explain.reasons import blocker
from scheduler.engine.plan import Blocker

HIDDEN_WORKLOAD = "a workload of another project"


@dataclass(frozen=True, slots=True)
class Viewer:
    """Names, keyed by ID, of the projects whose workloads a user may see, or None for all projects."""

    projects: Mapping[int, str] | None

    def can_see(self, project_id: int | None) -> bool:
        return self.projects is None or project_id in self.projects

    def can_see_project_named(self, project: str) -> bool:
        return self.projects is None or project in self.projects.values()


UNRESTRICTED = Viewer(None)


def viewer_for(actor: Actor) -> Viewer:
    """Return a Viewer with the projects whose workloads the user may see. Makes at most one query."""
    if is_platform_admin(actor):
        return UNRESTRICTED
    return Viewer(dict(visible_projects(actor).values_list("pk", "name")))


def visible_department_ids(actor: Actor) -> set[int] | None:
    """Return the IDs of the departments that the user sees in full, or None for all departments."""
    if is_platform_admin(actor):
        return None
    return set(fully_visible_departments(actor).values_list("pk", flat=True))


def workload_display_name(project: str, workload: str, gpu_milli: int | None, *, is_visible: bool) -> str:
    """Return a name such as "vision/train" or, if hidden, "a 4-GPU workload in project vision"."""
    if is_visible:
        return f"{project}/{workload}"
    if not gpu_milli:
        return f"a workload in project {project}"
    size = format_number(gpu_milli / MILLI)
    return f"{indefinite_article(size)} {size}-GPU workload in project {project}"


def redact_blocker(original: Blocker, handle: str) -> Blocker:
    """Return the blocker without the names of other projects' workloads.

    `handle` is the blocked workload's `project/name`.
    """
    behind = original.numbers.get("behind")
    if behind is None or project_from_handle(str(behind)) == project_from_handle(handle):
        return original
    return blocker(original.reason, {**original.numbers, "behind": HIDDEN_WORKLOAD})


def project_from_handle(handle: str) -> str:
    return handle.partition("/")[0]


def topmost_unshared_queue(numbers: Mapping[str, Any], side: str) -> list[dict[str, Any]]:
    """Return the topmost queue on the path of `side` ("victim" or "preemptor") that is not on the other
    party's path, as a list of at most one queue. It is the only queue on the path that the other party may
    see.
    """
    mine, others = (
        _queue_entries(numbers, name) for name in (side, "preemptor" if side == "victim" else "victim")
    )
    shared = {queue.get("queue") for queue in others}
    own = [queue for queue in mine if queue.get("queue") not in shared]
    return own[-1:]  # queues are listed from the project upward


def _queue_entries(numbers: Mapping[str, Any], side: str) -> list[dict[str, Any]]:
    return [queue for queue in numbers.get(side) or () if isinstance(queue, dict)]
