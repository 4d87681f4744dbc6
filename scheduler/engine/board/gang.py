"""Gangs: workloads in one pool during a cycle, with their running, missing and extra replicas."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, islice, product
from math import ceil

from berth.core.values.amounts import MILLI
from scheduler.engine.board.ledger import QueueAccount
from scheduler.engine.model import Pod, PodState, Role, RoleGroup, TopologyConstraint, Workload
from scheduler.engine.plan import Numbers, Reason

MAX_ARRANGEMENTS = 64  # maximum number of arrangements tried per gang

RUNNING_STATES = (PodState.RUNNING, PodState.STARTING)
LIVE_STATES = (PodState.RUNNING, PodState.STARTING, PodState.RESERVED)


class BoardRole:
    """Role of a gang, with its placed replicas, keyed by index."""

    __slots__ = (
        "_first",
        "amounts",
        "avoid_mask",
        "completed",
        "ignores_limits",
        "least_milli",
        "live",
        "mask",
        "milli",
        "project",
        "replicas_by_node",
        "request",
        "role",
        "used",
    )  # fmt: skip

    def __init__(
        self, role: Role, milli: int, mask: bytes | None, avoid_mask: bytes | None, least_milli: int,
        project: str = "",
    ) -> None:  # fmt: skip
        self.role, self.request, self.mask, self.avoid_mask = role, role.request, mask, avoid_mask
        self.project = project  # project of the gang; empty if no node is reserved for a project
        self.ignores_limits = False  # True if placement is based on requests instead of limits
        self.milli = milli  # fraction of each device in thousandths, on the smallest device that fits
        self.least_milli = least_milli  # fraction of each device in thousandths, on the largest device
        request = role.request
        self.amounts = (milli * request.devices, request.cpu, request.memory_mib)
        self.live: dict[int, Pod] = {}
        # Number of completed replicas, which use no resources but count towards the minimum.
        self.completed = 0
        self.used: set[int] = set()  # indices of completed, stopping or stuck pods, which cannot be reused
        self._first = 0  # all indices below this one are in use
        self.replicas_by_node: dict[int, int] | None = None if role.spread_per_node is None else {}

    @property
    def replica_count(self) -> int:
        return len(self.live) + self.completed

    @property
    def meets_minimum(self) -> bool:
        return len(self.live) + self.completed >= self.role.min

    @property
    def pods_in_order(self) -> Iterable[Pod]:
        """Placed replicas sorted by index. Placement attempts change the order of `live`."""
        return self.live.values() if len(self.live) < 2 else [self.live[index] for index in sorted(self.live)]

    def free_indices(self) -> Iterator[int]:
        """Yield unused replica indices, lowest first. Releasing an index invalidates the iterator."""
        while self._first in self.live or self._first in self.used:
            self._first += 1
        return (i for i in range(self._first, self.role.max) if i not in self.live and i not in self.used)

    def release_index(self, index: int) -> None:
        """Make a replica index available to `free_indices` again."""
        self._first = min(self._first, index)

    def fulfilment(self) -> float:
        room = self.role.max - self.role.min
        return (self.replica_count - self.role.min) / room if room > 0 else 1.0


@dataclass(slots=True, eq=False)
class BoardGroup:
    """Inner node of a gang's tree of groups and roles."""

    need: int
    children: "tuple[BoardGroup | BoardRole, ...]"
    topology: TopologyConstraint | None

    @property
    def meets_minimum(self) -> bool:
        return sum(child.meets_minimum for child in self.children) >= self.need


@dataclass(frozen=True, slots=True)
class Scope:
    """Topology constraint and the roles that it applies to."""

    constraint: TopologyConstraint
    parts: tuple[BoardRole, ...]


@dataclass(frozen=True, slots=True)
class ReplicaRequest:
    """Request for `count` more replicas of a role, and the topology scopes that limit where they run."""

    part: BoardRole
    count: int
    scopes: tuple[Scope, ...] = ()  # topology constraints, outermost first


Arrangement = tuple[ReplicaRequest, ...]  # one way to complete a gang or to scale it up


class PendingGroup:
    """Gangs of one project with identical requests, in queue order. The first gang represents the group."""

    __slots__ = ("account", "at", "choice", "gangs", "kind", "reasons", "request_key", "shared")

    def __init__(self, kind: Hashable, account: QueueAccount, choice: int) -> None:
        self.kind, self.account, self.choice = kind, account, choice
        # Groups with the same key would be rejected for the same reasons, whatever their projects.
        self.request_key: Hashable = None
        self.gangs: list[Gang] = []
        self.at = 0  # gangs before this index are no longer pending
        self.reasons: dict[Reason, Numbers] = {}  # reasons why the gangs are pending in this cycle
        # True if a plan refers to `gangs`. The list must then be copied before a change.
        self.shared = False


class Gang:
    """Workload in one pool during a cycle."""

    __slots__ = (
        "_requested",
        "_root",
        "account",
        "choice",
        "extra_request",
        "gang_victim",
        "group",
        "is_elastic",
        "name",
        "non_preemptible",
        "parts",
        "pod_count",
        "pods",
        "simple",
        "sort_key",
        "workload",
    )

    def __init__(
        self, workload: Workload, account: QueueAccount, choice: int, parts: tuple[BoardRole, ...]
    ) -> None:
        self.workload, self.name, self.account = workload, workload.name, account
        self.choice = choice  # position of this pool in the workload's pool list
        self.non_preemptible = not workload.preemptible
        self.parts = parts
        self.pod_count = 0  # number of pods on the board
        self.simple = _has_single_arrangement(workload.tree)
        self.is_elastic = not self.simple or any(part.role.max > part.role.min for part in parts)
        self.group: PendingGroup | None = None  # pending gangs with the same request
        self.pods: tuple[Pod, ...] = ()  # this gang's pods in the snapshot
        self.extra_request = (0, 0, 0)  # amounts that the gang requests in addition to its allocation
        self.sort_key: tuple[int, int, str, int, str] | None = None  # cached `gang_sort_key`
        self.gang_victim: object = None  # cached `Victim` with all pods, cleared when the pods change
        self._root: BoardGroup | None = None
        self._requested: tuple[int, int, int] | None = None

    @property
    def root(self) -> BoardGroup:
        """Tree of groups and roles, built on first use, because most gangs do not need the tree."""
        if self._root is None:
            self._root = _build_board_group(self.workload.tree, {id(part.role): part for part in self.parts})
        return self._root

    @property
    def meets_minimum(self) -> bool:
        if not self.simple:
            return self.root.meets_minimum
        return all(len(part.live) + part.completed >= part.role.min for part in self.parts)

    @property
    def is_complete(self) -> bool:
        """Whether the gang is not elastic and all its replicas are running or starting."""
        if self.is_elastic or not self.pod_count:
            return False
        for part in self.parts:
            if len(part.live) != part.role.max:
                return False
        return all(pod.state in RUNNING_STATES for pod in self.pods)

    @property
    def has_pods(self) -> bool:
        return self.pod_count > 0

    @property
    def requested(self) -> tuple[int, int, int]:
        """Resources that the gang still needs to reach its minimum, based on its first arrangement."""
        if self.pod_count:
            return total_request(next(arrangements(self)))
        if self._requested is None:
            self._requested = self._requested_by_single_role() or total_request(next(arrangements(self)))
        return self._requested

    def reset_requested_amounts(self) -> None:
        self._requested = None

    def _requested_by_single_role(self) -> tuple[int, int, int] | None:
        """Return the missing resources of a gang with a single role (the usual case), or None for
        any other gang.
        """
        part = self.parts[0]
        missing = part.role.min - part.replica_count
        if len(self.parts) > 1 or not self.simple or missing <= 0:
            return None
        gpu, cpu, memory = part.amounts
        return gpu * missing, cpu * missing, memory * missing

    @property
    def is_stopping(self) -> bool:
        """Whether the gang's only pods are stopping, or are stuck and may never free their capacity."""
        return not self.pod_count and any(
            pod.state in (PodState.STOPPING, PodState.STUCK) for pod in self.workload.pods
        )

    @property
    def is_running(self) -> bool:
        """Whether at least one replica has a pod rather than just a reservation."""
        return any(pod.state is not PodState.RESERVED for part in self.parts for pod in part.live.values())

    def find_part(self, role: str) -> BoardRole:
        return next(part for part in self.parts if part.role.name == role)


def leaf_roles(group: RoleGroup) -> Sequence[Role]:
    result: list[Role] = []
    for child in group.children:
        if isinstance(child, Role):
            result.append(child)
        else:
            result += leaf_roles(child)
    return result


def _build_board_group(group: RoleGroup, parts: dict[int, BoardRole]) -> BoardGroup:
    children = tuple(
        parts[id(child)] if isinstance(child, Role) else _build_board_group(child, parts)
        for child in group.children
    )
    return BoardGroup(group.need, children, group.topology)


def _has_single_arrangement(group: RoleGroup) -> bool:
    """Return whether the group has no optional children and no topology constraints."""
    if group.topology is not None or group.need < len(group.children):
        return False
    return all(
        child.topology is None and (isinstance(child, Role) or _has_single_arrangement(child))
        for child in group.children
    )


def arrangements(gang: Gang) -> Iterator[Arrangement]:
    """Yield the arrangements that would complete the gang, in order of preference."""
    if gang.simple:
        result = [
            ReplicaRequest(p, p.role.min - p.replica_count)
            for p in gang.parts
            if p.role.min > p.replica_count
        ]
        yield tuple(result) or _first_replica(gang)
        return
    for arrangement in islice(_arrangements(gang.root, ()), MAX_ARRANGEMENTS):
        yield arrangement or _first_replica(gang)


def arrangements_for(gang: Gang, node: "BoardGroup | BoardRole") -> Iterator[Arrangement]:
    """Yield the arrangements that would complete one group or role of the gang."""
    first = next(leaf_parts(node))
    outer = tuple(
        scope for scope in enclosing_scopes(gang, first) if set(scope.parts) > set(leaf_parts(node))
    )
    return _arrangements(node, outer)


def enclosing_scopes(gang: Gang, part: BoardRole) -> tuple[Scope, ...]:
    """Return the topology constraints that apply to a role, outermost first."""
    return () if gang.simple else tuple(_scopes(gang.root, part))


def _scopes(node: "BoardGroup | BoardRole", part: BoardRole) -> Iterator[Scope]:
    inside = tuple(leaf_parts(node))
    if part not in inside:
        return
    constraint = node.role.topology if isinstance(node, BoardRole) else node.topology
    if constraint:
        yield Scope(constraint, inside)
    if isinstance(node, BoardGroup):
        for child in node.children:
            yield from _scopes(child, part)


def _first_replica(gang: Gang) -> Arrangement:
    return next(((ReplicaRequest(part, 1),) for part in gang.parts if part.role.max > part.replica_count), ())


def _arrangements(node: "BoardGroup | BoardRole", scopes: tuple[Scope, ...]) -> Iterator[Arrangement]:
    if node.meets_minimum:
        yield ()
        return
    inner = _with_scope(node, scopes)
    if isinstance(node, BoardRole):
        yield (ReplicaRequest(node, node.role.min - node.replica_count, inner),)
        return
    broken = sorted(
        (child for child in node.children if not child.meets_minimum),
        key=lambda child: not has_live_pods(child),
    )
    missing = node.need - (len(node.children) - len(broken))
    for chosen in combinations(broken, missing):
        for picks in product(
            *(tuple(islice(_arrangements(child, inner), MAX_ARRANGEMENTS)) for child in chosen)
        ):
            yield tuple(need for pick in picks for need in pick)


def _with_scope(node: "BoardGroup | BoardRole", scopes: tuple[Scope, ...]) -> tuple[Scope, ...]:
    constraint = node.role.topology if isinstance(node, BoardRole) else node.topology
    return (*scopes, Scope(constraint, tuple(leaf_parts(node)))) if constraint else scopes


def current_max(gang: Gang, part: BoardRole, more: int = 0) -> int:
    """Return a role's current maximum number of replicas.

    If the role scales with another role, the maximum is computed as if that role had `more` additional
    replicas.
    """
    scaling = part.role.scale_with
    if scaling is None:
        return part.role.max
    leader = next((p for p in gang.parts if p.role.name == scaling.role), None)
    if leader is None:
        return part.role.min
    # Use exact arithmetic: with a ratio of 1.1, 10 replicas give 11, not 12.
    ratio = Fraction(str(scaling.ratio))
    return min(part.role.max, max(part.role.min, ceil(ratio * (leader.replica_count + more))))


def leaf_parts(node: "BoardGroup | BoardRole") -> Iterator[BoardRole]:
    if isinstance(node, BoardRole):
        yield node
    else:
        for child in node.children:
            yield from leaf_parts(child)


def has_live_pods(node: "BoardGroup | BoardRole") -> bool:
    return any(part.live for part in leaf_parts(node))


def total_request(arrangement: Sequence[ReplicaRequest]) -> tuple[int, int, int]:
    gpu = cpu = memory = 0
    for need in arrangement:
        part, count = need.part.amounts, need.count
        gpu += part[0] * count
        cpu += part[1] * count
        memory += part[2] * count
    return gpu, cpu, memory


def smallest_request(arrangement: Sequence[ReplicaRequest]) -> tuple[int, int, int]:
    """Return the arrangement's smallest possible total request, which it has on the largest devices."""
    gpu, cpu, memory = total_request(arrangement)
    for need in arrangement:
        gpu -= (need.part.milli - need.part.least_milli) * need.part.request.devices * need.count
    return gpu, cpu, memory


def node_usage_per_replica(part: BoardRole, kind: int) -> int:
    """Return the amount that one replica uses on its node: its GPUs, its CPU limit or its memory limit."""
    request = part.request
    return (part.amounts[0], request.limit_cpu, request.limit_memory_mib)[kind]


def pod_gpu_milli(pod: Pod) -> int:
    return pod.milli * len(pod.devices)


def compute_lost_gpu_seconds(gang: Gang, pod: Pod, now: int) -> int:
    """Return the GPU-seconds of work that would be lost if the pod were stopped."""
    workload = gang.workload
    since = max(pod.started, workload.started or 0, workload.last_checkpoint or 0)
    return max(0, now - since) * pod_gpu_milli(pod) // MILLI
