"""Decide the next state of a gang from the states of its pods, without side effects.

A gang is running once enough of its replicas run, completes when all of them have succeeded, and fails when
one of them fails. The loss of a machine is not a failure of its replicas. Idle roles have no command of their
own and are stopped once all other replicas have succeeded.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from berth.core.spec import RestartPolicy
from scheduler.engine.model import Group, Role

OUT_OF_MEMORY, WORKSPACE_FULL = "OutOfMemory", "WorkspaceFull"
LIVE_STATES = frozenset({"starting", "running", "stopping"})
# Pods in these states count towards the gang's minimum.
COUNTED_STATES = frozenset({"starting", "running", "succeeded"})
RUNNING_STATES = frozenset({"running", "succeeded"})


@dataclass(frozen=True, slots=True)
class PodFact:
    """Latest pod of one replica in the current run."""

    role: str
    index: int
    state: str
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    stop_reason: str = ""


@dataclass(frozen=True, slots=True)
class GangFacts:
    phase: str
    next_phase: str
    reason: str
    message: str
    tree: Group
    pods: Sequence[PodFact]
    policy: RestartPolicy
    restarts: int = 0
    is_stale: bool = False
    idle_roles: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Next transition of a gang.

    If `to` is empty, only `stale` changes. `next_phase` comes after `stopping`.
    """

    to: str
    reason: str = ""
    message: str = ""
    next_phase: str = ""
    exit_code: int | None = None
    counts_as_restart: bool = False
    stale: bool | None = None


def verdict(gang: GangFacts) -> Verdict | None:
    """Return the gang's next transition, or None. Call this again after each transition."""
    states = [pod.state for pod in gang.pods]
    live = any(state in LIVE_STATES for state in states)
    if gang.phase == "stopping":
        return None if live else _stopped_verdict(gang, _command_pod_states(gang))
    if gang.phase not in ("starting", "running"):
        return None
    failed = [pod for pod in gang.pods if pod.state == "failed"]
    lost_pods = [pod for pod in gang.pods if pod.state == "lost"]
    if failed and not lost_pods:
        return _failure_verdict(gang, failed[0])
    if lost_pods and (failed or not live):
        return _loss_verdict(lost_pods[0])
    if gang.phase == "starting" and has_minimum(gang.tree, gang.pods, RUNNING_STATES):
        return Verdict("running", "Running", "All required pods of the gang are running.", stale=False)
    if not live:
        return _completion_verdict(gang) if "succeeded" in states else _loss_verdict(None)
    return _idle_verdict(gang) or _staleness_verdict(gang)


def has_minimum(node: Group | Role, pods: Collection[PodFact], states: Collection[str]) -> bool:
    if isinstance(node, Role):
        return sum(pod.role == node.name and pod.state in states for pod in pods) >= node.min
    return sum(has_minimum(child, pods, states) for child in node.children) >= node.need


def _stopped_verdict(gang: GangFacts, states: Sequence[str]) -> Verdict:
    """Return the verdict for a gang whose pods have all ended. The gang completes if all pods succeeded."""
    if gang.next_phase in ("pending", "suspended") and states and all(s == "succeeded" for s in states):
        return Verdict(
            "completed", "Completed", "All pods succeeded before they could be stopped.", exit_code=0
        )
    return Verdict(gang.next_phase, gang.reason, gang.message)


def _failure_verdict(gang: GangFacts, pod: PodFact) -> Verdict:
    code = 128 + pod.signal if pod.signal is not None else pod.exit_code
    if code == 0:  # the pod was stopped because its workspace was full, and its command ended normally
        code = 1
    ending = f"by signal {pod.signal}" if pod.signal is not None else f"with exit code {pod.exit_code}"
    message = f"{pod.role} {pod.index} ended {ending}"
    if pod.exit_code is None and pod.signal is None:
        message = f"{pod.role} {pod.index} could not be started"
    message += f": {pod.message}" if pod.message else "."
    if _may_restart(gang) and gang.policy.kind in ("on_failure", "always"):
        return _restart_verdict(gang, message)
    reason = pod.stop_reason if pod.stop_reason in (OUT_OF_MEMORY, WORKSPACE_FULL) else "PodFailed"
    return Verdict("stopping", reason, message, next_phase="failed", exit_code=code)


def _completion_verdict(gang: GangFacts) -> Verdict:
    if gang.policy.kind == "always" and _may_restart(gang):
        return _restart_verdict(gang, "All pods succeeded.")
    if gang.phase == "starting":
        return Verdict("running", "Running", "All pods have already run to completion.", stale=False)
    return Verdict("completed", "Completed", "All pods ended with exit code 0.", exit_code=0)


def _idle_verdict(gang: GangFacts) -> Verdict | None:
    """Stop idle replicas once all other replicas have succeeded and none is live."""
    states = _command_pod_states(gang)
    if not gang.idle_roles or "succeeded" not in states or any(state in LIVE_STATES for state in states):
        return None
    if not has_minimum(gang.tree, gang.pods, COUNTED_STATES):
        return None  # lost replicas must be replaced first
    completion = _completion_verdict(gang)
    if completion.to != "completed":
        return completion
    message = "All replicas that run a command ended with exit code 0."
    return replace(completion, to="stopping", next_phase=completion.to, message=message)


def _command_pod_states(gang: GangFacts) -> list[str]:
    return [pod.state for pod in gang.pods if pod.role not in gang.idle_roles]


def _may_restart(gang: GangFacts) -> bool:
    return gang.policy.max_restarts is None or gang.restarts < gang.policy.max_restarts


def _restart_verdict(gang: GangFacts, cause: str) -> Verdict:
    limit = "" if gang.policy.max_restarts is None else f" of at most {gang.policy.max_restarts}"
    text = f"{cause} Restarting the gang: restart {gang.restarts + 1}{limit}."
    return Verdict("stopping", "Restarting", text, next_phase="pending", counts_as_restart=True)


def _loss_verdict(pod: PodFact | None) -> Verdict:
    cause = "All pods were lost." if pod is None else f"{pod.role} {pod.index} was lost: {pod.message}"
    text = f"{cause} The workload is requeued; this does not count as a failure."
    return Verdict("stopping", "PodsLost", text, next_phase="pending")


def _staleness_verdict(gang: GangFacts) -> Verdict | None:
    stale = not has_minimum(gang.tree, gang.pods, COUNTED_STATES) or _is_degraded(gang.tree, gang.pods)
    return Verdict("", stale=stale) if stale != gang.is_stale else None


def _is_degraded(node: Group | Role, pods: Collection[PodFact]) -> bool:
    """Return whether the node or one of its groups is alive but below its minimum."""
    if not _is_alive(node, pods):
        return False
    if not has_minimum(node, pods, COUNTED_STATES):
        return True
    return isinstance(node, Group) and any(_is_degraded(child, pods) for child in node.children)


def _is_alive(node: Group | Role, pods: Collection[PodFact]) -> bool:
    if isinstance(node, Role):
        return any(pod.role == node.name and pod.state in ("starting", "running") for pod in pods)
    return any(_is_alive(child, pods) for child in node.children)
