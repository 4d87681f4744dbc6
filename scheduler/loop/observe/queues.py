"""Convert departments, projects, quotas and usage to engine queues.

In the engine, departments and projects are both queues.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from berth.core.values.amounts import Bounds
from berth.db.queries.compiled import compiled_once
from pools.models import NodePool
from projects.models import Department, Project, Quota
from scheduler.engine.from_spec import to_timestamp
from scheduler.engine.model import PoolQuota, Queue
from scheduler.engine.model import Usage as Decayed
from scheduler.loop.observe.cluster_quotas import cluster_quotas
from scheduler.loop.queries import PROJECTS as PROJECTS_BY_ID
from scheduler.loop.queries import QUOTA_GROUPS, QUOTAS
from scheduler.models import Usage
from scheduler.reports.usage.decayed import decayed_usage
from scheduler.reports.usage.window import window_starts

DEPARTMENT_SUFFIX = " (department)"
DEPARTMENTS = compiled_once(lambda: Department.objects.order_by("name"))
PROJECTS = compiled_once(lambda: Project.objects.order_by("name"))
NO_POOL_QUOTA = PoolQuota()
USAGES = compiled_once(lambda pools: Usage.objects.filter(pool_id__any=pools))


@dataclass(frozen=True, slots=True)
class QueueOwner:
    """Department or project that owns a queue. For a department, `project_id` is None."""

    department_id: int
    project_id: int | None
    name: str
    department: str


@dataclass(frozen=True, slots=True)
class QuotaGroups:
    """Quota groups of the observed pools, keyed by group ID."""

    names: Mapping[int, str]
    versions: Mapping[int, int]
    pools: Mapping[int, Sequence[NodePool]]


def load_groups(pools: Iterable[NodePool]) -> QuotaGroups:
    """Return the pools' quota groups. No query is made if no pool is in a group."""
    members: dict[int, list[NodePool]] = defaultdict(list)
    for pool in pools:
        if pool.quota_group_id is not None:
            members[pool.quota_group_id].append(pool)
    rows = [row for row in QUOTA_GROUPS() if row.pk in members] if members else []
    return QuotaGroups({row.pk: row.name for row in rows}, {row.pk: row.version for row in rows}, members)


@dataclass(frozen=True, slots=True)
class Queues:
    queues: tuple[Queue, ...]
    owners: Mapping[str, QueueOwner]  # owner by queue name
    projects: Mapping[int, str]  # queue name by project ID
    departments: Mapping[int, str]  # queue name by department ID
    project_names: Mapping[int, str]
    # Project rows with their departments, by project ID.
    project_rows: Mapping[int, Project] = field(default_factory=dict, compare=False)
    versions: Mapping[int, int] = field(default_factory=dict)  # version of each quota row by ID
    group_versions: Mapping[int, int] = field(default_factory=dict)  # version of each quota group by ID

    def queue_path(self, queue: str) -> tuple[str, ...]:
        """Return the queue and, for a project, its department's queue."""
        owner = self.owners[queue]
        return (queue,) if owner.project_id is None else (queue, self.departments[owner.department_id])

    def find_projects(self, ids: Sequence[int]) -> Iterable[Project]:
        """Return the projects' rows with their departments."""
        if all(pk in self.project_rows for pk in ids):
            return [self.project_rows[pk] for pk in ids]
        return PROJECTS_BY_ID(ids)


def load_queues(
    now: datetime, pools: Iterable[NodePool], expected_runtimes: Mapping[int, int] | None = None
) -> Queues:
    """Return the queues. `expected_runtimes` maps project IDs to seconds."""
    expected = expected_runtimes or {}
    departments = {row.pk: row for row in DEPARTMENTS()}
    projects = {row.pk: row for row in PROJECTS()}
    project_names = {row.name for row in projects.values()}
    by_pool = {pool.pk: pool for pool in pools}
    quotas, groups = list(QUOTAS()), load_groups(by_pool.values())
    usages = _decayed_usages(now, by_pool)
    pool_quotas_by_owner = _pool_quotas_by_owner(quotas, by_pool, groups, usages, departments, projects)
    for pool, by_project in cluster_quotas(by_pool.values(), sorted(project_names)).items():
        for pk, row in projects.items():
            if bounds := by_project.get(row.name):
                own = pool_quotas_by_owner["project", pk]
                own[pool] = replace(own.get(pool, NO_POOL_QUOTA), cluster_quotas=bounds)
    department_names = {
        pk: row.name + (DEPARTMENT_SUFFIX if row.name in project_names else "")
        for pk, row in departments.items()
    }
    queues = [
        _build_queue(row, department_names[pk], None, pool_quotas_by_owner[("department", pk)])
        for pk, row in departments.items()
    ]
    queues += [
        _build_queue(
            row,
            row.name,
            department_names[row.department_id],
            pool_quotas_by_owner[("project", pk)],
            expected.get(pk),
        )
        for pk, row in projects.items()
    ]
    owners = {
        department_names[pk]: QueueOwner(pk, None, row.name, row.name) for pk, row in departments.items()
    }
    for pk, row in projects.items():
        row.department = departments[row.department_id]
        owners[row.name] = QueueOwner(row.department_id, pk, row.name, row.department.name)
    return Queues(
        queues=tuple(queues),
        owners=owners,
        projects={pk: row.name for pk, row in projects.items()},
        departments=department_names,
        project_names={pk: row.name for pk, row in projects.items()},
        project_rows=projects,
        versions={quota.pk: quota.version for quota in quotas},
        group_versions=groups.versions,
    )


def _build_queue(
    row: Department | Project,
    name: str,
    parent: str | None,
    pool_quotas: Mapping[str, PoolQuota],
    expected_runtime: int | None = None,
) -> Queue:
    return Queue(
        name=name,
        parent=parent,
        created=to_timestamp(row.created_at),
        pool_quotas=pool_quotas,
        reclaim_min_runtime=row.reclaim_min_runtime,
        preempt_min_runtime=row.preempt_min_runtime,
        expected_runtime=expected_runtime,
    )


Key = tuple[str, int]  # kind of owner ("department" or "project") and its ID


def _pool_quotas_by_owner(
    quotas: Iterable[Quota],
    pools: Mapping[int, NodePool],
    groups: QuotaGroups,
    usages: Mapping[tuple[Key, int], Decayed],
    departments: Mapping[int, Department],
    projects: Mapping[int, Project],
) -> dict[Key, dict[str, PoolQuota]]:
    ranks: dict[Key, int] = {("department", pk): row.rank for pk, row in departments.items()}
    ranks |= {("project", pk): row.rank for pk, row in projects.items()}
    unset = Decayed()
    by_owner: dict[Key, dict[str, PoolQuota]] = {
        key: {
            pool.name: PoolQuota(rank=rank, usage=usages.get((key, pool_id), unset))
            for pool_id, pool in pools.items()
            if rank or (key, pool_id) in usages
        }
        for key, rank in ranks.items()
    }
    for quota in quotas:
        key = _owner_key(quota.department_id, quota.project_id)
        pool = pools.get(quota.pool_id) if quota.pool_id is not None else None
        members = [pool] if pool is not None else groups.pools.get(quota.group_id or 0, ())
        group = "" if quota.group_id is None else groups.names.get(quota.group_id, "")
        for member in members:
            usage = usages.get((key, member.pk), unset)
            by_owner[key][member.name] = build_pool_quota(quota, ranks[key], usage, group)
    return by_owner


def build_pool_quota(row: Quota | None, rank: int, usage: Decayed, group: str = "") -> PoolQuota:
    """Return a queue's quota in a pool.

    If the quota row has no rank, the owner's `rank` applies. `group` is the name of the quota group, or
    empty.
    """
    if row is None:
        return PoolQuota(rank=rank, usage=usage)
    return PoolQuota(
        quota=Bounds(row.gpu_milli, row.cpu_milli, row.memory_mib),
        limit=Bounds(row.limit_gpu_milli, row.limit_cpu_milli, row.limit_memory_mib),
        weights=(row.weight_gpu, row.weight_cpu, row.weight_memory),
        over_quota=row.over_quota,
        rank=rank if row.rank is None else row.rank,
        usage=usage,
        group=group,
    )


def _decayed_usages(now: datetime, pools: Mapping[int, NodePool]) -> Mapping[tuple[Key, int], Decayed]:
    earlier_points = window_starts(pools.values(), now)
    return {
        (_owner_key(row.department_id, row.project_id), row.pool_id): decayed_usage(
            row, pools[row.pool_id], now, earlier_points.get(row.pk)
        )
        for row in USAGES([*pools])
    }


def _owner_key(department_id: int | None, project_id: int | None) -> Key:
    if project_id is not None:
        return "project", project_id
    assert department_id is not None, "the database guarantees that a quota has one owner"
    return "department", department_id
