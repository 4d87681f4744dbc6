"""Convert the rows of a live workload and its pods into an engine object."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from berth.core.spec import WorkloadSpec
from projects.models import Phase, PodState
from scheduler.engine import model
from scheduler.engine.from_spec import is_endless, scale_up_adds_nodes, to_timestamp, with_avoided_nodes
from scheduler.loop.observe.image_policies import NONE, Rejections
from scheduler.loop.observe.live_rows import PodRow, WorkloadRow
from scheduler.loop.observe.specs import ParsedSpec

# Time after the grace period at which a stopping pod counts as stuck.
STUCK_AFTER = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class ObservedWorkload:
    """State of a workload when it was observed. A commit compares it with the locked row."""

    pk: uuid.UUID
    version: int
    phase: str
    run: int
    spec: ParsedSpec


class WorkloadNames(NamedTuple):
    """A workload's name in the engine, the names that it refers to, and its parsed document."""

    name: str
    queue: str
    after: tuple[model.Dependency, ...]  # unmet dependencies
    spec: ParsedSpec
    rejections: Rejections = NONE  # pools that do not accept the workload's image or volumes, with the reason
    deferred_pool: str | None = None  # pool not used yet because of `burst_after`


class WorkloadEntry(NamedTuple):
    row: WorkloadRow
    pods: Sequence[PodRow]
    names: WorkloadNames
    nodes: Sequence[str]  # node name of each pod, empty if the node no longer exists
    workload: model.Workload
    observed: ObservedWorkload
    pod_ids: Sequence[tuple[tuple[str, str, int], uuid.UUID]]  # engine name and ID of each pod


def deferred_pool(pending_since: datetime, spec: WorkloadSpec, now: datetime) -> str | None:
    """Return the pool that a pending workload is not allowed to use yet, or None if there is no such pool."""
    if spec.burst_after is None or now >= pending_since + timedelta(seconds=spec.burst_after):
        return None
    return spec.burst_pool


def can_change_with_time(row: WorkloadRow, pods: Sequence[PodRow]) -> bool:
    """Return whether the engine object can change as time passes, for example when a stopping pod becomes
    stuck.
    """
    return bool(pods) and (row.phase == Phase.STOPPING or any(pod.state == PodState.STOPPING for pod in pods))


def to_observed_workload(
    row: WorkloadRow, pods: Sequence[PodRow], names: WorkloadNames, nodes: Sequence[str], now: datetime
) -> WorkloadEntry:
    runs = row.phase in (Phase.RUNNING, Phase.STOPPING) and row.started_at is not None
    parsed, spec = names.spec, names.spec.spec
    # Nodes are avoided only while a retry rule requires another node. An edit may have removed the rule.
    avoids = row.avoided_nodes and spec is not None and any(rule.other_node for rule in spec.retry)
    pools = [pool for pool in row.pools if pool not in names.rejections]
    rejection = "" if pools else "; ".join(names.rejections[pool] for pool in row.pools)
    pools = [pool for pool in pools if pool != names.deferred_pool] or pools
    workload = model.Workload(
        name=names.name,
        project=names.queue,
        tree=with_avoided_nodes(parsed.tree, row.avoided_nodes) if avoids else parsed.tree,
        pools=tuple(pools or row.pools),
        priority=row.priority,
        preemptible=row.preemptible,
        submitted=to_timestamp(row.requeued_at or row.submitted_at),
        max_runtime=row.max_runtime,
        started=to_timestamp(row.started_at) if runs and row.started_at else None,
        last_checkpoint=to_timestamp(row.last_checkpoint_at) if row.last_checkpoint_at else None,
        preemptions=row.preemptions,
        restarts=row.restarts,
        backoff_until=to_timestamp(row.backoff_until) if row.backoff_until else None,
        start_refusal=row.start_refusal,
        preemption_delay=spec.preemption_delay if spec else None,
        stale_gang_grace=spec.stale_gang_grace if spec else None,
        stale_since=to_timestamp(row.stale_since) if row.stale_since else None,
        endless=spec is not None and is_endless(spec),
        scale_up_adds_nodes=spec is None or scale_up_adds_nodes(spec),
        suspended=row.phase == Phase.STOPPING and row.next_phase != Phase.PENDING,
        misconfigured=parsed.error or rejection,
        after=names.after,
        awaits_code=row.code_wait,
        pods=tuple(_engine_pod(now, pod, node, row, parsed) for pod, node in zip(pods, nodes, strict=True)),
    )
    return WorkloadEntry(
        row,
        pods,
        names,
        nodes,
        workload,
        ObservedWorkload(row.pk, row.version, row.phase, row.run, parsed),
        [((names.name, pod.role, pod.index), pod.pk) for pod in pods],
    )


def _engine_pod(now: datetime, pod: PodRow, node: str, row: WorkloadRow, parsed: ParsedSpec) -> model.Pod:
    state = model.PodState.COMPLETED if pod.state == PodState.SUCCEEDED else model.PodState(pod.state)
    if row.phase == Phase.STOPPING and state in (model.PodState.RUNNING, model.PodState.STARTING):
        state = model.PodState.STOPPING
    if state is model.PodState.STOPPING and now > _stop_deadline(pod, parsed):
        state = model.PodState.STUCK
    return model.Pod(
        role=pod.role,
        index=pod.index,
        node=node,
        devices=tuple(pod.devices),
        milli=pod.gpu_milli,
        state=state,
        started=to_timestamp(pod.started_at or pod.created_at),
    )


def _stop_deadline(pod: PodRow, parsed: ParsedSpec) -> datetime:
    seconds = parsed.spec.stop_seconds if parsed.spec else 0
    return pod.since + timedelta(seconds=seconds) + STUCK_AFTER
