"""Total, allocated and free resources of pools and nodes."""

from collections.abc import Iterable, Sequence

from django.db.models import F, Func, IntegerField, Q, QuerySet, Sum
from django.db.models.functions import Coalesce

from berth.server.api.responses import Amounts, to_amounts
from pools.models import Node
from pools.models.node import NodeState

# Allocations belong to a higher layer, so this module reads them through the node's relations.
IS_ACTIVE = Q(allocations__released_at__isnull=True)
DEVICES = Func(F("allocations__devices"), function="cardinality", output_field=IntegerField())


def annotate_allocated_amounts(nodes: QuerySet[Node]) -> QuerySet[Node]:
    """Annotate each node with its allocated GPUs, CPU and memory."""
    return nodes.annotate(
        allocated_gpu=Coalesce(Sum(F("allocations__gpu_milli") * DEVICES, filter=IS_ACTIVE), 0),
        allocated_cpu=Coalesce(Sum("allocations__cpu_milli", filter=IS_ACTIVE), 0),
        allocated_memory=Coalesce(Sum("allocations__memory_mib", filter=IS_ACTIVE), 0),
    )


def node_capacity(node: Node) -> Amounts:
    return to_amounts(node.usable_gpus * 1000, node.cpu_milli, node.memory_mib)


def node_free_capacity(node: Node) -> Amounts:
    """Return the node's free resources, or zeros if it accepts no pods.

    Expects a node from `annotate_allocated_amounts`.
    """
    return to_amounts(*_free_amounts(node))


def pool_capacity(pool_ids: Iterable[int]) -> dict[int, tuple[Amounts, Amounts]]:
    """Return the total and the free capacity of each pool's ready nodes, keyed by pool ID."""
    rows_by_pool: dict[int, list[Sequence[int]]] = {pool_id: [] for pool_id in pool_ids}
    ready = Node.objects.filter(pool__in=list(rows_by_pool), state=NodeState.READY)
    for node in annotate_allocated_amounts(ready).order_by("pk"):
        rows_by_pool[node.pool_id].append(
            (node.usable_gpus * 1000, node.cpu_milli, node.memory_mib, *_free_amounts(node))
        )
    return {pool_id: _sum_capacity(rows) for pool_id, rows in rows_by_pool.items()}


def _sum_capacity(rows: list[Sequence[int]]) -> tuple[Amounts, Amounts]:
    total = [sum(column) for column in zip(*rows, strict=True)] or [0] * 6
    return to_amounts(*total[:3]), to_amounts(*total[3:])


def _free_amounts(node: Node) -> tuple[int, int, int]:
    if node.state != NodeState.READY:
        return 0, 0, 0
    allocated: tuple[int, int, int] = (node.allocated_gpu, node.allocated_cpu, node.allocated_memory)  # type: ignore[attr-defined]
    return (
        max(0, node.usable_gpus * 1000 - allocated[0]),
        max(0, node.cpu_milli - allocated[1]),
        max(0, node.memory_mib - allocated[2]),
    )
