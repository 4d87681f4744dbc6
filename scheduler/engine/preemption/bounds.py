"""Upper bounds on the resources that evictions could free, computed from totals alone."""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import gcd
from typing import Any

from berth.core.values.amounts import RESOURCES
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import (
    Arrangement,
    Gang,
    node_usage_per_replica,
    pod_gpu_milli,
    smallest_request,
)
from scheduler.engine.board.ledger import GPU, KINDS, QueueAccount
from scheduler.engine.plan import Numbers, Reason
from scheduler.engine.preemption.policies.base import PreemptionPolicy
from scheduler.engine.preemption.victims.selection import VictimSelection

Requested = tuple[int, int, int]


@dataclass(slots=True)
class _QueueTotals:
    """Amounts that could be reclaimed from one victim queue, for each resource."""

    total: list[int] = field(default_factory=lambda: [0, 0, 0])
    # Amounts protected by a minimum runtime, not included in `total`.
    runtime_protected: list[int] = field(default_factory=lambda: [0, 0, 0])
    # Amounts of non-preemptible workloads, not included in `total`.
    non_preemptible: list[int] = field(default_factory=lambda: [0, 0, 0])
    largest_victim: list[int] = field(default_factory=lambda: [0, 0, 0])  # amounts of the largest victim
    # Common divisors: each victim frees a multiple of these amounts.
    grain: list[int] = field(default_factory=lambda: [0, 0, 0])
    # Amounts freed in addition to `total`, because nodes count limits and queues count requests.
    above_requests: list[int] = field(default_factory=lambda: [0, 0, 0])


def shortfall(selection: VictimSelection, arrangement: Arrangement) -> tuple[Reason, Numbers] | None:
    """Return why even evicting all possible victims would not suffice, or None if it might suffice."""
    return _find_shortfall(_pool_totals(selection), selection.policy.requested, smallest_request(arrangement))


@lru_cache(maxsize=256)
def shortfall_without_victims(
    free: tuple[int, int, int], requested: Requested
) -> tuple[Reason, Numbers] | None:
    """Return the shortfall if nothing is evicted, or None if the free resources suffice."""
    return _find_shortfall(_PoolTotals(free), requested, requested)


def _find_shortfall(
    sums: "_PoolTotals", requested: Requested, least: Requested
) -> tuple[Reason, Numbers] | None:
    for kind in KINDS:
        if least[kind] > sums.free[kind] + sums.reclaimable_amounts[kind] + sums.uncounted[kind]:
            numbers = sums.shortfall_numbers(requested, kind)
            enough = numbers["protected"] >= numbers["missing"]
            return Reason.VICTIMS_PROTECTED if enough else Reason.NO_RECLAIMABLE_RESOURCES, numbers
    return None


def reclaim_numbers(selection: VictimSelection, resource: object) -> Numbers:
    """Return the figures that explain why a gang is blocked although the total resources suffice."""
    kinds = selection.policy.kinds
    kind = next((kind for kind in kinds if RESOURCES[kind] == resource), next(iter(kinds), 0))
    return {**_pool_totals(selection).shortfall_numbers(selection.policy.requested, kind), "missing": 0}


def max_gpus_saved_by_moves(board: Board) -> int:
    """Return how many milli-GPU would be saved if all pods ran on the largest devices.

    A GPU memory request takes a smaller fraction of a larger device.
    """
    cache = board.nodes.static_cache
    if "larger devices" not in cache:
        cache["larger devices"] = bool(board.matcher.larger_memory_sizes())
    if not cache["larger devices"]:
        return 0
    return sum(
        pod_gpu_milli(pod) - part.least_milli * part.request.devices
        for gangs in board.by_project.values()
        for gang in gangs.values()
        for part in gang.parts
        if part.request.gpu_memory_mib
        for pod in part.live.values()
    )


def largest_victim(selection: VictimSelection, kind: int) -> int:
    """Return the largest amount of a resource that evicting a single gang could free."""
    return max((result.largest_victim[kind] for result in _totals_by_queue(selection).values()), default=0)


@dataclass(frozen=True, slots=True)
class _PoolTotals:
    """Free, reclaimable and protected resources, summed over all victim queues."""

    free: tuple[int, int, int]
    reclaimable_amounts: list[int] = field(default_factory=lambda: [0, 0, 0])
    runtime_protected: list[int] = field(default_factory=lambda: [0, 0, 0])
    non_preemptible: list[int] = field(default_factory=lambda: [0, 0, 0])
    # CPU and memory that evictions may free beyond the pods' requests, and GPU shares that moves may save.
    uncounted: list[int] = field(default_factory=lambda: [0, 0, 0])

    def shortfall_numbers(self, requested: Requested, kind: int) -> dict[str, Any]:
        return {
            "resource": RESOURCES[kind],
            "requested": requested[kind],
            "free": self.free[kind],
            "reclaimable": self.reclaimable_amounts[kind],
            "missing": requested[kind] - self.free[kind] - self.reclaimable_amounts[kind],
            "protected": self.runtime_protected[kind] + self.non_preemptible[kind],
            "by_runtime": self.runtime_protected[kind],
            "non_preemptible": self.non_preemptible[kind],
        }


def _pool_totals(selection: VictimSelection) -> _PoolTotals:
    policy, sums = selection.policy, _PoolTotals(selection.board.nodes.free_resources())
    sums.uncounted[GPU] += max_gpus_saved_by_moves(selection.board)
    if not policy.moves_only:
        for side, result in _totals_by_queue(selection).items():
            for kind in policy.kinds:
                sums.reclaimable_amounts[kind] += _max_reclaimable(policy, side, kind, result)
                sums.runtime_protected[kind] += result.runtime_protected[kind]
                sums.non_preemptible[kind] += result.non_preemptible[kind]
                sums.uncounted[kind] += result.above_requests[kind]
    return sums


def _totals_by_queue(selection: VictimSelection) -> dict[QueueAccount, _QueueTotals]:
    policy = selection.policy
    sides: dict[QueueAccount, _QueueTotals] = {}
    for account in policy.projects():
        diverging_queues = policy.diverging_queues(account)
        side = diverging_queues[1] if diverging_queues else account
        result = _project_totals(selection, account)
        sides[side] = _merge_totals(sides[side], result) if side in sides else result
    return sides


def _project_totals(selection: VictimSelection, account: QueueAccount) -> _QueueTotals:
    policy, cache = selection.policy, selection.board.cycle.reclaimable_cache.setdefault(account, {})
    kind = policy.kind, tuple(policy.kinds), policy.gang.workload.priority, policy.protects_new_gangs
    result = cache.get(kind)
    if not isinstance(result, _QueueTotals) or policy.gang.account is account:
        result = _QueueTotals()
        for gang in selection.board.by_project[account].values():
            if (gang.is_elastic or policy.evicts_gangs) and policy.is_candidate_victim(gang):
                _add_gang(result, gang, selection)
        if result.total == [
            account.allocated[k] - account.non_preemptible[k] if k in policy.kinds else 0 for k in KINDS
        ]:
            cache[kind] = result
        return result
    left = [account.allocated[k] - account.non_preemptible[k] if k in policy.kinds else 0 for k in KINDS]
    return replace(result, total=left)


def _merge_totals(one: _QueueTotals, other: _QueueTotals) -> _QueueTotals:
    def merge_resource(kind: int) -> tuple[int, int, int, int, int, int]:
        return (
            one.total[kind] + other.total[kind],
            one.runtime_protected[kind] + other.runtime_protected[kind],
            one.non_preemptible[kind] + other.non_preemptible[kind],
            max(one.largest_victim[kind], other.largest_victim[kind]),
            gcd(one.grain[kind], other.grain[kind]),
            one.above_requests[kind] + other.above_requests[kind],
        )

    return _QueueTotals(*map(list, zip(*map(merge_resource, KINDS), strict=True)))


def _add_gang(result: _QueueTotals, gang: Gang, selection: VictimSelection) -> None:
    policy = selection.policy
    is_elastic, evicts = gang.is_elastic, policy.evicts_gangs
    evicts_all = not gang.simple or (evicts and not gang.non_preemptible and not selection.is_protected(gang))
    for kind in policy.kinds:
        allocated = spare = 0
        for part in gang.parts:
            amount = part.amounts[kind]
            if amount:
                live = len(part.live)
                allocated += amount * live
                if is_elastic:
                    spare += amount * max(0, min(part.replica_count - part.role.min, live))
                if kind == GPU and part.least_milli != part.milli:
                    # GPU shares depend on the device size, so assume the smallest devices.
                    result.grain[kind] = gcd(result.grain[kind], *map(pod_gpu_milli, part.live.values()))
                elif result.grain[kind] != amount:
                    result.grain[kind] = gcd(result.grain[kind], amount)
            if kind != GPU:
                result.above_requests[kind] += (node_usage_per_replica(part, kind) - amount) * len(part.live)
        if gang.non_preemptible:
            result.non_preemptible[kind] += allocated if evicts else 0
            continue
        reclaimable = allocated if evicts_all else spare
        result.total[kind] += reclaimable
        if reclaimable < allocated and evicts and policy.is_protected(gang):
            result.runtime_protected[kind] += allocated - reclaimable
        result.largest_victim[kind] = max(result.largest_victim[kind], reclaimable)


def _max_reclaimable(policy: PreemptionPolicy, side: QueueAccount, kind: int, result: _QueueTotals) -> int:
    threshold = policy.threshold(side, kind)
    grain = result.grain[kind]
    if threshold is None or not grain:
        return result.total[kind]
    room = side.allocated[kind] - threshold + result.largest_victim[kind] - 1
    return max(0, min(result.total[kind], room // grain * grain))
