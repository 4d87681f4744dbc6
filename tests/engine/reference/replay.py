"""Apply a plan to plain lists of pods."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from berth.core.values.amounts import NO_RESOURCES, Amounts, Bounds
from scheduler.engine.model import Pod, PodState, Role, RoleGroup, Snapshot, Workload
from scheduler.engine.plan import Bundle, Evict, Place, Plan, Step

ALIVE = (PodState.RUNNING, PodState.STARTING, PodState.RESERVED)
# All live states except STOPPING.
HELD = (PodState.RUNNING, PodState.STARTING, PodState.STUCK, PodState.RESERVED)


@dataclass(frozen=True)
class PlacedPod:
    """A pod, its workload, and whether this plan placed the pod."""

    workload: str
    pod: Pod
    new: bool = False


class IllegalStep(Exception):
    """Raised for a step that cannot be applied."""


class Cluster:
    """The pods of all workloads, which change as bundles are replayed."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.workloads = {w.name: w for w in snapshot.workloads}
        self.nodes = {node.name: node for node in snapshot.nodes}
        self.levels = {pool.name: pool.topology for pool in snapshot.pools}
        self.parents = {queue.name: queue.parent for queue in snapshot.queues}
        self.pods = [PlacedPod(w.name, pod) for w in snapshot.workloads for pod in w.pods]

    def replay(self, bundle: Bundle) -> None:
        for step in bundle.steps:
            self._evict(step) if isinstance(step, Evict) else self._place(step)

    def _evict(self, step: Evict) -> None:
        for place, stood in enumerate(self.pods):
            pod = stood.pod
            if stood.workload == step.workload and same(pod, step) and pod.state in ALIVE:
                if (pod.node, pod.devices, pod.milli) != (step.node, step.devices, step.milli):
                    raise IllegalStep(f"evicts {step}, but the pod is {pod}")
                self.pods[place] = replace(stood, pod=replace(pod, state=PodState.STOPPING))
                return
        raise IllegalStep(f"evicts {step}, which has no pod")

    def _place(self, step: Place) -> None:
        for stood in list(self.pods):
            if stood.workload == step.workload and same(stood.pod, step) and stood.pod.state in ALIVE:
                if stood.pod.state is not PodState.RESERVED or stood.pod.node != step.node:
                    raise IllegalStep(f"places {step}, which already has a pod")
                self.pods.remove(stood)  # the pod starts in its reservation
        state = PodState.RESERVED if step.reserved else PodState.STARTING
        pod = Pod(step.role, step.index, step.node, step.devices, step.milli, state, self.snapshot.now)
        self.pods.append(PlacedPod(step.workload, pod, new=True))

    def of(self, workload: str, states: Iterable[PodState] = ALIVE) -> list[Pod]:
        wanted = set(states)
        return [stood.pod for stood in self.pods if stood.workload == workload and stood.pod.state in wanted]

    def counts(self, workload: str) -> dict[str, int]:
        counts: dict[str, int] = defaultdict(int)
        for pod in self.of(workload, (*ALIVE, PodState.COMPLETED)):
            counts[pod.role] += 1
        return counts

    def is_whole(self, workload: str) -> bool:
        return whole(self.workloads[workload].tree, self.counts(workload))

    def keeps_its_pods(self, workload: str, before: "Cluster") -> bool:
        """Return whether the gang was incomplete and every role keeps its pods, up to its minimum."""
        had, has = before.counts(workload), self.counts(workload)
        return not before.is_whole(workload) and all(
            has.get(role.name, 0) >= min(role.min, had.get(role.name, 0))
            for role in roles(self.workloads[workload].tree)
        )

    def current_pool(self, workload: str) -> str | None:
        return next((self.nodes[pod.node].pool for pod in self.of(workload) if pod.node in self.nodes), None)

    def path(self, workload: str) -> list[str]:
        path: list[str] = []
        name: str | None = self.workloads[workload].project
        while name is not None:
            path.append(name)
            name = self.parents[name]
        return path

    def allocated(self, pool: str, queue: str, firm_only: bool = False) -> Amounts:
        total = NO_RESOURCES
        for workload in self.workloads.values():
            if queue not in self.path(workload.name) or (firm_only and workload.preemptible):
                continue
            for pod in self.of(workload.name, HELD):
                if pod.node in self.nodes and self.nodes[pod.node].pool == pool:
                    total = total.plus(requested(workload, pod))
        return total


def replay_steps(snapshot: Snapshot, plan: Plan) -> Iterator[tuple[Bundle, Cluster, Cluster]]:
    """Yield each bundle in order, with the cluster before and after it."""
    before, after = Cluster(snapshot), Cluster(snapshot)
    for bundle in plan.bundles:
        after.replay(bundle)
        yield bundle, before, after
        before.replay(bundle)


def replay_plan(snapshot: Snapshot, plan: Plan) -> Cluster:
    cluster = Cluster(snapshot)
    for bundle in plan.bundles:
        cluster.replay(bundle)
    return cluster


def same(pod: Pod, step: Step) -> bool:
    return (pod.role, pod.index) == (step.role, step.index)


def roles(group: RoleGroup) -> Iterator[Role]:
    for child in group.children:
        if isinstance(child, Role):
            yield child
        else:
            yield from roles(child)


def find_role(workload: Workload, name: str) -> Role:
    return next(role for role in roles(workload.tree) if role.name == name)


def requested(workload: Workload, pod: Pod) -> Amounts:
    request = find_role(workload, pod.role).request
    return Amounts(pod.milli * len(pod.devices), request.cpu, request.memory_mib)


def whole(node: RoleGroup | Role, counts: dict[str, int]) -> bool:
    if isinstance(node, Role):
        return counts.get(node.name, 0) >= node.min
    return sum(whole(child, counts) for child in node.children) >= node.need


def placed(bundle: Bundle) -> set[str]:
    return {step.workload for step in bundle.steps if isinstance(step, Place)}


def evicted(bundle: Bundle) -> set[str]:
    return {step.workload for step in bundle.steps if isinstance(step, Evict)}


def collect_bounds(
    snapshot: Snapshot, pick: Callable[..., Bounds | None]
) -> dict[tuple[str, str], Bounds | None]:
    return {
        (pool, queue.name): pick(pool_quota)
        for queue in snapshot.queues
        for pool, pool_quota in queue.pool_quotas.items()
    }
