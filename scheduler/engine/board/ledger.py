"""Queues of one pool: quotas, limits, allocations and requests."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from berth.core.values.amounts import RESOURCES, Amounts, Bounds
from scheduler.engine.model import Pool, PoolQuota, Queue, Request
from scheduler.engine.plan import QueueReport

if TYPE_CHECKING:
    from scheduler.engine.board.quota_hold import QuotaHold

GPU, CPU, MEMORY = range(3)
KINDS = range(len(RESOURCES))
# Cluster quota kinds that restrict limits or pod counts instead of requests.
LOADS = ("limit_cpu", "limit_memory_mib", "pods")
NO_BOUND = 1 << 60  # larger than any sum, so that comparisons need no special case for "unlimited"
NOTHING = 0, 0, 0  # zero for every resource

NO_POOL_QUOTA = PoolQuota()
NOT_DIVIDED = (False,) * len(RESOURCES)


class RelativeUsage(NamedTuple):
    """A queue's decayed usage, divided by its weighted share of the siblings' total usage."""

    used: float
    mean: float  # mean relative usage of all siblings: 1, or less if much capacity was idle
    at_reset: float  # relative usage at the end of the calendar window, when the history is reset


# A queue's state once its next workload is allocated.
OVER_QUOTA, OVER_SHARE = "would exceed its quota", "would exceed its fair share"
WITHIN_QUOTA = "within its quota"


class QueueKey(NamedTuple):
    """Sort key of a queue, which depends on its next workload. The queue with the smallest key comes
    first.
    """

    over_quota: bool
    rank: int  # negated rank, so that higher ranks sort first
    exceeds_share: bool  # whether the queue would exceed its share; a starved queue may do so once
    relative_usage: float  # decayed usage relative to the weighted share, if history counts
    over_share: bool
    dominant_share: float  # dominant share including the next workload
    dominant_share_now: float

    def describe(self, name: str) -> tuple[str, ...]:
        return (
            f"{name}: {OVER_QUOTA if self.over_quota else WITHIN_QUOTA}",
            f"rank {-self.rank}",
            OVER_SHARE if self.over_share else "within its fair share",
            *(
                (f"decayed usage {self.relative_usage:.3f} of its weighted share",)
                if self.relative_usage
                else ()
            ),
            f"dominant share {self.dominant_share_now:.3f}, {self.dominant_share:.3f} with this workload",
        )


def finite_bounds(bounds: Bounds) -> tuple[int, int, int]:
    gpu, cpu, memory = (NO_BOUND if bound is None else bound for bound in bounds)
    return gpu, cpu, memory


class QueueAccount:
    """One queue in one pool, with totals that are updated whenever a pod is placed or removed."""

    __slots__ = (
        "allocated",
        "cache",
        "cached_report",
        "children",
        "cluster_load",
        "created",
        "deserved",
        "divided",
        "group",
        "has_limit",
        "leaving",
        "limit",
        "load_quotas",
        "name",
        "non_preemptible",
        "non_preemptible_quota",
        "own_limit",
        "parent",
        "path",
        "pending_request",
        "pool_quota",
        "queue",
        "quota",
        "quota_holds",
        "rank",
        "relative_usage",
        "requested",
        "rounded_off",
        "share",
        "sibling_cache",
        "version",
        "wanted",
    )  # fmt: skip

    def __init__(self, queue: Queue, parent: "QueueAccount | None", pool: str) -> None:
        self.queue, self.name, self.created = queue, queue.name, queue.created
        self.parent, self.children = parent, list[QueueAccount]()
        # This account, its parent, and so on up to the top level.
        self.path: tuple[QueueAccount, ...] = (self, *parent.path) if parent else (self,)
        pool_quota = queue.pool_quotas.get(pool, NO_POOL_QUOTA)
        self._set_bounds(pool_quota)
        self.rank = pool_quota.rank
        # Accounts that share this account's quota and limit, or None without a quota group.
        self.group: QueueGroup | None = None
        # Cluster quotas on limits or pod counts, and the totals of placed pods that count against them.
        self.load_quotas = tuple(quota for quota in pool_quota.cluster_quotas if quota.kind in LOADS)
        self.cluster_load = dict.fromkeys(LOADS, 0)
        self.allocated, self.non_preemptible = [0, 0, 0], [0, 0, 0]
        self.leaving = [0, 0, 0]  # amounts of stopping pods, which `allocated` does not include
        # Amounts requested by pending workloads, which `allocated` does not include.
        self.pending_request = [0, 0, 0]
        self.share = [0, 0, 0]
        self.rounded_off = [0, 0, 0]  # fraction of a unit that was lost when the share was rounded down
        # Allocated and pending amounts at the start of the cycle, excluding workloads placed in other pools.
        self.requested = [0, 0, 0]
        self.wanted = [0, 0, 0]  # the part of `requested` that limits allow
        # max(quota, share): other queues cannot reclaim resources below this amount
        self.deserved: list[int] = list(self.quota)
        self.cache: dict[Hashable, Any] = {}  # values derived from the allocation, cleared when it changes
        self.quota_holds: tuple[QuotaHold, ...] = ()  # quota held in this cycle for the project's workloads
        self.version = 0  # incremented whenever the allocation changes
        # Cache shared by siblings, cleared when an allocation changes.
        self.sibling_cache: dict[Hashable, Any] = {}
        # Relative usage by resource; empty if history does not count.
        self.relative_usage: Sequence[RelativeUsage] = ()
        # For each resource, whether the department's projects take turns directly with other departments.
        self.divided: Sequence[bool] = NOT_DIVIDED
        # Cached report of the queue, preceded by its input values.
        self.cached_report: tuple[tuple[object, ...], QueueReport] | None = None
        if parent:
            self.sibling_cache = parent.children[0].sibling_cache if parent.children else self.sibling_cache
            parent.children.append(self)

    def _set_bounds(self, pool_quota: PoolQuota) -> None:
        self.pool_quota = pool_quota
        self.quota, limit = finite_bounds(pool_quota.quota), finite_bounds(pool_quota.limit)
        self.non_preemptible_quota: Sequence[int] = self.quota  # upper bound on `non_preemptible`
        # Hard bounds: the limit and, if the queue may not borrow, the quota.
        self.own_limit = limit if pool_quota.over_quota else tuple(map(min, limit, self.quota))
        self.has_limit = min(self.own_limit) < NO_BOUND
        # The limit, lowered so that requests stay within the cluster's quotas.
        self.limit = _limit_with_cluster_quotas(self.own_limit, pool_quota)

    def change_pool_quota(self, pool_quota: PoolQuota) -> None:
        """Change the quota and limit during a cycle. The caller must recompute the fair share."""
        self._set_bounds(pool_quota)
        self.deserved = [max(quota, part) for quota, part in zip(self.quota, self.share, strict=True)]
        self.version += 1
        self.cache.clear()
        self.sibling_cache.clear()

    def charge_load(self, request: Request, sign: int) -> None:
        """Add one pod's load on cluster quotas, or subtract it if `sign` is -1."""
        for kind, amount in replica_load(request).items():
            self.cluster_load[kind] += sign * amount

    def set_share(self, share: list[int], rounded_off: list[int]) -> None:
        self.rounded_off = rounded_off
        if share == self.share:
            return
        self.share = share
        self.deserved = [max(quota, part) for quota, part in zip(self.quota, share, strict=True)]
        self.cache.clear()
        self.sibling_cache.clear()

    def turn_taking_queue(self, kind: int) -> "QueueAccount":
        """Return the queue that takes turns with other queues: the project's department, or the
        project itself.
        """
        department = self.path[-1]
        return self.path[-2] if department.divided[kind] else department

    def sort_key(self, requested: tuple[int, int, int]) -> QueueKey:
        result: QueueKey | None = self.cache.get(requested)
        if result is None:
            result = self.cache[requested] = self._make_sort_key(requested)
        return result

    def _make_sort_key(self, requested: tuple[int, int, int]) -> QueueKey:
        # Use a single loop over the resources, because this code runs for every placed workload.
        over_quota = over_deserved = over_share = False
        saturation = saturation_now = 0.0
        for kind in KINDS:
            if requested[kind] <= 0:
                continue
            allocated, deserved = self.allocated[kind], self.deserved[kind]
            total = allocated + requested[kind]
            over_quota |= total > self.quota[kind]
            over_deserved |= total > deserved
            over_share |= total > self.share[kind]  # the share may be below the quota if quotas are oversold
            saturation = max(saturation, _saturation(total, deserved))
            saturation_now = max(saturation_now, _saturation(allocated, deserved))
        return QueueKey(
            over_quota,
            -self.rank,
            over_deserved and not (self.is_starved(requested) and self.may_exceed_share_once(requested)),
            self.relative_usage[main_resource(requested)].used if self.relative_usage else 0.0,
            over_share,
            saturation,
            saturation_now,
        )

    def sort_key_for(self, project: "QueueAccount", requested: tuple[int, int, int]) -> QueueKey:
        """Return this queue's sort key for a workload in one of its projects."""
        key = self.sort_key(requested)
        if not self.divided[main_resource(requested)]:
            return key
        own = project.sort_key(requested)
        return key._replace(exceeds_share=own.exceeds_share, relative_usage=own.relative_usage)

    def is_starved(self, requested: Sequence[int]) -> bool:
        """Return whether the queue's decayed usage is below its siblings' mean usage."""
        return (
            bool(self.relative_usage)
            and self.relative_usage[main_resource(requested)].used
            < self.relative_usage[main_resource(requested)].mean
        )

    def may_exceed_share_once(self, requested: Sequence[int]) -> bool:
        """Return whether the queue may exceed its deserved amounts by this one request.

        Its current allocation must be zero or below its deserved amounts.
        """
        return all(
            self.allocated[kind] + requested[kind] <= self.deserved[kind]
            or self.allocated[kind] < self.deserved[kind]
            or not self.allocated[kind]
            for kind in KINDS
            if requested[kind] > 0
        )

    def saturation(self, requested: Sequence[int]) -> float:
        """Return the highest ratio of allocated to deserved amounts among the requested resources."""
        return max(
            (_saturation(self.allocated[kind], self.deserved[kind]) for kind in KINDS if requested[kind] > 0),
            default=0.0,
        )


class QueueGroup:
    """Accounts of one queue in the pools of a quota group. The accounts share one quota and one limit."""

    __slots__ = ("accounts", "name")

    def __init__(self, name: str, accounts: Mapping[str, QueueAccount]) -> None:
        self.name, self.accounts = name, accounts

    @property
    def pool_quota(self) -> PoolQuota:
        """The quota and limit of the whole group."""
        pool, account = next(iter(self.accounts.items()))
        return account.queue.pool_quotas[pool]


def _limit_with_cluster_quotas(limit: tuple[int, ...], pool_quota: PoolQuota) -> tuple[int, ...]:
    """Return, for each resource, the limit or the unused cluster quota, whichever is lower."""
    lowered = list(limit)
    for quota in pool_quota.cluster_quotas:
        if quota.kind in RESOURCES:
            kind = RESOURCES.index(quota.kind)
            lowered[kind] = min(lowered[kind], max(0, quota.hard - quota.used))
    return tuple(lowered)


def replica_load(request: Request) -> dict[str, int]:
    """Return the amounts that one replica adds to cluster quotas on limits and pod counts."""
    return {"limit_cpu": request.limit_cpu, "limit_memory_mib": request.limit_memory_mib, "pods": 1}


def _saturation(amount: int, deserved: int) -> float:
    if deserved > 0:
        return amount / deserved
    return float("inf") if amount > 0 else 0.0


class Ledger:
    """The pool's accounts, keyed by queue name. Departments come before their projects."""

    def __init__(self, pool: Pool, queues: Sequence[Queue]) -> None:
        self.accounts: dict[str, QueueAccount] = {}
        self.roots: list[QueueAccount] = []
        # Inputs used when resources were last divided among each account's children.
        self.division_inputs: dict[QueueAccount | None, object] = {}
        by_name = {queue.name: queue for queue in queues}
        for queue in sorted(queues, key=lambda queue: queue.name):
            self._get_or_create_account(queue, by_name, pool.name)

    def _get_or_create_account(self, queue: Queue, by_name: dict[str, Queue], pool: str) -> QueueAccount:
        if queue.name in self.accounts:
            return self.accounts[queue.name]
        above = by_name.get(queue.parent) if queue.parent is not None else None
        parent = self._get_or_create_account(above, by_name, pool) if above is not None else None
        account = self.accounts[queue.name] = QueueAccount(queue, parent, pool)
        if parent is None:
            account.sibling_cache = self.roots[0].sibling_cache if self.roots else account.sibling_cache
            self.roots.append(account)
        return account

    @staticmethod
    def charge(project: QueueAccount, gpu: int, cpu: int, memory: int, non_preemptible: bool) -> None:
        """Add one pod's resources to a project and its department. Negative amounts are subtracted."""
        for account in project.path:
            allocated = account.allocated
            allocated[GPU] += gpu
            allocated[CPU] += cpu
            allocated[MEMORY] += memory
            account.version += 1
            account.cache.clear()
            account.sibling_cache.clear()
            if non_preemptible:
                allocated = account.non_preemptible
                allocated[GPU] += gpu
                allocated[CPU] += cpu
                allocated[MEMORY] += memory


def first_exceeded_resource(
    allocated: Sequence[int], bound: Sequence[int], requested: Sequence[int]
) -> int | None:
    """Return the first requested resource for which `allocated + requested` exceeds the bound, or None."""
    for kind in KINDS:
        if requested[kind] > 0 and allocated[kind] + requested[kind] > bound[kind]:
            return kind
    return None


def main_resource(requested: Sequence[int]) -> int:
    """Return the first of GPUs, CPUs and memory that is requested, or GPUs if none is."""
    return next((kind for kind in KINDS if requested[kind] > 0), GPU)


def fits_within(allocated: Sequence[int], bound: Sequence[int], requested: Sequence[int]) -> bool:
    return first_exceeded_resource(allocated, bound, requested) is None


def siblings_over_quota(
    account: QueueAccount, siblings: Sequence[QueueAccount], kinds: tuple[int, ...]
) -> Sequence[QueueAccount]:
    """Return the siblings that are over their quota for any of the resources."""
    result: Sequence[QueueAccount] | None = account.sibling_cache.get(kinds)
    if result is None:
        result = account.sibling_cache[kinds] = [
            other for other in siblings if any(other.allocated[kind] > other.quota[kind] for kind in kinds)
        ]
    return result


def sibling_sets(accounts: Sequence[QueueAccount]) -> Iterator[Sequence[QueueAccount]]:
    """Yield each set of sibling queues, parents before their children."""
    if accounts:
        yield accounts
        for account in accounts:
            yield from sibling_sets(account.children)


def to_amounts(values: Sequence[int]) -> Amounts:
    return Amounts(values[GPU], values[CPU], values[MEMORY])
