"""Find the smallest single change that would start a pending workload now."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from berth.core.backports import StrEnum
from scheduler.engine.decide import decide, decide_with_layout
from scheduler.engine.explain.reasons import is_schedulable
from scheduler.engine.layout.carry_over import prepare_layout
from scheduler.engine.layout.layout import Layout
from scheduler.engine.model import NodeState, Snapshot
from scheduler.engine.plan import Kind, Place, Plan, Rejection
from scheduler.engine.request_bounds import RequestBounds
from scheduler.engine.smallest_change import lower_requests, own_changes, pool_changes, queue_changes
from scheduler.engine.smallest_change.change import Change, ChangeKind, apply_change, replace_workload
from scheduler.engine.smallest_change.endings import (
    propose_ending_other_workload,
    propose_ending_project_workload,
)
from scheduler.engine.smallest_change.pending_case import PendingCase, find_pending_case
from scheduler.engine.smallest_change.proposals import Proposal, Proposals

MAX_POOLS = 4  # maximum number of the workload's pools that are considered
MAX_RUNS = 40  # maximum number of engine runs per question, however large the cluster is

Stage = Callable[[PendingCase], Iterator[Proposals]]

# Order of changes. Within a stage, changes are ordered by amount, then by name.
OWNER_STAGES: tuple[Stage, ...] = (
    own_changes.propose_ending_own_wait,
    own_changes.propose_allowing_preemption,
    own_changes.propose_allowing_other_pools,
    own_changes.propose_dropping_constraints,
    lower_requests.propose_requests_down_to_half,
    own_changes.propose_shorter_max_runtime,
    propose_ending_project_workload,
    own_changes.propose_higher_priority,
)
# Changes by the owner after which an otherwise unschedulable workload may start later.
SCHEDULABLE_STAGES: tuple[Stage, ...] = (
    own_changes.propose_allowing_preemption,
    own_changes.propose_allowing_other_pools,
    own_changes.propose_dropping_constraints,
    lower_requests.propose_requests_down_to_half,
    lower_requests.propose_requests_below_half,
)
OTHER_STAGES: tuple[Stage, ...] = (
    # Changes that department or platform admins can make.
    queue_changes.propose_higher_limits,
    queue_changes.propose_higher_quotas,
    pool_changes.propose_waiting_for_minimum_runtimes,
    pool_changes.propose_uncordoning_nodes,
    pool_changes.propose_consolidation_changes,
    pool_changes.propose_new_nodes,
    # Changes that affect other tenants.
    propose_ending_other_workload,
    # Reductions large enough to change the purpose of the workload.
    lower_requests.propose_requests_below_half,
)

REQUEST_STAGES = (lower_requests.propose_requests_down_to_half, lower_requests.propose_requests_below_half)


class Outcome(StrEnum):
    CHANGE = "change"  # the change starts the workload
    # With the change, an unschedulable workload would wait for resources.
    SCHEDULABLE = "schedulable"
    NO_CHANGE = "no_change"  # no single change starts the workload
    UNDECIDED = "undecided"  # no change was found within the maximum number of runs
    NOT_NEEDED = "not_needed"  # the workload is not pending, or the next cycle places it anyway


@dataclass(frozen=True, slots=True)
class Effects:
    """Names of the workloads that are evicted, scaled down or moved to start the pending workload."""

    evicted: tuple[str, ...] = ()
    scaled_down: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()

    @property
    def affects_others(self) -> bool:
        return bool(self.evicted or self.scaled_down or self.moved)


@dataclass(frozen=True, slots=True)
class SmallestChange:
    """Smallest change that starts a workload, with its effects on other workloads.

    If it affects others, `without_evictions` is the smallest reduction of the request that starts the
    workload without such effects, or None if there is none.
    """

    outcome: Outcome
    change: Change | None = None
    effects: Effects = Effects()
    runs: int = 0  # number of engine runs
    without_evictions: Change | None = None


def smallest_change(snapshot: Snapshot, name: str, max_runs: int = MAX_RUNS) -> SmallestChange:
    """Return the smallest change that would make the engine start the workload now.

    1. Decide on the unchanged snapshot, to get the workload's blockers.
    2. Stage by stage, propose changes that could remove the blockers.
    3. Decide on the snapshot with each proposed change, and stop at the first stage with a success.

    If the workload can never start as specified, changes by its owner also count if it may start later. They
    come after changes by the owner that start it now, but before changes by admins. This includes reductions
    of the request to less than half.

    A reservation counts as a start if it waits only for evicted or stopping pods, but not if it waits for
    booting nodes.
    """
    runs = _TrialRuns(snapshot, name, max_runs)
    cases = list(_pending_cases(runs, snapshot, name))
    if not cases:
        return SmallestChange(Outcome.NOT_NEEDED, runs=runs.count)
    for stage, later in _stages(cases):
        best = runs.find_smallest(
            _proposals_of_stage(stage, cases), partial(runs.effects_if_started, later=later)
        )
        if best is not None:
            change, effects = best
            starts_now = runs.effects_if_started(change) if later else effects
            outcome = Outcome.SCHEDULABLE if starts_now is None else Outcome.CHANGE
            effects = starts_now or effects
            alternative = _find_request_without_evictions(runs, cases) if effects.affects_others else None
            return SmallestChange(outcome, change, effects, runs.count, alternative)
    outcome = Outcome.UNDECIDED if runs.rejected else Outcome.NO_CHANGE
    return SmallestChange(outcome, runs=runs.count)


def _stages(cases: Sequence[PendingCase]) -> Iterator[tuple[Stage, bool]]:
    """Yield the stages in order, each with a flag.

    If the flag is True, changes that let the workload start later also count.
    """
    yield from ((stage, False) for stage in OWNER_STAGES)
    never_starts = not any(_may_ever_start(case.snapshot, case.rejection) for case in cases)
    if never_starts:
        yield from ((stage, True) for stage in SCHEDULABLE_STAGES)
    yield from ((stage, False) for stage in OTHER_STAGES)


def _proposals_of_stage(stage: Stage, cases: Iterable[PendingCase]) -> Iterator[Proposals]:
    for case in cases:
        if not case.is_blocked or stage is own_changes.propose_ending_own_wait:
            yield from stage(case)


def _find_request_without_evictions(runs: "_TrialRuns", cases: Sequence[PendingCase]) -> Change | None:
    """Return the smallest reduction that starts the workload without affecting other workloads, or None."""
    for stage in REQUEST_STAGES:
        best = runs.find_smallest(_proposals_of_stage(stage, cases), runs.effects_without_evictions)
        if best is not None:
            return best[0]
    return None


def _pending_cases(runs: "_TrialRuns", snapshot: Snapshot, name: str) -> Iterator[PendingCase]:
    """Yield a PendingCase for each of the workload's pools, or nothing if it is not pending."""
    first = find_pending_case(snapshot, runs.plan(snapshot), runs.layout, name)
    if first is None:
        return
    yield first
    for pool in first.workload.pools[:MAX_POOLS]:
        if pool != first.pool.name:
            only = replace_workload(snapshot, replace(first.workload, pools=(pool,)))
            case = find_pending_case(only, runs.plan(only), runs.layout, name)
            if case is not None:
                yield replace(case, snapshot=snapshot, workload=first.workload)


# Returns the effects of a change, or None if the change does not count.
Accept = Callable[[Change], Effects | None]


class _TrialRuns:
    """Trial runs of the engine on changed snapshots, up to a maximum number of runs."""

    def __init__(self, snapshot: Snapshot, name: str, max_runs: int) -> None:
        self._snapshot, self._name, self._max_runs = snapshot, name, max_runs
        self._has_backoff = any(w.name == name and w.backoff_until is not None for w in snapshot.workloads)
        self._layout: Layout | None = None
        self._results: dict[tuple[Change, bool], tuple[Effects | None, bool]] = {}
        self.count = 0
        self.rejected = False  # True if a run was rejected because `max_runs` had been reached

    def layout(self) -> Layout:
        """Return the unchanged snapshot's layout (the boards). It is valid until the next run."""
        self._layout = prepare_layout(self._snapshot, self._layout)
        return self._layout

    def plan(self, snapshot: Snapshot) -> Plan:
        self.count += 1
        before = self._snapshot
        if (before.pools, before.nodes, before.queues) != (snapshot.pools, snapshot.nodes, snapshot.queues):
            return decide(snapshot)
        plan, self._layout = decide_with_layout(snapshot, self._layout)
        return plan

    def find_smallest(self, groups: Iterable[Proposals], accept: Accept) -> tuple[Change, Effects] | None:
        """Return the smallest accepted change with its effects, or None if no change is accepted."""
        best: tuple[Proposal, Effects] | None = None
        for proposals in groups:
            smaller = [proposal for proposal in proposals if best is None or proposal[0] < best[0][0]]
            best = self._smallest_proposal(smaller, accept) or best
        return None if best is None else (best[0][1], best[1])

    def _smallest_proposal(self, proposals: Proposals, accept: Accept) -> tuple[Proposal, Effects] | None:
        effects = accept(proposals[-1][1]) if proposals else None
        if effects is None:
            return None
        best, low, high, middle = (proposals[-1], effects), 0, len(proposals) - 1, 0
        while low < high:
            effects = accept(proposals[middle][1])
            if effects is None:
                low = middle + 1
            else:
                best, high = (proposals[middle], effects), middle
            middle = (low + high) // 2
        return best

    def effects_without_evictions(self, change: Change) -> Effects | None:
        """Return empty effects, or None if the workload would not start or would affect others."""
        effects = self.effects_if_started(change)
        return None if effects is None or effects.affects_others else effects

    def effects_if_started(self, change: Change, *, later: bool = False) -> Effects | None:
        """Return the effects of the change, or None if the workload would not start.

        With `later`, changes that let the workload start once resources become free also count. Their effects
        are unknown, so the result is empty.
        """
        after_backoff = later and self._has_backoff
        key = change, after_backoff
        if key not in self._results:
            if self.count >= self._max_runs:
                self.rejected = True
                return None
            changed = apply_change(self._snapshot, self._name, change)
            if after_backoff:  # during the backoff, no exceeded limit or quota is reported
                changed = apply_change(changed, self._name, Change(ChangeKind.BACKOFF_OVER))
            plan = self.plan(changed)
            self._results[key] = (
                _effects_of_starting(changed, plan, self._name),
                _may_start_later(changed, plan, self._name),
            )
        effects, may_start_later = self._results[key]
        if later:
            return Effects() if may_start_later else None
        return effects


def _may_start_later(snapshot: Snapshot, plan: Plan, name: str) -> bool:
    if any(bundle.workload == name for bundle in plan.bundles):
        return True
    rejection = next((rejection for rejection in plan.rejections if rejection.workload == name), None)
    return rejection is not None and _may_ever_start(snapshot, rejection)


def _may_ever_start(snapshot: Snapshot, rejection: Rejection) -> bool:
    workload = next(workload for workload in snapshot.workloads if workload.name == rejection.workload)
    exceeded = RequestBounds(snapshot).exceeded_by(workload, rejection)
    return is_schedulable(rejection.blockers) and exceeded is None


def _effects_of_starting(snapshot: Snapshot, plan: Plan, name: str) -> Effects | None:
    bundles = [bundle for bundle in plan.bundles if bundle.workload == name]
    nodes = {
        step.node
        for bundle in bundles
        for step in bundle.steps
        if isinstance(step, Place) and step.workload == name
    }
    booting = {node.name for node in snapshot.nodes if node.state is NodeState.BOOTING}
    if not nodes or nodes & booting:
        return None
    evictions = [eviction for bundle in bundles for eviction in bundle.evictions]
    moved = {eviction.workload for eviction in evictions if eviction.kind is Kind.CONSOLIDATE}
    evicted = {eviction.workload for eviction in evictions if eviction.whole} - moved
    scaled_down = {eviction.workload for eviction in evictions} - moved - evicted
    rules = {eviction.rule for eviction in evictions if eviction.workload in evicted}
    return Effects(*(tuple(sorted(each)) for each in (evicted, scaled_down, moved, rules)))
