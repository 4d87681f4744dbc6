"""The provider port: the contract of every source of machines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol


class InstanceState(StrEnum):
    BOOTING = "booting"
    READY = "ready"
    STOPPED = "stopped"  # by somebody else: of no use as a node, and may still cost money
    ENDING = "ending"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Shape:
    """What one instance has to offer: milli-CPU, MiB, whole devices."""

    cpu_milli: int
    memory_mib: int
    gpus: int = 0
    gpu_model: str = ""
    gpu_memory_mib: int = 0


@dataclass(frozen=True, slots=True)
class ProvisionOrder:
    """`count` instances for the ordinals from `start_ordinal` on. The token names the order for ever.
    `environment` is the digest of what is to be installed on them; empty for nothing."""

    pool: str
    count: int
    client_token: str
    start_ordinal: int
    shape: Shape
    tags: Mapping[str, str] = field(default_factory=dict)
    environment: str = ""


@dataclass(frozen=True, slots=True)
class Interruption:
    """The provider takes the machine back: `at` is None while the time is not known."""

    reason: str
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Instance:
    """`devices` is the physical identity of each device in index order, as CUDA_VISIBLE_DEVICES takes it.

    `ordinal` is UNNUMBERED where the provider was stopped before it could write it on the instance.
    `prepared`: what is to be installed there is; no where the machine itself says when. `phases` is how far
    that is, None where the provider cannot know. `message` is why an instance is gone or still boots, if
    it is known.
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


UNNUMBERED = -1


@dataclass(frozen=True, slots=True)
class ProvisionResult:
    instances: tuple[Instance, ...]
    message: str = ""  # why fewer came than were asked for, if so


class ProviderErrorKind(StrEnum):
    CAPACITY = "capacity"  # the provider has no such machine now
    QUOTA = "quota"  # the account may not have more
    CREDENTIALS = "credentials"
    THROTTLED = "throttled"
    SETTINGS = "settings"  # the pool's settings name something that is not there or does not fit
    TIMEOUT = "timeout"  # the answer was lost: the call may have worked
    BROKEN = "broken"  # anything else; the message is the provider's own


class ProviderError(Exception):
    """The provider did not do what was asked, and says which kind of trouble it is."""

    def __init__(self, kind: ProviderErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class Provider(Protocol):
    """A source of instances. Every call may take long and may raise ProviderError; none is made while a
    transaction is open.

    `machines_join`: an instance that is ready has booted, and its node is ready once the machine itself has
    called the join door. Else the node is ready with its instance.
    """

    @property
    def machines_join(self) -> bool: ...

    def provision(self, order: ProvisionOrder) -> ProvisionResult:
        """Bring `order.count` instances into being, tagged with pool, token and ordinal.

        Idempotent by `client_token`: asked again with the same token, it answers with the instances of the
        first time and makes none, whether or not the first answer arrived. It may answer with fewer; with
        none at all it raises instead. Ordinals of the answer lie in start_ordinal .. start_ordinal+count-1.
        """
        ...

    def list_instances(self, pool: str) -> tuple[Instance, ...]:
        """Everything that carries this pool's tags and may still cost money, by ordinal, then id.

        Instances that are gone may be left out. One just provisioned may be missing for a while.
        """
        ...

    def terminate(self, pool: str, instance_ids: Sequence[str]) -> None:
        """End these instances. Idempotent: ids that are unknown or gone already are no error."""
        ...
