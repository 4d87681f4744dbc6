"""Query the volumes that a project may use, and the number of nodes that have each volume."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pools.engine.s3_sources import Access
from pools.engine.volumes import Volume, read_volumes
from pools.models import Node, NodePool
from pools.models.node import HOSTING
from projects.access import is_platform_admin, visible_projects
from projects.actor import Actor
from projects.models import Project


@dataclass(frozen=True, slots=True)
class UsableVolume:
    """Volume in one pool. `nodes` is the number of nodes that have the volume, out of `pool_nodes`."""

    name: str
    pool: str
    access: Access
    nodes: int
    pool_nodes: int


def project_volumes(project: Project) -> list[UsableVolume]:
    """Return the volumes that the project may use, ordered by name and pool."""
    pools = NodePool.objects.exclude(volumes=[]).only("name", "volumes").order_by("name")
    usable = [
        (pool, volume)
        for pool in pools
        for volume in read_volumes(pool.volumes)
        if volume.is_usable_by(project.name)
    ]
    labels = node_labels({pool.pk for pool, _ in usable})
    usable_volumes = (
        UsableVolume(
            volume.name, pool.name, volume.access, count_nodes(volume, labels[pool.pk]), len(labels[pool.pk])
        )
        for pool, volume in usable
    )
    return sorted(usable_volumes, key=lambda each: (each.name, each.pool))


def visible_volumes(actor: Actor, pool: NodePool) -> list[tuple[Volume, int]]:
    """Return the pool's volumes that the user's projects may use, each with its number of nodes.

    Only platform admins see the source and the other projects of a volume.
    """
    volumes = read_volumes(pool.volumes)
    if volumes and not is_platform_admin(actor):
        names = set(visible_projects(actor).values_list("name", flat=True))
        usable = [each for each in volumes if any(each.is_usable_by(name) for name in names)]
        volumes = tuple(
            replace(
                each,
                source="",
                endpoint="",
                region="",
                secret="",
                projects=tuple(sorted(names.intersection(each.projects))),
            )
            for each in usable
        )
    labels = node_labels([pool.pk])[pool.pk] if volumes else []
    return [(volume, count_nodes(volume, labels)) for volume in volumes]


def node_labels(pools: Iterable[int]) -> dict[int, list[Mapping[str, Any]]]:
    """Return the labels of each node that can host pods, keyed by pool."""
    labels: dict[int, list[Mapping[str, Any]]] = {pool: [] for pool in pools}
    rows = Node.objects.filter(pool__in=[*labels], state__in=HOSTING) if labels else Node.objects.none()
    for pool, values in rows.values_list("pool_id", "labels"):
        labels[pool].append(values)
    return labels


def count_nodes(volume: Volume, labels: Iterable[Mapping[str, Any]]) -> int:
    return sum(volume.is_on_node(each) for each in labels)
