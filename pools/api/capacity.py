"""Total, allocated and free resources of pools and nodes."""

from collections.abc import Iterable, Sequence

from django.db.models import F, Func, IntegerField, Q, QuerySet, Sum
from django.db.models.functions import Coalesce

from berth.server.api.responses import Amounts, amounts
from pools.models import Node
from pools.models.node import NodeState

# The rows of what is held are the scheduler's, two floors up; they are reached from the node, by name.
HELD = Q(allocations__released_at__isnull=True)
DEVICES = Func(F("allocations__devices"), function="cardinality", output_field=IntegerField())


def with_held(nodes: QuerySet[Node]) -> QuerySet[Node]:
    """Each node with the GPUs, CPU and memory that pods on it hold now."""
    return nodes.annotate(
        held_gpu=Coalesce(Sum(F("allocations__gpu_milli") * DEVICES, filter=HELD), 0),
        held_cpu=Coalesce(Sum("allocations__cpu_milli", filter=HELD), 0),
        held_memory=Coalesce(Sum("allocations__memory_mib", filter=HELD), 0),
    )


def capacity_of(node: Node) -> Amounts:
    return amounts(node.gpus * 1000, node.cpu_milli, node.memory_mib)


def free_of(node: Node) -> Amounts:
    """Of a node that came `with_held`; one that takes no work has nothing free."""
    return amounts(*_free(node))


def room_of(pool_ids: Iterable[int]) -> dict[int, tuple[Amounts, Amounts]]:
    """By pool: what its nodes that take work have, and what of it is free."""
    found: dict[int, list[Sequence[int]]] = {pool_id: [] for pool_id in pool_ids}
    ready = Node.objects.filter(pool__in=list(found), state=NodeState.READY)
    for node in with_held(ready).order_by("pk"):
        found[node.pool_id].append((node.gpus * 1000, node.cpu_milli, node.memory_mib, *_free(node)))
    return {pool_id: _summed(rows) for pool_id, rows in found.items()}


def _summed(rows: list[Sequence[int]]) -> tuple[Amounts, Amounts]:
    total = [sum(column) for column in zip(*rows, strict=True)] or [0] * 6
    return amounts(*total[:3]), amounts(*total[3:])


def _free(node: Node) -> tuple[int, int, int]:
    if node.state != NodeState.READY:
        return 0, 0, 0
    held: tuple[int, int, int] = (node.held_gpu, node.held_cpu, node.held_memory)  # type: ignore[attr-defined]
    return (
        max(0, node.gpus * 1000 - held[0]),
        max(0, node.cpu_milli - held[1]),
        max(0, node.memory_mib - held[2]),
    )
