"""Hardware of an instance type, checked against the pool's node shape."""

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
    """They do not change: each is asked for once."""

    def __init__(self, clients: Clients) -> None:
        self._clients, self._known = clients, dict[str, MachineType]()

    def known(self, names: Sequence[str]) -> tuple[MachineType, ...]:
        missing = sorted({name for name in names if name not in self._known})
        if missing:
            pages = self._clients.ec2.get_paginator("describe_instance_types")
            for page in pages.paginate(InstanceTypes=missing):
                for told in page["InstanceTypes"]:
                    self._known[told["InstanceType"]] = _machine_type(told)
        return tuple(self._known[name] for name in names if name in self._known)

    def require(self, names: Sequence[str], shape: Shape) -> None:
        """A node that promises more than its machine has would break what is placed there; GPUs that no
        node counts would be paid for and never used."""
        for found in self.known(names):
            if found.gpus != shape.gpus:
                raise _unfit(found, "GPUs", found.gpus, shape.gpus)
            if found.cpu_milli < shape.cpu_milli:
                raise _unfit(found, "CPU cores", found.cpu_milli / 1000, shape.cpu_milli / 1000)
            if found.memory_mib < shape.memory_mib:
                raise _unfit(found, "MiB of memory", found.memory_mib, shape.memory_mib)


def _machine_type(told: dict[str, Any]) -> MachineType:
    gpus = sum(int(gpu.get("Count", 0)) for gpu in told.get("GpuInfo", {}).get("Gpus", ()))
    cpus, memory = told["VCpuInfo"]["DefaultVCpus"], told["MemoryInfo"]["SizeInMiB"]
    return MachineType(told["InstanceType"], int(cpus) * 1000, int(memory), gpus)


def _unfit(found: MachineType, what: str, has: float, asked: float) -> ProviderError:
    message = f"{found.name} has {has:g} {what}, but a node of the pool needs {asked:g}"
    return ProviderError(ProviderErrorKind.SETTINGS, message)
