"""State machine for an inference engine."""

from dataclasses import dataclass
from enum import Enum

from projects.engine.scaling import ENDED

CONNECTION_ATTEMPTS = 5  # failed attempts after which Berth gives up on an inactive external engine
SETTLE_SECONDS = 1.0  # seconds to wait for requests that the router sent just before it isolated the engine


class ProcessState(Enum):
    """State of an inference engine's process according to the scheduler. External engines are always
    `RUNNING`.
    """

    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class InferenceEngineFacts:
    """Inputs that determine the next state of an inference engine.

    `healthy` and `connected` are None if the probe returned no result. `isolated` is the number of seconds
    since the router stopped sending requests, or None if it has not. `running` is None if unknown.
    """

    state: str
    origin: str
    process_state: ProcessState
    error: str = ""  # reason why the process ended
    started_once: bool = False
    connected: bool | None = None
    rejection: str = ""
    connection_failures: int = 0
    connection_error: str = ""
    healthy: bool | None = None
    has_router: bool = True
    is_routed: bool = False
    in_router: bool = False
    router_timed_out: bool = False
    weight_sync: bool = False
    strict: bool = False
    sync: str = ""
    isolated: float | None = None
    running: int | None = None
    drain_timeout: float = 0.0
    force: bool = False
    ends_as: str = ""


@dataclass(frozen=True, slots=True)
class EngineTransition:
    to: str
    ends_as: str = ""
    failure: str = ""
    message: str = ""


def next_state(engine: InferenceEngineFacts) -> EngineTransition | None:
    """Return the next transition, or None if the inference engine stays in its state."""
    if engine.state in ENDED:
        return None
    if engine.state == "REMOVING":
        is_removed = not engine.in_router or engine.router_timed_out
        return (
            EngineTransition(engine.ends_as or "REMOVED")
            if is_removed and engine.process_state is ProcessState.ENDED
            else None
        )
    if engine.state == "DRAINING":
        return EngineTransition("REMOVING", "REMOVED") if is_drained(engine) else None
    if engine.process_state is ProcessState.ENDED:
        return _transition_after_end(engine)
    if engine.process_state is ProcessState.PENDING:
        is_waiting = engine.state in ("CREATING", "CONNECTING")
        return (
            None
            if is_waiting
            else EngineTransition("CREATING", message="The process has ended. Waiting for a new process.")
        )
    return _next_transition(engine)


def is_drained(engine: InferenceEngineFacts) -> bool:
    """Return whether the draining inference engine can be removed.

    It can be removed once it has no requests left, or if it need not finish them.
    """
    if engine.force or engine.process_state is not ProcessState.RUNNING:
        return True
    if engine.isolated is None:
        return False
    if engine.isolated >= engine.drain_timeout:
        return True
    return engine.running == 0 and engine.isolated >= SETTLE_SECONDS


def may_serve(engine: InferenceEngineFacts, *, is_stale: bool) -> bool:
    """Return whether the router may send requests to the inference engine.

    Stale weights prevent this only under strict consistency.
    """
    if engine.state not in ("WEIGHT_SYNCING", "READY", "ACTIVE"):
        return False
    if not engine.strict or not engine.weight_sync or engine.origin == "initial":
        return True
    return engine.sync == "done" and not is_stale


def _transition_after_end(engine: InferenceEngineFacts) -> EngineTransition:
    if engine.origin == "initial":
        return EngineTransition("REMOVING", "REMOVED", message="The service's workload has ended.")
    failure = "init" if engine.started_once else "provision"
    return EngineTransition("REMOVING", "FAILED", failure, engine.error or "The process has ended.")


def _next_transition(engine: InferenceEngineFacts) -> EngineTransition | None:
    if engine.connection_failures >= CONNECTION_ATTEMPTS and engine.state != "ACTIVE":
        return _unreachable_transition(engine)
    routed = engine.is_routed or not engine.has_router
    if engine.state == "CREATING":
        return EngineTransition("HEALTH_CHECKING")
    if engine.state == "CONNECTING":
        if engine.connected is False:
            return EngineTransition("REMOVING", "FAILED", "init", engine.rejection)
        return EngineTransition("HEALTH_CHECKING") if engine.connected else None
    if engine.state == "HEALTH_CHECKING" and engine.healthy:
        return EngineTransition("READY" if engine.origin == "initial" else "WEIGHT_SYNCING")
    if engine.state == "WEIGHT_SYNCING":
        return _transition_after_sync(engine, routed)
    if engine.state == "READY" and engine.healthy and routed:
        return EngineTransition("ACTIVE")
    return None


def _unreachable_transition(engine: InferenceEngineFacts) -> EngineTransition:
    failure = "init" if engine.state == "CONNECTING" else "health"
    message = f"{engine.connection_failures} connection attempts failed. {engine.connection_error}"
    return EngineTransition("REMOVING", "FAILED", failure, message)


def _transition_after_sync(engine: InferenceEngineFacts, routed: bool) -> EngineTransition | None:
    if engine.weight_sync and engine.sync in ("", "copying"):
        return None
    if engine.weight_sync and engine.strict and engine.sync == "failed":
        return EngineTransition(
            "REMOVING", "FAILED", "weight_sync", engine.error or "The weights could not be copied."
        )
    return EngineTransition("READY") if routed else None
