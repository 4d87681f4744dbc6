"""The ports of inference engines and routers.

Every call goes over a network to programs that are not ours: it may take long and may raise ServingError, and
none is made while a transaction is open. An address is a base URL as `projects.serving.addresses` wrote it.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Trouble(StrEnum):
    FORBIDDEN = "forbidden"  # Berth does not call this address
    UNREACHABLE = "unreachable"  # no connection could be made
    TIMEOUT = "timeout"  # no whole answer came in time: what was asked for may have been done
    REFUSED = "refused"  # it answered, and the answer is no
    UNREADABLE = "unreadable"  # it answered, and the answer is torn, too large, or cannot be true
    UNSUPPORTED = "unsupported"  # this kind of engine or router has no such thing


class ServingError(Exception):
    """An engine or a router did not do what was asked; `address` says which, `trouble` what kind it is."""

    def __init__(self, trouble: Trouble, address: str, message: str) -> None:
        super().__init__(f"{address}: {message}" if address else message)
        self.trouble = trouble
        self.address = address
        self.message = message


@dataclass(frozen=True, slots=True)
class Identity:
    """What an engine says of itself. `weight_version` is None where it has none or will not say.

    `parameters` are those by which engines of one service must agree, as text: two engines that name one
    differently would answer the same request differently.
    """

    model: str
    weight_version: str | None = None
    ranks: int = 1  # over so many tensor-parallel ranks
    version: str = ""  # of its software
    parameters: tuple[tuple[str, str], ...] = ()


def disagreements(one: Identity, other: Identity) -> tuple[str, ...]:
    """By what the two may not serve one model together: the names that both give, with unlike values."""
    ours, theirs = dict(one.parameters), dict(other.parameters)
    unlike = [name for name in sorted(ours.keys() & theirs.keys()) if ours[name] != theirs[name]]
    return (*(["model"] if one.model != other.model else []), *unlike)


class EngineAdapter(Protocol):
    """How to talk to one kind of engine. It keeps no state: each call names the engine's address."""

    @property
    def kind(self) -> str: ...

    @property
    def syncs_weights(self) -> bool:
        """Whether weights can be copied from engine to engine while both serve. Else the calls that change
        weights or hold generation raise UNSUPPORTED."""
        ...

    def health(self, engine: str) -> None:
        """Returns if the engine can generate now; raises if it cannot, or does not say so in time."""
        ...

    def identity(self, engine: str) -> Identity: ...

    def metrics(self, engine: str) -> str:
        """Its metrics in Prometheus text, as it sent them."""
        ...

    def weight_version(self, engine: str) -> str | None: ...

    def copy_weights(self, seed: str, to: str, *, group: str, seconds: float) -> None:
        """The weights of `seed` are copied to the engine at `to`, directly. `group` names the copy and must
        be new. Both go on serving; what `to` reports as its weight version is not changed by this."""
        ...

    def set_weight_version(self, engine: str, version: str) -> None:
        """It reports this version from now on. No request is aborted."""
        ...

    def pause(self, engine: str) -> None:
        """It holds generation; its requests wait and are not lost. Idempotent."""
        ...

    def resume(self, engine: str) -> None:
        """It goes on with what waits. Idempotent: an engine that is not paused goes on."""
        ...

    def flush(self, engine: str) -> None:
        """It forgets what it cached from earlier weights. May be refused while requests run unpaused."""
        ...

    def running_requests(self, engine: str) -> int | None:
        """Requests that it works on or that wait in it; None if it does not say."""
        ...

    def abort(self, engine: str) -> None:
        """Everything that it works on ends now, unfinished."""
        ...


@dataclass(frozen=True, slots=True)
class Worker:
    """An engine as its router sees it. `running`: requests on their way through the router; None: it does not
    say. `model` is "" where the router serves one model only."""

    address: str
    healthy: bool
    running: int | None = None
    model: str = ""


class RouterClient(Protocol):
    """The router of one service. Every call is idempotent: what is so already is no error."""

    @property
    def kind(self) -> str: ...

    def register(self, engine: str, *, model: str) -> None:
        """From now on, or once the router itself has found it healthy, requests go to this engine.

        Returns when the router has it in its list. A router that looks first and never finds it raises
        TIMEOUT, and then does not have it."""
        ...

    def unregister(self, engine: str) -> None:
        """No request goes to this engine any more, and the router forgets it."""
        ...

    def mark_unhealthy(self, engine: str) -> None:
        """No new request goes to this engine; those under way go on to their end. It stays so until
        `mark_healthy`, also if the engine is well. A router that knows no such mark takes the engine out of
        its list, and `workers` does not show it then."""
        ...

    def mark_healthy(self, engine: str) -> None:
        """Requests go to it again, if the router's own checks find it well; one that it does not have is
        registered."""
        ...

    def workers(self) -> tuple[Worker, ...]:
        """All that it has, by address."""
        ...

    def running_requests(self, engine: str) -> int | None:
        """Requests to this engine that are under way through the router; None if it does not say."""
        ...
