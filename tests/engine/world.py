"""Build small clusters for tests. GPUs and CPUs are whole units, and times are seconds relative to NOON."""

from collections.abc import Mapping
from typing import Any, Self

from berth.core.values.amounts import MILLI, Bounds
from scheduler.engine.decide import decide
from scheduler.engine.model import (
    ClusterQuota,
    Node,
    NodeState,
    Pod,
    PodState,
    Pool,
    PoolQuota,
    Queue,
    Request,
    Reservation,
    Role,
    RoleGroup,
    Snapshot,
    TopologyConstraint,
    Usage,
    Workload,
)
from scheduler.engine.plan import Bundle, Evict, Place, Plan, Reason

NOON = 1_800_000_000


def request(gpus: float = 1, devices: int | None = None, cpu: float = 0, memory: int = 0,
            *, gpu_memory: int = 0, limit_cpu: float | None = None,
            limit_memory: int | None = None) -> Request:  # fmt: skip
    if gpu_memory:
        return Request(0, devices or 1, gpu_memory, milli(cpu), memory, milli(cpu), memory)
    whole = gpus >= 1
    share = MILLI if whole else milli(gpus)
    count = (int(gpus) if whole else 1 if gpus else 0) if devices is None else devices
    top_cpu = milli(cpu if limit_cpu is None else limit_cpu)
    return Request(
        share, count, 0, milli(cpu), memory, top_cpu, memory if limit_memory is None else limit_memory
    )


def milli(amount: float) -> int:
    return round(amount * MILLI)


def role(
    name: str = "worker", min: int = 1, max: int | None = None, ask: Request | None = None, **more: Any
) -> Role:
    return Role(name, min, min if max is None else max, ask or request(), **more)


class World:
    """A cluster with one pool, named `default` unless specified. Quotas are in GPUs."""

    def __init__(self, *, pool: Pool | None = None, **nodes: int) -> None:
        self.pools = [pool or Pool("default")]
        self.nodes: list[Node] = []
        self.queues: list[Queue] = []
        self.workloads: list[Workload] = []
        self.reservations: list[Reservation] = []
        self._held: dict[tuple[str, int], int] = {}
        for name, gpus in nodes.items():
            self.node(name, gpus)

    def node(self, name: str, gpus: int = 8, cpu: float = 64, memory: int = 512_000, **more: Any) -> Self:
        more.setdefault("gpu_memory_mib", 80_000 if gpus else 0)
        more.setdefault("pool", self.pools[0].name)
        self.nodes.append(Node(name, gpus=gpus, cpu=milli(cpu), memory_mib=memory, **more))
        return self

    def booting(self, name: str, gpus: int = 8) -> Self:
        return self.node(name, gpus, state=NodeState.BOOTING)

    def department(self, name: str, quota: float | None = 0, **more: Any) -> Self:
        return self._queue(name, None, quota, **more)

    def project(self, name: str, department: str | None = None, quota: float | None = 0, **more: Any) -> Self:
        return self._queue(name, department, quota, **more)

    def _queue(self, name: str, parent: str | None, quota: float | None, *, weight: float = 1, rank: int = 0,
               limit: float | None = None, over_quota: bool = True, cpu: float | None = None,
               memory: int | None = None, usage: float = 0, created: int | None = None,
               pools: Mapping[str, float] | None = None, cluster_quotas: tuple[ClusterQuota, ...] = (),
               **more: Any) -> Self:  # fmt: skip
        def bounds(gpus: float | None) -> Bounds:
            return Bounds(None if gpus is None else milli(gpus), None if cpu is None else milli(cpu), memory)

        def pool_quota(gpus: float | None) -> PoolQuota:
            weights = (float(weight),) * 3
            top = Bounds(None if limit is None else milli(limit), None, None)
            decayed = Usage((usage,) * 3, (1.0,) * 3)
            return PoolQuota(bounds(gpus), top, weights, over_quota, rank, decayed, cluster_quotas)

        quotas = pools if pools is not None else {self.pools[0].name: quota}
        made = NOON - 10_000 + len(self.queues) if created is None else created
        pool_quotas = {pool: pool_quota(gpus) for pool, gpus in quotas.items()}
        self.queues.append(Queue(name, parent, made, pool_quotas, **more))
        return self

    def queued(self, name: str, project: str, replicas: int = 1, gpus: float = 1, *, up_to: int | None = None,
               roles: tuple[Role, ...] = (), tree: RoleGroup | None = None, cpu: float = 0, memory: int = 0,
               topology: TopologyConstraint | None = None, on_role: Mapping[str, Any] | None = None,
               **more: Any) -> Self:  # fmt: skip
        roles = roles or (
            role("worker", replicas, up_to, request(gpus, cpu=cpu, memory=memory), **(on_role or {})),
        )
        tree = tree or RoleGroup(name, roles, len(roles), topology)
        more.setdefault("submitted", NOON - 1000 + len(self.workloads))
        more.setdefault("pools", (self.pools[0].name,))
        self.workloads.append(Workload(name, project, tree, **more))
        return self

    def running(self, name: str, project: str, on: str, gpus: float = 1, *, least: int | None = None,
                up_to: int | None = None, since: int = 3600, state: PodState = PodState.RUNNING,
                **more: Any) -> Self:  # fmt: skip
        """Add a running workload with one replica on each node in `on`. `least` replicas form the gang."""
        nodes = on.split()
        more.setdefault("started", NOON - since)
        self.queued(name, project, len(nodes) if least is None else least, gpus,
                    up_to=len(nodes) if up_to is None else up_to, **more)  # fmt: skip
        made = self.workloads.pop()
        first = made.tree.children[0]
        assert isinstance(first, Role)
        pods = tuple(self._pod(first, index, node, NOON - since, state) for index, node in enumerate(nodes))
        fields = {field: getattr(made, field) for field in made.__slots__}
        self.workloads.append(Workload(**{**fields, "pods": pods}))
        return self

    def _pod(self, of: Role, index: int, node: str, started: int, state: PodState) -> Pod:
        ask, memory = of.request, next(n.gpu_memory_mib for n in self.nodes if n.name == node)
        share = -(-MILLI * ask.gpu_memory_mib // memory) if ask.gpu_memory_mib else ask.gpu
        devices: list[int] = []
        for device in range(next(n.gpus for n in self.nodes if n.name == node)):
            if len(devices) < ask.devices and self._held.get((node, device), 0) + share <= MILLI:
                self._held[node, device] = self._held.get((node, device), 0) + share
                devices.append(device)
        assert len(devices) == ask.devices, f"{node} is full"
        return Pod(of.name, index, node, tuple(devices), share, state, started)

    def snapshot(self, now: int = NOON) -> Snapshot:
        return Snapshot(now, tuple(self.pools), tuple(self.nodes), tuple(self.queues), tuple(self.workloads),
                        tuple(self.reservations))  # fmt: skip

    def decide(self, *actions: str) -> Plan:
        return decide(self.snapshot(), actions or None)


def placed(plan: Plan) -> dict[str, list[str]]:
    """Return the nodes of each workload, one per placed replica, in order."""
    nodes_of: dict[str, list[str]] = {}
    for step in steps(plan):
        if isinstance(step, Place):
            nodes_of.setdefault(step.workload, []).append(step.node)
    return {name: sorted(nodes) for name, nodes in nodes_of.items()}


def steps(plan: Plan) -> list[Place | Evict]:
    return [step for bundle in plan.bundles for step in bundle.steps]


def stopped(plan: Plan) -> set[str]:
    """Return the workloads that are evicted as a whole."""
    return {e.workload for bundle in plan.bundles for e in bundle.evictions if e.whole}


def evicted(plan: Plan) -> dict[str, int]:
    """Return the number of pods per workload that are evicted and not placed again."""
    moved = {(s.workload, s.role, s.index) for s in steps(plan) if isinstance(s, Place)}
    counts: dict[str, int] = {}
    for step in steps(plan):
        if isinstance(step, Evict) and (step.workload, step.role, step.index) not in moved:
            counts[step.workload] = counts.get(step.workload, 0) + 1
    return counts


def reasons(plan: Plan, workload: str) -> list[Reason]:
    return [b.reason for r in plan.rejections if r.workload == workload for b in r.blockers]


def find_bundle(plan: Plan, workload: str) -> Bundle:
    (only,) = [bundle for bundle in plan.bundles if bundle.workload == workload]
    return only


def share(plan: Plan, queue: str) -> float:
    return next(report.share.gpu for report in plan.queues if report.queue == queue) / MILLI
