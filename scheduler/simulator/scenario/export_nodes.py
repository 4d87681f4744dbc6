"""Write a scenario's pools and nodes."""

from datetime import datetime, timezone
from typing import Any

from berth.core.values.amounts import MILLI
from scheduler.engine.model import Node, NodeShape, Pool

Document = dict[str, Any]


def pool_document(pool: Pool) -> Document:
    mode, consolidation = pool.fair_share, pool.consolidation
    bounds: Document = {"max": pool.nodes_max}
    if pool.nodes_max is not None and pool.node_shape is not None:
        bounds["shape"] = _shape_document(pool.node_shape)
    return {
        "name": pool.name,
        "placement": {"nodes": pool.node_strategy.value, "devices": pool.device_strategy.value},
        "reclaim_min_runtime": pool.reclaim_min_runtime,
        "preempt_min_runtime": pool.preempt_min_runtime,
        "preemption_delay": pool.preemption_delay,
        "stale_gang_grace": pool.stale_gang_grace,
        "consolidation": {
            "enabled": consolidation.enabled,
            "max_moves": consolidation.max_moves,
            "max_trials": consolidation.max_trials,
        },
        "fairshare": {
            "mode": "time_based" if mode.time_based else "point_in_time",
            "half_life": mode.half_life,
            "window": mode.window,
            "tumbling": mode.tumbling,
            "k": mode.k,
            "count": "all" if mode.count_all else "over_quota",
        },
        "over_quota_weights": pool.over_quota_weights,
        "topology": list(pool.topology),
        "nodes": bounds,
        "reservation_after": pool.reservation_after,
        "cpu_load_limit": pool.cpu_load_limit / MILLI,
    }


def node_document(node: Node) -> Document:
    document = {"name": node.name, "pool": node.pool, **_shape_document(node), "state": node.state.value}
    if node.ordinal:
        document["ordinal"] = node.ordinal
    if node.only_project:
        document["only_project"] = node.only_project
    if node.ready_at is not None:
        ready_at = datetime.fromtimestamp(node.ready_at, timezone.utc)
        document["ready_at"] = ready_at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return document


def _shape_document(machine: Node | NodeShape) -> Document:
    document: Document = {
        "gpus": machine.gpus,
        "gpu_model": machine.gpu_model,
        "gpu_memory_mib": machine.gpu_memory_mib,
        "cpu": machine.cpu / MILLI,
        "memory_mib": machine.memory_mib,
        "max_pods": machine.max_pods,
        "labels": dict(machine.labels),
        "taints": [
            {"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in machine.taints
        ],
    }
    return document | ({"lacks": dict(machine.missing_features)} if machine.missing_features else {})
