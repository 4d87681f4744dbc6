"""Queues of one pool: quotas, limits, allocations and requests."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from berth.core.amounts import RESOURCES, Amounts, Bounds
from scheduler.engine.model import Entitlement, Pool, Queue
from scheduler.engine.plan import QueueReport

GPU, CPU, MEMORY = range(3)
KINDS = range(len(RESOURCES))
NO_BOUND = 1 << 60  # above any sum: comparisons need no special case for "unlimited"

NO_CLAIM = Entitlement()


class RelativeUsage(NamedTuple):
    """Decayed usage of a queue, where 1 is the queue's weighted share of the usage of all siblings."""

    used: float
    mean: float  # mean of all siblings: 1 unless much capacity was idle
    at_reset: float  # due by the end of the calendar window, when history is reset


class QueueKey(NamedTuple):
    """Sort key of a queue with its next workload: smallest key first, then earliest submission."""

    over_quota: bool
    rank: int  # negated: higher first
    has_its_share: bool  # would exceed its share; a starved queue may do so by one workload
    past: float  # decayed usage relative to its weighted share, where history counts
    over_share: bool
    dominant_share: float  # including the next workload
    dominant_share_now: float

    def sentences(self, name: str) -> tuple[str, ...]:
        return (
            f"{name}: " + ("over its quota" if self.over_quota else "within its quota"),
            f"rank {-self.rank}",
            "over its fair share" if self.over_share else "within its fair share",
            *((f"decayed usage {self.past:.3f} of its weighted share",) if self.past else ()),
            f"dominant share {self.dominant_share_now:.3f}, {self.dominant_share:.3f} with this workload",
        )


def _plain(bounds: Bounds) -> tuple[int, int, int]:
    gpu, cpu, memory = (NO_BOUND if bound is None else bound for bound in bounds)
    return gpu, cpu, memory


class QueueAccount:
    """One queue in one pool. Sums are updated with every pod placed or removed."""

    __slots__ = (
        "allocated",
        "cache",
        "cached_report",
        "children",
        "created",
        "cut",
        "deserved",
        "entitlement",
        "has_limit",
        "leaving",
        "limit",
        "name",
        "non_preemptible",
        "parent",
        "past",
        "path",
        "pending_request",
        "queue",
        "quota",
        "rank",
        "requested",
        "share",
        "sibling_cache",
        "version",
        "wanted",
    )  # fmt: skip

    def __init__(self, queue: Queue, parent: "QueueAccount | None", pool: str) -> None:
        entitlement = queue.entitlements.get(pool, NO_CLAIM)
        self.queue, self.name, self.created = queue, queue.name, queue.created
        self.entitlement, self.rank = entitlement, entitlement.rank
        self.parent, self.children = parent, list[QueueAccount]()
        self.path: tuple[QueueAccount, ...] = (self, *parent.path) if parent else (self,)  # project first
        self.quota, limit = _plain(entitlement.quota), _plain(entitlement.limit)
        # The limit is a hard bound. So is the quota where borrowing is not allowed.
        self.limit = limit if entitlement.over_quota else tuple(map(min, limit, self.quota))
        self.has_limit = min(self.limit) < NO_BOUND
        self.allocated, self.non_preemptible = [0, 0, 0], [0, 0, 0]
        self.leaving = [0, 0, 0]  # held by pods that have not stopped yet, on top of `allocated`
        self.pending_request = [0, 0, 0]  # requested by pending work, beyond the allocation
        self.share = [0, 0, 0]
        self.cut = [0, 0, 0]  # the part of a unit that rounding took from the share
        # Allocated and pending when the cycle began, without workloads placed in other pools.
        self.requested = [0, 0, 0]
        self.wanted = [0, 0, 0]  # the part of `requested` that limits allow
        self.deserved: list[int] = list(self.quota)  # max(quota, share): other queues cannot reclaim below it
        self.cache: dict[Hashable, Any] = {}  # values computed from the allocation, until it changes
        self.version = 0  # changes with every change of the allocation
        self.sibling_cache: dict[Hashable, Any] = {}  # shared by siblings, until an allocation changes
        self.past: Sequence[RelativeUsage] = ()  # by resource, where history counts
        self.cached_report: tuple[tuple[object, ...], QueueReport] | None = None  # with the values shown
        if parent:
            self.sibling_cache = parent.children[0].sibling_cache if parent.children else self.sibling_cache
            parent.children.append(self)

    def set_share(self, share: list[int], cut: list[int]) -> None:
        self.cut = cut
        if share == self.share:
            return
        self.share = share
        self.deserved = [max(quota, part) for quota, part in zip(self.quota, share, strict=True)]
        self.cache.clear()
        self.sibling_cache.clear()

    def turn(self, requested: tuple[int, int, int]) -> QueueKey:
        result: QueueKey | None = self.cache.get(requested)
        if result is None:
            beyond = not within(self.allocated, self.deserved, requested)
            result = self.cache[requested] = QueueKey(
                not within(self.allocated, self.quota, requested),
                -self.rank,
                beyond and not (self.is_starved(requested) and self.may_exceed_share_once(requested)),
                self.past[first(requested)].used if self.past else 0.0,
                not within(self.allocated, self.share, requested),  # below quota if oversold
                self.saturation(requested),
                self.saturation(requested, plus=False),
            )
        return result

    def is_starved(self, requested: Sequence[int]) -> bool:
        """Return whether the queue's decayed usage is below the mean of its siblings."""
        return bool(self.past) and self.past[first(requested)].used < self.past[first(requested)].mean

    def may_exceed_share_once(self, requested: Sequence[int]) -> bool:
        """Return whether the queue is below its share now, so that one more workload may put it over."""
        return all(
            self.allocated[kind] + requested[kind] <= self.deserved[kind]
            or self.allocated[kind] < self.deserved[kind]
            or not self.allocated[kind]
            for kind in KINDS
            if requested[kind] > 0
        )

    def saturation(self, requested: Sequence[int], plus: bool = True) -> float:
        """Return allocated (plus requested) over deserved, the largest ratio of the requested resources."""
        worst = 0.0
        for kind in KINDS:
            if requested[kind] <= 0:
                continue
            held = self.allocated[kind] + (requested[kind] if plus else 0)
            due = self.deserved[kind]
            ratio = held / due if due > 0 else (float("inf") if held > 0 else 0.0)
            worst = max(worst, ratio)
        return worst


class Ledger:
    """All accounts of a pool, by name, departments before their projects."""

    def __init__(self, pool: Pool, queues: Sequence[Queue]) -> None:
        self.accounts: dict[str, QueueAccount] = {}
        self.roots: list[QueueAccount] = []
        self.divided: dict[QueueAccount | None, object] = {}  # by parent: inputs of the last division
        by_name = {queue.name: queue for queue in queues}
        for queue in sorted(queues, key=lambda queue: queue.name):
            self._open(queue, by_name, pool.name)

    def _open(self, queue: Queue, by_name: dict[str, Queue], pool: str) -> QueueAccount:
        if queue.name in self.accounts:
            return self.accounts[queue.name]
        above = by_name.get(queue.parent) if queue.parent is not None else None
        parent = self._open(above, by_name, pool) if above is not None else None
        account = self.accounts[queue.name] = QueueAccount(queue, parent, pool)
        if parent is None:
            account.sibling_cache = self.roots[0].sibling_cache if self.roots else account.sibling_cache
            self.roots.append(account)
        return account

    @staticmethod
    def charge(project: QueueAccount, gpu: int, cpu: int, memory: int, non_preemptible: bool) -> None:
        """Add the resources of one pod (negative: remove them) to a project and its department."""
        for account in project.path:
            held = account.allocated
            held[GPU] += gpu
            held[CPU] += cpu
            held[MEMORY] += memory
            account.version += 1
            account.cache.clear()
            account.sibling_cache.clear()
            if non_preemptible:
                held = account.non_preemptible
                held[GPU] += gpu
                held[CPU] += cpu
                held[MEMORY] += memory


def over(held: Sequence[int], bound: Sequence[int], requested: Sequence[int]) -> int | None:
    """Return the first requested resource in which `held + requested` exceeds the bound."""
    for kind in KINDS:
        if requested[kind] > 0 and held[kind] + requested[kind] > bound[kind]:
            return kind
    return None


def first(requested: Sequence[int]) -> int:
    """Return the most important requested resource: GPUs, if any."""
    return next((kind for kind in KINDS if requested[kind] > 0), GPU)


def within(held: Sequence[int], bound: Sequence[int], requested: Sequence[int]) -> bool:
    return over(held, bound, requested) is None


def beyond_quota(
    account: QueueAccount, siblings: Sequence[QueueAccount], kinds: tuple[int, ...]
) -> Sequence[QueueAccount]:
    """Return the siblings that hold more than their quota of any of these resources."""
    result: Sequence[QueueAccount] | None = account.sibling_cache.get(kinds)
    if result is None:
        result = account.sibling_cache[kinds] = [
            other for other in siblings if any(other.allocated[kind] > other.quota[kind] for kind in kinds)
        ]
    return result


def siblings(accounts: Sequence[QueueAccount]) -> Iterator[Sequence[QueueAccount]]:
    """Yield every set of accounts that divides one parent's share, from the top down."""
    if accounts:
        yield accounts
        for account in accounts:
            yield from siblings(account.children)


def amounts(held: Sequence[int]) -> Amounts:
    return Amounts(held[GPU], held[CPU], held[MEMORY])
