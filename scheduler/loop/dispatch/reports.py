"""Record the pod states that runtimes report, and release freed resources."""

import logging
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db import DatabaseError, InterfaceError, OperationalError

from berth.db.loops.crash_points import assert_no_transaction, crash_point
from berth.db.loops.lease import fenced_transaction
from berth.db.queries.compiled import compiled_once
from berth.db.writes.moves import RowChange, change_rows
from berth.db.writes.set_writes import write_with_bisection
from pools.models import Node, NodePool
from pools.runtimes.base import PodCause, PodReport, RuntimeFailure
from pools.runtimes.base import PodState as Reported
from projects.models import Pod, PodState
from projects.models.workloads import LIVE_POD_STATES
from scheduler.loop.context import Runtimes, SchedulerContext
from scheduler.loop.dispatch.cleanup.retained_files import keep_files
from scheduler.loop.dispatch.evictions.cluster_evictions import (
    find_cluster_evictions,
    record_cluster_evictions,
)
from scheduler.loop.dispatch.lifecycle.gangs import (
    apply_gang_verdicts,
    evaluate_gangs,
    lock_gangs,
    recount_gpus,
    workloads_to_evaluate,
)
from scheduler.loop.dispatch.lifecycle.verdict import IMAGE_PULL_FAILED, OUT_OF_MEMORY, WORKSPACE_FULL
from scheduler.loop.dispatch.starts.messages import progress_messages, store_start_messages
from scheduler.loop.observe.live_rows import PodRow
from scheduler.loop.queries import POOLS
from scheduler.loop.reconcile.pod_warnings import find_warnings, record_warnings
from scheduler.reports.usage.allocation_hours import release_allocations

log = logging.getLogger(__name__)

REASONS = {
    PodCause.OUT_OF_MEMORY: OUT_OF_MEMORY,
    PodCause.WORKSPACE_FULL: WORKSPACE_FULL,
    PodCause.IMAGE_PULL_FAILED: IMAGE_PULL_FAILED,
}
LOST_OR_ENDED = ("lost", "ended")
ALIVE = (Reported.STARTING, Reported.RUNNING)


class NodeSummary(NamedTuple):
    pk: int
    name: str
    state: str
    pool_id: int
    eviction_reason: str = ""


NODES = compiled_once(lambda keys: Node.objects.filter(pk__any=keys).values_list(*NodeSummary._fields))
Nodes = Mapping[int, NodeSummary]
Pools = Mapping[int, NodePool]


@dataclass(frozen=True, slots=True)
class PodChange:
    """New state of a pod's row. `pod` is the row before the change."""

    pod: PodRow
    state: str
    columns: Mapping[str, Any]
    is_eviction: bool = False  # True if the pod's cluster evicted the pod


@dataclass(frozen=True, slots=True)
class ReportSummary:
    """Summary of the changes that the reports caused."""

    changed: int = 0
    ended: int = 0  # number of changed pods that have ended
    unknown: frozenset[uuid.UUID] = frozenset()  # starting pods that are unknown to their runtimes
    notes: tuple[str, ...] = ()
    has_more: bool = False  # True if changes are left for the next tick
    postponed: int = 0  # number of starts that the next tick records


def record_reports(
    now: datetime, context: SchedulerContext, known_pools: Iterable[NodePool] = ()
) -> ReportSummary:
    """Query the runtimes about all live pods, update the pods' rows, and evaluate the affected workloads.

    Some updates may be left for the next tick.
    """
    pods = [pod for pod in context.cache.workloads.read_pods() if pod.state in LIVE_POD_STATES]
    node_values = NODES([*{pod.node_id for pod in pods}]) if pods else ()
    nodes = {row[0]: NodeSummary._make(row) for row in node_values}
    pools = {pool.pk: pool for pool in known_pools}
    if any(node.pool_id not in pools for node in nodes.values()):
        pools = {pool.pk: pool for pool in POOLS()}
    assert_no_transaction()
    reports, notes = _fetch_reports(pods, nodes, pools, context.runtimes)
    notes += _stop_pods_on_lost_or_ended_nodes(pods, nodes, reports, pools, context)
    crash_point("reports.looked")
    changes = [
        change
        for pod in pods
        if (change := change_for_report(pod, nodes[pod.node_id], reports.get(pod.pk), now)) is not None
    ]
    postponed, changes = _postpone_new_starts(changes, context)
    left, changes = _defer_excess_changes(changes, context.size.max_changes)
    being_evicted = _pods_being_evicted(pods, changes, nodes, reports)
    store_start_messages(progress_messages(pods, reports, now, context), now, context)
    to_evaluate = set(workloads_to_evaluate())
    affected = {change.pod.workload_id for change in changes} | to_evaluate
    warnings = find_warnings(pods, reports)
    if warnings:
        with fenced_transaction(context.held_lease):
            record_warnings(warnings)
    rejections: list[str] = []
    if affected:
        # If the record of a start is lost in a database crash, the runtime reports the pod again.
        only_starts = not to_evaluate and all(change.state == PodState.RUNNING for change in changes)
        try:
            with fenced_transaction(context.held_lease, waits_for_disk=not only_starts):
                workloads = lock_gangs(affected)
                evictions = find_cluster_evictions(
                    _write_pod_rows(changes, now), *_failed_and_lost_pods(changes), being_evicted
                )
                keep_files(_failed_pods(changes), workloads, now, context.specs)
                crash_point("reports.written")
                apply_gang_verdicts(workloads, now, context.specs, being_evicted)
                record_cluster_evictions(evictions, now)
                if not only_starts:
                    recount_gpus(workloads, context.specs)
                crash_point("reports.before_end")
        except (OperationalError, InterfaceError):
            raise
        except (DatabaseError, AssertionError, LookupError, ValueError):
            rejections, more_notes = _record_one_by_one(changes, affected, being_evicted, now, context)
            notes += [*rejections, *more_notes]
        crash_point("reports.done")
    unknown = frozenset(
        pod.pk
        for pod in pods
        if pod.state == PodState.STARTING
        and (report := reports.get(pod.pk)) is not None
        and report.state is Reported.UNKNOWN
    )
    ended = sum(change.state not in LIVE_POD_STATES for change in changes)
    has_more = left > 0 and not rejections
    return ReportSummary(len(changes), ended, unknown, tuple(notes), has_more, postponed)


def _record_one_by_one(
    changes: Sequence[PodChange], affected: Collection[uuid.UUID], being_evicted: Mapping[uuid.UUID, str],
    now: datetime, context: SchedulerContext,
) -> tuple[list[str], list[str]]:  # fmt: skip
    """Record the changes one by one.

    Return a note for each rejected change, and for each gang that could not be evaluated.
    """
    with fenced_transaction(context.held_lease):
        workloads = lock_gangs(affected)
        rejections, evicted = _write_changes(changes, now)
        evictions = find_cluster_evictions(evicted, *_failed_and_lost_pods(changes), being_evicted)
        keep_files(_failed_pods(changes), workloads, now, context.specs)
        notes = evaluate_gangs(workloads, now, context.specs, being_evicted)
        record_cluster_evictions(evictions, now)
        recount_gpus(workloads, context.specs)
    return rejections, notes


def _postpone_new_starts(changes: list[PodChange], context: SchedulerContext) -> tuple[int, list[PodChange]]:
    """Return the number of starts to leave for the next tick, and the changes to record now."""
    running = {
        change.pod.pk
        for change in changes
        if change.pod.state == PodState.STARTING and change.state == PodState.RUNNING
    }
    postponed = running - context.reported_running if context.size.is_saturated else set()
    context.reported_running = frozenset(running)
    return len(postponed), [change for change in changes if change.pod.pk not in postponed]


def _defer_excess_changes(changes: list[PodChange], maximum: int) -> tuple[int, list[PodChange]]:
    """Return the number of changes to leave for the next tick, and the changes to record now.

    All changes of a workload are recorded in the same tick.
    """
    changes.sort(key=lambda change: change.pod.workload_id)
    end = maximum
    while 0 < end < len(changes) and changes[end].pod.workload_id == changes[end - 1].pod.workload_id:
        end += 1
    return max(0, len(changes) - end), changes[:end]


def change_for_report(
    pod: PodRow, node: NodeSummary, report: PodReport | None, now: datetime
) -> PodChange | None:
    """Return the change that a report makes to the pod's row, or None if the row stays the same."""
    is_evicted_with_node = node.eviction_reason != "" and pod.state != PodState.STOPPING
    if node.state in LOST_OR_ENDED:
        message = f"Node {node.name} {'was lost' if node.state == 'lost' else 'no longer exists'}."
        columns = {"ended_at": now, "message": node.eviction_reason or message}
        return PodChange(pod, PodState.LOST, columns, is_evicted_with_node)
    if report is None or report.state is Reported.STARTING:
        return None
    if report.state is Reported.UNKNOWN:
        return _change_for_unknown_pod(pod, now)
    if report.state is Reported.RUNNING:
        started = {"started_at": min(report.started_at or now, now)}
        if pod.state == PodState.STARTING:
            return PodChange(pod, PodState.RUNNING, {**started, "address": report.address, "message": ""})
        return PodChange(pod, pod.state, started) if pod.started_at is None else None
    state = _end_state(pod, report)
    is_eviction = state == PodState.LOST and (report.cause is PodCause.EVICTED or is_evicted_with_node)
    columns = _end_columns(pod, report, now)
    if is_eviction and is_evicted_with_node:
        columns["message"] = node.eviction_reason
    return PodChange(pod, state, columns, is_eviction)


def _pods_being_evicted(
    pods: Iterable[PodRow], changes: Iterable[PodChange], nodes: Nodes, reports: Mapping[uuid.UUID, PodReport]
) -> dict[uuid.UUID, str]:
    """Return the eviction reason of each live pod that its cluster or node is evicting, keyed by pod ID."""
    failed = {change.pod.workload_id for change in changes if change.state == PodState.FAILED}
    evictions: dict[uuid.UUID, str] = {}
    for pod in pods if failed else ():
        report = reports.get(pod.pk)
        if pod.workload_id not in failed or pod.state == PodState.STOPPING or report is None:
            continue
        reason = report.eviction or nodes[pod.node_id].eviction_reason
        if report.state in ALIVE and reason:
            evictions[pod.pk] = reason
    return evictions


def _change_for_unknown_pod(pod: PodRow, now: datetime) -> PodChange | None:
    if pod.state != PodState.RUNNING:
        return None
    return PodChange(pod, PodState.LOST, {"ended_at": now, "message": "The runtime no longer knows the pod."})


def _end_state(pod: PodRow, report: PodReport) -> str:
    if report.cause in (PodCause.START_FAILED, PodCause.IMAGE_PULL_FAILED, PodCause.WORKSPACE_FULL):
        return PodState.FAILED
    if report.cause in (PodCause.HOST_STOPPED, PodCause.LOST):
        return PodState.LOST
    if report.cause in (PodCause.STOPPED, PodCause.EVICTED):
        return PodState.STOPPED if pod.state == PodState.STOPPING else PodState.LOST
    return PodState.SUCCEEDED if report.exit_code == 0 else PodState.FAILED


def _end_columns(pod: PodRow, report: PodReport, now: datetime) -> dict[str, Any]:
    started_at = pod.started_at or report.started_at
    ended_at = min(report.ended_at or now, now)  # the node's clock may be ahead
    return {
        "started_at": started_at,
        "ended_at": ended_at if started_at is None else max(started_at, ended_at),
        "exit_code": report.exit_code,
        "signal": report.signal,
        "message": report.message,
        "memory_peak_mib": report.memory_peak_mib,
        **({"address": report.address} if report.address else {}),
        **({"stop_reason": REASONS[report.cause]} if report.cause in REASONS else {}),
    }


def _fetch_reports(
    pods: Collection[PodRow], nodes: Nodes, pools: Pools, runtimes: Runtimes
) -> tuple[dict[uuid.UUID, PodReport], list[str]]:
    by_pool: dict[int, list[PodRow]] = defaultdict(list)
    for pod in pods:
        by_pool[nodes[pod.node_id].pool_id].append(pod)
    reports: dict[uuid.UUID, PodReport] = {}
    notes: list[str] = []
    for pool_id, members in by_pool.items():
        pool = pools[pool_id]
        ids = {str(pod.pk): pod.pk for pod in members}
        try:
            pod_reports = runtimes(pool).get_reports(list(ids))
        except (RuntimeFailure, LookupError, OSError) as error:
            log.warning("the runtime of pool %s is not responding: %s", pool.name, error)
            notes.append(f"The runtime of pool {pool.name} is not responding: {error}")
            continue
        reports.update({ids[pod_id]: report for pod_id, report in pod_reports.items()})
    return reports, notes


def _stop_pods_on_lost_or_ended_nodes(
    pods: Iterable[PodRow],
    nodes: Nodes,
    reports: Mapping[uuid.UUID, PodReport],
    pools: Pools,
    context: SchedulerContext,
) -> Iterable[str]:
    """Stop pods on lost or ended nodes, before their devices are allocated again."""
    for pod in pods:
        report, node = reports.get(pod.pk), nodes[pod.node_id]
        if node.state not in LOST_OR_ENDED or report is None or report.state not in ALIVE:
            continue
        if not context.leads():
            return
        try:
            context.runtimes(pools[node.pool_id]).stop(str(pod.pk), 0)
        except (RuntimeFailure, LookupError, OSError) as error:
            log.warning(
                "pod %s on node %s, which has ended or been lost, could not be stopped: %s",
                pod.pk,
                node.name,
                error,
            )
            place = f"node {node.name}, which has ended or been lost,"
            yield f"Pod {pod.pk} on {place} could not be stopped: {error}"


def _failed_pods(changes: Iterable[PodChange]) -> dict[uuid.UUID, list[uuid.UUID]]:
    failed: dict[uuid.UUID, list[uuid.UUID]] = defaultdict(list)
    for change in changes:
        if change.state == PodState.FAILED:
            failed[change.pod.workload_id].append(change.pod.pk)
    return failed


def _failed_and_lost_pods(changes: Collection[PodChange]) -> tuple[list[uuid.UUID], list[uuid.UUID]]:
    failed = [change.pod.pk for change in changes if change.state == PodState.FAILED]
    return failed, [change.pod.pk for change in changes if change.state == PodState.LOST]


def _write_changes(changes: Sequence[PodChange], now: datetime) -> tuple[list[str], list[uuid.UUID]]:
    """Write the changes.

    Return a note for each change that the database rejects, and the pods that their cluster has evicted.
    """
    evicted: list[uuid.UUID] = []
    rejected = write_with_bisection(changes, lambda part: evicted.extend(_write_pod_rows(part, now)))
    for change, reason in rejected:
        log.error("the report of pod %s could not be recorded: %s", change.pod.pk, reason)
    notes = [
        f"The report of pod {change.pod.pk} could not be recorded: {reason}" for change, reason in rejected
    ]
    return notes, evicted


def _write_pod_rows(changes: Sequence[PodChange], now: datetime) -> list[uuid.UUID]:
    """Write the changes to the pods' rows. Return the pods that their cluster has evicted."""
    rows = [
        RowChange(change.pod.pk, [change.pod.state], {"state": change.state, "since": now, **change.columns})
        for change in changes
    ]
    written = change_rows(Pod, "state", rows)
    ended = [change.pod.pk for change in changes if change.state not in LIVE_POD_STATES]
    release_allocations([pk for pk in ended if pk in written], now)
    return [change.pod.pk for change in changes if change.is_eviction and change.pod.pk in written]
