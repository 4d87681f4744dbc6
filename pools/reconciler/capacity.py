"""Store how much capacity Berth may use on machines that it shares with others."""

from collections.abc import Collection
from typing import Any

from pools.models import Node, NodePool
from pools.providers.base import Instance, Shape

OBSTACLE_MAX = 500
LIVE_POD_STATES = ("starting", "running", "stopping")


def capacity_columns(
    pool: NodePool, instance: Instance, ordered: Shape, before: Collection[int] = (),
    held: Collection[int] = (),
) -> dict[str, Any]:  # fmt: skip
    """Return the values of a node's capacity columns.

    The shape is the one that the instance reports or, by default, the one in the launch request. `before`
    lists the devices that previously counted as used by pods outside Berth, and `held` lists the allocated
    devices.
    """
    shape, shared = instance.shape or ordered, instance.shared
    columns: dict[str, Any] = {
        "gpus": shape.gpus,
        "gpu_model": shape.gpu_model or ordered.gpu_model,
        "gpu_memory_mib": shape.gpu_memory_mib or ordered.gpu_memory_mib,
        "cpu_milli": shape.cpu_milli,
        "memory_mib": shape.memory_mib,
        "max_pods": pool.max_pods,
        "labels": pool.labels,
    }
    if shared is None:
        return columns
    return columns | {
        "max_pods": min(shared.max_pods, pool.max_pods),
        "labels": {**shared.labels, **pool.labels},
        "obstacle": instance.obstacle[:OBSTACLE_MAX],
        "foreign": dict(shared.foreign),
        "foreign_devices": _foreign_devices(shared.foreign.get("gpus", 0), shape.gpus, before, held),
    }


def store_capacity(node: Node, instance: Instance) -> bool:
    """Store a shared machine's capacity. Return whether it has changed."""
    if instance.shared is None:
        return False
    pool = node.pool
    ordered = Shape(pool.cpu_milli, pool.memory_mib, pool.gpus_per_node, pool.gpu_model, pool.gpu_memory_mib)
    held = _allocated_devices(node) if instance.shared.foreign.get("gpus") else ()
    columns = capacity_columns(pool, instance, ordered, node.foreign_devices, held)
    changed = [name for name, value in columns.items() if getattr(node, name) != value]
    if changed:
        for name in changed:
            setattr(node, name, columns[name])
        node.save(update_fields=changed)
    return bool(changed)


def _foreign_devices(count: int, total: int, before: Collection[int], held: Collection[int]) -> list[int]:
    """Choose the devices to count as used by pods that Berth does not manage.

    Kubernetes reports only how many devices these pods use. Earlier choices are kept, and allocated devices
    are chosen last. If an allocated device is chosen, Berth's pod on that device is lost.
    """
    preferred = sorted(range(total), key=lambda index: (index in held, index not in before, -index))
    return sorted(preferred[:count])


def _allocated_devices(node: Node) -> frozenset[int]:
    # Pods belong to a higher layer, so this function reads them through the node's relations.
    rows = Node.objects.filter(pk=node.pk, pods__state__in=LIVE_POD_STATES)
    devices = rows.values_list("pods__allocation__devices", flat=True)
    return frozenset(index for indexes in devices for index in indexes or ())
