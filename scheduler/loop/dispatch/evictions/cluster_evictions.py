"""Record pods that the cluster evicted or deleted.

Berth learns of these evictions from the pods' reports.
"""

import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.db.models import F, Q

from berth.core.spec.sections.retry import NODE_LOST
from projects.models import Event, Phase, Pod, PodState, Workload
from projects.queries.lost_work import lost_gpu_seconds
from scheduler.models import Eviction
from scheduler.reports.evictions.rows import eviction_row

KIND = "cluster"


@dataclass(frozen=True, slots=True)
class ClusterEviction:
    """Pods of one workload that a cluster has evicted, and the workload's other pods.

    If `is_on_record` is set, an earlier tick wrote the audit record. If `is_in_progress` is set, the evicted
    pods are still live.
    """

    evicted: Sequence[Pod]
    others: Sequence[Pod]
    is_on_record: bool = False
    is_in_progress: bool = False


def find_cluster_evictions(
    evicted: Collection[uuid.UUID],
    failed: Collection[uuid.UUID],
    lost_pods: Collection[uuid.UUID],
    being_evicted: Mapping[uuid.UUID, str],
) -> list[ClusterEviction]:
    """Return the evictions of the pods in `evicted`, whose rows must already be marked as ended.

    `being_evicted` maps live peers of the failed pods to the reasons for their evictions. Must be called
    before the workloads are evaluated.
    """
    evictions = _find_evictions(evicted, [*failed, *lost_pods]) if evicted else []
    if being_evicted:
        workloads = {_evicted_workload(eviction).pk for eviction in evictions}
        in_progress = _find_evictions(being_evicted, failed)
        for pod in (pod for eviction in in_progress for pod in eviction.evicted):
            pod.message = being_evicted[pod.pk]
        evictions += [
            replace(eviction, is_in_progress=True)
            for eviction in in_progress
            if _evicted_workload(eviction).pk not in workloads
        ]
    if failed:
        workloads = {_evicted_workload(eviction).pk for eviction in evictions}
        earlier = [pk for workload, pk in _recorded_pods(failed) if workload not in workloads]
        evictions += _find_evictions(earlier, failed, are_on_record=True) if earlier else []
    return evictions


def _recorded_pods(failed: Collection[uuid.UUID]) -> list[tuple[uuid.UUID, uuid.UUID]]:
    """Return (workload ID, pod ID) for each pod whose eviction an earlier tick has recorded."""
    workloads = Pod.objects.filter(pk__in=failed).values("workload")
    records = Eviction.objects.filter(kind=KIND, workload_id__in=workloads, entire_workload=False)
    on_record = {
        (workload_id, pod["role"], pod["index"], at)
        for workload_id, at, pods in records.values_list("workload_id", "at", "pods")
        for pod in pods
    }
    if not on_record:
        return []
    lost_pods = Pod.objects.filter(
        workload__in={key[0] for key in on_record}, run=F("workload__run"), state=PodState.LOST
    )
    return [
        (pod.workload_id, pod.pk)
        for pod in lost_pods
        if (pod.workload_id, pod.role, pod.index, pod.since) in on_record
    ]


def _find_evictions(
    evicted: Collection[uuid.UUID], ended: Collection[uuid.UUID], *, are_on_record: bool = False
) -> list[ClusterEviction]:
    of_evicted = Q(workload__in=Pod.objects.filter(pk__in=evicted).values("workload"))
    others = of_evicted & (Q(pk__in=ended) | Q(state__in=(PodState.STARTING, PodState.RUNNING)))
    pods_by_workload: dict[uuid.UUID, list[Pod]] = defaultdict(list)
    pods = Pod.objects.filter(Q(pk__in=evicted) | others).select_related(
        "allocation", "node__pool", "workload__project__department"
    )
    for pod in pods.order_by("workload_id", "role", "index"):
        pods_by_workload[pod.workload_id].append(pod)
    return [
        _cluster_eviction(of_workload, frozenset(evicted), is_on_record=are_on_record)
        for of_workload in pods_by_workload.values()
    ]


def _cluster_eviction(
    pods: Sequence[Pod], evicted_ids: Collection[uuid.UUID], *, is_on_record: bool
) -> ClusterEviction:
    evicted = [pod for pod in pods if pod.pk in evicted_ids]
    replicas = {(pod.role, pod.index) for pod in evicted}
    others = [pod for pod in pods if (pod.role, pod.index) not in replicas]
    return ClusterEviction(evicted, others, is_on_record)


def record_cluster_evictions(evictions: Collection[ClusterEviction], now: datetime) -> None:
    """Write an audit record for each workload with evicted pods.

    Must be called after the workloads have been evaluated.
    """
    if not evictions:
        return
    workloads = {_evicted_workload(eviction).pk for eviction in evictions}
    going_on = Workload.objects.filter(pk__in=workloads, phase__in=(Phase.STARTING, Phase.RUNNING))
    partly_evicted = set(going_on.values_list("pk", flat=True))
    by_loss = _workloads_ended_by_loss(
        [each for each in evictions if each.is_on_record or each.is_in_progress]
    )
    new = [
        each for each in evictions
        if not each.is_on_record and (not each.is_in_progress or _evicted_workload(each).pk in by_loss)
    ]  # fmt: skip
    later = [
        each for each in evictions
        if each.is_on_record and each.others and _evicted_workload(each).pk in by_loss
    ]  # fmt: skip
    Eviction.objects.bulk_create(
        [
            *(
                _audit_record(each, now, entire_workload=_evicted_workload(each).pk not in partly_evicted)
                for each in new
            ),
            *(_audit_record(each, now, entire_workload=True) for each in later),
        ]
    )


def _workloads_ended_by_loss(evictions: Collection[ClusterEviction]) -> set[uuid.UUID]:
    if not evictions:
        return set()
    workloads = [_evicted_workload(eviction) for eviction in evictions]
    ends = Event.objects.filter(
        workload_id__in={workload.pk for workload in workloads}, kind=Phase.STOPPING, data__failure=NODE_LOST
    )
    runs = set(ends.values_list("workload_id", "data__run"))
    return {workload.pk for workload in workloads if (workload.pk, workload.run) in runs}


def _evicted_workload(eviction: ClusterEviction) -> Workload:
    return eviction.evicted[0].workload


def _audit_record(eviction: ClusterEviction, now: datetime, *, entire_workload: bool) -> Eviction:
    workload, pool = _evicted_workload(eviction), eviction.evicted[0].node.pool
    evicted = () if eviction.is_on_record else eviction.evicted
    pods = [*evicted, *(eviction.others if entire_workload else ())]
    return eviction_row(
        workload,
        pool.pk,
        pool.name,
        at=now,
        kind=KIND,
        rule=_eviction_rule(eviction),
        pods=sorted((pod.role, pod.index) for pod in pods),
        numbers={"nodes": sorted({pod.node.name for pod in eviction.evicted})},
        entire_workload=entire_workload,
        gpu_milli=sum(pod.allocation.gpu_milli_total for pod in pods),
        lost_gpu_seconds=sum(_lost_gpu_seconds(pod, now) for pod in pods),
    )


def _eviction_rule(eviction: ClusterEviction) -> str:
    reasons: dict[str, set[str]] = defaultdict(set)
    for pod in eviction.evicted:
        reasons[pod.message].add(pod.node.name)
    parts = [f"on {' and '.join(sorted(nodes))}, {message}" for message, nodes in sorted(reasons.items())]
    rule = f"Decided outside Berth: {'; '.join(parts)}."
    return f"{rule} The other pods failed afterwards, or were stopped." if eviction.is_on_record else rule


def _lost_gpu_seconds(pod: Pod, now: datetime) -> int:
    until = pod.ended_at or now
    started_at = pod.started_at or until
    return lost_gpu_seconds(
        pod.allocation.gpu_milli_total, started_at, pod.workload.last_checkpoint_at, until
    )
