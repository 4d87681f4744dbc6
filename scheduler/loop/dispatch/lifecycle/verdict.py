"""Decide a gang's next state from its pods' states, without side effects.

A gang completes when all replicas have succeeded, and fails when any replica fails. The loss or eviction of a
replica does not count as a failure.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from berth.core.spec.sections import retry as kinds
from berth.core.values.signals import signal_name
from projects.engine.lifecycle import PROGRESS_TIME
from projects.engine.pod_sentences import describe_pod_exit, format_pod, sentence_to_clause
from projects.engine.retries import Failure, Retry, RetryState, decide_retry
from scheduler.engine.model import Role, RoleGroup

OUT_OF_MEMORY, WORKSPACE_FULL, IMAGE_PULL_FAILED = "OutOfMemory", "WorkspaceFull", "ImagePullFailed"
KINDS = {
    OUT_OF_MEMORY: kinds.OUT_OF_MEMORY,
    WORKSPACE_FULL: kinds.WORKSPACE_FULL,
    IMAGE_PULL_FAILED: kinds.IMAGE_PULL,
}
START_FAILURES = (kinds.START_FAILED, kinds.IMAGE_PULL)
RESTARTING = "Restarting"  # reason recorded for a run that a retry rule restarts
NO_RULES = RetryState()
# A program may take this long to notice that a peer no longer responds.
PEER_TIMEOUT = timedelta(minutes=30)
# Maximum number of consecutive runs without progress that may end because a pod failed after losing a peer.
# The maximum exceeds the number of nodes that a cluster usually drains within minutes.
PEER_FAILURES_MAX = 10
LIVE_STATES = frozenset({"starting", "running", "stopping"})
# Pods in these states count towards the gang's minimum.
COUNTED_STATES = frozenset({"starting", "running", "succeeded"})
RUNNING_STATES = frozenset({"running", "succeeded"})


@dataclass(frozen=True, slots=True)
class PodFact:
    """State of a replica's latest pod in the current run."""

    role: str
    index: int
    state: str
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    stop_reason: str = ""
    node: int | None = None
    ended_at: datetime | None = None
    created_at: datetime | None = None
    eviction: str = ""  # reason why this pod was or is being stopped while its gang continues, as a clause


@dataclass(frozen=True, slots=True)
class GangFacts:
    """State of a gang.

    `replaced` contains pods of the current run that were lost or evicted and have since been replaced.
    `peer_failures` is the number of consecutive runs that ended after losing a peer.
    """

    phase: str
    next_phase: str
    reason: str
    message: str
    tree: RoleGroup
    pods: Sequence[PodFact]
    retries: RetryState = NO_RULES
    is_stale: bool = False
    idle_roles: frozenset[str] = frozenset()
    replaced: Sequence[PodFact] = ()
    peer_failures: int = 0
    started_at: datetime | None = None
    checkpoint_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Next transition of a gang.

    If `to` is empty, only `stale` changes. `next_phase` is the phase that follows `stopping`.
    """

    to: str
    reason: str = ""
    message: str = ""
    next_phase: str = ""
    exit_code: int | None = None
    failure: Failure | None = None
    start_failure: str = ""
    retry: Retry | None = None
    stale: bool | None = None
    peer_failures: int | None = None


def decide_verdict(gang: GangFacts) -> Verdict | None:
    """Return the gang's next transition, or None if its state does not change.

    Must be called again after each transition.
    """
    states = [pod.state for pod in gang.pods]
    live = any(state in LIVE_STATES for state in states)
    if gang.phase == "stopping":
        return None if live else _stopped_verdict(gang, _command_pod_states(gang))
    if gang.phase not in ("starting", "running"):
        return None
    failed = [pod for pod in gang.pods if pod.state == "failed"]
    lost_pods = [pod for pod in gang.pods if pod.state == "lost"]
    if failed:
        first = min(failed, key=_end_sort_key)
        peer = lost_pods[0] if lost_pods else _lost_peer_before_failure(gang, first)
        return _failure_verdict(gang, first) if peer is None else _peer_failure_verdict(gang, first, peer)
    if lost_pods and (not live or _should_end_after_loss(gang)):
        return _loss_verdict(gang, lost_pods[0])
    if gang.phase == "starting" and meets_minimum(gang.tree, gang.pods, RUNNING_STATES):
        return Verdict("running", "Running", "All required pods are running.", stale=False)
    if not live:
        return _completion_verdict(gang) if "succeeded" in states else _loss_verdict(gang, None)
    return _idle_verdict(gang) or _staleness_verdict(gang)


def meets_minimum(node: RoleGroup | Role, pods: Collection[PodFact], states: Collection[str]) -> bool:
    if isinstance(node, Role):
        return sum(pod.role == node.name and pod.state in states for pod in pods) >= node.min
    return sum(meets_minimum(child, pods, states) for child in node.children) >= node.need


def _stopped_verdict(gang: GangFacts, states: Sequence[str]) -> Verdict:
    succeeded = bool(states) and all(state == "succeeded" for state in states)
    if succeeded and gang.next_phase in ("pending", "suspended") and gang.reason != RESTARTING:
        return Verdict(
            "completed", "Completed", "All pods succeeded before they could be stopped.", exit_code=0
        )
    return Verdict(gang.next_phase, gang.reason, gang.message)


def _lost_peer_before_failure(gang: GangFacts, failed: PodFact) -> PodFact | None:
    """Return the lost or evicted pod that may have caused the pod's failure, or None."""
    has_run = failed.exit_code is not None or failed.signal is not None
    if not has_run or failed.stop_reason in KINDS or failed.created_at is None or failed.ended_at is None:
        return None
    evicted = [pod for pod in gang.pods if pod.eviction]
    if in_grace_period := next((pod for pod in evicted if pod.state in LIVE_STATES), None):
        return in_grace_period
    since = max(failed.created_at, failed.ended_at - PEER_TIMEOUT)
    peers = [pod for pod in (*gang.replaced, *evicted) if pod.ended_at is not None and pod.ended_at > since]
    return max(peers, key=_end_sort_key, default=None)


def _peer_failure_verdict(gang: GangFacts, failed: PodFact, peer: PodFact) -> Verdict:
    loss = _loss_verdict(gang, peer)
    if _has_loss_rule(gang):
        return loss
    count = 0 if _has_progressed(gang, failed) else gang.peer_failures + 1
    runs = f"{count} runs without progress ended because a pod failed after another was lost or stopped"
    # Otherwise, a program that always fails would run forever.
    if count > PEER_FAILURES_MAX:
        return _failure_verdict(gang, failed, f"{runs}, so this is a failure.")
    return replace(loss, peer_failures=count, start_failure=runs if count > 1 else "")


def _has_progressed(gang: GangFacts, failed: PodFact) -> bool:
    """Return whether the run made progress: it lasted long enough or stored a checkpoint."""
    if gang.started_at is None or failed.ended_at is None:
        return False
    has_checkpoint = gang.checkpoint_at is not None and gang.checkpoint_at > gang.started_at
    return has_checkpoint or failed.ended_at - gang.started_at >= PROGRESS_TIME


def _failure_verdict(gang: GangFacts, pod: PodFact, note: str = "") -> Verdict:
    code = 128 + pod.signal if pod.signal is not None else pod.exit_code
    if code == 0:  # the pod was stopped because its workspace was full, and its command ended normally
        code = 1
    message = describe_pod_exit(pod.role, pod.index, pod.exit_code, pod.signal)
    message += f": {pod.message.removesuffix('.')}." if pod.message else "."
    message = f"{message} {note}".rstrip()
    reason = pod.stop_reason if pod.stop_reason in KINDS else "PodFailed"
    failure = Failure(_failure_kind(pod), pod.role, pod.node, of_pod=True)
    return _restart_or_fail(gang, failure, reason, message, code)


def _restart_or_fail(
    gang: GangFacts, failure: Failure, reason: str, message: str, exit_code: int | None = None
) -> Verdict:
    decision = decide_retry(gang.retries, failure)
    if isinstance(decision, Retry):
        return _restart_verdict(decision, message)
    text = " ".join(filter(None, [message, decision.sentence]))
    return Verdict("stopping", reason, text, next_phase="failed", exit_code=exit_code, failure=failure)


def _failure_kind(pod: PodFact) -> str:
    if pod.stop_reason in KINDS:
        return KINDS[pod.stop_reason]
    if pod.signal is not None:
        return signal_name(pod.signal)
    return kinds.START_FAILED if pod.exit_code is None else str(pod.exit_code)


def _end_sort_key(pod: PodFact) -> datetime:
    return pod.ended_at or datetime.max.replace(tzinfo=UTC)


def _completion_verdict(gang: GangFacts) -> Verdict:
    decision = decide_retry(gang.retries, Failure(kinds.COMPLETED))
    if isinstance(decision, Retry):
        return _restart_verdict(decision, "All pods succeeded.")
    if gang.phase == "starting":
        return Verdict("running", "Running", "All pods have already run to completion.", stale=False)
    return Verdict("completed", "Completed", "All pods ended with exit code 0.", exit_code=0)


def _idle_verdict(gang: GangFacts) -> Verdict | None:
    """Return the verdict that stops the idle replicas once all other replicas have succeeded, or None before
    that.
    """
    states = _command_pod_states(gang)
    if not gang.idle_roles or "succeeded" not in states or any(state in LIVE_STATES for state in states):
        return None
    if not meets_minimum(gang.tree, gang.pods, COUNTED_STATES):
        return None  # idle replicas keep running until lost replicas are replaced
    completion = _completion_verdict(gang)
    if completion.to != "completed":
        return completion
    message = "All replicas that run a command ended with exit code 0."
    return replace(completion, to="stopping", next_phase=completion.to, message=message)


def _command_pod_states(gang: GangFacts) -> list[str]:
    return [pod.state for pod in gang.pods if pod.role not in gang.idle_roles]


def _restart_verdict(retry: Retry, cause: str) -> Verdict:
    text = f"{cause} {retry.sentence}"
    start_failure = sentence_to_clause(cause) if retry.failure.kind in START_FAILURES else ""
    return Verdict(
        "stopping", RESTARTING, text, next_phase="pending", failure=retry.failure,
        start_failure=start_failure, retry=retry,
    )  # fmt: skip


def _should_end_after_loss(gang: GangFacts) -> bool:
    return _has_loss_rule(gang) and not meets_minimum(gang.tree, gang.pods, COUNTED_STATES)


def _has_loss_rule(gang: GangFacts) -> bool:
    return any(rule.matches(kinds.NODE_LOST, of_pod=False) for rule in gang.retries.rules)


def _loss_verdict(gang: GangFacts, pod: PodFact | None) -> Verdict:
    """Return the verdict of the retry rule for lost nodes. If there is no such rule, the gang is requeued."""
    cause = "All pods were lost."
    if pod is not None:
        action = "was lost" if pod.state == "lost" else "was stopped"
        if pod.state in LIVE_STATES:
            action = "is being stopped"
        end = f"{format_pod(pod.role, pod.index)} {action}: {pod.eviction or pod.message}"
        cause = f"{end.rstrip('.: ')}."
    failure = Failure(kinds.NODE_LOST, node=pod.node if pod else None)
    if _has_loss_rule(gang):
        return _restart_or_fail(gang, failure, "PodsLost", cause)
    text = f"{cause} The workload is requeued; this does not count as a failure."
    return Verdict("stopping", "PodsLost", text, next_phase="pending", failure=failure)


def _staleness_verdict(gang: GangFacts) -> Verdict | None:
    stale = not meets_all_minimums(gang.tree, gang.pods)
    return Verdict("", stale=stale) if stale != gang.is_stale else None


def meets_all_minimums(tree: RoleGroup | Role, pods: Collection[PodFact]) -> bool:
    """Return whether the pods meet the minimum of the gang and of each group that has live pods."""
    return meets_minimum(tree, pods, COUNTED_STATES) and not _is_degraded(tree, pods)


def _is_degraded(tree: RoleGroup | Role, pods: Collection[PodFact]) -> bool:
    """Return whether the role or group, or any group in it, has live pods but is below its minimum."""
    if not _is_alive(tree, pods):
        return False
    if not meets_minimum(tree, pods, COUNTED_STATES):
        return True
    return isinstance(tree, RoleGroup) and any(_is_degraded(child, pods) for child in tree.children)


def _is_alive(node: RoleGroup | Role, pods: Collection[PodFact]) -> bool:
    if isinstance(node, Role):
        return any(pod.role == node.name and pod.state in ("starting", "running") for pod in pods)
    return any(_is_alive(child, pods) for child in node.children)
