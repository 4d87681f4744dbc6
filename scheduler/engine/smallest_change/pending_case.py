"""Pending workload with its blockers, and the limits and quotas that it would exceed."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from berth.core.values.amounts import RESOURCES
from scheduler.engine.board.gang import leaf_roles
from scheduler.engine.future_capacity import minimum_request
from scheduler.engine.layout.layout import Layout
from scheduler.engine.model import Node, Pool, Queue, Role, Snapshot, Workload
from scheduler.engine.plan import Blocker, Plan, QueueReport, Reason, Rejection
from scheduler.engine.request_bounds import LIMIT_REASONS, NON_PREEMPTIBLE_REASONS
from scheduler.engine.smallest_change.change import require_integer

HELD_BACK = frozenset({
    Reason.MISCONFIGURED, Reason.SUSPENDED, Reason.DEPENDENCY_NOT_MET, Reason.FETCHING_CODE, Reason.BACKOFF,
})  # fmt: skip
BOUNDS = LIMIT_REASONS | NON_PREEMPTIBLE_REASONS


@dataclass(frozen=True, slots=True)
class ExceededBound:
    """Limit or quota that the workload would exceed. Raising it to `target` admits the workload."""

    reason: Reason
    queue: Queue
    kind: int  # index of the resource that is missing
    missing: int
    target: int


@dataclass(frozen=True)
class PendingCase:
    """Workload that the plan for the unchanged snapshot leaves pending."""

    snapshot: Snapshot
    plan: Plan
    workload: Workload
    rejection: Rejection
    layout: Callable[[], Layout]  # layout of the unchanged snapshot, valid until the engine runs again

    @cached_property
    def reasons(self) -> frozenset[Reason]:
        return frozenset(blocker.reason for blocker in self.rejection.blockers)

    @property
    def is_blocked(self) -> bool:
        """Return whether the workload is blocked by anything other than queues and nodes."""
        return bool(self.reasons & HELD_BACK)

    @property
    def capacity_may_help(self) -> bool:
        """Return whether free nodes could help. They cannot if a limit or quota rules out the workload."""
        return not self.reasons & {*BOUNDS, Reason.CLUSTER_QUOTA}

    @cached_property
    def pool(self) -> Pool:
        return next(pool for pool in self.snapshot.pools if pool.name == self.rejection.pool)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Return the pool's nodes, ordered by name."""
        nodes = (node for node in self.snapshot.nodes if node.pool == self.pool.name)
        return tuple(sorted(nodes, key=lambda node: node.name))

    @cached_property
    def node_names(self) -> frozenset[str]:
        return frozenset(node.name for node in self.nodes)

    @cached_property
    def roles(self) -> tuple[Role, ...]:
        return tuple(leaf_roles(self.workload.tree))

    @cached_property
    def path(self) -> tuple[Queue, ...]:
        """Return the queues of the workload's project and department."""
        return self._queue_path(self.workload.project)

    @cached_property
    def queue_reports(self) -> Mapping[str, QueueReport]:
        return {report.queue: report for report in self.plan.queues if report.pool == self.pool.name}

    def allocated(self, queue: Queue, kind: int) -> int:
        """Return the queue's allocation in the pool or, with a group quota, in all pools of the group."""
        pool_quota = queue.pool_quotas.get(self.pool.name)
        group = "" if pool_quota is None else pool_quota.group
        if not group:
            return self.queue_reports[queue.name].allocated[kind]
        pools = {pool for pool, other in queue.pool_quotas.items() if other.group == group}
        return sum(
            report.allocated[kind]
            for report in self.plan.queues
            if report.queue == queue.name and report.pool in pools
        )

    @cached_property
    def exceeded_bounds(self) -> tuple[ExceededBound, ...]:
        """Return the limits and quotas that rule out the workload."""
        queues = {queue.name: queue for queue in self.path}
        blockers = (blocker for blocker in self.rejection.blockers if blocker.reason in BOUNDS)
        return tuple(_exceeded_bound(blocker, queues) for blocker in blockers)

    @cached_property
    def requested(self) -> Mapping[str, int]:
        """Return the workload's minimum request, keyed by resource.

        Amounts in blockers override those in the document.
        """
        amounts = dict(zip(RESOURCES, minimum_request(self.workload.tree), strict=True))
        for blocker in self.rejection.blockers:
            if blocker.reason in BOUNDS or blocker.reason is Reason.WOULD_EXCEED_FAIR_SHARE:
                amounts[str(blocker.numbers["resource"])] = require_integer(blocker.numbers["requested"])
        return amounts

    @cached_property
    def short_resources(self) -> frozenset[str]:
        """Return the resources that the blockers mention, or all resources if the blockers do not identify
        one.
        """
        every = frozenset({*RESOURCES, "gpu_memory_mib"})
        numbers = [blocker.numbers for blocker in self.rejection.blockers]
        if any("also" in values or "beside" in values for values in numbers):
            return every
        return frozenset(str(values["resource"]) for values in numbers if "resource" in values) or every

    @cached_property
    def gpu_milli_by_node(self) -> Mapping[str, int]:
        """Return the allocated milli-GPUs on each node."""
        pods = (pod for workload in self.snapshot.workloads for pod in workload.pods)
        allocated = Counter[str]()
        for pod in pods:
            allocated[pod.node] += pod.milli * len(pod.devices)
        return allocated

    def minimum_runtimes(self, project: str) -> tuple[int, int]:
        """Return the minimum runtimes that protect against reclaim and against preemption, in seconds."""
        path = self._queue_path(project)
        reclaim = (queue.reclaim_min_runtime for queue in path)
        preempt = (queue.preempt_min_runtime for queue in path)
        return (
            next((seconds for seconds in reclaim if seconds is not None), self.pool.reclaim_min_runtime),
            next((seconds for seconds in preempt if seconds is not None), self.pool.preempt_min_runtime),
        )

    @cached_property
    def _queues_by_name(self) -> Mapping[str, Queue]:
        return {queue.name: queue for queue in self.snapshot.queues}

    def _queue_path(self, project: str) -> tuple[Queue, ...]:
        queue = self._queues_by_name.get(project)
        if queue is None:
            return ()
        return (queue,) if queue.parent is None else (queue, self._queues_by_name[queue.parent])


def _exceeded_bound(blocker: Blocker, queues: Mapping[str, Queue]) -> ExceededBound:
    numbers = blocker.numbers
    missing = require_integer(numbers["missing"])
    return ExceededBound(
        reason=blocker.reason,
        queue=queues[str(numbers["queue"])],
        kind=RESOURCES.index(str(numbers["resource"])),
        missing=missing,
        target=require_integer(numbers["bound"]) + missing,
    )


def find_pending_case(
    snapshot: Snapshot, plan: Plan, layout: Callable[[], Layout], name: str
) -> PendingCase | None:
    """Return the PendingCase of a pending workload without pods and reservations.

    Return None for any other workload.
    """
    workload = next((workload for workload in snapshot.workloads if workload.name == name), None)
    rejection = next((rejection for rejection in plan.rejections if rejection.workload == name), None)
    if workload is None or rejection is None or workload.pods or _is_reserved(rejection):
        return None
    return PendingCase(snapshot, plan, workload, rejection, layout)


def _is_reserved(rejection: Rejection) -> bool:
    return any(
        blocker.reason is Reason.WAITING_FOR_VICTIMS or "booting" in blocker.numbers
        for blocker in rejection.blockers
    )
