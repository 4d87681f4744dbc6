"""Queues below fair share while others borrow."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from pools.models import NodePool
from projects.acting import Acting
from projects.models import Quota
from scheduler.reports.selectors import standings


@dataclass(frozen=True, slots=True)
class Borrower:
    project: str
    beyond: int  # milli-GPU allocated over quota


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A project that requests more than its allocation and is below its fair share (milli-GPU)."""

    pool: str
    project: str
    share: int
    allocated: int
    borrowers: tuple[Borrower, ...]

    @property
    def lacking(self) -> int:
        return self.share - self.allocated


def shortfalls(acting: Acting, pools: Iterable[NodePool]) -> list[Shortfall]:
    """Return the shortfalls of the last cycle, the largest first, for projects that the user may see."""
    by_pool: dict[str, list[_ProjectStanding]] = defaultdict(list)
    rows = standings(acting).filter(pool__in=list(pools), project__isnull=False).order_by("project__name")
    for pool, pool_id, project, project_id, share, allocated, requested in rows.values_list(
        "pool__name", "pool_id", "project__name", "project_id", "share", "allocated", "requested"
    ):
        by_pool[pool].append(
            _ProjectStanding(project, project_id, pool_id, share[0], allocated[0], requested[0])
        )
    result = []
    for pool, here in by_pool.items():
        starved = [each for each in here if each.allocated < each.due]
        if starved:
            borrowers = _borrowers(here)
            result += [Shortfall(pool, each.project, each.due, each.allocated, borrowers) for each in starved]
    return sorted(result, key=lambda each: (-each.lacking, each.pool, each.project))


@dataclass(frozen=True, slots=True)
class _ProjectStanding:
    """One project in one pool, in milli-GPU."""

    project: str
    project_id: int
    pool_id: int
    share: int
    allocated: int
    requested: int

    @property
    def due(self) -> int:
        return min(self.share, self.requested)


def _borrowers(here: list[_ProjectStanding]) -> tuple[Borrower, ...]:
    rows = Quota.objects.filter(pool=here[0].pool_id, project__in=[each.project_id for each in here])
    quotas = dict(rows.values_list("project_id", "gpu_milli"))
    result = []
    for each in here:
        quota = quotas.get(each.project_id, 0)
        if quota is not None and each.allocated > quota:
            result.append(Borrower(each.project, each.allocated - quota))
    return tuple(sorted(result, key=lambda each: (-each.beyond, each.project)))
