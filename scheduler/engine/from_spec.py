"""Convert a workload document to engine values."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from berth.core.spec import GroupShape, RoleShape, WorkloadSpec, build_tree
from berth.core.spec import Toleration as TolerationSpec
from berth.core.spec import Topology as TopologySpec
from berth.core.values.amounts import MILLI
from scheduler.engine.model import (
    IMAGES,
    SHARED_GPUS,
    VOLUME,
    Dependency,
    Request,
    Role,
    RoleGroup,
    ScaleWith,
    Toleration,
    TopologyConstraint,
    Workload,
)


def workload_from_spec(spec: WorkloadSpec) -> Workload:
    """Return the workload that a document describes, as if it had just been submitted."""
    return Workload(
        name=spec.name,
        project=spec.project or "",
        tree=to_role_group(build_tree(spec)),
        pools=spec.pools if spec.burst_pool is None else spec.pools[:-1],
        priority=spec.effective_priority,
        preemptible=spec.is_preemptible,
        submitted=0 if spec.submitted is None else to_timestamp(spec.submitted),
        max_runtime=spec.max_runtime,
        preemption_delay=spec.preemption_delay,
        stale_gang_grace=spec.stale_gang_grace,
        endless=is_endless(spec),
        scale_up_adds_nodes=scale_up_adds_nodes(spec),
        after=tuple(Dependency(entry.workload, entry.state) for entry in spec.after),
    )


def is_endless(spec: WorkloadSpec) -> bool:
    """Return whether a workload of this kind runs until a user stops it or its `max_runtime` is over."""
    return spec.kind in ("interactive", "service")


def scale_up_adds_nodes(spec: WorkloadSpec) -> bool:
    """Return whether a pool may add nodes to scale the workload up.

    It may not for interactive workloads, because they are often idle.
    """
    return spec.kind != "interactive"


def to_role_group(shape: GroupShape) -> RoleGroup:
    children = tuple(
        to_role_group(child) if isinstance(child, GroupShape) else to_role(child) for child in shape.children
    )
    return RoleGroup(shape.name, children, shape.need, _to_topology(shape.topology))


def to_role(shape: RoleShape) -> Role:
    return Role(
        name=shape.name,
        min=shape.min,
        max=shape.max,
        request=Request(
            gpu=shape.gpu,
            devices=shape.devices,
            gpu_memory_mib=shape.gpu_memory_mib,
            cpu=shape.cpu,
            memory_mib=shape.memory_mib,
            limit_cpu=shape.limit_cpu,
            limit_memory_mib=shape.limit_memory_mib,
        ),
        node_selector=shape.node_selector,
        tolerations=tuple(map(_to_toleration, shape.tolerations)),
        gpu_models=shape.gpu_models,
        spread_per_node=shape.spread_per_node,
        topology=_to_topology(shape.topology),
        scale_with=None if shape.scale_with is None else ScaleWith(*shape.scale_with),
        requires=_required_features(shape),
    )


def with_avoided_nodes(group: RoleGroup, nodes: Sequence[str]) -> RoleGroup:
    """Return a copy of the group in which every role avoids the nodes."""
    children = tuple(
        with_avoided_nodes(child, nodes)
        if isinstance(child, RoleGroup)
        else replace(child, avoided_nodes=tuple(nodes))
        for child in group.children
    )
    return replace(group, children=children)


def _required_features(shape: RoleShape) -> tuple[str, ...]:
    shares_gpus = 0 < shape.gpu < MILLI or shape.gpu_memory_mib > 0
    volumes = (VOLUME + name for name in shape.volumes)
    return (*((IMAGES,) if shape.has_image else ()), *((SHARED_GPUS,) if shares_gpus else ()), *volumes)


def to_timestamp(when: datetime) -> int:
    return int(when.timestamp())


def _to_topology(spec: TopologySpec | None) -> TopologyConstraint | None:
    if spec is None or spec == TopologySpec():
        return None
    return TopologyConstraint(spec.required, spec.preferred)


def _to_toleration(spec: TolerationSpec) -> Toleration:
    return Toleration(spec.key, spec.operator, spec.value, spec.effect)
