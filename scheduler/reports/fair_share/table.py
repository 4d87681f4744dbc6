"""Table of fair shares for all queues in a pool."""

from collections import defaultdict
from dataclasses import dataclass

from pools.models import NodePool
from projects.actor import Actor
from projects.models import Quota
from projects.models.tenants import Tenant, applies_to_any, owner_kind
from projects.selectors import departments, projects, quotas
from scheduler.models import QueueStatus
from scheduler.reports.queues.group_quotas import (
    allocated_amounts_in_other_pools,
    remaining_bound,
    remaining_gpus,
)
from scheduler.reports.queues.pending_gpus import pending_gpus_by_project
from scheduler.reports.selectors import queue_statuses

GPU = 0


@dataclass(frozen=True, slots=True)
class QueueShare:
    """Fair share, quota and allocation of one queue, in milli-GPU.

    A quota or limit of None is unlimited. `used` is the queue's fraction of its parent's decayed usage.
    """

    kind: str  # kind of queue: "department" or "project"
    name: str
    rank: int
    weight: float
    quota: int | None
    limit: int | None
    share: int
    allocated: int
    reserved: int
    requested: int
    used: float
    pending: int  # minimum GPUs of pending workloads; `requested` also includes possible elastic replicas
    numbers_visible: bool = True  # False if a department's own numbers are hidden

    @property
    def held(self) -> int:
        """Allocated and reserved GPUs, which both count towards quota and fair share."""
        return self.allocated + self.reserved

    @property
    def over_quota(self) -> int:
        return 0 if self.quota is None else max(0, self.held - self.quota)

    @property
    def below_share(self) -> int:
        """Requested GPUs within the fair share that are neither allocated nor reserved."""
        return max(0, min(self.share, self.requested) - self.held)

    @property
    def above_share(self) -> int:
        """Allocated and reserved GPUs beyond the fair share."""
        return max(0, self.held - self.share)


def share_table(actor: Actor, pool: NodePool) -> list[tuple[QueueShare, list[QueueShare]]]:
    """Return the departments with their projects, sorted by rank and name."""
    stored = {_owner_key(row): row for row in queue_statuses(actor).filter(pool=pool).select_related(None)}
    rows, outside = (
        quotas(actor).filter(applies_to_any([pool])).select_related(None),
        allocated_amounts_in_other_pools([pool]),
    )
    set_quotas = {_owner_key(row): row for row in rows}
    remaining = {key: remaining_gpus(row, outside) for key, row in set_quotas.items()}
    limits = {key: remaining_bound(row, outside, "limit_")[GPU] for key, row in set_quotas.items()}
    pending = pending_gpus_by_project([pool])
    children: dict[int, list[QueueShare]] = defaultdict(list)
    for project in projects(actor).select_related(None):
        key = ("project", project.pk)
        share = _queue_share(
            project,
            stored.get(key),
            set_quotas.get(key),
            remaining.get(key, 0),
            limits.get(key),
            pending=pending.get(project.pk, 0),
        )
        children[project.department_id].append(share)
    result = []
    for department in departments(actor):
        key = ("department", department.pk)
        visible = key in stored or key in set_quotas or not children[department.pk]
        top = _queue_share(
            department,
            stored.get(key),
            set_quotas.get(key),
            remaining.get(key, 0),
            limits.get(key),
            pending=sum(child.pending for child in children[department.pk]),
            numbers_visible=visible,
        )
        result.append((top, sorted(children[department.pk], key=_sort_key)))
    return sorted(result, key=lambda pair: _sort_key(pair[0]))


def _queue_share(
    owner: Tenant,
    row: QueueStatus | None,
    quota: Quota | None,
    remaining: int | None,
    limit: int | None,
    *,
    pending: int,
    numbers_visible: bool = True,
) -> QueueShare:
    return QueueShare(
        kind=owner_kind(owner),
        name=str(owner),
        rank=owner.rank if quota is None or quota.rank is None else quota.rank,
        weight=1.0 if quota is None else quota.weight_gpu,
        quota=remaining,
        limit=limit,
        share=row.share[GPU] if row else 0,
        allocated=row.allocated[GPU] if row else 0,
        reserved=row.reserved[GPU] if row else 0,
        requested=row.requested[GPU] if row else 0,
        used=row.usage[GPU] if row else 0.0,
        pending=pending,
        numbers_visible=numbers_visible,
    )


def _sort_key(status: QueueShare) -> tuple[int, str]:
    return -status.rank, status.name


def _owner_key(row: QueueStatus | Quota) -> tuple[str, int | None]:
    return ("project", row.project_id) if row.project_id is not None else ("department", row.department_id)
