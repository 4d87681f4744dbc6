"""Next state of a service's engine."""

from dataclasses import dataclass
from enum import Enum

from projects.engine.scaling import ENDED

CONNECTION_ATTEMPTS = 5  # in a row, before an external engine that does not serve yet counts as dead
SETTLE_SECONDS = 1.0  # a request that left the router before it was told may still be on its way


class Place(Enum):
    """How the process stands, as the scheduler's rows tell; an external engine is always there."""

    WAITING = "waiting"
    UP = "up"
    GONE = "gone"  # for good


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """`healthy`, `connected` are what this look found; None: it was not looked at, or no answer counts yet.

    `isolated` is for how many seconds the router sent it nothing new, None while it may; `running` None is
    unknown; `told_router` whether the router may still know of it.
    """

    state: str
    origin: str
    place: Place
    trouble: str = ""  # why the process is gone
    started_once: bool = False
    connected: bool | None = None
    refusal: str = ""
    connection_failures: int = 0
    connection_error: str = ""
    healthy: bool | None = None
    has_router: bool = True
    is_routed: bool = False
    told_router: bool = False
    gave_up_router: bool = False
    weight_sync: bool = False
    strict: bool = False
    sync: str = ""
    isolated: float | None = None
    running: int | None = None
    drain_timeout: float = 0.0
    force: bool = False
    ends_as: str = ""


@dataclass(frozen=True, slots=True)
class EngineMove:
    to: str
    ends_as: str = ""
    failure: str = ""
    message: str = ""


def next_state(engine: EngineFacts) -> EngineMove | None:
    """One move, or None while nothing is to be done. Ask again in the next pass."""
    if engine.state in ENDED:
        return None
    if engine.state == "REMOVING":
        gone = not engine.told_router or engine.gave_up_router
        return EngineMove(engine.ends_as or "REMOVED") if gone and engine.place is Place.GONE else None
    if engine.state == "DRAINING":
        return EngineMove("REMOVING", "REMOVED") if is_drained(engine) else None
    if engine.place is Place.GONE:
        return _lost(engine)
    if engine.place is Place.WAITING:
        waits = engine.state in ("CREATING", "CONNECTING")
        return (
            None if waits else EngineMove("CREATING", message="Its process is gone; it waits for its next.")
        )
    return _forward(engine)


def is_drained(engine: EngineFacts) -> bool:
    """Nothing that it was sent is under way any more, or it had its time. Before the router knows that it is
    to send nothing new there is no end to it."""
    if engine.force or engine.place is not Place.UP:
        return True
    if engine.isolated is None:
        return False
    if engine.isolated >= engine.drain_timeout:
        return True
    return engine.running == 0 and engine.isolated >= SETTLE_SECONDS


def may_serve(engine: EngineFacts, *, is_stale: bool) -> bool:
    """Whether the router is to send it requests. Eventual: from its health check on, with old weights."""
    if engine.state not in ("WEIGHT_SYNCING", "READY", "ACTIVE"):
        return False
    if not engine.strict or not engine.weight_sync or engine.origin == "initial":
        return True
    return engine.sync == "done" and not is_stale


def _lost(engine: EngineFacts) -> EngineMove:
    if engine.origin == "initial":
        return EngineMove("REMOVING", "REMOVED", message="The service's workload has ended.")
    failure = "init" if engine.started_once else "provision"
    return EngineMove("REMOVING", "FAILED", failure, engine.trouble or "Its process has ended.")


def _forward(engine: EngineFacts) -> EngineMove | None:
    if engine.connection_failures >= CONNECTION_ATTEMPTS and engine.state != "ACTIVE":
        return _dead(engine)
    routed = engine.is_routed or not engine.has_router
    if engine.state == "CREATING":
        return EngineMove("HEALTH_CHECKING")
    if engine.state == "CONNECTING":
        if engine.connected is False:
            return EngineMove("REMOVING", "FAILED", "init", engine.refusal)
        return EngineMove("HEALTH_CHECKING") if engine.connected else None
    if engine.state == "HEALTH_CHECKING" and engine.healthy:
        return EngineMove("READY" if engine.origin == "initial" else "WEIGHT_SYNCING")
    if engine.state == "WEIGHT_SYNCING":
        return _synced(engine, routed)
    if engine.state == "READY" and engine.healthy and routed:
        return EngineMove("ACTIVE")
    return None


def _dead(engine: EngineFacts) -> EngineMove:
    """Fail an external engine: unlike one of ours, it runs before it is added, so its silence is its end."""
    failure = "init" if engine.state == "CONNECTING" else "health"
    message = f"{engine.connection_failures} connection attempts failed. {engine.connection_error}"
    return EngineMove("REMOVING", "FAILED", failure, message)


def _synced(engine: EngineFacts, routed: bool) -> EngineMove | None:
    if engine.weight_sync and engine.sync in ("", "copying"):
        return None
    if engine.weight_sync and engine.strict and engine.sync == "failed":
        return EngineMove(
            "REMOVING", "FAILED", "weight_sync", engine.trouble or "Its weights could not be copied."
        )
    return EngineMove("READY") if routed else None
