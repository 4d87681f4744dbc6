"""Check that a workload's project may use the document's volumes in its pools."""

from collections.abc import Iterator, Mapping, Sequence

from berth.core.errors import Invalid
from berth.core.problems import Problem, format_value, suggest
from berth.core.spec import WorkloadSpec
from pools.engine.volumes import Volume, usable_volumes
from pools.models import NodePool
from projects.models import Project
from projects.queries.volumes import count_nodes, node_labels
from projects.services.workloads.submission_view import SubmissionView

NONE_YET = "nothing, because no pool has volumes for this project; platform admins can add volumes to pools"
POOLS_SHOWN = 5


def pools_with_volumes(
    view: SubmissionView, spec: WorkloadSpec, project: Project, pools: Sequence[str]
) -> list[str]:
    """Return the pools in which the project may use all of the document's volumes.

    Raises Invalid if there is none, or if the document lists a pool that lacks a volume.
    """
    if not spec.volumes:
        return list(pools)
    usable = {pool: usable_volumes(view.pools[pool].volumes, project.name) for pool in pools}
    names = sorted({name for volumes in usable.values() for name in volumes})
    unknown = [
        Problem(f"volumes[{number}].name", f"is not a volume of project {project.name} in these pools",
                format_value(mount.name), suggest(mount.name, names) or NONE_YET)
        for number, mount in enumerate(spec.volumes) if mount.name not in names
    ]  # fmt: skip
    if unknown:
        raise Invalid(unknown)
    capable = list(pools)
    for number, mount in enumerate(spec.volumes):
        capable = _pools_with_volume(number, spec, capable, usable)
        readable = [pool for pool in capable if not usable[pool][mount.name].is_writable]
        if mount.read_only is False and readable:
            message = f"is not allowed: the volume is read-only in pool {readable[0]}"
            raise Invalid([Problem(f"volumes[{number}].read_only", message, "False", "true")])
    if absent := list(_missing_volume_problems(spec, [view.pools[pool] for pool in capable], usable)):
        raise Invalid(absent)
    return capable


def _pools_with_volume(
    number: int, spec: WorkloadSpec, pools: Sequence[str], usable: Mapping[str, Mapping[str, Volume]]
) -> list[str]:
    """Return the pools that have the document's volume `number`.

    Raises Invalid if there is none, or if the document lists a pool that lacks it.
    """
    name = spec.volumes[number].name
    capable = [pool for pool in pools if name in usable[pool]]
    if not capable:
        message = "is in none of the pools that have the other volumes"
        path = f"volumes[{number}].name"
        raise Invalid([Problem(path, message, format_value(name), "volumes of one pool")])
    allowed = f"pools: {', '.join(capable[:POOLS_SHOWN])}"
    message = f"has no volume {name} for this project"
    lacking = [
        Problem(f"pools[{index}]", message, format_value(pool), allowed)
        for index, pool in enumerate(spec.pools)
        if pool in pools and pool not in capable
    ]
    if lacking:
        raise Invalid(lacking)
    return capable


def _missing_volume_problems(
    spec: WorkloadSpec, pools: Sequence[NodePool], usable: Mapping[str, Mapping[str, Volume]]
) -> Iterator[Problem]:
    labels = node_labels(pool.pk for pool in pools)
    allowed = "a volume on at least one node; platform admins can label nodes and edit volumes"
    counts = [f"0 of {len(labels[pool.pk])} nodes of pool {pool.name} have it" for pool in pools]
    for number, mount in enumerate(spec.volumes):
        on_nodes = any(count_nodes(usable[pool.name][mount.name], labels[pool.pk]) for pool in pools)
        on_new = any(
            usable[pool.name][mount.name].is_on_node(pool.labels) for pool in pools if pool.is_elastic
        )
        if not on_nodes and not on_new:
            message = f"is on no node: {'; '.join(counts[:POOLS_SHOWN])}"
            yield Problem(f"volumes[{number}].name", message, format_value(mount.name), allowed)
