"""Free capacity of a node pool over time, for estimates of start times."""

from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple, TypeAlias

from berth.core.values.amounts import RESOURCES
from berth.core.wording.words import format_amount
from scheduler.engine.model import NodeState, PodState, Role, RoleGroup, Snapshot, Workload, roles_in
from scheduler.engine.plan import Evict, Place, Plan

Sums: TypeAlias = list[int]
State: TypeAlias = tuple[int, Sums, Sums, dict[str, int]]
End: TypeAlias = tuple[int, tuple[int, int, int], str]  # end time, freed amounts and workload


class Estimate(NamedTuple):
    """Time from which a workload fits, in seconds since the epoch, or None with the reason.

    `after` lists the workloads that must end before that time, with their end times, earliest first.
    """

    at: int | None
    unknown_because: str
    after: tuple[tuple[str, int], ...] = ()


class FutureCapacity:
    """Free resources of one pool over time, as workloads reach their declared ends.

    Each estimate moves on to the estimated start.
    """

    def __init__(self, snapshot: Snapshot, plan: Plan, pool: str, by_name: Mapping[str, Workload]) -> None:
        self._pool, self._now = pool, snapshot.now
        nodes = {node.name for node in snapshot.nodes if node.pool == pool and node.state is NodeState.READY}
        self._free: Sums = [0, 0, 0]
        for node in snapshot.nodes:
            if node.name in nodes:
                _add_amounts(self._free, node.capacity)
        self._ends: list[End] = []
        self._latest: dict[str, int] = {}  # end times of the workloads that ended last, by name
        self._freed_later: Sums = [0, 0, 0]
        self._undeclared: Sums = [0, 0, 0]
        for workload, amounts in _allocations(snapshot, plan, nodes, by_name):
            self._allocate_until_end(
                workload, amounts, workload.started if workload.started is not None else self._now
            )
        heapify(self._ends)
        self._before: State | None = None  # state before the last estimate
        self._passed: list[End] = []  # ends that the last estimate has passed

    def estimate(self, workload: Workload, earliest: int) -> Estimate:
        """Return the time from which the workload fits, at the earliest `earliest`."""
        self._passed = []
        self._before = self._now, list(self._free), list(self._freed_later), dict(self._latest)
        requested = minimum_request(workload.tree)
        for kind, resource in enumerate(RESOURCES):
            missing = requested[kind] - self._free[kind] - self._freed_later[kind]
            if missing > 0 and requested[kind]:
                return Estimate(None, self._explain_unknown_start(kind, resource, missing))
        short = [kind for kind in range(3) if requested[kind] > self._free[kind]]
        awaited: dict[str, tuple[Sums, int]] = {}  # freed amounts and end time, by workload
        while self._ends:
            fits = _fits_within(requested, self._free)
            if fits and self._ends[0][0] > earliest:
                break
            end, freed, name = passed = heappop(self._ends)
            self._passed.append(passed)
            if any(freed[kind] for kind in short):
                _add_amounts(awaited.setdefault(name, ([0, 0, 0], end))[0], freed)
            if end > self._now:
                self._now, self._latest = end, {}
            self._latest[name] = end
            _add_amounts(self._free, freed)
            _add_amounts(self._freed_later, tuple(-amount for amount in freed))
        at = max(self._now, earliest)
        after = (
            self._ends_before_start(awaited, requested) if short else self._latest if at == self._now else {}
        )
        return Estimate(at, "", tuple(after.items()))

    def allocate(self, workload: Workload, since: int | None) -> None:
        """Allocate the workload's minimum request until its declared end. Do nothing if `since` is None."""
        self._before = None
        if since is not None:
            self._allocate_until_end(workload, minimum_request(workload.tree), since)

    def undo_estimate(self) -> None:
        """Return to the time before the last estimate, unless `allocate` was called after it."""
        if self._before is not None:
            self._now, self._free, self._freed_later, self._latest = self._before
            for end in self._passed:
                heappush(self._ends, end)
        self._before = None

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


def minimum_request(tree: RoleGroup | Role) -> tuple[int, int, int]:
    """Return the smallest amounts that the workload needs to run."""
    if isinstance(tree, Role):
        gpu, cpu, memory = tree.request.amounts
        return gpu * tree.min, cpu * tree.min, memory * tree.min
    chosen = sorted(minimum_request(child) for child in tree.children)[: tree.need]
    gpu, cpu, memory = (sum(child[kind] for child in chosen) for kind in range(3))
    return gpu, cpu, memory


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
