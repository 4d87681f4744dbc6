"""Convert a workload document to engine values."""

from datetime import datetime

from berth.core.spec import GroupShape, RoleShape, WorkloadSpec, build_tree
from berth.core.spec import Toleration as TolerationSpec
from berth.core.spec import Topology as TopologySpec
from scheduler.engine.model import (
    Group,
    Pod,
    Request,
    Role,
    ScaleWith,
    Toleration,
    TopologyConstraint,
    Workload,
)


def workload_from_spec(
    spec: WorkloadSpec,
    *,
    name: str | None = None,
    project: str | None = None,
    pools: tuple[str, ...] | None = None,
    submitted: int | None = None,
    max_runtime: int | None = None,
    runtime_seconds: int | None = None,
    started: int | None = None,
    last_checkpoint: int | None = None,
    preemptions: int = 0,
    restarts: int = 0,
    backoff_until: int | None = None,
    stale_since: int | None = None,
    suspended: bool = False,
    misconfigured: str = "",
    depends_on: tuple[str, ...] | None = None,
    pods: tuple[Pod, ...] = (),
) -> Workload:
    """Return the workload that a document describes. Arguments override the document."""
    spec_submitted = 0 if spec.submitted is None else to_timestamp(spec.submitted)
    return Workload(
        name=spec.name if name is None else name,
        project=(spec.project or "") if project is None else project,
        tree=to_group(build_tree(spec)),
        pools=spec.pools if pools is None else pools,
        priority=spec.effective_priority,
        preemptible=spec.is_preemptible,
        submitted=spec_submitted if submitted is None else submitted,
        max_runtime=spec.max_runtime if max_runtime is None else max_runtime,
        runtime_seconds=runtime_seconds,
        started=started,
        last_checkpoint=last_checkpoint,
        preemptions=preemptions,
        restarts=restarts,
        backoff_until=backoff_until,
        preemption_delay=spec.preemption_delay,
        stale_gang_grace=spec.stale_gang_grace,
        stale_since=stale_since,
        endless=is_endless(spec),
        scale_up_adds_nodes=scale_up_adds_nodes(spec),
        suspended=suspended,
        misconfigured=misconfigured,
        depends_on=spec.depends_on if depends_on is None else depends_on,
        pods=pods,
    )


def is_endless(spec: WorkloadSpec) -> bool:
    """Return whether the workload runs until it is stopped, unless it declares a `max_runtime`."""
    return spec.kind in ("interactive", "service")


def scale_up_adds_nodes(spec: WorkloadSpec) -> bool:
    """Return whether a pool may add nodes to scale the workload up.

    Interactive workloads may be idle, so they scale up only onto existing nodes.
    """
    return spec.kind != "interactive"


def to_group(shape: GroupShape) -> Group:
    children = tuple(
        to_group(child) if isinstance(child, GroupShape) else to_role(child) for child in shape.children
    )
    return Group(shape.name, children, shape.need, _topology(shape.topology))


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
        tolerations=tuple(map(_toleration, shape.tolerations)),
        gpu_models=shape.gpu_models,
        spread_per_node=shape.spread_per_node,
        topology=_topology(shape.topology),
        scale_with=None if shape.scale_with is None else ScaleWith(*shape.scale_with),
    )


def to_timestamp(when: datetime) -> int:
    return int(when.timestamp())


def _topology(spec: TopologySpec | None) -> TopologyConstraint | None:
    if spec is None or spec == TopologySpec():
        return None
    return TopologyConstraint(spec.required, spec.preferred)


def _toleration(spec: TolerationSpec) -> Toleration:
    return Toleration(spec.key, spec.operator, spec.value, spec.effect)
