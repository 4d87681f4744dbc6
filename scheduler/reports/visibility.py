"""Redaction of other projects' workloads.

A user who sees a project sees its workloads by name. Each party to an eviction sees the other party's project
and size, and the numbers of the queues where the two paths diverge. This is enough to judge the decision, but
reveals neither names of other tenants' workloads nor their internal structure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from berth.core.amounts import MILLI
from berth.core.words import article, figure
from projects.access import is_platform_admin, visible_projects, whole_departments
from projects.acting import Acting
from scheduler.engine.explain.reasons import blocker
from scheduler.engine.plan import Blocker

ANOTHERS = "a workload of another project"


@dataclass(frozen=True, slots=True)
class Reader:
    """The projects whose workloads a user may see, by id and name. None means all projects."""

    projects: Mapping[int, str] | None

    def sees(self, project_id: int | None) -> bool:
        return self.projects is None or project_id in self.projects

    def sees_named(self, project: str) -> bool:
        return self.projects is None or project in self.projects.values()


EVERYTHING = Reader(None)


def reader(acting: Acting) -> Reader:
    """Return the reader for a user, with a single query."""
    if is_platform_admin(acting):
        return EVERYTHING
    return Reader(dict(visible_projects(acting).values_list("pk", "name")))


def own_departments(acting: Acting) -> set[int] | None:
    """Return the ids of departments whose own standing the user may see, or None for all."""
    if is_platform_admin(acting):
        return None
    return set(whole_departments(acting).values_list("pk", flat=True))


def called(project: str, workload: str, gpu_milli: int | None, *, seen: bool) -> str:
    """Return a name such as "vision/train", or, if hidden, "a 4-GPU workload of project vision"."""
    if seen:
        return f"{project}/{workload}"
    if not gpu_milli:
        return f"a workload of project {project}"
    size = figure(gpu_milli / MILLI)
    return f"{article(size)} {size}-GPU workload of project {project}"


def redacted(original: Blocker, handle: str) -> Blocker:
    """Return the blocker as users of the workload's project may read it. Handles are `project/name`."""
    behind = original.numbers.get("behind")
    if behind is None or project_of(str(behind)) == project_of(handle):
        return original
    return blocker(original.reason, {**original.numbers, "behind": ANOTHERS})


def project_of(handle: str) -> str:
    return handle.partition("/")[0]


def diverging_queue(numbers: Mapping[str, Any], side: str) -> list[dict[str, Any]]:
    """Return one side's queue at which the two paths diverge, the only queue that the other side may see."""
    mine, others = (_queues(numbers, name) for name in (side, "preemptor" if side == "victim" else "victim"))
    shared = {queue.get("queue") for queue in others}
    own = [queue for queue in mine if queue.get("queue") not in shared]
    return own[-1:]  # queues are listed from the project upwards


def _queues(numbers: Mapping[str, Any], side: str) -> list[dict[str, Any]]:
    return [queue for queue in numbers.get(side) or () if isinstance(queue, dict)]
