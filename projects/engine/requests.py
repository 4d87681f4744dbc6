"""State machine for a scale request."""

from collections.abc import Sequence
from dataclasses import dataclass

from projects.engine.scaling import ENDED, RANK

ORDER = ("HEALTH_CHECKING", "WEIGHT_SYNCING", "READY")
FAILURE_BY_STATE = {
    "CREATING": "provision", "CONNECTING": "init", "HEALTH_CHECKING": "health",
    "WEIGHT_SYNCING": "weight_sync", "READY": "router",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class EngineSummary:
    name: str
    state: str
    ends_as: str = ""
    failure: str = ""
    message: str = ""
    isolated: bool = False
    router_fails: bool = False

    @property
    def timeout_failure(self) -> str:
        """Return the reason that is recorded if the inference engine times out in its current state."""
        return "router" if self.router_fails else FAILURE_BY_STATE.get(self.state, "timeout")

    @property
    def has_failed(self) -> bool:
        return self.state == "FAILED" or (self.state == "REMOVING" and self.ends_as == "FAILED")


@dataclass(frozen=True, slots=True)
class RequestFacts:
    direction: str
    mode: str
    status: str
    engines: Sequence[EngineSummary]
    policy: str = "rollback_all"
    ends_as: str = ""
    error: str = ""
    overdue: bool = False
    weights_change: bool = False
    service_ended: bool = False


@dataclass(frozen=True, slots=True)
class RequestTransition:
    """Next status of a scale request.

    `give_up` lists engines that timed out. In a scale-out, these engines fail. In a scale-in, they continue
    to serve.
    """

    to: str = ""
    ends_as: str = ""
    failure: str = ""
    message: str = ""
    give_up: tuple[str, ...] = ()


def next_status(request: RequestFacts) -> RequestTransition | None:
    return (
        _next_scale_out_status(request)
        if request.direction == "scale_out"
        else _next_scale_in_status(request)
    )


def _next_scale_out_status(request: RequestFacts) -> RequestTransition | None:
    if request.status == "PENDING":
        if request.overdue or request.service_ended:
            return RequestTransition(
                "FAILED",
                failure="timeout" if request.overdue else "",
                message=_start_failure_message(request),
            )
        return RequestTransition("CREATING" if request.mode == "managed" else "CONNECTING")
    if request.status == "ROLLING_BACK":
        all_ended = all(engine.state in ENDED for engine in request.engines)
        return RequestTransition(request.ends_as or "FAILED") if all_ended else None
    failed = [engine for engine in request.engines if engine.has_failed]
    alive = [engine for engine in request.engines if not engine.has_failed and engine.state not in ENDED]
    late = [engine for engine in alive if engine.state != "ACTIVE"]
    if request.service_ended:
        return RequestTransition("ROLLING_BACK", "FAILED", message=_start_failure_message(request))
    if failed and (request.policy == "rollback_all" or not alive):
        return RequestTransition("ROLLING_BACK", "FAILED", failed[0].failure, _describe_failures(failed))
    if request.overdue and late:
        return _timeout_transition(request, late)
    if not alive:
        return RequestTransition("ROLLING_BACK", "FAILED", "init", "None of the requested engines is left.")
    return _transition_to_slowest_engine(request, alive, failed)


def _transition_to_slowest_engine(
    request: RequestFacts, alive: Sequence[EngineSummary], failed: Sequence[EngineSummary]
) -> RequestTransition | None:
    slowest = min(RANK.get(engine.state, 0) for engine in alive)
    if slowest <= RANK[request.status]:
        return None
    if request.status == "READY":
        return (
            RequestTransition("PARTIAL", message=_describe_failures(failed))
            if failed
            else RequestTransition("ACTIVE")
        )
    return RequestTransition(ORDER[RANK[request.status]])


def _timeout_transition(request: RequestFacts, late: Sequence[EngineSummary]) -> RequestTransition:
    failure = late[0].timeout_failure
    message = f"Timed out: {late[0].name} is still {late[0].state}."
    if request.policy == "rollback_all":
        return RequestTransition("ROLLING_BACK", "FAILED", failure, message)
    return RequestTransition(give_up=tuple(engine.name for engine in late), failure=failure, message=message)


def _next_scale_in_status(request: RequestFacts) -> RequestTransition | None:
    remaining = [engine for engine in request.engines if engine.state not in ENDED]
    if request.status == "PENDING":
        if not request.weights_change:
            return RequestTransition("DRAINING")
        message = "Timed out waiting for a weight update to end. No engine was removed."
        return RequestTransition("FAILED", failure="timeout", message=message) if request.overdue else None
    if request.status == "DRAINING":
        draining = [engine for engine in remaining if engine.state == "DRAINING"]
        if not draining:
            return RequestTransition("REMOVING")
        stuck = tuple(engine.name for engine in draining if not engine.isolated)
        return _routed_engines_transition(request, stuck) if request.overdue and stuck else None
    if remaining and not request.overdue:
        return None
    ended = [engine for engine in request.engines if engine.state in ENDED]
    if request.engines and not ended:
        return RequestTransition("FAILED", failure="timeout", message=_describe_remaining_engines(remaining))
    return RequestTransition(
        "COMPLETED", message=" ".join(filter(None, [request.error, _describe_remaining_engines(remaining)]))
    )


def _routed_engines_transition(request: RequestFacts, stuck: tuple[str, ...]) -> RequestTransition:
    message = f"The router did not stop sending requests to {', '.join(stuck)}, so they stay."
    to = "FAILED" if len(stuck) == len(request.engines) else ""
    return RequestTransition(to, failure="router", message=message, give_up=stuck)


def _describe_remaining_engines(remaining: Sequence[EngineSummary]) -> str:
    return f"Not removed in time: {', '.join(engine.name for engine in remaining)}." if remaining else ""


def _describe_failures(failed: Sequence[EngineSummary]) -> str:
    return " ".join(f"{engine.name}: {engine.message or engine.failure}" for engine in failed)


def _start_failure_message(request: RequestFacts) -> str:
    return (
        "The service has ended." if request.service_ended else "The request timed out before it could start."
    )
