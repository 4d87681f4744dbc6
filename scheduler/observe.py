"""Here we read the rows, in few queries, and put them into the engine's words."""

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from django.db.models import Q

from pools.models import Node, NodePool
from projects.models import Phase, Pod, PodState, Workload
from projects.models.workloads import LIVE_POD_STATES
from scheduler.engine import model
from scheduler.engine.intake import seconds_of
from scheduler.models import Reservation
from scheduler.opening import Opening, openings
from scheduler.queues import Queues, queues_at
from scheduler.specs import Meaning, Specs
from scheduler.usage import HALF_LIFE
from scheduler.waits import find_waits

STUCK_AFTER = timedelta(seconds=60)  # beyond its grace a stopping pod promises nothing any more
SCHEDULED = (Phase.PENDING, Phase.RESERVED, Phase.STARTING, Phase.RUNNING, Phase.STOPPING)
NODE_STATES = {
    "requested": model.NodeState.BOOTING,
    "booting": model.NodeState.BOOTING,
    "ready": model.NodeState.READY,
    "cordoned": model.NodeState.CORDONED,
    "draining": model.NodeState.DRAINING,
}


@dataclass(frozen=True, slots=True)
class SeenWorkload:
    """What commit compares with when it judges again."""

    pk: uuid.UUID
    version: int
    phase: str
    run: int
    meaning: Meaning


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at the rows: the snapshot, and which rows the engine's names stand for."""

    at: datetime
    snapshot: model.Snapshot
    workloads: Mapping[str, SeenWorkload]
    pods: Mapping[tuple[str, str, int], uuid.UUID]
    nodes: Mapping[str, int]
    pools: Mapping[str, NodePool]
    queues: Queues
    opening: Mapping[str, Opening] = field(default_factory=dict)  # pools that do not take work yet


def observe(now: datetime, specs: Specs) -> Seen:
    pools = {pool.name: pool for pool in NodePool.objects.order_by("name")}
    nodes = list(Node.objects.filter(state__in=NODE_STATES).select_related("pool").order_by("name"))
    opening = openings(pools.values(), nodes)
    queues = queues_at(now, pools.values())
    rows = list(_workloads())
    meanings = specs.of_all([row.pk for row in rows])
    specs.keep_only([row.pk for row in rows])
    names = {row.pk: f"{queues.project_names[row.project_id]}/{row.name}" for row in rows}
    placed = _pods(now, {node.pk: node.name for node in nodes}, rows, meanings)
    waits = find_waits(rows, meanings, set(names.values()), queues)
    reservations = _reservations(names)
    workloads = tuple(
        _workload(
            row,
            names[row.pk],
            queues.projects[row.project_id],
            meanings[row.pk],
            tuple(pod for _, pod in placed[row.pk]),
        )
        for row in rows
    )
    workloads = tuple(
        replace(described, waits_for=waits.unmet[row.pk]) if row.pk in waits.unmet else described
        for row, described in zip(rows, workloads, strict=True)
    )
    return Seen(
        at=now,
        snapshot=model.Snapshot(
            now=seconds_of(now),
            pools=tuple(_pool(pool) for pool in pools.values()),
            nodes=tuple(_node(node, takes_work=node.pool.name not in opening) for node in nodes),
            queues=queues.described,
            workloads=(*workloads, *waits.stand_ins),
            reservations=reservations,
        ),
        workloads={
            names[row.pk]: SeenWorkload(row.pk, row.version, row.phase, row.run, meanings[row.pk])
            for row in rows
        },
        pods={
            (names[pk], pod.role, pod.index): pod_id for pk, pods in placed.items() for pod_id, pod in pods
        },
        nodes={node.name: node.pk for node in nodes},
        pools=pools,
        queues=queues,
        opening=opening,
    )


def _workloads() -> Iterable[Workload]:
    return Workload.objects.filter(phase__in=SCHEDULED).defer("spec", "explanation", "labels").order_by("pk")


def _pool(row: NodePool) -> model.Pool:
    return model.Pool(
        name=row.name,
        node_strategy=model.Strategy(row.node_placement),
        device_strategy=model.Strategy(row.device_placement),
        reclaim_min_runtime=row.reclaim_min_runtime,
        preempt_min_runtime=row.preempt_min_runtime,
        preemption_delay=row.preemption_delay,
        stale_gang_grace=row.stale_gang_grace,
        consolidation=model.Consolidation(
            row.consolidation_enabled, row.consolidation_max_moves, row.consolidation_max_trials
        ),
        fair_share=model.FairShareMode(
            time_based=row.fairshare_mode == "time_based",
            half_life=row.half_life or (None if row.window else HALF_LIFE),  # as use is kept
            window=row.window,
            tumbling=row.tumbling,
            k=row.k,
            count_all=row.count_all,
        ),
        over_quota_weights=row.over_quota_weights,
        topology=tuple(row.topology),
        reservation_after=row.reservation_after,
        cpu_load_limit=row.cpu_load_limit,
        nodes_max=None if row.paused else row.nodes_max,
        node_shape=model.NodeShape(
            gpus=row.gpus_per_node,
            gpu_model=row.gpu_model,
            gpu_memory_mib=row.gpu_memory_mib,
            cpu=row.cpu_milli,
            memory_mib=row.memory_mib,
            max_pods=row.max_pods,
            labels=row.labels,
            taints=_taints(row.taints),
        ),
    )


def _node(row: Node, *, takes_work: bool) -> model.Node:
    """A pool that has yet to reach its ready threshold has capacity to come, and none to give."""
    state = NODE_STATES[row.state]
    if state is model.NodeState.READY and not takes_work:
        state = model.NodeState.BOOTING
    return model.Node(
        name=row.name,
        pool=row.pool.name,
        gpus=row.gpus,
        gpu_model=row.gpu_model,
        gpu_memory_mib=row.gpu_memory_mib,
        cpu=row.cpu_milli,
        memory_mib=row.memory_mib,
        max_pods=row.max_pods,
        labels=row.labels,
        taints=_taints(row.taints),
        state=state,
        ordinal=row.ordinal,
        ready_at=seconds_of(row.ready_at) if row.ready_at else None,
    )


def _taints(stored: Iterable[Mapping[str, str]]) -> tuple[model.Taint, ...]:
    return tuple(
        model.Taint(taint["key"], taint.get("value", ""), taint.get("effect", "NoSchedule"))
        for taint in stored
    )


Placed = Mapping[uuid.UUID, list[tuple[uuid.UUID, model.Pod]]]


def _pods(
    now: datetime, nodes: Mapping[int, str], rows: Collection[Workload], meanings: Mapping[uuid.UUID, Meaning]
) -> Placed:
    """What stands on each workload's account. Pods of a node that is lost are gone: they hold nothing."""
    runs = {row.pk: row for row in rows}
    found: Placed = defaultdict(list)
    live = Q(state__in=LIVE_POD_STATES)
    done = Q(state=PodState.SUCCEEDED, workload__phase__in=(Phase.STARTING, Phase.RUNNING))
    pods = (
        Pod.objects.filter(live | done).select_related("allocation").order_by("workload_id", "role", "index")
    )
    for pod in pods:
        row = runs.get(pod.workload_id)
        if row is None or (pod.state == PodState.SUCCEEDED and pod.run != row.run):
            continue
        if pod.node_id not in nodes and pod.state != PodState.SUCCEEDED:
            continue
        found[row.pk].append((pod.pk, _pod(now, pod, row, nodes.get(pod.node_id, ""), meanings[row.pk])))
    return found


def _pod(now: datetime, pod: Pod, row: Workload, node: str, meaning: Meaning) -> model.Pod:
    state = model.PodState.COMPLETED if pod.state == PodState.SUCCEEDED else model.PodState(pod.state)
    if row.phase == Phase.STOPPING and state in (model.PodState.RUNNING, model.PodState.STARTING):
        state = model.PodState.STOPPING
    if state is model.PodState.STOPPING and now > _promised_end(pod, meaning):
        state = model.PodState.STUCK
    return model.Pod(
        role=pod.role,
        index=pod.index,
        node=node,
        devices=tuple(pod.allocation.devices),
        milli=pod.allocation.gpu_milli,
        state=state,
        started=seconds_of(pod.started_at or pod.created_at),
    )


def _promised_end(pod: Pod, meaning: Meaning) -> datetime:
    grace = meaning.spec.grace_period_seconds if meaning.spec else 0
    return pod.since + timedelta(seconds=grace) + STUCK_AFTER


def _workload(
    row: Workload, name: str, queue: str, meaning: Meaning, pods: tuple[model.Pod, ...]
) -> model.Workload:
    runs = row.phase in (Phase.RUNNING, Phase.STOPPING) and row.started_at is not None
    spec = meaning.spec
    return model.Workload(
        name=name,
        project=queue,
        tree=meaning.tree,
        pools=tuple(row.pools),
        priority=row.priority,
        preemptible=row.preemptible,
        submitted=seconds_of(row.submitted_at),
        max_runtime=row.max_runtime,
        started=seconds_of(row.started_at) if runs and row.started_at else None,
        last_checkpoint=seconds_of(row.last_checkpoint_at) if row.last_checkpoint_at else None,
        preemptions=row.preemptions,
        backoff_until=seconds_of(row.backoff_until) if row.backoff_until else None,
        preemption_delay=spec.preemption_delay if spec else None,
        stale_gang_grace=spec.stale_gang_grace if spec else None,
        stale_since=seconds_of(row.stale_since) if row.stale_since else None,
        suspended=row.phase == Phase.STOPPING and row.next_phase != Phase.PENDING,
        misconfigured=meaning.trouble,
        pods=pods,
    )


def _reservations(names: Mapping[uuid.UUID, str]) -> tuple[model.Reservation, ...]:
    rows = Reservation.objects.select_related("node").order_by("workload_id", "role", "index")
    return tuple(
        model.Reservation(
            workload=names[row.workload_id],
            role=row.role,
            index=row.index,
            node=row.node.name,
            devices=tuple(row.devices),
            milli=row.gpu_milli,
            expires=seconds_of(row.expires_at) if row.expires_at else None,
        )
        for row in rows
        if row.workload_id in names and row.node.state in NODE_STATES
    )
