"""Projects that are below their fair share while other projects borrow."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from pools.models import NodePool
from projects.actor import Actor
from projects.models import Quota
from projects.models.tenants import applies_to_any
from scheduler.reports.queues.group_quotas import allocated_amounts_in_other_pools, remaining_gpus
from scheduler.reports.selectors import queue_statuses


@dataclass(frozen=True, slots=True)
class Borrower:
    project: str
    over_quota: int  # milli-GPU allocated or reserved over quota


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Project that is below its fair share and has unmet requests, in milli-GPU.

    `share` is the requested part of the fair share, and `held` includes reserved GPUs.
    """

    pool: str
    project: str
    share: int
    held: int
    requested: int
    borrowers: tuple[Borrower, ...]

    @property
    def below_share(self) -> int:
        return self.share - self.held


def find_shortfalls(actor: Actor, pools: Iterable[NodePool]) -> list[Shortfall]:
    """Return the last cycle's shortfalls for projects that the user may see, largest first."""
    selected = {pool.pk: pool for pool in pools}
    by_pool: dict[str, list[_ProjectStatus]] = defaultdict(list)
    rows = queue_statuses(actor).filter(pool__in=[*selected], project__isnull=False).order_by("project__name")
    for pool, pool_id, project, project_id, share, allocated, reserved, requested in rows.values_list(
        "pool__name",
        "pool_id",
        "project__name",
        "project_id",
        "share",
        "allocated",
        "reserved",
        "requested",
    ):
        by_pool[pool].append(
            _ProjectStatus(project, project_id, pool_id, share[0], allocated[0] + reserved[0], requested[0])
        )
    result = []
    for pool, project_statuses in by_pool.items():
        starved = [status for status in project_statuses if status.held < status.deserved_milli]
        if starved:
            borrowers = _find_borrowers(selected[project_statuses[0].pool_id], project_statuses)
            result += [
                Shortfall(pool, each.project, each.deserved_milli, each.held, each.requested, borrowers)
                for each in starved
            ]
    return sorted(result, key=lambda shortfall: (-shortfall.below_share, shortfall.pool, shortfall.project))


@dataclass(frozen=True, slots=True)
class _ProjectStatus:
    project: str
    project_id: int
    pool_id: int
    share: int
    held: int  # allocated and reserved milli-GPU
    requested: int

    @property
    def deserved_milli(self) -> int:
        return min(self.share, self.requested)


def _find_borrowers(pool: NodePool, project_statuses: list[_ProjectStatus]) -> tuple[Borrower, ...]:
    active = [status for status in project_statuses if status.held]
    of_projects = Quota.objects.filter(project__any=[status.project_id for status in active])
    rows = of_projects.filter(applies_to_any([pool])).order_by()
    outside = allocated_amounts_in_other_pools([pool])
    quotas = {row.project_id: remaining_gpus(row, outside) for row in rows}
    result = []
    for status in active:
        quota = quotas.get(status.project_id, 0)
        if quota is not None and status.held > quota:
            result.append(Borrower(status.project, status.held - quota))
    return tuple(sorted(result, key=lambda borrower: (-borrower.over_quota, borrower.project)))
