"""Propose changes by the pending workload's owner, or events to wait for."""

from collections.abc import Iterator

from berth.core.values.priorities import HIGHEST, PREEMPTIBLE_BELOW
from scheduler.engine.board.matching import HARD_TAINT_EFFECTS, meets_constraints, tolerates
from scheduler.engine.model import NodeState, Role, RoleGroup
from scheduler.engine.plan import Blocker, Reason
from scheduler.engine.request_bounds import NON_PREEMPTIBLE_REASONS
from scheduler.engine.smallest_change.change import Change, ChangeKind, edit_role, require_integer
from scheduler.engine.smallest_change.pending_case import PendingCase
from scheduler.engine.smallest_change.proposals import (
    Proposals,
    propose_increases,
    ranked_proposals,
    single_proposal,
)

MAX_CHOICES = 3  # maximum number of pools tried, and of constraints tried per role


def propose_ending_own_wait(case: PendingCase) -> Iterator[Proposals]:
    """Propose resuming the workload, or waiting for its backoff, dependency or preemption delay to end."""
    for blocker in case.rejection.blockers:
        change = _change_to_end_wait(blocker)
        if change is not None:
            yield single_proposal(change)


def _change_to_end_wait(blocker: Blocker) -> Change | None:
    numbers = blocker.numbers
    match blocker.reason:
        case Reason.SUSPENDED:
            return Change(ChangeKind.RESUMED)
        case Reason.BACKOFF if "seconds" in numbers:
            return Change(ChangeKind.BACKOFF_OVER, before=require_integer(numbers["seconds"]), after=0)
        case Reason.DEPENDENCY_NOT_MET if numbers.get("count") == 1:
            return Change(ChangeKind.DEPENDENCY_ENDED, str(numbers["after"]), after=str(numbers["state"]))
        case Reason.IN_PREEMPTION_DELAY:
            return Change(
                ChangeKind.PREEMPTION_DELAY_OVER, before=require_integer(numbers["seconds"]), after=0
            )
    return None


def propose_allowing_preemption(case: PendingCase) -> Iterator[Proposals]:
    if case.reasons & NON_PREEMPTIBLE_REASONS:
        yield single_proposal(Change(ChangeKind.PREEMPTIBLE))


def propose_allowing_other_pools(case: PendingCase) -> Iterator[Proposals]:
    others = sorted(pool.name for pool in case.snapshot.pools if pool.name not in case.workload.pools)
    for name in others[:MAX_CHOICES]:
        yield single_proposal(Change(ChangeKind.POOL_ALLOWED, name))


def propose_dropping_constraints(case: PendingCase) -> Iterator[Proposals]:
    """Propose dropping or relaxing a constraint that excludes nodes of the pool."""
    for role in case.roles:
        changes = [
            change for change in _dropped_constraints(case, role) if _admits_more_nodes(case, role, change)
        ]
        for change in changes[:MAX_CHOICES]:
            yield single_proposal(change)
    for level in sorted(set(_required_levels(case.workload.tree))):
        yield single_proposal(Change(ChangeKind.TOPOLOGY_DROPPED, resource=level))
    for role in case.roles:
        if role.spread_per_node is not None and role.spread_per_node < role.min:
            yield _propose_higher_spread(role, role.spread_per_node)


def _dropped_constraints(case: PendingCase, role: Role) -> Iterator[Change]:
    for key, value in sorted(role.node_selector.items()):
        yield Change(ChangeKind.LABEL_DROPPED, role.name, key, before=value)
    taints = [taint for node in case.nodes for taint in node.taints if taint.effect in HARD_TAINT_EFFECTS]
    for key in sorted({taint.key for taint in taints if not tolerates(role.tolerations, taint)}):
        yield Change(ChangeKind.TAINT_TOLERATED, role.name, key)
    if role.gpu_models:
        models = " or ".join(role.gpu_models)
        for model in sorted({node.gpu_model for node in case.nodes} - {*role.gpu_models, ""}):
            yield Change(ChangeKind.GPU_MODEL_ALLOWED, role.name, before=models, after=model)


def _admits_more_nodes(case: PendingCase, role: Role, change: Change) -> bool:
    edited = edit_role(role, change)
    excluded = (
        node for node in case.nodes if node.state is NodeState.READY and not meets_constraints(role, node)
    )
    return any(meets_constraints(edited, node) for node in excluded)


def _required_levels(group: RoleGroup) -> Iterator[str]:
    for part in (group, *group.children):
        if part.topology is not None and part.topology.required is not None:
            yield part.topology.required
    for child in group.children:
        if isinstance(child, RoleGroup):
            yield from _required_levels(child)


def _propose_higher_spread(role: Role, spread: int) -> Proposals:
    def raise_spread(after: int) -> Change:
        return Change(ChangeKind.SPREAD_RAISED, role.name, before=spread, after=after)

    return propose_increases(spread, "replicas", [role.min], raise_spread)


def propose_shorter_max_runtime(case: PendingCase) -> Iterator[Proposals]:
    """Propose a maximum runtime short enough to use nodes or quota that are held for another workload."""
    for blocker in case.rejection.blockers:
        if "behind" in blocker.numbers and blocker.numbers["until"] is not None:
            seconds = require_integer(blocker.numbers["until"]) - case.snapshot.now
            if seconds > 0:
                before = case.workload.max_runtime
                yield single_proposal(Change(ChangeKind.MAX_RUNTIME_LOWERED, before=before, after=seconds))


def propose_higher_priority(case: PendingCase) -> Iterator[Proposals]:
    """Propose priorities just above those of the project's other workloads."""
    workload = case.workload
    end = PREEMPTIBLE_BELOW if workload.preemptible and workload.priority < PREEMPTIBLE_BELOW else HIGHEST + 1
    targets = sorted({
        other.priority + 1
        for other in case.snapshot.workloads
        if other.project == workload.project and workload.priority <= other.priority < end - 1
        and other.name != workload.name
    })  # fmt: skip
    yield ranked_proposals(
        Change(ChangeKind.PRIORITY_RAISED, before=workload.priority, after=priority) for priority in targets
    )
