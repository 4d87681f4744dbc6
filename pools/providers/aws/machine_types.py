"""Look up the hardware of EC2 instance types, and compare it with a pool's node shape."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pools.providers.aws.clients import Clients
from pools.providers.base import ProviderError, ProviderErrorKind, Shape


@dataclass(frozen=True, slots=True)
class MachineType:
    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int


class MachineTypes:
    """Cache of instance types, whose hardware never changes."""

    def __init__(self, clients: Clients) -> None:
        self._clients, self._cache = clients, dict[str, MachineType]()

    def get(self, names: Sequence[str]) -> tuple[MachineType, ...]:
        missing = sorted({name for name in names if name not in self._cache})
        if missing:
            pages = self._clients.ec2.get_paginator("describe_instance_types")
            for page in pages.paginate(InstanceTypes=missing):
                for description in page["InstanceTypes"]:
                    self._cache[description["InstanceType"]] = _machine_type(description)
        return tuple(self._cache[name] for name in names if name in self._cache)

    def check_fit(self, names: Sequence[str], shape: Shape) -> None:
        """Raise ProviderError if an instance type does not fit the node shape."""
        for machine_type in self.get(names):
            if machine_type.gpus != shape.gpus:
                raise _mismatch_error(machine_type, "GPUs", machine_type.gpus, shape.gpus)
            if machine_type.cpu_milli < shape.cpu_milli:
                raise _mismatch_error(
                    machine_type, "CPU cores", machine_type.cpu_milli / 1000, shape.cpu_milli / 1000
                )
            if machine_type.memory_mib < shape.memory_mib:
                raise _mismatch_error(
                    machine_type, "MiB of memory", machine_type.memory_mib, shape.memory_mib
                )


def _machine_type(description: dict[str, Any]) -> MachineType:
    gpus = sum(int(gpu.get("Count", 0)) for gpu in description.get("GpuInfo", {}).get("Gpus", ()))
    cpus, memory = description["VCpuInfo"]["DefaultVCpus"], description["MemoryInfo"]["SizeInMiB"]
    return MachineType(description["InstanceType"], int(cpus) * 1000, int(memory), gpus)


def _mismatch_error(machine_type: MachineType, resource: str, has: float, requested: float) -> ProviderError:
    message = f"{machine_type.name} has {has:g} {resource}, but a node of the pool needs {requested:g}"
    return ProviderError(ProviderErrorKind.SETTINGS, message)
