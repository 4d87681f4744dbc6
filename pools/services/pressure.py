"""Here the scheduler reports what presses on a pool, and the autoscaler's answer becomes what is wanted."""
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction

from pools import history
from pools.engine.autoscaler import (
    AutoscalerConfig,
    ClockValues,
    Pressure,
    ScaleDecision,
    desired_nodes,
)
from pools.engine.node_spec import NodeSpec
from pools.models import Node, NodePool
from pools.models.node import USABLE
from pools.models.scaling import ScalingKind
from pools.services.pool_values import spec_of


def report_pressure(
    pool_id: int, *, queued: int, running: int, capacity: int, nodes_wanted: int, at: datetime,
    binding: str = "gpu",
) -> bool:  # fmt: skip
    """Store the report, act on it; True when the pool wants another number of nodes now.

    `queued`, `running` and `capacity` are thousandths of slots. A node has one slot per GPU, or one if it has
    no GPU; work that takes half of a node's CPU, memory or pods fills half of its slots. `queued` waits for
    nodes, may run by its limits and fits this pool, or is reserved on nodes that still boot; `binding` is the
    resource by which it fills the most. `nodes_wanted` more nodes than the ready ones hold it, gangs whole.
    """
    nodes = Node.objects.filter(pool_id=pool_id, state__in=USABLE).count()
    pressure = {
        "queued": queued, "running": running, "capacity": capacity, "nodes": nodes,
        "gang_nodes": nodes_wanted, "binding": binding,
    }  # fmt: skip
    pool = NodePool.objects.get(pk=pool_id)
    if not _matters(pool, pressure, at):
        return False
    with transaction.atomic():
        return _store(NodePool.objects.select_for_update(no_key=True).get(pk=pool_id), pressure, at)


def autoscale(pool: NodePool, at: datetime) -> bool:
    """Replay the latest report, for time has passed; nothing happens before there is one.

    The caller holds the row's lock.
    """
    return _decide(pool, at)


def would_autoscale(pool: NodePool, at: datetime) -> bool:
    decision = _decision(pool, at)
    return decision is not None and decision.desired != pool.wanted


def _matters(pool: NodePool, pressure: Mapping[str, Any], at: datetime) -> bool:
    """Most reports say what the last one said: those cost one read."""
    if pool.pressure != pressure or (pool.idle_since is None) != (_busy(pressure)):
        return True
    return would_autoscale(pool, at)


def _store(pool: NodePool, pressure: Mapping[str, Any], at: datetime) -> bool:
    pool.pressure = dict(pressure)
    if _busy(pressure):
        pool.idle_since = None
    elif pool.idle_since is None:
        pool.idle_since = at
    changed = _decide(pool, at)
    pool.save(update_fields=["pressure", "idle_since"])
    return changed


def _decide(pool: NodePool, at: datetime) -> bool:
    decision = _decision(pool, at)
    if decision is None or decision.desired == pool.wanted:
        return False
    before, pool.wanted, pool.last_scaled_at = pool.wanted, decision.desired, at
    pool.save(update_fields=["wanted", "last_scaled_at"])
    history.write(
        pool, ScalingKind.AUTOSCALE, decision.reason, at=at, before=before, after=pool.wanted,
        rule=decision.rule, pressure=pool.pressure,
    )  # fmt: skip
    return True


def _decision(pool: NodePool, at: datetime) -> ScaleDecision | None:
    expired = pool.expires_at is not None and at >= pool.expires_at
    if pool.paused or not (expired or (pool.elastic and pool.pressure)):
        return None
    pressure: dict[str, Any] = pool.pressure or dict.fromkeys(("queued", "running", "capacity", "nodes"), 0)
    return desired_nodes(Pressure(**pressure), pool.wanted, _config(pool, spec_of(pool)), _clock(pool, at))


def _config(pool: NodePool, spec: NodeSpec) -> AutoscalerConfig:
    return AutoscalerConfig(
        min=spec.min,
        max=spec.ceiling,
        slots_per_node=max(pool.gpus_per_node, 1) * 1000,
        ready_threshold=0 if pool.operational_since else spec.ready_threshold,
        cooldown=pool.autoscale_cooldown,
        idle_timeout=pool.autoscale_idle_timeout,
    )


def _clock(pool: NodePool, at: datetime) -> ClockValues:
    return ClockValues(
        now=at.timestamp(),
        last_scaled_at=pool.last_scaled_at.timestamp() if pool.last_scaled_at else None,
        idle_since=pool.idle_since.timestamp() if pool.idle_since else None,
        expires_at=pool.expires_at.timestamp() if pool.expires_at else None,
    )


def _busy(pressure: Mapping[str, Any]) -> bool:
    return bool(pressure["running"] > 0 or pressure["queued"] > 0)
