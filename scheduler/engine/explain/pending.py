"""Explain why gangs are still pending at the end of a cycle, based on the board's final state.

Reasons that no longer apply are omitted.
"""

from collections.abc import Hashable, Sequence

from berth.core.values.amounts import RESOURCES
from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import (
    exceeded_bounds,
    exceeded_load_quota,
    exceeded_share_at_any_level,
    remaining_preemption_delay,
)
from scheduler.engine.board.gang import Gang, PendingGroup, arrangements
from scheduler.engine.explain.free import FreeCapacity, NodeView, fits_now
from scheduler.engine.explain.reclaimable import Reclaimable, ReclaimableAmounts
from scheduler.engine.explain.shortage import capacity_numbers, explain_shortage
from scheduler.engine.placement.find_room import may_use_held_nodes
from scheduler.engine.plan import UNSCHEDULABLE_REASONS, Numbers, Reason
from scheduler.engine.preemption.policies.pending import Consolidate, Preempt

Reasons = dict[Reason, Numbers]
Obstacle = tuple[Reason, Numbers]
Evictions = tuple[str, Reclaimable]  # verb ("reclaimed" or "preempted") and evictable amounts

LIMITS = (Reason.PROJECT_LIMIT, Reason.DEPARTMENT_LIMIT, Reason.CLUSTER_QUOTA)
MISSING_CAPACITY = frozenset({Reason.WAITING_FOR_CAPACITY, Reason.FRAGMENTED, Reason.TOPOLOGY})
LIMIT_INDEPENDENT = MISSING_CAPACITY | {Reason.NODES_UNAVAILABLE}  # reasons that do not depend on queues


class PendingReasons:
    """Pending reasons of the groups on one board. The board must no longer change."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._amounts = ReclaimableAmounts(board)
        self._shortages: dict[Hashable, Obstacle | None] = {}

    def reasons_for(self, group: PendingGroup, gang: Gang) -> Reasons:
        """Return the group's pending reasons, determined for `gang`, its first pending gang."""
        recorded = group.reasons
        for reason in UNSCHEDULABLE_REASONS & recorded.keys():
            return {reason: recorded[reason]}
        result: Reasons = dict(exceeded_bounds(gang, gang.requested))
        for reason in LIMITS:
            if reason in result and not (reason is Reason.CLUSTER_QUOTA and exceeded_load_quota(gang)):
                result |= self._insufficient_preemption_reasons(gang, result[reason])
        shortage = self._capacity_obstacle(group, gang)
        if shortage is not None and shortage[0] in UNSCHEDULABLE_REASONS:
            return dict([shortage])
        if shortage is not None and shortage[0] is Reason.NODES_UNAVAILABLE:
            result[shortage[0]] = shortage[1]
        elif shortage is not None:
            over_share = exceeded_share_at_any_level(gang, gang.requested)
            result |= self._capacity_reasons(group, gang, *shortage, within_share=over_share is None)
            if over_share is not None:
                result[over_share[0]] = over_share[1]
        if gang.has_pods and not gang.meets_minimum:
            missing = sum(need.count for need in next(arrangements(gang)))
            result.setdefault(Reason.WAITING_FOR_GANG, {"missing": missing})
        return result or dict(recorded)

    def _capacity_obstacle(self, group: PendingGroup, gang: Gang) -> Obstacle | None:
        behind = group.reasons.get(Reason.BEHIND_RESERVATION)
        if behind is not None:
            return Reason.BEHIND_RESERVATION, behind
        recorded = next((reason for reason in group.reasons if reason in LIMIT_INDEPENDENT), None)
        if recorded is not None and not self._board.cycle.accepted_trials:
            return recorded, group.reasons[recorded]
        has_hold = self._board.cycle.backfill_hold is not None
        key = group.request_key, not has_hold or may_use_held_nodes(self._board, gang)
        if key not in self._shortages:
            has_room = fits_now(self._board, gang)
            self._shortages[key] = None if has_room else explain_shortage(self._board, gang)
        return self._shortages[key]

    def _capacity_reasons(
        self, group: PendingGroup, gang: Gang, reason: Reason, numbers: Numbers, *, within_share: bool
    ) -> Reasons:
        board = self._board
        if reason not in MISSING_CAPACITY or not (
            within_share or not Preempt.has_no_victims_if_over_share(board, gang)
        ):
            return {reason: numbers}
        if reason is Reason.FRAGMENTED:
            numbers = {**numbers, **_consolidation_bounds(board, gang)}
        free = FreeCapacity.for_gang(board, gang)
        kinds = free.short_resources() if reason is Reason.WAITING_FOR_CAPACITY else []
        kind, best = self._binding_resource(gang, free, kinds or [free.main_resource()], within_share)
        if kinds and kind != kinds[0]:
            numbers = capacity_numbers(free, [kind, *(other for other in kinds if other != kind)])
        result: Reasons = {reason: numbers}
        missing = free.missing_amount(kind)
        if best is None or (best[0] == "preempted" and best[1].amount + best[1].protected_amount < missing):
            return result
        exhausted = group.reasons.get(Reason.PLACEMENT_ATTEMPTS_EXHAUSTED)
        if exhausted is not None and best[1].amount >= missing:
            return {**result, Reason.PLACEMENT_ATTEMPTS_EXHAUSTED: exhausted}
        delay = remaining_preemption_delay(board, gang.workload)
        if delay and best[1].amount >= missing:
            return {**result, Reason.IN_PREEMPTION_DELAY: {"until": board.now + delay, "seconds": delay}}
        return result | _eviction_reason(free.resource(kind), missing, *best)

    def _binding_resource(
        self, gang: Gang, free: FreeCapacity, kinds: Sequence[int], within_share: bool
    ) -> tuple[int, Evictions | None]:
        """Return the resource to report as missing, and the evictions that free the most of it, or None."""
        first: tuple[int, Evictions | None] | None = None
        for kind in kinds:
            best = self._best_evictions(gang, free.view, kind, within_share)
            if best is None or best[1].amount < free.missing_amount(kind):
                return kind, best
            first = first or (kind, best)
        assert first is not None
        return first

    def _best_evictions(self, gang: Gang, view: NodeView, kind: int, within_share: bool) -> Evictions | None:
        """Return "reclaimed" or "preempted", whichever would free more of the resource, with the amounts.

        Return None if there is nothing to evict.
        """
        own = self._amounts.preemptible_amounts(gang, view, kind)
        if within_share:
            others = self._amounts.reclaimable_amounts(gang, view, kind)
            if others.amount >= own.amount:
                return "reclaimed", others
        return ("preempted", own) if own != Reclaimable() else None

    def _insufficient_preemption_reasons(self, gang: Gang, bound: Numbers) -> Reasons:
        view = FreeCapacity.for_gang(self._board, gang).view
        kind, missing = RESOURCES.index(str(bound["resource"])), bound["missing"]
        own = self._amounts.preemptible_amounts(gang, view, kind)
        if not isinstance(missing, int) or not own.amount + own.protected_amount >= max(1, missing):
            return {}
        return _eviction_reason(RESOURCES[kind], missing, "preempted", own)


def _consolidation_bounds(board: Board, gang: Gang) -> Numbers:
    policy = Consolidate(board, gang, gang.requested)
    if not policy.may_evict():
        return {}
    if not board.pool.consolidation.enabled:
        return {"consolidation": "disabled"}
    return {} if policy.max_moves is None else {"max_moves": policy.max_moves}


def _eviction_reason(resource: str, missing: int, action: str, amounts: Reclaimable) -> Reasons:
    protected, left = amounts.protected_amount, max(0, missing - amounts.amount)
    numbers: Numbers = {
        "resource": resource,
        "action": action,
        "reclaimable": amounts.amount,
        "missing": left,
        "protected": protected,
        "by_runtime": amounts.by_runtime,
        "non_preemptible": amounts.non_preemptible,
    }
    is_protected = 0 < left <= protected
    return {Reason.VICTIMS_PROTECTED if is_protected else Reason.NO_RECLAIMABLE_RESOURCES: numbers}
