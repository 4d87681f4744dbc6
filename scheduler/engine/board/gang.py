"""A workload as a gang: running parts, missing replicas, room to grow."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, islice, product
from math import ceil

from berth.core.amounts import MILLI
from scheduler.engine.board.ledger import QueueAccount
from scheduler.engine.model import Group, Pod, PodState, Role, TopologyConstraint, Workload
from scheduler.engine.plan import Numbers, Reason

MAX_ARRANGEMENTS = 64  # arrangements tried before a gang is refused

ALIVE = (PodState.RUNNING, PodState.STARTING, PodState.RESERVED)


class BoardRole:
    """A role on the board, with its placed replicas by index."""

    __slots__ = (
        "_first", "amounts", "done", "live", "loose", "mask", "milli", "on", "request", "role", "soft",
        "used",
    )  # fmt: skip

    def __init__(self, role: Role, milli: int, mask: bytes | None, soft: bytes | None) -> None:
        self.role, self.request, self.mask, self.soft = role, role.request, mask, soft
        self.loose = False  # True: placed by requests, not by limits
        self.milli = milli  # share of each device, on the smallest device that fits
        request = role.request
        self.amounts = (milli * request.devices, request.cpu, request.memory_mib)
        self.live: dict[int, Pod] = {}
        self.done = 0  # completed replicas: they hold nothing and are not missing
        self.used: set[int] = set()  # indices that must not be reused: completed, stopping or stuck
        self._first = 0  # no lower index is free
        self.on: dict[int, int] | None = None if role.spread_per_node is None else {}  # replicas by node

    @property
    def count(self) -> int:
        return len(self.live) + self.done

    @property
    def is_whole(self) -> bool:
        return len(self.live) + self.done >= self.role.min

    @property
    def in_order(self) -> Iterable[Pod]:
        """Placed replicas by index. The order of `live` depends on earlier trials."""
        return self.live.values() if len(self.live) < 2 else [self.live[index] for index in sorted(self.live)]

    def free_indices(self) -> Iterator[int]:
        """Yield unused indices, the lowest first. Valid until an index is vacated."""
        while self._first in self.live or self._first in self.used:
            self._first += 1
        return (i for i in range(self._first, self.role.max) if i not in self.live and i not in self.used)

    def vacate(self, index: int) -> None:
        """Note that an index may be free again."""
        self._first = min(self._first, index)

    def fulfilment(self) -> float:
        room = self.role.max - self.role.min
        return (self.count - self.role.min) / room if room > 0 else 1.0


@dataclass(slots=True, eq=False)
class BoardGroup:
    """An inner group on the board."""

    need: int
    children: "tuple[BoardGroup | BoardRole, ...]"
    topology: TopologyConstraint | None

    @property
    def is_whole(self) -> bool:
        return sum(child.is_whole for child in self.children) >= self.need


@dataclass(frozen=True, slots=True)
class Scope:
    """A topology constraint and the roles it binds together."""

    constraint: TopologyConstraint
    parts: tuple[BoardRole, ...]


@dataclass(frozen=True, slots=True)
class ReplicaRequest:
    """A request for `count` more replicas of a role inside these scopes."""

    part: BoardRole
    count: int
    scopes: tuple[Scope, ...] = ()  # outermost first


Arrangement = tuple[ReplicaRequest, ...]  # one way to make a gang whole, or to let it grow


class PendingGroup:
    """Gangs of one project with identical requests, in order. The first pending gang represents all."""

    __slots__ = ("account", "at", "choice", "gangs", "kind", "reasons", "request_key", "shared")

    def __init__(self, kind: Hashable, account: QueueAccount, choice: int) -> None:
        self.kind, self.account, self.choice = kind, account, choice
        # Equal for groups, in any project, that are refused for the same reasons.
        self.request_key: Hashable = None
        self.gangs: list[Gang] = []
        self.at = 0  # gangs before this index are no longer pending
        self.reasons: dict[Reason, Numbers] = {}  # why the gangs are pending in this cycle
        self.shared = False  # True: a plan also refers to `gangs`, so changes are made in a copy


class Gang:
    """A workload on the board of one pool."""

    __slots__ = (
        "_requested",
        "_root",
        "account",
        "choice",
        "extra_request",
        "group",
        "may_grow",
        "name",
        "non_preemptible",
        "parts",
        "pods",
        "simple",
        "standing",
        "whole_victim",
        "workload",
    )

    def __init__(
        self, workload: Workload, account: QueueAccount, choice: int, parts: tuple[BoardRole, ...]
    ) -> None:
        self.workload, self.name, self.account = workload, workload.name, account
        self.choice = choice  # position of this pool among the workload's pools
        self.non_preemptible = not workload.preemptible
        self.parts = parts
        self.standing = 0  # number of its pods on the board
        self.simple = _is_simple(workload.tree)
        self.may_grow = not self.simple or any(part.role.max > part.role.min for part in parts)
        self.group: PendingGroup | None = None  # pending gangs with the same request
        self.pods: tuple[Pod, ...] = ()  # as in the snapshot
        self.extra_request = (0, 0, 0)  # counted in its queues, on top of its allocation
        self.whole_victim: object = None  # cached `Victim` with all pods, until the pods change
        self._root: BoardGroup | None = None
        self._requested: tuple[int, int, int] | None = None

    @property
    def root(self) -> BoardGroup:
        """Tree of groups, built on first use because most gangs never need one."""
        if self._root is None:
            self._root = _section(self.workload.tree, {id(part.role): part for part in self.parts})
        return self._root

    @property
    def is_whole(self) -> bool:
        if not self.simple:
            return self.root.is_whole
        return all(len(part.live) + part.done >= part.role.min for part in self.parts)

    @property
    def stands(self) -> bool:
        return self.standing > 0

    @property
    def requested(self) -> tuple[int, int, int]:
        """Resources that the gang still needs for its minimum, in its first arrangement."""
        if self.standing:
            return amounts_of(next(arrangements(self)))
        if self._requested is None:
            self._requested = self._requested_by_single_role() or amounts_of(next(arrangements(self)))
        return self._requested

    def forget_requested(self) -> None:
        self._requested = None

    def _requested_by_single_role(self) -> tuple[int, int, int] | None:
        """Return the missing resources of a gang with one role, which is the usual case."""
        part = self.parts[0]
        missing = part.role.min - part.count
        if len(self.parts) > 1 or not self.simple or missing <= 0:
            return None
        gpu, cpu, memory = part.amounts
        return gpu * missing, cpu * missing, memory * missing

    @property
    def is_leaving(self) -> bool:
        """True if no pod of the gang runs, but some have not stopped yet."""
        return not self.standing and any(
            pod.state in (PodState.STOPPING, PodState.STUCK) for pod in self.workload.pods
        )

    @property
    def runs(self) -> bool:
        """True if any pod of the gang is more than a reservation."""
        return any(pod.state is not PodState.RESERVED for part in self.parts for pod in part.live.values())

    def part(self, role: str) -> BoardRole:
        return next(part for part in self.parts if part.role.name == role)


def roles_of(group: Group) -> Sequence[Role]:
    result: list[Role] = []
    for child in group.children:
        if isinstance(child, Role):
            result.append(child)
        else:
            result += roles_of(child)
    return result


def _section(group: Group, parts: dict[int, BoardRole]) -> BoardGroup:
    children = tuple(
        parts[id(child)] if isinstance(child, Role) else _section(child, parts) for child in group.children
    )
    return BoardGroup(group.need, children, group.topology)


def _is_simple(group: Group) -> bool:
    """Return whether every child must run and none has a topology constraint: one arrangement, no scopes."""
    if group.topology is not None or group.need < len(group.children):
        return False
    for child in group.children:
        if child.topology is not None or (isinstance(child, Group) and not _is_simple(child)):
            return False
    return True


def arrangements(gang: Gang) -> Iterator[Arrangement]:
    """Yield the arrangements that would complete the gang, the most natural one first."""
    if gang.simple:
        result = [ReplicaRequest(p, p.role.min - p.count) for p in gang.parts if p.role.min > p.count]
        yield tuple(result) or _first_replica(gang)
        return
    for arrangement in islice(_ways(gang.root, ()), MAX_ARRANGEMENTS):
        yield arrangement or _first_replica(gang)


def arrangements_of(gang: Gang, node: "BoardGroup | BoardRole") -> Iterator[Arrangement]:
    """Yield the arrangements that would complete one group or role of the gang."""
    first = next(leaves(node))
    outer = tuple(scope for scope in scopes_above(gang, first) if set(scope.parts) > set(leaves(node)))
    return _ways(node, outer)


def scopes_above(gang: Gang, part: BoardRole) -> tuple[Scope, ...]:
    """Return the topology constraints that bind a role, outermost first."""
    return () if gang.simple else tuple(_scopes(gang.root, part))


def _scopes(node: "BoardGroup | BoardRole", part: BoardRole) -> Iterator[Scope]:
    inside = tuple(leaves(node))
    if part not in inside:
        return
    constraint = node.role.topology if isinstance(node, BoardRole) else node.topology
    if constraint:
        yield Scope(constraint, inside)
    if isinstance(node, BoardGroup):
        for child in node.children:
            yield from _scopes(child, part)


def _first_replica(gang: Gang) -> Arrangement:
    """Return one replica of a gang whose minimum is zero."""
    return next(((ReplicaRequest(part, 1),) for part in gang.parts if part.role.max > part.count), ())


def _ways(node: "BoardGroup | BoardRole", scopes: tuple[Scope, ...]) -> Iterator[Arrangement]:
    if node.is_whole:
        yield ()
        return
    inner = _inside(node, scopes)
    if isinstance(node, BoardRole):
        yield (ReplicaRequest(node, node.role.min - node.count, inner),)
        return
    broken = sorted(
        (child for child in node.children if not child.is_whole), key=lambda child: not alive(child)
    )
    lacking = node.need - (len(node.children) - len(broken))
    for chosen in combinations(broken, lacking):
        for node_constraints in product(
            *(tuple(islice(_ways(child, inner), MAX_ARRANGEMENTS)) for child in chosen)
        ):
            yield tuple(need for pick in node_constraints for need in pick)


def _inside(node: "BoardGroup | BoardRole", scopes: tuple[Scope, ...]) -> tuple[Scope, ...]:
    constraint = node.role.topology if isinstance(node, BoardRole) else node.topology
    return (*scopes, Scope(constraint, tuple(leaves(node)))) if constraint else scopes


def most_now(gang: Gang, part: BoardRole, more: int = 0) -> int:
    """Return the maximum number of replicas that a role may have now.

    For a role that scales with another, the replicas of that role (plus `more`) determine the number.
    """
    tie = part.role.scale_with
    if tie is None:
        return part.role.max
    leader = next((p for p in gang.parts if p.role.name == tie.role), None)
    if leader is None:
        return part.role.min
    ratio = Fraction(str(tie.ratio))  # exact: 1.1 for each of ten replicas makes eleven, not twelve
    return min(part.role.max, max(part.role.min, ceil(ratio * (leader.count + more))))


def leaves(node: "BoardGroup | BoardRole") -> Iterator[BoardRole]:
    if isinstance(node, BoardRole):
        yield node
    else:
        for child in node.children:
            yield from leaves(child)


def alive(node: "BoardGroup | BoardRole") -> bool:
    return any(part.live for part in leaves(node))


def amounts_of(arrangement: Sequence[ReplicaRequest]) -> tuple[int, int, int]:
    gpu = cpu = memory = 0
    for need in arrangement:
        part, count = need.part.amounts, need.count
        gpu += part[0] * count
        cpu += part[1] * count
        memory += part[2] * count
    return gpu, cpu, memory


def gpus_of(pod: Pod) -> int:
    return pod.milli * len(pod.devices)


def lost_gpu_seconds_of(gang: Gang, pod: Pod, now: int) -> int:
    """Return the GPU-seconds of work that stopping this pod discards."""
    workload = gang.workload
    since = max(pod.started, workload.started or 0, workload.last_checkpoint or 0)
    return max(0, now - since) * gpus_of(pod) // MILLI
