"""Traces: a cluster, its tenants and the jobs that they submit over time."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from berth.core.values.amounts import MILLI
from scheduler.engine.board.gang import leaf_roles
from scheduler.engine.model import Node, Queue, Snapshot, Workload


@dataclass(frozen=True, slots=True)
class Trace:
    """Workload trace: the cluster before the first arrival, and the workloads in order of arrival."""

    name: str
    cluster: Snapshot
    arrivals: tuple[Workload, ...]

    @property
    def start_time(self) -> int:
        return self.arrivals[0].submitted if self.arrivals else self.cluster.now

    @property
    def gpus(self) -> int:
        return sum(node.gpus for node in self.cluster.nodes)


def snapshot_to_trace(name: str, snapshot: Snapshot) -> Trace:
    """Convert a snapshot to a trace.

    Workloads with pods are running at the start. All others arrive at their submission time.
    """
    running = tuple(workload for workload in snapshot.workloads if workload.pods)
    arriving = sorted((w for w in snapshot.workloads if not w.pods), key=lambda w: (w.submitted, w.name))
    start_time = min((w.submitted for w in arriving), default=snapshot.now)
    return Trace(name, replace(snapshot, workloads=running, now=max(start_time, _last_start(running))),
                 tuple(arriving))  # fmt: skip


def gpus_requested(workload: Workload) -> float:
    """Return the number of GPUs that the workload requests at its minimum size."""
    milli = sum(role.request.gpu * role.request.devices * role.min for role in leaf_roles(workload.tree))
    return milli / MILLI


def split_by_project(trace: Trace) -> Iterator[Trace]:
    """Yield one trace per project, with as many nodes as its quota covers, like a static partition."""
    nodes: list[Node] = sorted(trace.cluster.nodes, key=lambda node: (-node.gpus, node.name))
    projects = [queue for queue in trace.cluster.queues if queue.parent is not None]
    for project in sorted(projects, key=lambda queue: (-(total_gpu_quota(queue) or 0), queue.name)):
        quota, project_nodes = total_gpu_quota(project), list[Node]()
        while nodes and (quota is None or sum(node.gpus for node in project_nodes) < quota):
            project_nodes.append(nodes.pop(0))
        arrivals = tuple(w for w in trace.arrivals if w.project == project.name)
        yield replace(trace, cluster=replace(trace.cluster, nodes=tuple(project_nodes)), arrivals=arrivals)


def total_gpu_quota(queue: Queue) -> float | None:
    """Return the queue's GPU quota summed over all pools, or None if any pool's quota is unlimited."""
    quotas = [pool_quota.quota.gpu for pool_quota in queue.pool_quotas.values()]
    return None if None in quotas else sum(quota for quota in quotas if quota is not None) / MILLI


def _last_start(running: tuple[Workload, ...]) -> int:
    return max((w.started for w in running if w.started is not None), default=-(1 << 60))
