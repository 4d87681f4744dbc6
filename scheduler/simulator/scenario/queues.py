"""Read a scenario's departments and projects."""

from collections.abc import Container, Mapping

from berth.core.values.amounts import MILLI, Bounds
from scheduler.engine.fair_share.usage_history import history_seconds
from scheduler.engine.from_spec import to_timestamp
from scheduler.engine.model import Node, Pool, PoolQuota, Queue, Usage
from scheduler.simulator.scenario.schema import (
    Limits,
    ProjectDocument,
    QueueDocument,
    QuotaDocument,
    ScenarioDocument,
    UsageDocument,
)

DEPARTMENT_SUFFIX = " (department)"

PerResource = tuple[float, float, float]


def read_queues(
    document: ScenarioDocument, pools: tuple[Pool, ...], nodes: tuple[Node, ...]
) -> tuple[Queue, ...]:
    max_usages = {pool.name: _max_usage(pool, nodes) for pool in pools}
    project_names = {project.name for project in document.projects}
    groups = {pool: group.name for group in document.quota_groups for pool in group.pools}
    department_queues = {spec.name: queue_name(spec.name, project_names) for spec in document.departments}
    departments = [
        _build_queue(spec, department_queues[spec.name], None, max_usages, groups)
        for spec in document.departments
    ]
    projects = [
        _build_queue(spec, spec.name, department_queues[spec.department], max_usages, groups)
        for spec in document.projects
    ]
    return (*departments, *projects)


def queue_name(department: str, projects: Container[str]) -> str:
    """Return a unique queue name for a department. A project may have the department's name."""
    return department + DEPARTMENT_SUFFIX if department in projects else department


def _build_queue(
    spec: QueueDocument,
    name: str,
    parent: str | None,
    max_usages: dict[str, PerResource],
    groups: Mapping[str, str],
) -> Queue:
    return Queue(
        name=name,
        parent=parent,
        created=0 if spec.created is None else to_timestamp(spec.created),
        pool_quotas={
            pool: _build_pool_quota(spec, pool, groups.get(pool, ""), max_usage)
            for pool, max_usage in max_usages.items()
        },
        reclaim_min_runtime=spec.reclaim_min_runtime,
        preempt_min_runtime=spec.preempt_min_runtime,
        expected_runtime=spec.expected_runtime if isinstance(spec, ProjectDocument) else None,
    )


def _build_pool_quota(spec: QueueDocument, pool: str, group: str, max_usage: PerResource) -> PoolQuota:
    usage = _build_usage(spec.usage.get(pool, UsageDocument()), max_usage)
    quota, group = spec.quotas.get(pool), group if group in spec.quotas else ""
    if group:
        quota = spec.quotas[group]
    if quota is None:
        return PoolQuota(rank=spec.rank, usage=usage)
    weight = quota.weight
    return PoolQuota(
        quota=_build_quota(quota),
        limit=_build_limit(quota.limit),
        weights=(weight.gpu, weight.cpu, weight.memory_mib),
        over_quota=quota.over_quota,
        rank=spec.rank if quota.rank is None else quota.rank,
        usage=usage,
        group=group,
    )


def _build_quota(spec: QuotaDocument) -> Bounds:
    """Return the quota. CPU and memory are unlimited if neither is set."""
    if not spec.model_fields_set & {"cpu", "memory_mib"}:
        return Bounds(_to_milli(spec.gpu), None, None)
    return Bounds(_to_milli(spec.gpu), _to_milli(spec.cpu), spec.memory_mib)


def _build_limit(spec: Limits) -> Bounds:
    return Bounds(_to_milli(spec.gpu), _to_milli(spec.cpu), spec.memory_mib)


def _to_milli(amount: float | None) -> int | None:
    return None if amount is None else round(amount * MILLI)


def _build_usage(spec: UsageDocument, max_usage: PerResource) -> Usage:
    """Return the queue's past usage. Fractions in the document are relative to `max_usage`."""
    if spec.used is not None and spec.parent is not None:
        return Usage(spec.used, spec.parent)
    parts = (spec.gpu, spec.cpu, spec.memory_mib)
    if not any(parts):
        return Usage()
    used = tuple(part * whole for part, whole in zip(parts, max_usage, strict=True))
    return Usage((used[0], used[1], used[2]), max_usage)


def _max_usage(pool: Pool, nodes: tuple[Node, ...]) -> PerResource:
    """Return the usage of a queue that has used the pool's full capacity during the entire history."""
    seconds = history_seconds(pool.fair_share) or 1.0
    capacities = [node.capacity for node in nodes if node.pool == pool.name]
    gpu, cpu, memory_mib = (
        (max(1, sum(column)) for column in zip(*capacities, strict=True)) if capacities else (1, 1, 1)
    )
    return gpu * seconds, cpu * seconds, memory_mib * seconds
