"""What a reader may learn about other projects' workloads.

Whoever sees a project sees its workloads by name. The other party to an eviction is told to everybody
concerned by its project, its size, and the numbers of the queues where the two paths part: enough to
judge whether it was right, and nothing about what strangers call their work or how they are organised.
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
    """Whose eyes these are: the projects whose work they may see, by id and name; None is all."""

    projects: Mapping[int, str] | None

    def sees(self, project_id: int | None) -> bool:
        return self.projects is None or project_id in self.projects

    def sees_named(self, project: str) -> bool:
        return self.projects is None or project in self.projects.values()


EVERYTHING = Reader(None)


def reader(acting: Acting) -> Reader:
    """One question, however much is told to them afterwards."""
    if is_platform_admin(acting):
        return EVERYTHING
    return Reader(dict(visible_projects(acting).values_list("pk", "name")))


def own_departments(acting: Acting) -> set[int] | None:
    """Those whose own standing the person may see; None: all."""
    if is_platform_admin(acting):
        return None
    return set(whole_departments(acting).values_list("pk", flat=True))


def called(project: str, workload: str, gpu_milli: int | None, *, seen: bool) -> str:
    """vision/train, or what a stranger is told: a 4-GPU workload of project vision."""
    if seen:
        return f"{project}/{workload}"
    if not gpu_milli:
        return f"a workload of project {project}"
    size = figure(gpu_milli / MILLI)
    return f"{article(size)} {size}-GPU workload of project {project}"


def discreet(found: Blocker, handle: str) -> Blocker:
    """The reason as the people of this workload's project may read it; handles are `project/name`."""
    behind = found.numbers.get("behind")
    if behind is None or project_of(str(behind)) == project_of(handle):
        return found
    return blocker(found.reason, {**found.numbers, "behind": ANOTHERS})


def project_of(handle: str) -> str:
    return handle.partition("/")[0]


def parted(numbers: Mapping[str, Any], side: str) -> list[dict[str, Any]]:
    """Of one side's queues those that stand where the two paths part: what the other side may read."""
    mine, others = (_queues(numbers, name) for name in (side, "preemptor" if side == "victim" else "victim"))
    shared = {queue.get("queue") for queue in others}
    own = [queue for queue in mine if queue.get("queue") not in shared]
    return own[-1:]  # the project comes first, then what it is part of


def _queues(numbers: Mapping[str, Any], side: str) -> list[dict[str, Any]]:
    return [queue for queue in numbers.get(side) or () if isinstance(queue, dict)]
