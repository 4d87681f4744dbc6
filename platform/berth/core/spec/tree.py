"""Convert a validated document to integer amounts with all defaults filled in."""

from collections.abc import Mapping
from dataclasses import dataclass

from berth.core.spec.roles import RoleSpec, Toleration, Topology
from berth.core.spec.values.quantities import to_thousandths
from berth.core.spec.workload import GroupSpec, WorkloadSpec
from berth.core.values.amounts import MILLI, Amounts

ROOT = "all"


@dataclass(frozen=True, slots=True)
class RoleShape:
    """Resource amounts of one role.

    Each replica requests `gpu` thousandths of each of `devices` devices. A whole device is 1000.
    """

    name: str
    min: int
    max: int
    gpu: int
    devices: int
    gpu_memory_mib: int
    cpu: int
    memory_mib: int
    limit_cpu: int
    limit_memory_mib: int
    node_selector: Mapping[str, str]
    tolerations: tuple[Toleration, ...]
    gpu_models: tuple[str, ...]
    spread_per_node: int | None
    topology: Topology | None
    scale_with: tuple[str, float] | None
    has_image: bool = False
    volumes: tuple[str, ...] = ()

    @property
    def amounts(self) -> Amounts:
        """Resources of one replica that count towards quotas.

        GPU memory counts only after the replica is placed, because its share of a device is unknown until
        then.
        """
        return Amounts(self.gpu * self.devices, self.cpu, self.memory_mib)


@dataclass(frozen=True, slots=True)
class GroupShape:
    """Group of roles or nested groups. At least `need` of its members must run."""

    name: str
    children: tuple["GroupShape | RoleShape", ...]
    need: int
    topology: Topology | None


def build_tree(spec: WorkloadSpec) -> GroupShape:
    """Return the whole gang as one group with the document's `need` and `topology`."""
    return _build_group(ROOT, spec, spec)


def smallest_gang_size(shape: GroupShape | RoleShape) -> int:
    """Return the smallest number of replicas that the gang needs to run."""
    if isinstance(shape, RoleShape):
        return shape.min
    return sum(sorted(smallest_gang_size(child) for child in shape.children)[: shape.need])


def _build_group(name: str, spec: WorkloadSpec | GroupSpec, document: WorkloadSpec) -> GroupShape:
    children: tuple[GroupShape | RoleShape, ...]
    if spec.groups is not None:
        children = tuple(_build_group(group.name, group, document) for group in spec.groups)
    else:
        children = tuple(_build_role(role, document) for role in spec.roles or ())
    return GroupShape(name, children, len(children) if spec.need is None else spec.need, spec.topology)


def _build_role(role: RoleSpec, document: WorkloadSpec) -> RoleShape:
    gpu, devices = _device_request(role)
    cpu, memory = to_thousandths(role.cpu), role.memory_mib
    limit = role.limit
    return RoleShape(
        name=role.name,
        min=role.minimum,
        max=role.maximum,
        gpu=gpu,
        devices=devices,
        gpu_memory_mib=role.gpu_memory_mib or 0,
        cpu=cpu,
        memory_mib=memory,
        limit_cpu=cpu if limit.cpu is None else to_thousandths(limit.cpu),
        limit_memory_mib=memory if limit.memory_mib is None else limit.memory_mib,
        node_selector=role.node_selector,
        tolerations=role.tolerations,
        gpu_models=role.gpu_models,
        spread_per_node=role.spread_per_node,
        topology=role.topology,
        scale_with=None if role.scale_with is None else (role.scale_with.role, role.scale_with.ratio),
        has_image=document.image is not None and not role.idle,
        volumes=() if role.idle else tuple(sorted(volume.name for volume in document.volumes)),
    )


def _device_request(role: RoleSpec) -> tuple[int, int]:
    """Return the fraction requested of each device, in thousandths, and the number of devices."""
    if role.gpu_memory_mib is not None:
        return 0, role.gpu_devices or 1
    if role.gpu == 0:
        return 0, 0
    if role.gpu < 1:
        return to_thousandths(role.gpu), role.gpu_devices or 1
    return MILLI, int(role.gpu)
