"""Client interfaces for inference engines and routers.

Calls may be slow, may raise ServingError, and must not be made while a transaction is open. Addresses are
base URLs that `projects.serving.addresses` has normalized.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class ErrorKind(StrEnum):
    FORBIDDEN = "forbidden"  # Berth must not call this address
    UNREACHABLE = "unreachable"  # no connection could be made
    TIMEOUT = "timeout"  # no complete response arrived in time, but the request may have taken effect
    REJECTED = "refused"  # the server rejected the request
    UNREADABLE = "unreadable"  # the response is truncated, too large or implausible
    UNSUPPORTED = "unsupported"  # this kind of engine or router does not support the call


class ServingError(Exception):
    """Raised if a call to the inference engine or router at `address` fails.

    `kind` identifies the failure.
    """

    def __init__(self, kind: ErrorKind, address: str, message: str) -> None:
        super().__init__(f"{address}: {message}" if address else message)
        self.kind = kind
        self.address = address
        self.message = message


@dataclass(frozen=True, slots=True)
class Identity:
    """Model and parameters reported by an inference engine.

    `weight_version` is None if the engine does not report it. All engines of a service must have the same
    `parameters`.
    """

    model: str
    weight_version: str | None = None
    ranks: int = 1  # number of tensor-parallel ranks
    version: str = ""  # version of the engine's software
    parameters: tuple[tuple[str, str], ...] = ()


def differing_parameters(one: Identity, other: Identity) -> tuple[str, ...]:
    """Return the names of the parameters, including `model`, that both engines report with different
    values.
    """
    first, second = dict(one.parameters), dict(other.parameters)
    different = [name for name in sorted(first.keys() & second.keys()) if first[name] != second[name]]
    return (*(["model"] if one.model != other.model else []), *different)


class EngineAdapter(Protocol):
    """Stateless client for one kind of inference engine. Each call receives the engine's address."""

    @property
    def kind(self) -> str: ...

    @property
    def syncs_weights(self) -> bool:
        """Return whether weights can be copied between serving inference engines.

        If not, calls that change weights or pause generation raise ServingError with UNSUPPORTED.
        """
        ...

    def check_health(self, engine: str) -> None:
        """Raise ServingError if the inference engine cannot generate or does not respond in time."""
        ...

    def identity(self, engine: str) -> Identity: ...

    def metrics(self, engine: str) -> str:
        """Return the metrics in Prometheus text format."""
        ...

    def weight_version(self, engine: str) -> str | None: ...

    def copy_weights(self, seed: str, to: str, *, group: str, seconds: float) -> None:
        """Copy the weights of `seed` directly to the inference engine at `to`.

        `group` is a unique name for this copy. Both engines continue to serve, and the reported weight
        version does not change.
        """
        ...

    def set_weight_version(self, engine: str, version: str) -> None:
        """Set the weight version that the inference engine reports, without aborting requests."""
        ...

    def pause(self, engine: str) -> None:
        """Pause generation. Requests wait and are not aborted. Idempotent."""
        ...

    def resume(self, engine: str) -> None:
        """Resume generation for waiting requests. Idempotent."""
        ...

    def flush(self, engine: str) -> None:
        """Flush caches computed with earlier weights.

        The inference engine may reject the call while requests are running.
        """
        ...

    def unfinished_requests(self, engine: str) -> int | None:
        """Return the number of running and queued requests, or None if the engine does not report it."""
        ...

    def abort(self, engine: str) -> None:
        """Abort all of the inference engine's requests."""
        ...


@dataclass(frozen=True, slots=True)
class Worker:
    """Inference engine as reported by its router.

    `running` is the number of requests sent through the router, or None if unknown. `model` may be empty.
    """

    address: str
    healthy: bool
    running: int | None = None
    model: str = ""


class RouterClient(Protocol):
    """Client for one service's router. Every call is idempotent."""

    @property
    def kind(self) -> str: ...

    def register(self, engine: str, *, model: str) -> None:
        """Add the engine to the router.

        If the router does not consider the engine healthy in time, raise ServingError with TIMEOUT and do not
        add it.
        """
        ...

    def unregister(self, engine: str) -> None:
        """Remove the inference engine from the router, which then sends no more requests to the engine."""
        ...

    def mark_unhealthy(self, engine: str) -> None:
        """Stop new requests to the inference engine until `mark_healthy` is called.

        Running requests continue. In the meantime, `workers` may omit the engine.
        """
        ...

    def mark_healthy(self, engine: str) -> None:
        """Allow the router to send requests to the inference engine again, and register it if needed."""
        ...

    def workers(self) -> tuple[Worker, ...]:
        """Return all inference engines registered with the router, ordered by address."""
        ...

    def unfinished_requests(self, engine: str) -> int | None:
        """Return the number of running requests that the router has sent to the engine, or None if
        unknown.
        """
        ...
