"""Store the load that the scheduler reports for a pool, and autoscale the pool."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Count, Max, Q

from berth.db.queries.compiled import compiled_once
from pools import history
from pools.engine.autoscaler import (
    AutoscalerConfig,
    PoolPressure,
    ScaleDecision,
    ScalingTimes,
    decide_node_count,
)
from pools.engine.node_spec import NodeSpec
from pools.models import Node, NodePool
from pools.models.node import PENDING, USABLE
from pools.models.scaling import ScalingKind
from pools.services.pool_values import pool_node_spec

NODE_COUNTS = compiled_once(
    lambda pools: (
        Node.objects.filter(pool_id__any=pools)
        .order_by()
        .values_list("pool_id")
        .annotate(
            usable=Count("pk", filter=Q(state__in=USABLE)),
            pending=Count("pk", filter=Q(state__in=PENDING)),
            newest_ready_at=Max("ready_at", filter=Q(state__in=USABLE)),
        )
    )
)
POOLS = compiled_once(lambda pools: NodePool.objects.filter(pk__any=pools))
LOCKED_POOLS = compiled_once(
    lambda pools: NodePool.objects.select_for_update(no_key=True).filter(pk__any=pools)
)


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """Numbers of a pool's usable and pending nodes. `newest_ready_at` is when the newest usable node became
    ready.
    """

    usable: int
    pending: int
    newest_ready_at: datetime | None

    @classmethod
    def from_nodes(cls, nodes: Iterable[Node]) -> "NodeCounts":
        nodes = tuple(nodes)
        usable = [node for node in nodes if node.state in USABLE]
        ready_at = [node.ready_at for node in usable if node.ready_at is not None]
        pending = sum(node.state in PENDING for node in nodes)
        return cls(len(usable), pending, max(ready_at, default=None))

    @classmethod
    def for_pool(cls, pool_id: int) -> "NodeCounts":
        return next((cls(*counts) for _, *counts in NODE_COUNTS([pool_id])), cls(0, 0, None))


def report_pressure(
    pool_id: int, *, queued: int, running: int, capacity: int, gang_nodes: int, at: datetime,
    binding: str = "gpu", fence: Callable[[], AbstractContextManager[None]] = transaction.atomic,
) -> bool:  # fmt: skip
    """Store the report and autoscale the pool. Return whether the desired node count changed.

    `fence()` opens the transaction, which most reports do not need.

    `queued`, `running` and `capacity` are in thousandths of a slot. A node has one slot per GPU, or a single
    slot if it has no GPU. Pods that use half of a node's CPU, memory or pod limit fill half of its slots.
    `queued` is work that needs further nodes or waits for booting ones, and `binding` its scarcest resource.
    `gang_nodes` is the number of additional nodes that the queued gangs need.
    """
    nodes = NodeCounts.for_pool(pool_id)
    pressure = {
        "queued": queued, "running": running, "capacity": capacity, "nodes": nodes.usable,
        "gang_nodes": gang_nodes, "binding": binding,
    }  # fmt: skip
    if not any(_needs_write(pool, pressure, nodes, at) for pool in POOLS([pool_id])):
        return False
    with fence():
        return any(_store_report(pool, pressure, nodes, at) for pool in LOCKED_POOLS([pool_id]))


def autoscale(pool: NodePool, nodes: Iterable[Node], at: datetime) -> bool:
    """Autoscale the pool based on its latest report. Return whether the desired node count changed.

    `nodes` are the pool's live nodes. The caller must hold the lock on the pool's row.
    """
    return _apply_decision(pool, NodeCounts.from_nodes(nodes), at)


def would_change_node_count(pool: NodePool, nodes: Iterable[Node], at: datetime) -> bool:
    return _would_change_node_count(pool, NodeCounts.from_nodes(nodes), at)


def _needs_write(pool: NodePool, pressure: Mapping[str, Any], nodes: NodeCounts, at: datetime) -> bool:
    if pool.pressure != pressure or (pool.idle_since is None) != (_is_busy(pressure)):
        return True
    return _would_change_node_count(pool, nodes, at)


def _would_change_node_count(pool: NodePool, nodes: NodeCounts, at: datetime) -> bool:
    decision = _compute_decision(pool, nodes, at)
    return decision is not None and decision.desired != pool.nodes_desired


def _store_report(pool: NodePool, pressure: Mapping[str, Any], nodes: NodeCounts, at: datetime) -> bool:
    pool.pressure = dict(pressure)
    if _is_busy(pressure):
        pool.idle_since = None
    elif pool.idle_since is None:
        pool.idle_since = at
    changed = _apply_decision(pool, nodes, at)
    pool.save(update_fields=["pressure", "idle_since"])
    return changed


def _apply_decision(pool: NodePool, nodes: NodeCounts, at: datetime) -> bool:
    decision = _compute_decision(pool, nodes, at)
    if decision is None or decision.desired == pool.nodes_desired:
        return False
    before, pool.nodes_desired, pool.last_scaled_at = pool.nodes_desired, decision.desired, at
    pool.save(update_fields=["nodes_desired", "last_scaled_at"])
    history.write(
        pool, ScalingKind.AUTOSCALE, decision.reason, at=at, before=before, after=pool.nodes_desired,
        rule=decision.rule, pressure=pool.pressure,
    )  # fmt: skip
    return True


def _compute_decision(pool: NodePool, nodes: NodeCounts, at: datetime) -> ScaleDecision | None:
    expired = pool.expires_at is not None and at >= pool.expires_at
    if pool.paused or not (expired or (pool.is_elastic and pool.pressure)):
        return None
    return decide_node_count(
        _reported_pressure(pool, nodes),
        pool.nodes_desired,
        _autoscaler_config(pool, pool_node_spec(pool)),
        _scaling_times(pool, nodes, at),
    )


def _reported_pressure(pool: NodePool, nodes: NodeCounts) -> PoolPressure:
    """Return the load in the latest report.

    If no work is queued, the current node count replaces the reported one, because an outdated count could
    cause a scale-down.
    """
    report: dict[str, Any] = pool.pressure or dict.fromkeys(("queued", "running", "capacity", "nodes"), 0)
    if report["queued"] <= 0:
        report = {**report, "nodes": nodes.usable}
    return PoolPressure(**report, booting=nodes.pending)


def _autoscaler_config(pool: NodePool, spec: NodeSpec) -> AutoscalerConfig:
    return AutoscalerConfig(
        min=spec.min,
        max=spec.max_nodes,
        slots_per_node=max(pool.gpus_per_node, 1) * 1000,
        ready_threshold=0 if pool.operational_since else spec.ready_threshold,
        cooldown=pool.autoscale_cooldown,
        idle_timeout=pool.autoscale_idle_timeout,
    )


def _scaling_times(pool: NodePool, nodes: NodeCounts, at: datetime) -> ScalingTimes:
    idle_since = _idle_since(pool, nodes)
    return ScalingTimes(
        now=at.timestamp(),
        last_scaled_at=pool.last_scaled_at.timestamp() if pool.last_scaled_at else None,
        idle_since=idle_since.timestamp() if idle_since else None,
        expires_at=pool.expires_at.timestamp() if pool.expires_at else None,
    )


def _idle_since(pool: NodePool, nodes: NodeCounts) -> datetime | None:
    """Return when the pool became idle, or None if work is running or queued, or a node is booting."""
    if pool.idle_since is None or nodes.pending:
        return None
    return max(pool.idle_since, nodes.newest_ready_at or pool.idle_since)


def _is_busy(pressure: Mapping[str, Any]) -> bool:
    return bool(pressure["running"] > 0 or pressure["queued"] > 0)
