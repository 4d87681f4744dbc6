"""Recompute blocker numbers from plain lists of pods, without the engine's own logic.

Evictions of running workloads with optional groups are not covered. Each function yields one sentence per
mismatch.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from berth.core.values.amounts import MILLI, RESOURCES
from scheduler.engine.model import (
    Node,
    NodeState,
    Pod,
    PodState,
    PoolQuota,
    Queue,
    Role,
    RoleGroup,
    Snapshot,
    Workload,
)
from scheduler.engine.plan import Blocker, Plan, Reason, Rejection
from tests.engine.reference.held_quota import held_quota
from tests.engine.reference.matching import matches as _matches
from tests.engine.reference.replay import HELD, Cluster, find_role, replay_plan, roles
from tests.engine.reference.victims import QueueExcess, Unit, max_freed_amount

GPU, CPU, MEMORY = range(3)
INFINITE = 1 << 60
Amounts = tuple[int, int, int]
Wrong = Iterator[str]


def wrong_numbers(snapshot: Snapshot, plan: Plan) -> Wrong:
    cluster = replay_plan(snapshot, plan)
    for rejection in plan.rejections:
        workload = cluster.workloads[rejection.workload]
        explanation = _Explanation(snapshot, plan, cluster, workload, rejection.pool)
        for blocker in rejection.blockers:
            for wrong in explanation.check(blocker):
                yield f"{rejection.workload}: {wrong} in {blocker.reason}: {blocker.message}"


@dataclass(frozen=True)
class _Explanation:
    snapshot: Snapshot
    plan: Plan
    cluster: Cluster
    workload: Workload
    pool: str

    def check(self, blocker: Blocker) -> Wrong:
        check = {
            Reason.PROJECT_LIMIT: self._limit,
            Reason.DEPARTMENT_LIMIT: self._limit,
            Reason.NON_PREEMPTIBLE_OVER_QUOTA: self._quota,
            Reason.DEPARTMENT_OVERSOLD: self._quota,
            Reason.WOULD_EXCEED_FAIR_SHARE: self._share,
            Reason.WAITING_FOR_CAPACITY: self._capacity,
            Reason.FRAGMENTED: self._capacity,
            Reason.NO_RECLAIMABLE_RESOURCES: self._evictions,
            Reason.VICTIMS_PROTECTED: self._evictions,
        }.get(blocker.reason)
        expected = check(blocker) if check else {}
        for key, value in expected.items():
            if blocker.numbers.get(key, 0) != value:
                yield f"{key} is {blocker.numbers.get(key)}, expected {value}"

    # -- queues

    def _limit(self, blocker: Blocker) -> Mapping[str, object]:
        queue, kind = str(blocker.numbers["queue"]), RESOURCES.index(str(blocker.numbers["resource"]))
        pool_quota = self._pool_quota(queue)
        bounds = [pool_quota.limit[kind]] + ([] if pool_quota.over_quota else [pool_quota.quota[kind]])
        bound = min(amount for amount in bounds if amount is not None)
        return self._bound(queue, kind, self._allocated(queue)[kind], bound)

    def _quota(self, blocker: Blocker) -> Mapping[str, object]:
        queue, kind = str(blocker.numbers["queue"]), RESOURCES.index(str(blocker.numbers["resource"]))
        quota = self._pool_quota(queue).quota[kind]
        assert quota is not None
        allocated = tuple(self.cluster.allocated(self.pool, queue, firm_only=True))[kind]
        held = held_quota(self.snapshot, self.workload, blocker, allocated)
        return held or self._bound(queue, kind, allocated, quota)

    def _share(self, blocker: Blocker) -> Mapping[str, object]:
        queue, kind = str(blocker.numbers["queue"]), RESOURCES.index(str(blocker.numbers["resource"]))
        quota, share = self._pool_quota(queue).quota[kind], self._fair_share(queue)[kind]
        assert quota is not None
        bound = self._bound(queue, kind, self._allocated(queue)[kind], max(quota, share))
        return {**bound, "quota": quota, "share": share}

    def _bound(self, queue: str, kind: int, allocated: int, bound: int) -> Mapping[str, object]:
        requested = self._requested[kind]
        missing = allocated + requested - bound
        assert missing > 0 and queue in self.cluster.path(self.workload.name)
        return {"requested": requested, "allocated": allocated, "bound": bound, "missing": missing}

    def _pool_quota(self, queue: str) -> PoolQuota:
        entry = next(entry for entry in self.snapshot.queues if entry.name == queue)
        return entry.pool_quotas.get(self.pool, PoolQuota())

    def _allocated(self, queue: str) -> Amounts:
        gpu, cpu, memory = self.cluster.allocated(self.pool, queue)
        return gpu, cpu, memory

    def _fair_share(self, queue: str) -> Amounts:
        report = next(r for r in self.plan.queues if (r.pool, r.queue) == (self.pool, queue))
        gpu, cpu, memory = report.share
        return gpu, cpu, memory

    # -- the request

    @cached_property
    def _missing_replicas(self) -> list[tuple[Role, int]]:
        missing = list(_first_missing(self.workload.tree, self.cluster.counts(self.workload.name)))
        first = next(iter(roles(self.workload.tree)))
        return missing or [(first, 1)]

    @cached_property
    def _requested(self) -> Amounts:
        gpu = cpu = memory = 0
        for role, count in self._missing_replicas:
            request = role.request
            gpu += self._milli(role) * request.devices * count
            cpu += request.cpu * count
            memory += request.memory_mib * count
        return gpu, cpu, memory

    def _milli(self, role: Role) -> int:
        if not role.request.gpu_memory_mib:
            return role.request.gpu
        sizes = [
            node.gpu_memory_mib
            for node in self._nodes
            if _matches(role, node, self.workload.project)
            and node.gpus
            and node.gpu_memory_mib >= role.request.gpu_memory_mib
        ]
        return -(-MILLI * role.request.gpu_memory_mib // min(sizes)) if sizes else MILLI

    # -- free capacity

    @property
    def _nodes(self) -> list[Node]:
        return [node for node in self.snapshot.nodes if node.pool == self.pool]

    @cached_property
    def _by_memory(self) -> bool:
        requests = [role.request for role, _ in self._missing_replicas if role.request.devices]
        return bool(requests) and all(request.gpu_memory_mib for request in requests)

    @cached_property
    def _by_requests(self) -> bool:
        requests = [role.request for role in roles(self.workload.tree)]
        return not any(request.devices for request in requests) and any(
            request.limit_cpu > request.cpu or request.limit_memory_mib > request.memory_mib
            for request in requests
        )

    def _usable(self, node: Node) -> bool:
        return node.state is NodeState.READY and self._matches(node)

    def _matches(self, node: Node) -> bool:
        return any(_matches(role, node, self.workload.project) for role, _ in self._missing_replicas)

    @cached_property
    def _reserved_nodes(self) -> list[Node]:
        ready = [node for node in self._nodes if node.state is NodeState.READY and not self._matches(node)]
        missing = [role for role, _ in self._missing_replicas]
        return [node for node in ready if any(_matches(role, node, node.only_project) for role in missing)]

    def _need(self, kind: int) -> int:
        return sum(self._replica(role)[kind] * count for role, count in self._missing_replicas)

    def _replica(self, role: Role) -> Amounts:
        request = role.request
        gpu = request.gpu_memory_mib if self._by_memory else self._milli(role)
        cpu, memory = (
            (request.cpu, request.memory_mib)
            if self._by_requests
            else (request.limit_cpu, request.limit_memory_mib)
        )
        return gpu * request.devices, cpu, memory

    def _on_node(self, node: Node, states: tuple[PodState, ...]) -> list[tuple[Workload, Pod]]:
        return [
            (self.cluster.workloads[stood.workload], stood.pod)
            for stood in self.cluster.pods
            if stood.pod.node == node.name and stood.pod.state in states
        ]

    def _free_devices(self, node: Node) -> list[int]:
        free = [MILLI] * node.gpus
        for _, pod in self._on_node(node, HELD):
            for device in pod.devices:
                free[device] -= pod.milli
        return [max(0, milli) for milli in free]

    def _free(self, node: Node) -> Amounts:
        cpu, memory = node.cpu, node.memory_mib
        for workload, pod in self._on_node(node, HELD):
            request = find_role(workload, pod.role).request
            cpu -= request.cpu if self._by_requests else request.limit_cpu
            memory -= request.memory_mib if self._by_requests else request.limit_memory_mib
        devices = [self._in_units(node, milli) for milli in self._free_devices(node)]
        return sum(devices), max(0, cpu), max(0, memory)

    def _in_units(self, node: Node, milli: int) -> int:
        return milli * node.gpu_memory_mib // MILLI if self._by_memory else milli

    def _block(self, node: Node, kind: int) -> int:
        if kind != GPU:
            return self._free(node)[kind]
        devices = self._free_devices(node)
        if self._by_memory:
            return max((self._in_units(node, milli) for milli in devices), default=0)
        whole = sum(milli == MILLI for milli in devices) * MILLI
        shared = all(self._milli(role) < MILLI for role, _ in self._missing_replicas if role.request.devices)
        return max([whole, *devices]) if shared else whole

    def _capacity(self, blocker: Blocker) -> Mapping[str, object]:
        numbers = blocker.numbers
        if numbers["resource"] in ("pods", "replicas"):
            requested, free = numbers["requested"], numbers["free"]
            assert isinstance(requested, int) and isinstance(free, int)
            return {
                "requested": sum(count for _, count in self._missing_replicas),
                "missing": requested - free,
            }
        kind = GPU if numbers["resource"] == "gpu_memory_mib" else RESOURCES.index(str(numbers["resource"]))
        usable = [node for node in self._nodes if self._usable(node)]
        free = sum(self._free(node)[kind] for node in usable)
        if numbers.get("beside"):
            return {"requested": self._need(kind)}
        expected: dict[str, object] = {
            "requested": self._need(kind),
            "free": free,
            "missing": max(0, self._need(kind) - free),
            "biggest_block": max((self._block(node, kind) for node in usable), default=0),
        }
        if blocker.reason is Reason.WAITING_FOR_CAPACITY:
            closed = (NodeState.CORDONED, NodeState.DRAINING)
            expected["cordoned"] = sum(
                self._free(node)[kind] for node in self._nodes if node.state in closed and self._matches(node)
            )
            expected["reserved"] = sum(self._free(node)[kind] for node in self._reserved_nodes)
            assert self._need(kind) > free
        return expected

    # -- evictions

    def _evictions(self, blocker: Blocker) -> Mapping[str, object]:
        if self.plan.bundles:
            return {}  # workloads that this plan moved or served are not victims in this plan
        if any(other.pods and _has_optional_groups(other.tree) for other in self.snapshot.workloads):
            return {}
        numbers = blocker.numbers
        kind = GPU if numbers["resource"] == "gpu_memory_mib" else RESOURCES.index(str(numbers["resource"]))
        preempts = numbers["action"] == "preempted"
        free, by_runtime, total = (
            (self._preemptible if preempts else self._reclaimable)(kind, level) for level in range(3)
        )
        expected: dict[str, object] = {
            "reclaimable": free,
            "protected": total - free,
            "by_runtime": by_runtime - free,
            "non_preemptible": total - by_runtime,
        }
        if not any(reason in LIMIT_REASONS for reason in (b.reason for b in self._rejection.blockers)):
            usable = [node for node in self._nodes if self._usable(node)]
            missing = max(0, self._need(kind) - sum(self._free(node)[kind] for node in usable))
            expected["missing"] = max(0, missing - free)
        return expected

    @property
    def _rejection(self) -> Rejection:
        return next(
            rejection for rejection in self.plan.rejections if rejection.workload == self.workload.name
        )

    def _preemptible(self, kind: int, level: int) -> int:
        # Extra replicas are not protected.
        return sum(
            unit.freed
            for other in self.snapshot.workloads
            if other.project == self.workload.project
            and other.priority < self.workload.priority
            and other.name != self.workload.name
            for unit in self._units(other, kind, kind, level, "preempt_min_runtime")
        )

    def _reclaimable(self, kind: int, level: int) -> int:
        own_path = self.cluster.path(self.workload.name)
        result = 0
        for own in own_path:
            for victim in self.snapshot.queues:
                if victim.name != own and victim.parent == self.cluster.parents[own]:
                    result += self._reclaimable_from(own, victim, kind, level)
        return result

    def _reclaimable_from(self, own: str, victim: Queue, kind: int, level: int) -> int:
        best = 0
        for charged in (k for k in range(3) if self._requested[k]):
            excess = self._excess(own, victim.name, charged)
            units = [
                unit
                for other in self.snapshot.workloads
                if victim.name in self.cluster.path(other.name)
                for unit in self._units(other, kind, charged, level, "reclaim_min_runtime")
            ]
            best = max(best, max_freed_amount(QueueExcess(excess, tuple(units))))
        return best

    def _excess(self, own: str, victim: str, kind: int) -> int:
        held, quota = self._allocated(victim)[kind], self._pool_quota(victim).quota[kind]
        quota = INFINITE if quota is None else quota
        due = max(quota, self._fair_share(victim)[kind])
        return held - (quota if self._stays_in_quota(own) else due)

    def _stays_in_quota(self, own: str) -> bool:
        quota, held = self._pool_quota(own).quota, self._allocated(own)
        return all(
            not self._requested[k] or quota[k] is None or held[k] + self._requested[k] <= (quota[k] or 0)
            for k in range(3)
        )

    def _units(self, other: Workload, kind: int, charged: int, level: int, setting: str) -> Iterator[Unit]:
        if level < 2 and not other.preemptible:
            return
        pods = [pod for pod in self.cluster.of(other.name) if self.cluster.nodes[pod.node].pool == self.pool]
        if any(pod.state is PodState.RESERVED for pod in pods):
            return  # a workload with reservations is no victim until it runs
        whole = level > 0 or not self._is_young(other, pods, setting)
        core: list[Pod] = []
        for role in roles(other.tree):
            mine = sorted((pod for pod in pods if pod.role == role.name), key=lambda pod: -pod.index)
            spare = max(0, len(mine) - role.min)
            core += mine[spare:]
            for pod in mine[:spare]:
                yield Unit(other.name, False, *self._amounts(other, [pod], kind, charged))
        if whole and core:
            yield Unit(other.name, True, *self._amounts(other, core, kind, charged))

    def _amounts(self, other: Workload, pods: list[Pod], kind: int, charged: int) -> tuple[int, int]:
        freed = paid = 0
        for pod in pods:
            node, request = self.cluster.nodes[pod.node], find_role(other, pod.role).request
            milli = pod.milli * len(pod.devices)
            paid += (milli, request.cpu, request.memory_mib)[charged]
            if self._usable(node):
                gpu = self._in_units(node, pod.milli) * len(pod.devices)
                limits = request.limit_cpu, request.limit_memory_mib
                requests = request.cpu, request.memory_mib
                freed += (gpu, *(requests if self._by_requests else limits))[kind]
        return freed, paid

    def _is_young(self, other: Workload, pods: list[Pod], setting: str) -> bool:
        seconds: int | None = None
        for name in self.cluster.path(other.name):
            queue = next(queue for queue in self.snapshot.queues if queue.name == name)
            seconds = getattr(queue, setting) if seconds is None else seconds
        if seconds is None:
            seconds = getattr(next(p for p in self.snapshot.pools if p.name == self.pool), setting)
        running = [pod.started for pod in pods if pod.state is PodState.RUNNING]
        started = other.started if other.started is not None else min(running, default=None)
        return bool(seconds) and started is not None and self.snapshot.now - started < seconds


def _first_missing(node: RoleGroup | Role, counts: Mapping[str, int]) -> Iterator[tuple[Role, int]]:
    if isinstance(node, Role):
        if node.min > counts.get(node.name, 0):
            yield node, node.min - counts.get(node.name, 0)
        return
    broken = [child for child in node.children if list(_first_missing(child, counts))]
    broken.sort(key=lambda child: not any(counts.get(role.name, 0) for role in _leaves(child)))
    for child in broken[: max(0, node.need - (len(node.children) - len(broken)))]:
        yield from _first_missing(child, counts)


def _leaves(node: RoleGroup | Role) -> list[Role]:
    return [node] if isinstance(node, Role) else [leaf for child in node.children for leaf in _leaves(child)]


def _has_optional_groups(group: RoleGroup) -> bool:
    return group.need < len(group.children) or any(
        isinstance(child, RoleGroup) and _has_optional_groups(child) for child in group.children
    )


LIMIT_REASONS = (Reason.PROJECT_LIMIT, Reason.DEPARTMENT_LIMIT)
