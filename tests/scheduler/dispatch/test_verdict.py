"""Tests for deriving a gang's state from the states of its pods."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from berth.core.spec import parse_workload
from projects.engine.retries import RetryState
from scheduler.engine.model import Request, Role, RoleGroup
from scheduler.loop.dispatch.lifecycle.verdict import PEER_FAILURES_MAX, GangFacts, PodFact, decide_verdict

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def at(minute: int) -> datetime:
    return NOON + timedelta(minutes=minute)


def role(name: str = "worker", least: int = 2, most: int = 2) -> Role:
    return Role(name, least, most, Request(gpu=1000, devices=1))


def gang(*states: str, phase: str = "running", tree: RoleGroup | None = None, **more: Any) -> GangFacts:
    pods = [PodFact("worker", i, state) for i, state in enumerate(states)]
    tree = tree or RoleGroup("all", (role(),), 1)
    facts = GangFacts(phase, "", "", "", tree, pods)
    return replace(facts, **more)


def restart_policy(kind: str, most: int | None = None, **counts: int) -> RetryState:
    policy = {"kind": kind, **({"max_restarts": most} if most else {})}
    document = {"name": "train", "command": "true", "roles": [{}], "restart_policy": policy}
    return RetryState(parse_workload(document).retry_rules, counts)


def test_gang_is_running_as_soon_as_its_minimum_is_running() -> None:
    assert decide_verdict(gang("running", "starting", phase="starting")) is None
    step = decide_verdict(gang("running", "running", phase="starting"))
    assert step is not None
    assert step.to == "running"


def test_gang_completes_when_every_pod_has_succeeded() -> None:
    assert decide_verdict(gang("succeeded", "running")) is None
    step = decide_verdict(gang("succeeded", "succeeded"))
    assert step is not None
    assert (step.to, step.exit_code) == ("completed", 0)


def test_failed_pod_ends_the_gang_with_its_exit_code() -> None:
    pods = [PodFact("worker", 0, "running"), PodFact("worker", 1, "failed", exit_code=3)]
    step = decide_verdict(gang(pods=pods))
    assert step is not None
    assert (step.to, step.next_phase) == ("stopping", "failed")
    assert (step.exit_code, step.reason) == (3, "PodFailed")
    assert "exit code 3" in step.message


def test_signal_that_kills_a_pod_is_reported_as_a_shell_exit_code() -> None:
    step = decide_verdict(gang(pods=[PodFact("worker", 0, "failed", signal=9)]))
    assert step is not None
    assert step.exit_code == 137


@pytest.mark.parametrize(
    ("kind", "most", "restarts", "leads_to"),
    [
        ("never", None, 0, "failed"),
        ("on_failure", None, 7, "pending"),
        ("on_failure", 2, 1, "pending"),
        ("on_failure", 2, 2, "failed"),
        ("always", 1, 0, "pending"),
    ],
)
def test_restart_policy_determines_the_outcome_of_a_failure(
    kind: str, most: int | None, restarts: int, leads_to: str
) -> None:
    pods = [PodFact("worker", 0, "running"), PodFact("worker", 1, "failed", exit_code=3)]
    step = decide_verdict(gang(pods=pods, retries=restart_policy(kind, most, **{"1": restarts})))
    assert step is not None
    assert (step.to, step.next_phase) == ("stopping", leads_to)
    assert (step.retry is not None) is (leads_to == "pending")


def test_always_restart_policy_restarts_a_gang_that_succeeded() -> None:
    step = decide_verdict(gang("succeeded", "succeeded", retries=restart_policy("always")))
    assert step is not None
    assert step.next_phase == "pending"
    assert step.retry is not None


def test_lost_pod_makes_the_gang_stale_without_counting_as_a_failure() -> None:
    step = decide_verdict(gang("running", "lost"))
    assert step is not None
    assert (step.to, step.stale) == ("", True)
    step = decide_verdict(gang("failed", "lost", is_stale=True))
    assert step is not None
    assert (step.next_phase, step.retry) == ("pending", None)
    step = decide_verdict(gang("lost", "lost"))
    assert step is not None
    assert step.next_phase == "pending"


@pytest.mark.parametrize(
    ("failed", "next_phase"),
    [
        ({"exit_code": 1, "created_at": at(0), "ended_at": at(15)}, "pending"),
        ({"signal": 6, "created_at": at(0), "ended_at": at(9)}, "pending"),  # the clock of the node is behind
        # This pod was created after the loss.
        ({"exit_code": 1, "created_at": at(11), "ended_at": at(15)}, "failed"),
        ({"exit_code": 1, "created_at": at(0), "ended_at": at(41)}, "failed"),  # the loss is too long ago
        ({"signal": 9, "stop_reason": "OutOfMemory", "created_at": at(0), "ended_at": at(15)}, "failed"),
        ({"created_at": at(0), "ended_at": at(15)}, "failed"),  # this pod could not be started
    ],
)
def test_pod_failure_after_a_lost_peer_counts_as_a_loss(failed: dict[str, Any], next_phase: str) -> None:
    pods = [PodFact("worker", 0, "running"), PodFact("worker", 1, "failed", **failed)]
    step = decide_verdict(gang(pods=pods, replaced=[PodFact("worker", 0, "lost", ended_at=at(10))]))
    assert step is not None
    assert (step.next_phase, step.retry) == (next_phase, None)


FAILURE: dict[str, Any] = {"exit_code": 1, "created_at": at(0), "ended_at": at(15)}


@pytest.mark.parametrize(
    ("peer", "failure", "next_phase"),
    [
        (PodFact("worker", 0, "running", eviction="drained"), FAILURE, "pending"),
        (PodFact("worker", 0, "stopping", eviction="scaled down"), FAILURE, "pending"),
        (PodFact("worker", 0, "stopped", eviction="scaled down", ended_at=at(10)), FAILURE, "pending"),
        (PodFact("worker", 0, "stopping"), FAILURE, "failed"),  # this pod never started
        (
            PodFact("worker", 0, "stopped", eviction="scaled down", ended_at=at(10)),
            {**FAILURE, "ended_at": at(41)},
            "failed",
        ),
        (
            PodFact("worker", 0, "running", eviction="drained"),
            {**FAILURE, "stop_reason": "OutOfMemory"},
            "failed",
        ),
    ],
)
def test_failure_during_or_after_a_peer_eviction_counts_as_a_loss(
    peer: PodFact, failure: dict[str, Any], next_phase: str
) -> None:
    step = decide_verdict(gang(pods=[peer, PodFact("worker", 1, "failed", **failure)]))
    assert step is not None
    assert (step.next_phase, step.retry) == (next_phase, None)


def test_requeue_message_names_the_evicted_pod_and_the_reason() -> None:
    peer = PodFact("worker", 0, "running", eviction="the pod was deleted")
    step = decide_verdict(gang(pods=[peer, PodFact("worker", 1, "failed", **FAILURE)]))
    assert step is not None
    assert step.message == (
        "Pod worker-0 is being stopped: the pod was deleted. "
        "The workload is requeued; this does not count as a failure."
    )


@pytest.mark.parametrize(
    ("progress", "is_failure"),
    [
        ({"started_at": at(0)}, True),
        ({}, True),  # not all pods of the run were running
        ({"started_at": at(-15)}, False),  # the pod started half an hour before the failure
        ({"started_at": at(0), "checkpoint_at": at(1)}, False),
        ({"started_at": at(0), "checkpoint_at": at(-1)}, True),  # this checkpoint is of an earlier run
    ],
)
@pytest.mark.parametrize("state", ["lost", "stopped"])
def test_gang_without_progress_fails_after_too_many_peer_failures(
    state: str, progress: dict[str, Any], is_failure: bool
) -> None:
    peer = PodFact("worker", 0, state, eviction="scaled down", ended_at=at(10))
    facts = gang(pods=[peer, PodFact("worker", 1, "failed", **FAILURE)], **progress)
    allowed = decide_verdict(replace(facts, peer_failures=PEER_FAILURES_MAX - 1))
    assert allowed is not None
    assert (allowed.reason, allowed.next_phase) == ("PodsLost", "pending")
    step = decide_verdict(replace(facts, peer_failures=PEER_FAILURES_MAX))
    assert step is not None
    assert step.next_phase == ("failed" if is_failure else "pending")
    assert step.peer_failures == (None if is_failure else 0)


def test_retry_rule_for_lost_nodes_overrides_the_peer_failure_limit() -> None:
    document = {"name": "train", "command": "true", "roles": [{}], "retry": [{"on": ["node_lost"]}]}
    peer = PodFact("worker", 0, "lost", ended_at=at(10))
    pods = [peer, PodFact("worker", 1, "failed", **FAILURE)]
    rules = RetryState(parse_workload(document).retry_rules)
    step = decide_verdict(gang(pods=pods, retries=rules, peer_failures=99))
    assert step is not None
    assert (step.next_phase, step.retry is not None, step.peer_failures) == ("pending", True, None)


def test_complete_gang_is_not_stale() -> None:
    step = decide_verdict(gang("running", "starting", is_stale=True))
    assert step is not None
    assert (step.to, step.stale) == ("", False)


def test_stopping_gang_enters_its_next_phase_once_all_pods_have_ended() -> None:
    assert decide_verdict(gang("stopped", "stopping", phase="stopping", next_phase="pending")) is None
    step = decide_verdict(
        gang("stopped", "stopped", phase="stopping", next_phase="pending", reason="Reclaimed")
    )
    assert step is not None
    assert (step.to, step.reason) == ("pending", "Reclaimed")


@pytest.mark.parametrize(("next_phase", "to"), [("pending", "completed"), ("cancelled", "cancelled")])
def test_gang_that_succeeded_before_it_stopped_counts_as_completed_unless_cancelled(
    next_phase: str, to: str
) -> None:
    step = decide_verdict(gang("succeeded", "succeeded", phase="stopping", next_phase=next_phase))
    assert step is not None
    assert step.to == to


def test_role_tree_is_running_when_enough_children_are_running() -> None:
    tree = RoleGroup("all", (role("a", 1, 1), role("b", 1, 1), role("c", 1, 1)), 2)
    pods = [PodFact("a", 0, "running"), PodFact("b", 0, "starting"), PodFact("c", 0, "running")]
    step = decide_verdict(gang(pods=pods, tree=tree, phase="starting"))
    assert step is not None
    assert step.to == "running"


def test_gang_is_stale_if_an_optional_role_group_loses_one_pod_but_not_if_it_loses_all() -> None:
    tree = RoleGroup("all", (RoleGroup("x", (role("a"),), 1), RoleGroup("y", (role("b"),), 1)), 1)
    pods = [PodFact(name, i, "running") for name in "ab" for i in (0, 1)]
    assert decide_verdict(gang(pods=pods, tree=tree)) is None
    step = decide_verdict(gang(pods=[*pods[:3], replace(pods[3], state="lost")], tree=tree))
    assert step is not None
    assert (step.to, step.stale) == ("", True)
    without_group = [*pods[:2], *(replace(pod, state="lost") for pod in pods[2:])]
    assert decide_verdict(gang(pods=without_group, tree=tree)) is None


def gang_with_idle_role(*work: str, idle: str = "running", **more: Any) -> GangFacts:
    tree = RoleGroup("all", (role(), role("pserver", 1, 1)), 2)
    pods = [PodFact("worker", i, state) for i, state in enumerate(work)] + [PodFact("pserver", 0, idle)]
    return gang(pods=pods, tree=tree, idle_roles=frozenset({"pserver"}), **more)


def test_idle_replicas_stop_once_all_other_replicas_have_succeeded() -> None:
    assert decide_verdict(gang_with_idle_role("succeeded", "running")) is None
    step = decide_verdict(gang_with_idle_role("succeeded", "succeeded"))
    assert step is not None
    assert (step.to, step.next_phase, step.exit_code) == ("stopping", "completed", 0)
    stopped = gang_with_idle_role(
        "succeeded", "succeeded", idle="stopped", phase="stopping", next_phase="completed"
    )
    arrived = decide_verdict(stopped)
    assert arrived is not None
    assert arrived.to == "completed"


def test_idle_replicas_keep_running_while_a_lost_replica_awaits_its_replacement() -> None:
    step = decide_verdict(gang_with_idle_role("succeeded", "lost"))
    assert step is not None
    assert (step.to, step.stale) == ("", True)


def test_idle_replicas_restart_with_a_gang_that_always_restarts() -> None:
    step = decide_verdict(gang_with_idle_role("succeeded", "succeeded", retries=restart_policy("always")))
    assert step is not None
    assert (step.to, step.next_phase, step.reason) == ("stopping", "pending", "Restarting")
