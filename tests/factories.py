"""Factories for rows like those that Berth's services and scheduler write."""

import itertools
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from berth.db.models import Lease
from pools.models import Node, NodePool, ScalingEvent
from projects.models import (
    Department,
    Event,
    Metric,
    Phase,
    Pod,
    PodState,
    Project,
    ProjectSecret,
    Quota,
    SecretUse,
    SecretValue,
    Workload,
)
from scheduler.models import (
    Allocation,
    Cycle,
    DeviceClaim,
    Eviction,
    PodUtilization,
    QueueStatus,
    UtilizationPoint,
)
from scheduler.reports.invariants import SCHEDULER_LEASE

counter = itertools.count(1)
MILLI = 1000
ENDED = (Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED)


def ago(**units: float) -> datetime:
    return timezone.now() - timedelta(**units)


def reasons(*periods: tuple[Any, ...]) -> list[dict[str, str]]:
    """Return a workload's `pending_reasons` from tuples (reason, start, end).

    Start and end are numbers of minutes ago, and the end is optional.
    """
    times = ((reason, [ago(minutes=n).isoformat() for n in when]) for reason, *when in periods)
    return [{"reason": reason, **dict(zip(("since", "until"), at, strict=False))} for reason, at in times]


def pool(name: str = "local", *, gpus: int = 2, **columns: Any) -> NodePool:
    defaults = {
        "provider": "fake",
        "runtime": "fake",
        "nodes_min": 0,
        "nodes_max": 4,
        "gpus_per_node": gpus,
        "gpu_model": "A100",
        "gpu_memory_mib": 81920,
        "cpu_milli": 8000 * max(gpus, 1),
        "memory_mib": 65536,
    }
    return NodePool.objects.create(name=name, **(defaults | columns))


def node(pool: NodePool, ordinal: int | None = None, **columns: Any) -> Node:
    number = pool.nodes.count() if ordinal is None else ordinal
    if pool.operational_since is None:
        pool.operational_since = ago(minutes=30)
        pool.save(update_fields=["operational_since"])
    defaults = {
        "name": f"{pool.name}-{number}",
        "ordinal": number,
        "state": "ready",
        "instance_id": f"i-{next(counter):06}",
        "gpus": pool.gpus_per_node,
        "gpu_model": pool.gpu_model,
        "gpu_memory_mib": pool.gpu_memory_mib,
        "cpu_milli": pool.cpu_milli,
        "memory_mib": pool.memory_mib,
        "since": ago(minutes=30),
    }
    return Node.objects.create(pool=pool, **(defaults | columns))


def quota(owner: Department | Project, pool: NodePool, gpus: float | None, **columns: Any) -> Quota:
    owner_field = {"department": owner} if isinstance(owner, Department) else {"project": owner}
    milli = None if gpus is None else round(gpus * MILLI)
    return Quota.objects.create(pool=pool, gpu_milli=milli, **owner_field, **columns)


def workload(
    project: Project,
    name: str,
    *,
    gpus: float = 1,
    replicas: int = 1,
    phase: str = Phase.PENDING,
    by: User | None = None,
    pools: list[str] | None = None,
    **columns: Any,
) -> Workload:
    names = pools or list(NodePool.objects.order_by("name").values_list("name", flat=True)) or ["local"]
    document = {
        "name": name,
        "project": project.name,
        "command": "python train.py --epochs 20",
        "roles": [{"name": "worker", "replicas": replicas, "gpu": gpus, "cpu": 2, "memory_mib": 4096}],
    }
    defaults: dict[str, Any] = {
        "spec": document,
        "pools": names,
        "phase": phase,
        "submitted_by": by,
        "since": ago(minutes=5),
        "submitted_at": ago(minutes=20),
        "gpu_milli_min": round(gpus * replicas * MILLI),
    }
    if phase in ENDED:
        defaults["ended_at"] = ago(minutes=5)
    values = defaults | columns
    return Workload.objects.create(project=project, name=name, **{"pending_since": values["since"], **values})


def place(
    workload: Workload,
    node: Node,
    devices: list[int],
    *,
    milli: int = MILLI,
    index: int | None = None,
    state: str = PodState.RUNNING,
    role: str = "worker",
    **columns: Any,
) -> Pod:
    """Create a pod with its allocation and device claims."""
    number = workload.pods.filter(run=workload.run).count() if index is None else index
    pod = Pod.objects.create(
        workload=workload,
        role=role,
        index=number,
        run=workload.run,
        rank=number,
        node=node,
        state=state,
        started_at=workload.started_at,
        since=workload.since,
        **columns,
    )
    allocation = Allocation.objects.create(
        pod=pod,
        node=node,
        devices=devices,
        gpu_milli=milli if devices else 0,
        cpu_milli=2000,
        memory_mib=4096,
    )
    DeviceClaim.objects.bulk_create(
        DeviceClaim(allocation=allocation, node=node, device=device, milli=milli) for device in devices
    )
    workload.gpu_milli_now += allocation.gpu_milli_total
    workload.pool = node.pool
    workload.save()
    return pod


def used(
    pod: Pod,
    *busy: int | None,
    cpu: int = 1000,
    memory: int = 2048,
    gpu_memory: int | None = 40960,
    at: datetime | None = None,
    busy_at: datetime | None = None,
) -> PodUtilization:
    """Create the latest measurement of a pod. `busy` is the utilization of each device in percent."""
    devices = [[None if percent is None else percent * 10, gpu_memory] for percent in busy]
    return PodUtilization.objects.create(
        pod=pod, at=at or timezone.now(), cpu_seconds=600, cpu_milli=cpu, memory_mib=memory, devices=devices,
        busy_at=busy_at or (timezone.now() if busy and busy[0] is not None else None),
    )  # fmt: skip


def past_utilization(
    pod: Pod, at: datetime, *, step: int = 60, cpu: int = 1000, memory: int = 2048,
    gpus: int = 0, busy: int = 0, gpu_memory: int | None = None,
) -> UtilizationPoint:  # fmt: skip
    """Record that `gpus` devices of a pod were `busy` percent utilized in the minute or hour from `at`.

    If the pod's allocation began later, move its start back to `at`.
    """
    began = at.replace(minute=0 if step == 3600 else at.minute, second=0, microsecond=0)
    Allocation.objects.filter(pod=pod, bound_at__gt=began).update(bound_at=began)
    measured = gpus * MILLI * step
    return UtilizationPoint.objects.create(
        pod=pod, step=step, at=began, seconds=step, cpu_milli_seconds=cpu * step, memory_mib=memory,
        gpu_milli_seconds=measured, gpu_busy_milli_seconds=measured * busy / 100, gpu_memory_mib=gpu_memory,
    )  # fmt: skip


def event(
    workload: Workload, kind: str, message: str, *, at: datetime | None = None, actor: str = "scheduler"
) -> Event:
    return Event.objects.create(
        kind=kind,
        project_id=workload.project_id,
        workload_id=workload.pk,
        subject=workload.name,
        message=message,
        actor=actor,
        at=at or timezone.now(),
    )


def cycle(**columns: Any) -> Cycle:
    return Cycle.objects.create(
        **({"epoch": 1, "trigger": "submitted", "decide_ms": 1.2, "commit_ms": 3.4} | columns)
    )


def eviction(workload: Workload, preemptor: Workload | None, pool: NodePool, **columns: Any) -> Eviction:
    project = workload.project
    defaults: dict[str, Any] = {
        "kind": "reclaim",
        "pool_id": pool.pk,
        "pool_name": pool.name,
        "workload_id": workload.pk,
        "workload_name": workload.name,
        "project_id": project.pk,
        "project_name": project.name,
        "department_id": project.department_id,
        "department_name": project.department.name,
        "gpu_milli": workload.gpu_milli_min,
        "lost_gpu_seconds": 1260,
        "rule": f"{project.name} has more than its quota allocated, so the excess may be reclaimed.",
        "pods": [{"role": "worker", "index": 0}],
    }
    if preemptor is not None:
        defaults |= {
            "preemptor_id": preemptor.pk,
            "preemptor_name": preemptor.name,
            "preemptor_project_id": preemptor.project_id,
            "preemptor_project_name": preemptor.project.name,
        }
    return Eviction.objects.create(**(defaults | columns))


def queue_status(
    owner: Department | Project, pool: NodePool, *, share: float, allocated: float, requested: float
) -> QueueStatus:
    owner_field = {"department": owner} if isinstance(owner, Department) else {"project": owner}
    return QueueStatus.objects.create(
        pool=pool,
        share=[round(share * MILLI), 0, 0],
        allocated=[round(allocated * MILLI), 0, 0],
        requested=[round(requested * MILLI), 0, 0],
        usage=[0.0, 0.0, 0.0],
        at=timezone.now(),
        **owner_field,
    )


def scaling(pool: NodePool, kind: str, reason: str, *, at: datetime, **columns: Any) -> ScalingEvent:
    return ScalingEvent.objects.create(pool=pool, kind=kind, reason=reason, at=at, **columns)


def create_scheduler_lease() -> Lease:
    now = timezone.now()
    values = {"holder": "host:1", "epoch": 1, "renewed_at": now, "expires_at": now + timedelta(hours=1)}
    return Lease.objects.update_or_create(name=SCHEDULER_LEASE, defaults=values)[0]


def eviction_side(queue: str, quota: float, share: float, before: float, after: float) -> dict[str, object]:
    """Return one queue's numbers in an eviction record, in GPUs."""

    def milli(gpus: float) -> dict[str, int]:
        return {"gpu": round(gpus * 1000)}

    return {
        "queue": queue,
        "quota": milli(quota),
        "share": milli(share),
        "allocated_before": milli(before),
        "allocated_after": milli(after),
        "usage": round(before / (quota or 1), 3),
    }


def metric(workload: Workload, name: str, *values: float) -> Metric:
    """Report values of a metric for steps 0, 10, 20 and so on."""
    steps = [10 * place for place in range(len(values))]
    points = list(zip(steps, values, strict=True))
    lowest, highest = (choose(points, key=lambda point: point[1]) for choose in (min, max))
    return Metric.objects.create(
        workload=workload, name=name, steps=steps, values=list(values), reported_at=timezone.now(),
        last_step=steps[-1], last_value=values[-1], min_step=lowest[0], min_value=lowest[1],
        max_step=highest[0], max_value=highest[1],
    )  # fmt: skip


def secret_use(workload: Workload, secret: ProjectSecret, *, run: int = 0) -> SecretUse:
    """Record that a run of the workload, by default the current one, received the secret's current value."""
    value, _ = SecretValue.objects.get_or_create(
        kind=SecretValue.Kind.PROJECT, secret=secret.pk, version=secret.version,
        defaults={"sealed": secret.sealed, "used_at": timezone.now()},
    )  # fmt: skip
    return SecretUse.objects.create(
        workload=workload, run=run or workload.run, owner_kind=SecretUse.Owner.PROJECT,
        owner=secret.project.name, name=secret.name, version=secret.version, value=value,
    )  # fmt: skip
