"""The queues of one pool: quotas, limits, allocations and requests."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from berth.core.amounts import RESOURCES, Amounts, Bounds
from scheduler.engine.model import Entitlement, Pool, Queue
from scheduler.engine.plan import QueueReport

GPU, CPU, MEMORY = range(3)
KINDS = range(len(RESOURCES))
NO_BOUND = 1 << 60  # above any sum: comparisons need no special case for "unlimited"

NO_CLAIM = Entitlement()


class Past(NamedTuple):
    """What a queue used, with 1 for its due of what all its siblings used."""

    used: float
    mean: float  # of all of them: 1 but for a past in which much was idle
    all_of_it: float  # its due until all is forgotten: the end of a calendar window


class Turn(NamedTuple):
    """Where a queue stands with its next workload; the smallest goes next, then who was submitted earlier."""

    over_quota: bool
    rank: int  # negated: higher first
    has_its_share: bool  # and asks for more; who used less than its due may be lifted beyond it once
    past: float  # what it used of its due, where history counts
    over_share: bool
    dominant_share: float  # counting the workload
    dominant_share_now: float

    def sentences(self, name: str) -> tuple[str, ...]:
        return (
            f"{name}: " + ("beyond its quota" if self.over_quota else "within its quota"),
            f"rank {-self.rank}",
            "beyond its fair share" if self.over_share else "within its fair share",
            *((f"used {self.past:.3f} of its due",) if self.past else ()),
            f"dominant share {self.dominant_share:.3f} with it, {self.dominant_share_now:.3f} without",
        )


def _plain(bounds: Bounds) -> tuple[int, int, int]:
    gpu, cpu, memory = (NO_BOUND if bound is None else bound for bound in bounds)
    return gpu, cpu, memory


class Account:
    """One queue in one pool. Sums are kept up to date with every pod that comes or goes."""

    __slots__ = (
        "allocated",
        "asked_for",
        "cap",
        "capped",
        "children",
        "created",
        "cut",
        "entitled",
        "entitlement",
        "family",
        "firm",
        "leaving",
        "limit",
        "name",
        "parent",
        "past",
        "path",
        "queue",
        "quota",
        "rank",
        "recalled",
        "requested",
        "share",
        "told",
        "version",
        "wanted",
    )  # fmt: skip

    def __init__(self, queue: Queue, parent: "Account | None", pool: str) -> None:
        entitlement = queue.entitlements.get(pool, NO_CLAIM)
        self.queue, self.name, self.created = queue, queue.name, queue.created
        self.entitlement, self.rank = entitlement, entitlement.rank
        self.parent, self.children = parent, list[Account]()
        self.path: tuple[Account, ...] = (self, *parent.path) if parent else (self,)  # project first
        self.quota, self.limit = _plain(entitlement.quota), _plain(entitlement.limit)
        # Nothing may pass the cap; without leave to go beyond quota, the quota is a cap too.
        self.cap = self.limit if entitlement.over_quota else tuple(map(min, self.limit, self.quota))
        self.capped = min(self.cap) < NO_BOUND
        self.allocated, self.firm = [0, 0, 0], [0, 0, 0]  # firm: what may not be taken back
        self.leaving = [0, 0, 0]  # held by pods that have not stopped yet, on top of what is allocated
        self.asked_for, self.share = [0, 0, 0], [0, 0, 0]  # asked for: by pending work, beyond what it has
        self.cut = [0, 0, 0]  # of a unit of the share, by rounding it down
        self.requested = [0, 0, 0]  # both, when the cycle began; less what a place elsewhere has answered
        self.wanted = [0, 0, 0]  # of that, as far as caps allow
        self.entitled: list[int] = list(self.quota)  # max(quota, share): nobody takes below this
        self.recalled: dict[Hashable, Any] = {}  # what was worked out from what it holds, until that changes
        self.version = 0  # changes with what it holds
        self.family: dict[Hashable, Any] = {}  # the same of its siblings and it; theirs, too
        self.past: Sequence[Past] = ()  # of each resource, where history counts
        self.told: tuple[tuple[object, ...], QueueReport] | None = None  # of it, as it then stood
        if parent:
            self.family = parent.children[0].family if parent.children else self.family
            parent.children.append(self)

    def settle(self, share: list[int], cut: list[int]) -> None:
        self.cut = cut
        if share == self.share:
            return
        self.share = share
        self.entitled = [max(quota, part) for quota, part in zip(self.quota, share, strict=True)]
        self.recalled.clear()
        self.family.clear()

    def turn(self, asked: tuple[int, int, int]) -> Turn:
        found: Turn | None = self.recalled.get(asked)
        if found is None:
            beyond = not within(self.allocated, self.entitled, asked)
            found = self.recalled[asked] = Turn(
                not within(self.allocated, self.quota, asked),
                -self.rank,
                beyond and not (self.is_starved(asked) and self.may_be_lifted(asked)),
                self.past[first(asked)].used if self.past else 0.0,
                not within(self.allocated, self.share, asked),  # of oversold quotas a share is less
                self.saturation(asked),
                self.saturation(asked, plus=False),
            )
        return found

    def is_starved(self, asked: Sequence[int]) -> bool:
        """Whether it used clearly less than its due."""
        return bool(self.past) and self.past[first(asked)].used < self.past[first(asked)].mean

    def may_be_lifted(self, asked: Sequence[int]) -> bool:
        """Whether it is not yet at its share: one workload may lift it beyond, no second."""
        return all(
            self.allocated[kind] + asked[kind] <= self.entitled[kind]
            or self.allocated[kind] < self.entitled[kind]
            or not self.allocated[kind]
            for kind in KINDS
            if asked[kind] > 0
        )

    def saturation(self, asked: Sequence[int], plus: bool = True) -> float:
        """Allocated (and asked) against what is due, in the worst of the resources asked for."""
        worst = 0.0
        for kind in KINDS:
            if asked[kind] <= 0:
                continue
            held = self.allocated[kind] + (asked[kind] if plus else 0)
            due = self.entitled[kind]
            ratio = held / due if due > 0 else (float("inf") if held > 0 else 0.0)
            worst = max(worst, ratio)
        return worst


class Ledger:
    """All accounts of a pool, by name, departments before their projects."""

    def __init__(self, pool: Pool, queues: Sequence[Queue]) -> None:
        self.accounts: dict[str, Account] = {}
        self.roots: list[Account] = []
        self.divided: dict[Account | None, object] = {}  # by parent: what its children's shares came of
        known = {queue.name: queue for queue in queues}
        for queue in sorted(queues, key=lambda queue: queue.name):
            self._open(queue, known, pool.name)

    def _open(self, queue: Queue, known: dict[str, Queue], pool: str) -> Account:
        if queue.name in self.accounts:
            return self.accounts[queue.name]
        above = known.get(queue.parent) if queue.parent is not None else None
        parent = self._open(above, known, pool) if above is not None else None
        account = self.accounts[queue.name] = Account(queue, parent, pool)
        if parent is None:
            account.family = self.roots[0].family if self.roots else account.family
            self.roots.append(account)
        return account

    @staticmethod
    def charge(project: Account, gpu: int, cpu: int, memory: int, firm: bool) -> None:
        """Add (or, negative, give back) what one pod holds, all the way up."""
        for account in project.path:
            held = account.allocated
            held[GPU] += gpu
            held[CPU] += cpu
            held[MEMORY] += memory
            account.version += 1
            account.recalled.clear()
            account.family.clear()
            if firm:
                held = account.firm
                held[GPU] += gpu
                held[CPU] += cpu
                held[MEMORY] += memory


def over(held: Sequence[int], bound: Sequence[int], asked: Sequence[int]) -> int | None:
    """The first resource asked for in which `held + asked` passes the bound."""
    for kind in KINDS:
        if asked[kind] > 0 and held[kind] + asked[kind] > bound[kind]:
            return kind
    return None


def first(asked: Sequence[int]) -> int:
    """The resource that matters most of those asked for: GPUs, where there are any."""
    return next((kind for kind in KINDS if asked[kind] > 0), GPU)


def within(held: Sequence[int], bound: Sequence[int], asked: Sequence[int]) -> bool:
    return over(held, bound, asked) is None


def beyond_quota(account: Account, siblings: Sequence[Account], kinds: tuple[int, ...]) -> Sequence[Account]:
    """Who of them holds more than its quota of any of these resources."""
    found: Sequence[Account] | None = account.family.get(kinds)
    if found is None:
        found = account.family[kinds] = [
            other for other in siblings if any(other.allocated[kind] > other.quota[kind] for kind in kinds)
        ]
    return found


def siblings(accounts: Sequence[Account]) -> Iterator[Sequence[Account]]:
    """Every set of accounts that divide one parent's share, from the top down."""
    if accounts:
        yield accounts
        for account in accounts:
            yield from siblings(account.children)


def amounts(held: Sequence[int]) -> Amounts:
    return Amounts(held[GPU], held[CPU], held[MEMORY])
