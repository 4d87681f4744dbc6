"""Estimate the start times of pending workloads from declared runtimes.

The estimate ignores later submissions and fragmentation.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from heapq import heapify, heappop, heappush

from berth.core.values.amounts import RESOURCES
from berth.core.wording.words import format_amount
from scheduler.engine.model import NodeState, PodState, Role, RoleGroup, Snapshot, Workload, roles_in
from scheduler.engine.plan import Evict, Place, Plan, Reason, Rejection
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
Sums = list[int]


@dataclass(frozen=True, slots=True)
class Forecast:
    """Estimated start time of a pending workload, in seconds since the epoch, or None.

    `because` states the assumptions, or why there is no estimate. `after` lists the workloads that must end
    before the start, with their end times, earliest first.
    """

    at: int | None
    because: str
    after: tuple[tuple[str, int], ...] = ()


def forecasts(snapshot: Snapshot, plan: Plan) -> Mapping[str, Forecast]:
    """Return the forecast for each workload that the plan leaves pending."""
    return {
        rejection.workload: forecast
        for rejection, forecast in forecast_rejections(snapshot, plan, plan.rejections)
    }


def forecast_rejections(
    snapshot: Snapshot, plan: Plan, rejections: Iterable[Rejection]
) -> Iterator[tuple[Rejection, Forecast]]:
    """Yield the forecast for each rejection in its pool."""
    by_name = {workload.name: workload for workload in snapshot.workloads}
    by_pool: dict[str, list[Rejection]] = {}
    for rejection in rejections:
        by_pool.setdefault(rejection.pool, []).append(rejection)
    bounds = RequestBounds(snapshot)
    for pool, in_pool in by_pool.items():
        future = _FutureCapacity(snapshot, plan, pool, by_name)
        for rejection in sorted(in_pool, key=lambda rejection: rejection.position or 0):
            workload = by_name[rejection.workload]
            yield rejection, _forecast(rejection, workload, future, bounds, snapshot.now)


def minimum_request(tree: RoleGroup | Role) -> tuple[int, int, int]:
    """Return the smallest amounts that the workload needs to run."""
    if isinstance(tree, Role):
        gpu, cpu, memory = tree.request.amounts
        return gpu * tree.min, cpu * tree.min, memory * tree.min
    chosen = sorted(minimum_request(child) for child in tree.children)[: tree.need]
    gpu, cpu, memory = (sum(child[kind] for child in chosen) for kind in range(3))
    return gpu, cpu, memory


def _forecast(
    rejection: Rejection, workload: Workload, future: "_FutureCapacity", bounds: RequestBounds, now: int
) -> Forecast:
    if rejection.expected_start is not None:
        # Deduct the workload's capacity, which workloads behind it in the queue cannot use.
        after = future.start(workload, rejection.expected_start).after
        in_time = tuple(end for end in after if end[1] <= rejection.expected_start)
        return Forecast(rejection.expected_start, ASSUMPTIONS, in_time)
    exceeded = bounds.exceeded_by(workload, rejection)
    if exceeded is not None:
        is_limit = exceeded.reason in LIMIT_REASONS
        return _forecast_without_start(EXCEEDS_WHOLE_LIMIT if is_limit else EXCEEDS_WHOLE_QUOTA)
    reason = rejection.blockers[0].reason
    if reason in UNKNOWN_START:
        return _forecast_without_start(UNKNOWN_START[reason])
    if workload.pods:
        return _forecast_without_start(PARTLY_PLACED)
    if rejection.position is not None and rejection.position > MAX_ESTIMATES:
        return _forecast_without_start(TOO_FAR_BACK)
    return future.start(workload, max(now, workload.backoff_until or 0))


@cache
def _forecast_without_start(reason: str) -> Forecast:
    return Forecast(None, reason)


class _FutureCapacity:
    """Free resources of one pool over time, as workloads reach their declared ends."""

    def __init__(self, snapshot: Snapshot, plan: Plan, pool: str, by_name: Mapping[str, Workload]) -> None:
        self._pool, self._now, self._began = pool, snapshot.now, snapshot.now
        nodes = {node.name for node in snapshot.nodes if node.pool == pool and node.state is NodeState.READY}
        self._free: Sums = [0, 0, 0]
        for node in snapshot.nodes:
            if node.name in nodes:
                _add_amounts(self._free, node.capacity)
        self._ends: list[tuple[int, tuple[int, int, int], str]] = []
        self._latest: dict[str, int] = {}  # end times of the workloads that ended last, by name
        self._freed_later: Sums = [0, 0, 0]
        self._undeclared: Sums = [0, 0, 0]
        for workload, amounts in _allocations(snapshot, plan, nodes, by_name):
            self._allocate_until_end(
                workload, amounts, workload.started if workload.started is not None else self._now
            )
        heapify(self._ends)

    def start(self, workload: Workload, earliest: int) -> Forecast:
        requested = minimum_request(workload.tree)
        for kind, resource in enumerate(RESOURCES):
            missing = requested[kind] - self._free[kind] - self._freed_later[kind]
            if missing > 0 and requested[kind]:
                return Forecast(None, self._explain_unknown_start(kind, resource, missing))
        short = [kind for kind in range(3) if requested[kind] > self._free[kind]]
        awaited: dict[str, tuple[Sums, int]] = {}  # freed amounts and end time, by workload
        while self._ends:
            fits = _fits_within(requested, self._free)
            if fits and self._ends[0][0] > earliest:
                break
            end, freed, name = heappop(self._ends)
            if any(freed[kind] for kind in short):
                _add_amounts(awaited.setdefault(name, ([0, 0, 0], end))[0], freed)
            if end > self._now:
                self._now, self._latest = end, {}
            self._latest[name] = end
            _add_amounts(self._free, freed)
            _add_amounts(self._freed_later, tuple(-amount for amount in freed))
        at = max(self._now, earliest)
        if at <= self._began:
            self._allocate_until_end(workload, requested, at)
            return Forecast(None, CAPACITY_FREE)
        after = (
            self._ends_before_start(awaited, requested) if short else self._latest if at == self._now else {}
        )
        self._allocate_until_end(workload, requested, at)
        return Forecast(at, ASSUMPTIONS, tuple(after.items()))

    def _ends_before_start(
        self, awaited: Mapping[str, tuple[Sums, int]], requested: tuple[int, int, int]
    ) -> dict[str, int]:
        """Return the end times, by name, of the awaited workloads that must end before the request fits."""
        spare = list(self._free)
        result: dict[str, int] = {}
        for name, (freed, end) in awaited.items():
            rest = [has - amount for has, amount in zip(spare, freed, strict=True)]
            if _fits_within(requested, rest):
                spare = rest
            else:
                result[name] = end
        return result

    def _allocate_until_end(self, workload: Workload, amounts: tuple[int, int, int], since: int) -> None:
        _add_amounts(self._free, tuple(-amount for amount in amounts))
        if workload.max_runtime is None:
            _add_amounts(self._undeclared, amounts)
        else:
            _add_amounts(self._freed_later, amounts)
            heappush(self._ends, (max(self._now, since + workload.max_runtime), amounts, workload.name))

    def _explain_unknown_start(self, kind: int, resource: str, missing: int) -> str:
        undeclared = self._undeclared[kind]
        if missing > undeclared:
            more = format_amount(resource, missing - undeclared)
            return f"even if no workload ran, the ready nodes of pool {self._pool} would lack {more}"
        return (
            f"workloads without a maximum runtime have {format_amount(resource, undeclared)} allocated in "
            f"pool {self._pool}, and this workload needs {format_amount(resource, missing)} of that"
        )


def _allocations(
    snapshot: Snapshot, plan: Plan, nodes: Iterable[str], by_name: Mapping[str, Workload]
) -> Iterator[tuple[Workload, tuple[int, int, int]]]:
    node_names = set(nodes)
    steps = [step for bundle in plan.bundles for step in bundle.steps]
    leaving = {(step.workload, step.role, step.index) for step in steps if isinstance(step, Evict)}
    for workload in snapshot.workloads:
        for pod in workload.pods:
            is_leaving = (workload.name, pod.role, pod.index) in leaving
            if pod.node in node_names and pod.state is not PodState.COMPLETED and not is_leaving:
                yield workload, _requested_amounts(workload, pod.role, pod.milli * len(pod.devices))
    for step in steps:
        if isinstance(step, Place) and step.node in node_names:
            workload = by_name[step.workload]
            yield workload, _requested_amounts(workload, step.role, step.milli * len(step.devices))


def _requested_amounts(workload: Workload, role: str, gpu: int) -> tuple[int, int, int]:
    request = next((each.request for each in roles_in(workload.tree) if each.name == role), None)
    return (gpu, 0, 0) if request is None else (gpu, request.cpu, request.memory_mib)


def _fits_within(requested: Iterable[int], free: Iterable[int]) -> bool:
    return all(need <= has or not need for need, has in zip(requested, free, strict=True))


def _add_amounts(sums: Sums, amounts: Iterable[int]) -> None:
    for kind, more in enumerate(amounts):
        sums[kind] += more
