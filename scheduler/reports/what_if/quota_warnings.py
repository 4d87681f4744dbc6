"""Warnings about quotas: oversubscribed, or below current allocation."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from berth.core.amounts import RESOURCES, Bounds
from berth.core.words import amount
from scheduler.engine import model
from scheduler.loop.observe.specs import roles_in

GONE = (model.PodState.COMPLETED,)
UP = (model.NodeState.READY, model.NodeState.BOOTING)
Sums = list[int]


@dataclass(frozen=True, slots=True)
class Warned:
    """`code`: projects_above_department | departments_above_pool | below_firm | limit_below_held."""

    code: str
    queue: str
    pool: str
    message: str


def warnings(snapshot: model.Snapshot, touched: Iterable[tuple[str, str]]) -> list[Warned]:
    """About the (queue, pool) that were edited, and the departments above them."""
    queues = {queue.name: queue for queue in snapshot.queues}
    held, firm = _held(snapshot, queues)
    found: list[Warned] = []
    asked: set[tuple[str, str]] = set()
    for name, pool in touched:
        queue = queues[name]
        found += _of_queue(queue, pool, held[name, pool], firm[name, pool])
        top = queues[queue.parent] if queue.parent else queue
        if (top.name, pool) not in asked:
            asked.add((top.name, pool))
            found += _of_department(top, pool, queues)
        if queue.parent is None and ("", pool) not in asked:
            asked.add(("", pool))
            found += _of_pool(pool, snapshot)
    return found


def _of_queue(queue: model.Queue, pool: str, held: Sums, firm: Sums) -> Iterator[Warned]:
    entitled = queue.entitlements.get(pool, model.Entitlement())
    for kind, resource in enumerate(RESOURCES):
        quota, limit = entitled.quota[kind], entitled.limit[kind]
        if quota is not None and firm[kind] > quota:
            said = f"{amount(resource, firm[kind])} of non-preemptible work, beyond its quota of"
            yield Warned(
                "below_firm", queue.name, pool,
                f"{queue.name} holds {said} {amount(resource, quota)}: it goes on, and no more of it starts.",
            )  # fmt: skip
        if limit is not None and held[kind] > limit:
            said = f"{amount(resource, held[kind])}, beyond its limit of {amount(resource, limit)}"
            yield Warned(
                "limit_below_held", queue.name, pool,
                f"{queue.name} holds {said}: nothing is stopped for that, and nothing more starts.",
            )  # fmt: skip


def _of_department(top: model.Queue, pool: str, queues: Mapping[str, model.Queue]) -> Iterator[Warned]:
    own = top.entitlements.get(pool, model.Entitlement()).quota
    inner = [queue for queue in queues.values() if queue.parent == top.name]
    quotas = [queue.entitlements.get(pool, model.Entitlement()).quota for queue in inner]
    for kind, resource, quota in _finite(own):
        promised = _sum(bounds[kind] for bounds in quotas)
        if promised is None or promised > quota:
            yield Warned(
                "projects_above_department", top.name, pool,
                f"The projects of {top.name} are promised {amount(resource, promised)}, "
                f"{top.name} itself {amount(resource, quota)}: not all of them can have theirs at once.",
            )  # fmt: skip


def _of_pool(pool: str, snapshot: model.Snapshot) -> Iterator[Warned]:
    has = [0, 0, 0]
    for node in snapshot.nodes:
        if node.pool == pool and node.state in UP:
            has = [total + more for total, more in zip(has, node.capacity, strict=True)]
    tops = [queue for queue in snapshot.queues if queue.parent is None]
    quotas = [queue.entitlements.get(pool, model.Entitlement()).quota for queue in tops]
    for kind, resource in enumerate(RESOURCES):
        promised = _sum(bounds[kind] for bounds in quotas if bounds[kind] is not None)
        if promised is not None and promised > has[kind]:
            yield Warned(
                "departments_above_pool", "", pool,
                f"Departments are promised {amount(resource, promised)} of {pool}, "
                f"which has {amount(resource, has[kind])} now.",
            )  # fmt: skip


def _finite(bounds: Bounds) -> Iterator[tuple[int, str, int]]:
    for kind, resource in enumerate(RESOURCES):
        bound = bounds[kind]
        if bound is not None:
            yield kind, resource, bound


def _sum(bounds: Iterable[int | None]) -> int | None:
    total = 0
    for bound in bounds:
        if bound is None:
            return None
        total += bound
    return total


def _held(
    snapshot: model.Snapshot, queues: Mapping[str, model.Queue]
) -> tuple[Mapping[tuple[str, str], Sums], Mapping[tuple[str, str], Sums]]:
    """By queue and pool: all that is held, and what of it is not preemptible."""
    held: dict[tuple[str, str], Sums] = defaultdict(lambda: [0, 0, 0])
    firm: dict[tuple[str, str], Sums] = defaultdict(lambda: [0, 0, 0])
    pools = {node.name: node.pool for node in snapshot.nodes}
    for workload in snapshot.workloads:
        roles = {role.name: role for role in roles_in(workload.tree)} if workload.pods else {}
        path = [workload.project, queues[workload.project].parent]
        for pod in workload.pods:
            if pod.state in GONE or pod.node not in pools or pod.role not in roles:
                continue
            request = roles[pod.role].request
            amounts = (pod.milli * len(pod.devices), request.cpu, request.memory_mib)
            for name in path:
                if name is not None:
                    _add(held[name, pools[pod.node]], amounts)
                    if not workload.preemptible:
                        _add(firm[name, pools[pod.node]], amounts)
    return held, firm


def _add(sums: Sums, amounts: tuple[int, int, int]) -> None:
    for kind, more in enumerate(amounts):
        sums[kind] += more
