"""Estimate the start times of pending workloads from declared runtimes.

The estimate ignores later submissions and fragmentation.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from heapq import heappop, heappush
from typing import TypeAlias

from scheduler.engine.explain.rejections import Rejections
from scheduler.engine.future_capacity import FutureCapacity
from scheduler.engine.model import Snapshot, Workload
from scheduler.engine.plan import Plan, Reason, Rejection
from scheduler.engine.request_bounds import LIMIT_REASONS, RequestBounds

MAX_ESTIMATES = 500  # maximum number of estimates per pool, in queue order
ASSUMPTIONS = (
    "if running workloads end within their maximum runtime, workloads ahead in the queue start first, "
    "nothing new is queued ahead, and the freed capacity is not fragmented"
)
NEVER_STARTS = "the workload can never start as specified"
UNKNOWN_START: Mapping[Reason, str] = {
    Reason.MISCONFIGURED: NEVER_STARTS,
    Reason.NO_MATCHING_NODE: NEVER_STARTS,
    Reason.EXCEEDS_NODE_SHAPE: NEVER_STARTS,
    Reason.EXCEEDS_POOL_MAX: NEVER_STARTS,
    Reason.EXCEEDS_DOMAIN: NEVER_STARTS,
    Reason.SUSPENDED: "a user has to resume the workload",
    Reason.DEPENDENCY_NOT_MET: "the workloads that it waits for have to end first",
    Reason.FETCHING_CODE: "its code has to be fetched first",
    Reason.PROJECT_LIMIT: "another workload in the project has to end, or the limit has to be raised",
    Reason.DEPARTMENT_LIMIT: "another workload in the department has to end, or the limit has to be raised",
    Reason.CLUSTER_QUOTA: "another workload in the project has to end, "
    "or the cluster's quota has to be raised",
    Reason.NON_PREEMPTIBLE_OVER_QUOTA: "another workload in the project has to end, "
    "or the quota has to be raised",
    Reason.DEPARTMENT_OVERSOLD: "another workload in the department has to end, "
    "or the quota has to be raised",
    Reason.BEHIND_RESERVATION: "the free nodes are held for a workload that has waited longer",
    Reason.WAITING_FOR_SCALE_UP: "the workload is waiting for nodes, and their boot time is unknown",
}
EXCEEDS_WHOLE_LIMIT = "the request alone exceeds the limit; lower the request or raise the limit"
EXCEEDS_WHOLE_QUOTA = "the request alone exceeds the quota; lower the request or raise the quota"
TOO_FAR_BACK = "the workload is too far back in the queue for an estimate"
CAPACITY_FREE = "enough capacity is free or should be free by now; see the workload's pending reasons"
PARTLY_PLACED = "some of the workload's replicas have already been placed"
# Start time, rank of the pool in the workload's list, queue position, pool and workload.
Candidate: TypeAlias = tuple[int, int, int, str, str]


@dataclass(frozen=True, slots=True)
class Forecast:
    """Estimated start time of a pending workload, in seconds since the epoch, or None.

    `because` states the assumptions, or why there is no estimate. `after` lists the workloads that must end
    before the start, with their end times, earliest first.
    """

    at: int | None
    because: str
    after: tuple[tuple[str, int], ...] = ()


def forecast_pending(snapshot: Snapshot, plan: Plan) -> tuple[Plan, Mapping[str, Forecast]]:
    """Return the plan with one rejection per pending workload, and the forecasts by workload name.

    If several pools reject a workload, the plan keeps the rejection by the pool with the earliest expected
    start. A workload for which nodes boot is expected to start before all others.
    """
    rejections = plan.rejections
    if isinstance(rejections, Rejections):
        in_all_pools = _Forecasts(snapshot, plan, rejections.in_all_pools)
        if in_all_pools.pools:
            plan = replace(plan, rejections=rejections.choose(in_all_pools.pools))
    else:
        in_all_pools = _Forecasts(snapshot, plan, rejections)
    return plan, {each.workload: in_all_pools.results[each.workload, each.pool] for each in plan.rejections}


def forecasts(snapshot: Snapshot, plan: Plan) -> Mapping[str, Forecast]:
    """Return the forecast for each workload that the plan leaves pending."""
    return forecast_pending(snapshot, plan)[1]


class _PoolQueue:
    """Pending workloads of one pool, in queue order, and the pool's future capacity."""

    def __init__(self, rejections: Sequence[Rejection], capacity: FutureCapacity, now: int) -> None:
        self.rest = iter(sorted(rejections, key=lambda rejection: rejection.position or 0))
        self.capacity = capacity
        self.positions = 0  # number of queue positions so far
        self.earliest = now  # start of the last workload that left the queue for another pool
        self.head: Rejection | None = None  # next workload, if it may also start in another pool
        self.head_start: int | None = None  # time from which the head's capacity is allocated


class _Forecasts:
    """Forecasts by workload and pool.

    A workload that allows several pools starts in the pool where it can start first. It uses no capacity of
    the other pools. `pools` contains the chosen pool by workload.
    """

    def __init__(self, snapshot: Snapshot, plan: Plan, rejections: Sequence[Rejection]) -> None:
        self.results: dict[tuple[str, str], Forecast] = {}
        self.pools: dict[str, str] = {}
        self._now, self._bounds = snapshot.now, RequestBounds(snapshot)
        self._workloads = {workload.name: workload for workload in snapshot.workloads}
        by_pool: dict[str, list[Rejection]] = {}
        for rejection in rejections:
            by_pool.setdefault(rejection.pool, []).append(rejection)
        counts = Counter(rejection.workload for rejection in rejections) if len(by_pool) > 1 else Counter()
        self._in_several_pools = {name for name, count in counts.items() if count > 1}
        self._queues = {
            pool: _PoolQueue(in_pool, FutureCapacity(snapshot, plan, pool, self._workloads), snapshot.now)
            for pool, in_pool in by_pool.items()
        }
        self._candidates: list[Candidate] = []
        for pool in self._queues:
            self._advance(pool)
        while self._candidates:
            start, *_, pool, name = heappop(self._candidates)
            if name not in self.pools:
                self._start(self._workloads[name], pool, start)

    def _start(self, workload: Workload, pool: str, start: int) -> None:
        """Start the workload, which heads the pool's queue, and move on in each queue that it heads."""
        self.pools[workload.name] = pool
        for each in workload.pools:
            queue = self._queues.get(each)
            if queue is None or queue.head is None or queue.head.workload != workload.name:
                continue
            if each == pool:
                queue.capacity.allocate(workload, queue.head_start)
            else:
                queue.capacity.undo_estimate()
                queue.earliest = max(queue.earliest, start)
                queue.positions -= queue.head.position is not None
            self._advance(each)

    def _advance(self, pool: str) -> None:
        """Forecast the pool's next workloads, up to one that may start in another pool instead."""
        queue = self._queues[pool]
        queue.head = None
        for rejection in queue.rest:
            workload = self._workloads[rejection.workload]
            if workload.name in self.pools:
                continue
            queue.positions += rejection.position is not None
            forecast, allocated_from = self._forecast(rejection, workload, queue)
            self.results[workload.name, pool] = forecast
            if workload.name not in self._in_several_pools:
                queue.capacity.allocate(workload, allocated_from)
                continue
            boots = any(blocker.reason is Reason.WAITING_FOR_SCALE_UP for blocker in rejection.blockers)
            start = self._now if boots else forecast.at
            if start is not None:
                queue.head, queue.head_start = rejection, allocated_from
                rank = workload.pools.index(pool)
                heappush(self._candidates, (start, rank, rejection.position or 0, pool, workload.name))
                return
            queue.capacity.undo_estimate()

    def _forecast(
        self, rejection: Rejection, workload: Workload, queue: _PoolQueue
    ) -> tuple[Forecast, int | None]:
        """Return the forecast, and the time from which its capacity cannot be used by workloads behind it."""
        if rejection.expected_start is not None:
            estimate = queue.capacity.estimate(workload, rejection.expected_start)
            in_time = tuple(end for end in estimate.after if end[1] <= rejection.expected_start)
            return Forecast(rejection.expected_start, ASSUMPTIONS, in_time), estimate.at
        unknown = self._explain_unknown_start(rejection, workload, queue)
        if unknown is not None:
            return _forecast_without_start(unknown), None
        estimate = queue.capacity.estimate(workload, max(queue.earliest, workload.backoff_until or 0))
        if estimate.at is None:
            return Forecast(None, estimate.unknown_because), None
        if estimate.at <= self._now:
            return _forecast_without_start(CAPACITY_FREE), estimate.at
        return Forecast(estimate.at, ASSUMPTIONS, estimate.after), estimate.at

    def _explain_unknown_start(
        self, rejection: Rejection, workload: Workload, queue: _PoolQueue
    ) -> str | None:
        """Return why the start does not depend on the pool's capacity alone, or None if it does."""
        exceeded = self._bounds.exceeded_by(workload, rejection)
        if exceeded is not None:
            return EXCEEDS_WHOLE_LIMIT if exceeded.reason in LIMIT_REASONS else EXCEEDS_WHOLE_QUOTA
        reason = rejection.blockers[0].reason
        if reason in UNKNOWN_START:
            return UNKNOWN_START[reason]
        if workload.pods:
            return PARTLY_PLACED
        is_too_far_back = rejection.position is not None and queue.positions > MAX_ESTIMATES
        return TOO_FAR_BACK if is_too_far_back else None


@cache
def _forecast_without_start(reason: str) -> Forecast:
    return Forecast(None, reason)
