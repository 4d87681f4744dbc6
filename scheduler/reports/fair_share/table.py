"""Fair shares of a pool's queues side by side."""

from collections import defaultdict
from dataclasses import dataclass

from pools.models import NodePool
from projects.acting import Acting
from projects.models import Department, Project, Quota
from projects.selectors import departments, projects, quotas
from scheduler.models import QueueStanding
from scheduler.reports.selectors import standings

GPU = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """One queue. GPUs in thousandths; None: unlimited. `used`: its decayed use, of its parent's."""

    kind: str  # department | project
    name: str
    rank: int
    weight: float
    quota: int | None
    share: int
    allocated: int
    requested: int
    used: float
    known: bool = True  # False: a department of which the reader sees single projects only

    @property
    def beyond(self) -> int:
        return 0 if self.quota is None else max(0, self.allocated - self.quota)

    @property
    def lacking(self) -> int:
        """Of what is due to it and asked for."""
        return max(0, min(self.share, self.requested) - self.allocated)


def share_table(acting: Acting, pool: NodePool) -> list[tuple[Standing, list[Standing]]]:
    """Departments by rank and name, each with its projects: the order in which shares are given."""
    told = {_key(row): row for row in standings(acting).filter(pool=pool).select_related(None)}
    given = {_key(row): row for row in quotas(acting).filter(pool=pool).select_related(None)}
    children: dict[int, list[Standing]] = defaultdict(list)
    for project in projects(acting).select_related(None):
        key = ("project", project.pk)
        children[project.department_id].append(_standing(project, told.get(key), given.get(key)))
    found = []
    for department in departments(acting):
        key = ("department", department.pk)
        known = key in told or key in given or not children[department.pk]
        top = _standing(department, told.get(key), given.get(key), known=known)
        found.append((top, sorted(children[department.pk], key=_order)))
    return sorted(found, key=lambda pair: _order(pair[0]))


def _standing(
    owner: Department | Project, row: QueueStanding | None, quota: Quota | None, *, known: bool = True
) -> Standing:
    return Standing(
        kind="department" if isinstance(owner, Department) else "project",
        name=str(owner),
        rank=owner.rank if quota is None or quota.rank is None else quota.rank,
        weight=1.0 if quota is None else quota.weight_gpu,
        quota=0 if quota is None else quota.gpu_milli,
        share=row.share[GPU] if row else 0,
        allocated=row.allocated[GPU] if row else 0,
        requested=row.requested[GPU] if row else 0,
        used=row.usage[GPU] if row else 0.0,
        known=known,
    )


def _order(standing: Standing) -> tuple[int, str]:
    return -standing.rank, standing.name


def _key(row: QueueStanding | Quota) -> tuple[str, int | None]:
    return ("project", row.project_id) if row.project_id is not None else ("department", row.department_id)
