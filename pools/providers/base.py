"""Interface that every provider of machines implements."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pools.providers.preview import Preview


class InstanceState(StrEnum):
    QUEUED = "queued"  # the request is in the provider's queue: no machine boots yet, so nothing is charged
    BOOTING = "booting"
    READY = "ready"
    STOPPED = "stopped"  # the instance was stopped outside Berth, and may still cost money
    ENDING = "ending"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Shape:
    """Capacity of one machine in milli-CPU, MiB and whole devices."""

    cpu_milli: int
    memory_mib: int
    gpus: int = 0
    gpu_model: str = ""
    gpu_memory_mib: int = 0


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """Request for `count` instances with ordinals from `start_ordinal`.

    `client_token` is unique. `environment` is the digest of the environment to install, or empty.
    `is_repeated` is false for the first call, which need not search for existing instances.
    """

    pool: str
    count: int
    client_token: str
    start_ordinal: int
    shape: Shape
    tags: Mapping[str, str] = field(default_factory=dict)
    environment: str = ""
    is_repeated: bool = True


@dataclass(frozen=True, slots=True)
class Interruption:
    """Spot interruption that the provider has announced.

    `at` is the time of the interruption, or None if it is unknown. If `is_boot_failure` is set and the node
    is still booting, its boot counts as failed, because further requests would probably end the same way.
    """

    reason: str
    at: datetime | None = None
    is_boot_failure: bool = False


@dataclass(frozen=True, slots=True)
class SharedMachine:
    """Properties of a machine that Berth shares with other users.

    The instance's shape includes all devices, but only the CPU and memory that the other users leave unused.
    `foreign` is the usage of pods that Berth does not own: `gpus`, `cpu_milli`, `memory_mib` and `pods`.
    `labels` are the machine's own.
    """

    max_pods: int
    labels: Mapping[str, str] = field(default_factory=dict)
    foreign: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Instance:
    """Machine of a provider.

    `devices` identifies each device in index order, as in CUDA_VISIBLE_DEVICES. `ordinal` is UNNUMBERED if a
    crash prevented tagging. `prepared` is true once the provider knows that the environment is installed.
    `phases` is the progress of the installation, or None. `message` explains why an instance is gone or still
    booting. `shape` is the machine's own capacity, or None if it equals the requested capacity. `obstacle`
    says why the machine accepts no new pods now, or is empty. `shared` is set if others also use the machine.
    `is_evicted` is true if the machine was taken back although it did not fail.
    """

    instance_id: str
    ordinal: int
    state: InstanceState
    client_token: str
    address: str = ""
    devices: tuple[str, ...] = ()
    interruption: Interruption | None = None
    prepared: bool = True
    phases: tuple[Mapping[str, Any], ...] | None = None
    message: str = ""
    shape: Shape | None = None
    obstacle: str = ""
    shared: SharedMachine | None = None
    is_evicted: bool = False


UNNUMBERED = -1


@dataclass(frozen=True, slots=True)
class ProvisionResult:
    instances: tuple[Instance, ...]
    message: str = ""  # reason why fewer instances than requested were created


class ProviderErrorKind(StrEnum):
    CAPACITY = "capacity"  # the provider currently has no such machine available
    QUOTA = "quota"  # an account limit was reached
    CREDENTIALS = "credentials"
    THROTTLED = "throttled"
    SETTINGS = "settings"  # the settings refer to an object that is missing or incompatible
    TIMEOUT = "timeout"  # no response arrived: the call may have succeeded
    BROKEN = "broken"  # any other failure; the message comes from the provider


class ProviderError(Exception):
    """Raised if a call to a provider fails or is rejected. `kind` classifies the error."""

    def __init__(self, kind: ProviderErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class Provider(Protocol):
    """Provider of machines, such as a cloud or a cluster.

    Every call may be slow, may raise ProviderError, and is made outside transactions. If
    `has_joining_machines` is true, a node is ready once its machine has booted and joined, otherwise once its
    instance is ready.
    """

    @property
    def has_joining_machines(self) -> bool: ...

    def provision(self, order: LaunchRequest) -> ProvisionResult:
        """Create `order.count` instances tagged with the pool, the client token and their ordinals.

        Idempotent by `client_token`. The result may contain fewer instances than requested, but at least one.
        Their ordinals are in the range start_ordinal .. start_ordinal+count-1. Raises ProviderError if none
        can be created.
        """
        ...

    def list_instances(self, pool: str) -> tuple[Instance, ...]:
        """Return the pool's instances that may cost money, sorted by ordinal and ID.

        A new instance may be missing for a while.
        """
        ...

    def terminate(self, pool: str, instance_ids: Sequence[str]) -> None:
        """Terminate the instances. Idempotent: unknown and terminated instances are ignored."""
        ...

    def preview(self, pool: str, shape: Shape) -> "Preview":
        """Return the machines that a pool with this node shape would use, without changing anything.

        The pool may not exist yet. The preview is empty if machines are created on demand. Raises
        ProviderError if the provider cannot be examined.
        """
        ...
