"""Which pods may be moved off a node, and the work that would be lost."""

from collections.abc import Sequence

from berth.core.amounts import MILLI
from scheduler.engine.gang import roles_of
from scheduler.engine.model import Node, Pod, PodState, Pool, Queue, Snapshot, Workload

PAYBACK = 3600  # a move may throw away no more work than the node could do in so many seconds


class Movable:
    """What may be moved at all, and how much work that would throw away."""

    def __init__(self, snapshot: Snapshot, pool: str, payback: int) -> None:
        self.now, self.payback = snapshot.now, payback
        self.pool = next(each for each in snapshot.pools if each.name == pool)
        self.queues = {queue.name: queue for queue in snapshot.queues}

    def cost(self, node: Node, standing: Sequence[Workload]) -> int | None:
        """Lost work in thousandths of the node's seconds; None where something there may not be moved.

        A gang is disturbed as a whole, be it by one replica: what all of it did since its checkpoint counts.
        """
        if not all(self._may_move(workload) for workload in standing):
            return None
        capacity = node.gpus * MILLI or node.cpu
        lost = sum(
            self._seconds(workload, pod) * _weight(node, workload, pod)
            for workload in standing
            for pod in workload.pods
            if pod.state is PodState.RUNNING
        )
        cost = lost * MILLI // max(capacity, 1)
        return cost if cost <= self.payback * MILLI else None

    def _may_move(self, workload: Workload) -> bool:
        settled = all(pod.state in (PodState.RUNNING, PodState.COMPLETED) for pod in workload.pods)
        steady = settled and workload.stale_since is None and not workload.suspended
        known = workload.project in self.queues
        return steady and known and workload.preemptible and not self._safe(workload)

    def _safe(self, workload: Workload) -> bool:
        """A move interrupts like any other: the longer of the two guarantees counts."""
        project = self.queues[workload.project]
        path = [project, self.queues[project.parent]] if project.parent in self.queues else [project]
        started = workload.started
        if started is None:
            started = min(pod.started for pod in workload.pods if pod.state is PodState.RUNNING)
        return self.now - started < max(_min_runtimes(path, self.pool))

    def _seconds(self, workload: Workload, pod: Pod) -> int:
        return max(0, self.now - max(pod.started, workload.started or 0, workload.last_checkpoint or 0))


def _min_runtimes(path: Sequence[Queue], pool: Pool) -> tuple[int, int]:
    reclaim = (queue.reclaim_min_runtime for queue in path)
    preempt = (queue.preempt_min_runtime for queue in path)
    return (
        next((seconds for seconds in reclaim if seconds is not None), pool.reclaim_min_runtime),
        next((seconds for seconds in preempt if seconds is not None), pool.preempt_min_runtime),
    )


def _weight(node: Node, workload: Workload, pod: Pod) -> int:
    """What it holds of that which nodes like this one are there for."""
    if node.gpus:
        return pod.milli * len(pod.devices)
    return next((role.request.cpu for role in roles_of(workload.tree) if role.name == pod.role), 0)
