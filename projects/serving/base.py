"""Interfaces of inference engines and routers.

Every call crosses a network. It may take long, may raise ServingError, and must not be made while a
transaction is open. An address is a base URL normalized by `projects.serving.addresses`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class ErrorKind(StrEnum):
    FORBIDDEN = "forbidden"  # Berth must not call this address
    UNREACHABLE = "unreachable"  # no connection could be made
    TIMEOUT = "timeout"  # no complete response arrived in time; the request may have taken effect
    REFUSED = "refused"  # the request was rejected
    UNREADABLE = "unreadable"  # the response is truncated, too large or implausible
    UNSUPPORTED = "unsupported"  # this kind of engine or router does not support the call


class ServingError(Exception):
    """A call to an engine or router failed. `address` identifies the target, and `kind` the failure."""

    def __init__(self, kind: ErrorKind, address: str, message: str) -> None:
        super().__init__(f"{address}: {message}" if address else message)
        self.kind = kind
        self.address = address
        self.message = message


@dataclass(frozen=True, slots=True)
class Identity:
    """An engine's description of itself. `weight_version` is None if it has or reports none.

    All engines of a service must have the same `parameters`. Otherwise they would respond differently to the
    same request.
    """

    model: str
    weight_version: str | None = None
    ranks: int = 1  # number of tensor-parallel ranks
    version: str = ""  # software version
    parameters: tuple[tuple[str, str], ...] = ()


def differences(one: Identity, other: Identity) -> tuple[str, ...]:
    """Return the names of parameters in which two engines differ, including `model`."""
    first, second = dict(one.parameters), dict(other.parameters)
    different = [name for name in sorted(first.keys() & second.keys()) if first[name] != second[name]]
    return (*(["model"] if one.model != other.model else []), *different)


class EngineAdapter(Protocol):
    """API of one kind of inference engine. Stateless: each call takes the engine's address."""

    @property
    def kind(self) -> str: ...

    @property
    def syncs_weights(self) -> bool:
        """True if weights can be copied between serving engines.

        Otherwise calls that change weights or pause generation raise UNSUPPORTED.
        """
        ...

    def health(self, engine: str) -> None:
        """Return if the engine can generate. Raise if it cannot or does not respond in time."""
        ...

    def identity(self, engine: str) -> Identity: ...

    def metrics(self, engine: str) -> str:
        """Return the metrics in Prometheus text format."""
        ...

    def weight_version(self, engine: str) -> str | None: ...

    def copy_weights(self, seed: str, to: str, *, group: str, seconds: float) -> None:
        """Copy the weights of `seed` directly to the engine at `to`. `group` is a new name for the copy.

        Both engines keep serving. The weight version that `to` reports does not change.
        """
        ...

    def set_weight_version(self, engine: str, version: str) -> None:
        """Set the version that the engine reports, without aborting requests."""
        ...

    def pause(self, engine: str) -> None:
        """Pause generation. Requests wait and are not lost. Idempotent."""
        ...

    def resume(self, engine: str) -> None:
        """Resume generation for waiting requests. Idempotent."""
        ...

    def flush(self, engine: str) -> None:
        """Flush caches from earlier weights. May be rejected while unpaused requests run."""
        ...

    def running_requests(self, engine: str) -> int | None:
        """Return the number of running and queued requests, or None if the engine does not report it."""
        ...

    def abort(self, engine: str) -> None:
        """Abort all of the engine's requests."""
        ...


@dataclass(frozen=True, slots=True)
class Worker:
    """An engine as seen by its router.

    `running` counts requests through the router, or is None if unknown. `model` is empty if the router serves
    only one model.
    """

    address: str
    healthy: bool
    running: int | None = None
    model: str = ""


class RouterClient(Protocol):
    """Router of one service. Every call is idempotent."""

    @property
    def kind(self) -> str: ...

    def register(self, engine: str, *, model: str) -> None:
        """Add the engine to the router, which sends it requests at once or after a health check.

        Raises ServingError with TIMEOUT, and leaves the engine out, if the router never finds it healthy."""
        ...

    def unregister(self, engine: str) -> None:
        """Remove the engine from the router, which sends it no more requests."""
        ...

    def mark_unhealthy(self, engine: str) -> None:
        """Stop new requests to the engine until `mark_healthy`. Running requests continue.

        A router without such a mark removes the engine from its list and from `workers`.
        """
        ...

    def mark_healthy(self, engine: str) -> None:
        """Send requests to the engine again, subject to the router's health checks. Register it if needed."""
        ...

    def workers(self) -> tuple[Worker, ...]:
        """Return all of the router's engines, ordered by address."""
        ...

    def running_requests(self, engine: str) -> int | None:
        """Return the number of requests to the engine through the router, or None if unknown."""
        ...
