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
    """One queue in milli-GPU. `quota` None is unlimited; `used` is its part of the parent's decayed usage."""

    kind: str  # department | project
    name: str
    rank: int
    weight: float
    quota: int | None
    share: int
    allocated: int
    requested: int
    used: float
    numbers_visible: bool = True  # False if the reader may not see a department's own numbers

    @property
    def beyond(self) -> int:
        return 0 if self.quota is None else max(0, self.allocated - self.quota)

    @property
    def lacking(self) -> int:
        """Unallocated part of the request within the fair share."""
        return max(0, min(self.share, self.requested) - self.allocated)


def share_table(acting: Acting, pool: NodePool) -> list[tuple[Standing, list[Standing]]]:
    """Return departments by rank and name, each with its projects."""
    stored = {_key(row): row for row in standings(acting).filter(pool=pool).select_related(None)}
    set_quotas = {_key(row): row for row in quotas(acting).filter(pool=pool).select_related(None)}
    children: dict[int, list[Standing]] = defaultdict(list)
    for project in projects(acting).select_related(None):
        key = ("project", project.pk)
        children[project.department_id].append(_standing(project, stored.get(key), set_quotas.get(key)))
    result = []
    for department in departments(acting):
        key = ("department", department.pk)
        visible = key in stored or key in set_quotas or not children[department.pk]
        top = _standing(department, stored.get(key), set_quotas.get(key), numbers_visible=visible)
        result.append((top, sorted(children[department.pk], key=_order)))
    return sorted(result, key=lambda pair: _order(pair[0]))


def _standing(
    owner: Department | Project,
    row: QueueStanding | None,
    quota: Quota | None,
    *,
    numbers_visible: bool = True,
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
        numbers_visible=numbers_visible,
    )


def _order(standing: Standing) -> tuple[int, str]:
    return -standing.rank, standing.name


def _key(row: QueueStanding | Quota) -> tuple[str, int | None]:
    return ("project", row.project_id) if row.project_id is not None else ("department", row.department_id)
