"""Choose one rejection for each workload that several pools reject, and add the pool to its message."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from scheduler.engine.explain.reasons import blocker, reason_rank
from scheduler.engine.plan import Blocker, Numbers, Reason, Rejection

# Reasons that depend on the size of a pool or of its nodes, so the message names the pool.
SIZE_REASONS = frozenset({Reason.EXCEEDS_NODE_SHAPE, Reason.EXCEEDS_POOL_MAX})


def preferred_rejections(rejections: Sequence[Rejection], pools: Mapping[str, str]) -> dict[int, Rejection]:
    """Choose one rejection per workload, and return these rejections keyed by their index in `rejections`.

    `pools` contains the chosen pools by workload. For other workloads, the rejection with the least dominant
    first blocker is chosen. If a workload is too large, the rejection by the largest pool is chosen.
    """
    by_workload: dict[str, list[int]] = {}
    for index, rejection in enumerate(rejections):
        by_workload.setdefault(rejection.workload, []).append(index)
    result: dict[int, Rejection] = {}
    for indexes in by_workload.values():
        if len(indexes) == 1:
            result[indexes[0]] = rejections[indexes[0]]
            continue
        index = max(indexes, key=lambda index: _preference_key(rejections[index], pools))
        result[index] = _name_pool_if_too_large(
            rejections[index], [rejections[other].blockers[0] for other in indexes]
        )
    return dict(sorted(result.items()))


def _preference_key(rejection: Rejection, pools: Mapping[str, str]) -> tuple[bool, int, float]:
    first, is_chosen = rejection.blockers[0], pools.get(rejection.workload) == rejection.pool
    most = first.numbers.get("most") if first.reason in SIZE_REASONS else None
    return is_chosen, reason_rank(first.reason), most if isinstance(most, int | float) else 0


def _name_pool_if_too_large(rejection: Rejection, in_pools: Sequence[Blocker]) -> Rejection:
    """Name the pool in the first blocker if the workload is too large for it.

    `in_pools` contains each pool's first blocker.
    """
    first, *others = rejection.blockers
    if first.reason not in SIZE_REASONS:
        return rejection
    is_same = all(_comparison_key(each) == _comparison_key(first) for each in in_pools)
    is_largest = is_same and not first.numbers.get("beside")
    numbers: Numbers = {**first.numbers, "pool": rejection.pool, "is_largest_pool": is_largest}
    return replace(rejection, blockers=(blocker(first.reason, numbers), *others))


def _comparison_key(first: Blocker) -> tuple[object, ...]:
    return first.reason, *(first.numbers.get(key) for key in ("role", "resource", "beside"))
