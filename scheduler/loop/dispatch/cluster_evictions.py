"""Record pods that their cluster evicted or deleted.

Berth does not decide these evictions. It learns of them from the reports of the pods.
"""

import uuid
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from projects.models import Phase, Pod, PodState, Workload
from scheduler.models import Eviction
from scheduler.reports.evictions.rows import eviction_row, lost_gpu_seconds

KIND = "cluster"


@dataclass(frozen=True, slots=True)
class ClusterEviction:
    """Pods of one workload that its cluster has evicted, and others that are live or have just failed."""

    evicted: Sequence[Pod]
    others: Sequence[Pod]


def find_cluster_evictions(
    evicted: Collection[uuid.UUID], failed: Collection[uuid.UUID]
) -> list[ClusterEviction]:
    """Return the evictions of these pods, whose rows already contain their ends.

    `failed` are pods that ended at the same time, perhaps because they lost their peers. Call this before the
    workloads of the pods are evaluated, which may stop their other pods.
    """
    if not evicted:
        return []
    of_evicted = Q(workload__in=Pod.objects.filter(pk__in=evicted).values("workload"))
    others = of_evicted & (Q(pk__in=failed) | Q(state__in=(PodState.STARTING, PodState.RUNNING)))
    pods_by_workload: dict[uuid.UUID, list[Pod]] = defaultdict(list)
    pods = Pod.objects.filter(Q(pk__in=evicted) | others).select_related(
        "allocation", "node__pool", "workload__project__department"
    )
    for pod in pods.order_by("workload_id", "role", "index"):
        pods_by_workload[pod.workload_id].append(pod)
    chosen = frozenset(evicted)
    return [
        ClusterEviction(
            [pod for pod in of_workload if pod.pk in chosen],
            [pod for pod in of_workload if pod.pk not in chosen],
        )
        for of_workload in pods_by_workload.values()
    ]


def record_cluster_evictions(evictions: Collection[ClusterEviction], now: datetime) -> None:
    """Write an audit record for each workload, after it was evaluated.

    If the evictions have ended the workload's run, the record counts all of its pods.
    """
    if not evictions:
        return
    workloads = {eviction.evicted[0].workload_id for eviction in evictions}
    going_on = Workload.objects.filter(pk__in=workloads, phase__in=(Phase.STARTING, Phase.RUNNING))
    partly_evicted = set(going_on.values_list("pk", flat=True))
    Eviction.objects.bulk_create(_audit_record(eviction, partly_evicted, now) for eviction in evictions)


def _audit_record(
    eviction: ClusterEviction, partly_evicted: Collection[uuid.UUID], now: datetime
) -> Eviction:
    workload, pool = eviction.evicted[0].workload, eviction.evicted[0].node.pool
    entire_workload = workload.pk not in partly_evicted
    pods = [*eviction.evicted, *(eviction.others if entire_workload else ())]
    return eviction_row(
        workload,
        pool.pk,
        pool.name,
        at=now,
        kind=KIND,
        rule=_rule(eviction.evicted),
        pods=sorted((pod.role, pod.index) for pod in pods),
        numbers={"nodes": sorted({pod.node.name for pod in eviction.evicted})},
        entire_workload=entire_workload,
        gpu_milli=sum(pod.allocation.gpu_milli_total for pod in pods),
        lost_gpu_seconds=sum(_lost_gpu_seconds(pod, now) for pod in pods),
    )


def _rule(pods: Sequence[Pod]) -> str:
    """Return who decided the eviction, and the reason that the cluster reports for each node."""
    reasons: dict[str, set[str]] = defaultdict(set)
    for pod in pods:
        reasons[pod.message].add(pod.node.name)
    parts = [f"on {' and '.join(sorted(nodes))}, {message}" for message, nodes in sorted(reasons.items())]
    return f"Decided outside Berth: {'; '.join(parts)}."


def _lost_gpu_seconds(pod: Pod, now: datetime) -> int:
    until = pod.ended_at or now
    started_at = pod.started_at or until
    return lost_gpu_seconds(
        pod.allocation.gpu_milli_total, started_at, pod.workload.last_checkpoint_at, until
    )
