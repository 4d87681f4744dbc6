"""Record how nodes isolate their pods, as reported by their agents."""

import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict

from berth.db.loops.crash_points import assert_no_transaction
from berth.db.loops.lease import HeldLease, fenced_transaction
from pools.models import Node, NodePool
from pools.models.node import HOSTING
from pools.runtimes.base import Runtime, RuntimeFailure

log = logging.getLogger(__name__)


def record_isolation(
    runtime_for: Callable[[NodePool], Runtime], held: HeldLease, *, only_missing: bool
) -> int:
    """Ask the runtimes how their nodes isolate pods, and record the answers.

    Return the number of nodes whose record has changed. With `only_missing`, skip nodes that have already
    answered.
    """
    nodes = Node.objects.filter(state__in=HOSTING).select_related("pool").order_by("pk")
    if only_missing:
        nodes = nodes.filter(isolation__isnull=True)
    by_runtime: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        by_runtime[node.pool.runtime].append(node)
    assert_no_transaction()
    changed = [
        (node, record)
        for members in by_runtime.values()
        for node, record in _isolation_changes(members, runtime_for)
    ]
    if changed:
        with fenced_transaction(held):
            for node, record in changed:
                Node.objects.filter(pk=node.pk).update(isolation=record)
    return len(changed)


def _isolation_changes(
    nodes: list[Node], runtime_for: Callable[[NodePool], Runtime]
) -> list[tuple[Node, dict[str, object]]]:
    try:
        reported = runtime_for(nodes[0].pool).get_isolation([node.instance_id for node in nodes])
    except (RuntimeFailure, LookupError, OSError, ValueError) as error:
        log.warning("the isolation of nodes with the runtime %s is unknown: %s", nodes[0].pool.runtime, error)
        return []
    records = [
        (node, {**asdict(reported[node.instance_id]), "limits": list(reported[node.instance_id].limits)})
        for node in nodes
        if node.instance_id in reported
    ]
    return [(node, record) for node, record in records if node.isolation != record]
