"""Compute how much of a resource the eviction rules let a preemptor take, for explanations.

The numbers are exact for one resource: victims are taken in the best order, and a victim queue must be above
its threshold before its last victim. Whether the preemptor would then fit is not considered.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Gang, pod_milli_gpus
from scheduler.engine.board.ledger import GPU, QueueAccount
from scheduler.engine.explain.free import FreeCapacity
from scheduler.engine.preemption.policies import Preempt, Reclaim
from scheduler.engine.preemption.policy import PreemptionPolicy


class Amount(NamedTuple):
    """What a victim frees for the preemptor, and by how much its queue's allocation decreases."""

    freed: int
    charged: int

    def times(self, count: int) -> "Amount":
        return Amount(self.freed * count, self.charged * count)

    def plus(self, other: "Amount") -> "Amount":
        return Amount(self.freed + other.freed, self.charged + other.charged)


NOTHING = Amount(0, 0)
MAX_AMOUNT = 1 << 60


class Unit(NamedTuple):
    """One gang as victims: extra replicas that go one by one, then the rest as a whole."""

    extras: tuple[tuple[Amount, int], ...]  # with the number of such replicas
    core: Amount | None  # None if only the extra replicas can be evicted

    @property
    def all_extras(self) -> Amount:
        result = NOTHING
        for extra, count in self.extras:
            result = result.plus(extra.times(count))
        return result

    @property
    def parts(self) -> tuple[Amount, ...]:
        return (*(extra for extra, _ in self.extras), *((self.core,) if self.core else ()))

    @property
    def total(self) -> Amount:
        return self.all_extras.plus(self.core or NOTHING)


@dataclass(frozen=True, slots=True)
class Reclaimable:
    """Amounts of one resource in the engine's units."""

    amount: int = 0
    by_runtime: int = 0  # additional amount if no workload were within its minimum runtime
    non_preemptible: int = 0  # further amount if all workloads were preemptible

    @property
    def protected(self) -> int:
        return self.by_runtime + self.non_preemptible

    def plus(self, other: "Reclaimable") -> "Reclaimable":
        return Reclaimable(
            self.amount + other.amount,
            self.by_runtime + other.by_runtime,
            self.non_preemptible + other.non_preemptible,
        )


# Which gangs can be evicted whole: by the rules, then without minimum runtimes, then all.
_INCLUDED: tuple[Callable[[PreemptionPolicy, Gang], bool], ...] = (
    lambda policy, gang: not policy.is_protected(gang),
    lambda policy, gang: not gang.non_preemptible,
    lambda policy, gang: True,
)


class ReclaimableAmounts:
    """Reclaimable and preemptible amounts on a board that no longer changes, cached by victim queue."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._units: dict[Hashable, Counter[Unit]] = {}
        self._amounts: dict[Hashable, Reclaimable] = {}

    def reclaimable(self, gang: Gang, free: FreeCapacity, kind: int) -> Reclaimable:
        """Return how much of the resource the gang can reclaim from other queues on the usable nodes."""
        policy = Reclaim(self._board, gang, gang.requested)
        by_queue: dict[QueueAccount, list[QueueAccount]] = {}
        for project in policy.projects():
            sides = policy.diverging_queues(project)
            if sides is not None:
                by_queue.setdefault(sides[1], []).append(project)
        result = Reclaimable()
        for victim_queue, projects in by_queue.items():
            thresholds = tuple(policy.thresholds(projects[0]))
            key = victim_queue, thresholds, kind, free.signature
            if key not in self._amounts:
                self._amounts[key] = self._from_queue(policy, victim_queue, projects, thresholds, free, kind)
            result = result.plus(self._amounts[key])
        return result

    def preemptible(self, gang: Gang, free: FreeCapacity, kind: int) -> Reclaimable:
        """Return how much of the resource the gang can preempt from lower priorities of its project."""
        policy, account = Preempt(self._board, gang, gang.requested), gang.account
        key = account, gang.workload.priority, kind, free.signature
        if key not in self._amounts:
            totals = []
            for level in range(len(_INCLUDED)):
                units = self._project_units(policy, account, free, kind, kind, level)
                totals.append(sum(unit.total.freed * count for unit, count in units.items()))
            self._amounts[key] = _by_protection(totals)
        return self._amounts[key]

    def _from_queue(
        self,
        policy: Reclaim,
        victim_queue: QueueAccount,
        projects: Sequence[QueueAccount],
        thresholds: Sequence[tuple[int, int]],
        free: FreeCapacity,
        kind: int,
    ) -> Reclaimable:
        best = [0, 0, 0]
        for charged_kind, threshold in thresholds:
            excess = victim_queue.allocated[charged_kind] - threshold
            for level in range(len(_INCLUDED)):
                units = Counter[Unit]()
                for project in projects:
                    units += self._project_units(policy, project, free, kind, charged_kind, level)
                best[level] = max(best[level], most_freed(units, excess))
        return _by_protection(best)

    def _project_units(
        self,
        policy: PreemptionPolicy,
        project: QueueAccount,
        free: FreeCapacity,
        kind: int,
        charged_kind: int,
        level: int,
    ) -> Counter[Unit]:
        priority = policy.gang.workload.priority if isinstance(policy, Preempt) else None
        key = project, priority, kind, charged_kind, level, free.signature
        if key not in self._units:
            self._units[key] = Counter(_units(policy, project, free, kind, charged_kind, _INCLUDED[level]))
        return self._units[key]


def _by_protection(amounts: Sequence[int]) -> Reclaimable:
    free, with_runtime, everything = amounts
    return Reclaimable(free, with_runtime - free, everything - with_runtime)


def _units(
    policy: PreemptionPolicy,
    project: QueueAccount,
    free: FreeCapacity,
    kind: int,
    charged_kind: int,
    includes: Callable[[PreemptionPolicy, Gang], bool],
) -> Iterator[Unit]:
    board = policy.board
    for gang in board.by_project.get(project, {}).values():
        if gang.name in board.cycle.excluded or not policy.would_evict_gang(gang):
            continue
        whole = includes(policy, gang)
        if whole or (gang.may_grow and not gang.non_preemptible):
            unit = _unit(gang, free, kind, charged_kind, whole=whole)
            if unit.total.freed:
                yield unit


def _unit(gang: Gang, free: FreeCapacity, kind: int, charged_kind: int, *, whole: bool) -> Unit:
    core, extras = NOTHING, Counter[Amount]()
    for part in gang.parts:
        spare = max(0, min(part.count - part.role.min, len(part.live))) if gang.may_grow else 0
        for number, index in enumerate(sorted(part.live, reverse=True)):  # the newest replicas go first
            pod = part.live[index]
            charged = pod_milli_gpus(pod) if charged_kind == GPU else part.amounts[charged_kind]
            amount = Amount(free.freed_by(part, pod, kind), charged)
            if number < spare:
                extras[amount] += 1
            else:
                core = core.plus(amount)
    return Unit(tuple(sorted(extras.items())), core if whole else None)


def most_freed(units: Mapping[Unit, int], excess: int) -> int:
    """Return the most that victims free if all but the last take less than `excess` from the queue."""
    units = {unit: count for unit, count in units.items() if unit.total.charged}
    if excess <= 0 or not units:
        return 0
    totals = [unit.total.times(count) for unit, count in units.items()]
    largest = max(max((part.charged for part in unit.parts), default=0) for unit in units)
    if sum(total.charged for total in totals) - largest < excess and not any(unit.extras for unit in units):
        return sum(total.freed for total in totals)
    best = 0
    for last, count in units.items():
        others = Counter(units)
        others[last] = count - 1
        if last.core is not None:  # its extra replicas go first
            best = max(best, last.core.freed + _most_within(others, excess, last.all_extras))
        for number, (extra, spare) in enumerate(last.extras):
            rest = (*last.extras[:number], (extra, spare - 1), *last.extras[number + 1 :])
            best = max(best, extra.freed + _most_within(others + Counter([Unit(rest, None)]), excess))
    return best


def _most_within(units: Mapping[Unit, int], excess: int, first: Amount = NOTHING) -> int:
    """Return the most that `first` and some units free if they take less than `excess`, else a loss."""
    if first.charged >= excess:
        return -first.freed - MAX_AMOUNT
    states = {first.charged: first.freed}
    for unit, count in units.items():
        if not unit.extras:
            states = _added(states, unit.total, count, excess)
            continue
        for _ in range(count):
            whole = _added(states, unit.total, 1, excess) if unit.core is not None else states
            for extra, spare in unit.extras:
                states = _added(states, extra, spare, excess)
            states = {
                charged: max(states.get(charged, 0), whole.get(charged, 0))
                for charged in states.keys() | whole.keys()
            }
    return max(states.values())


def _added(states: Mapping[int, int], amount: Amount, count: int, excess: int) -> dict[int, int]:
    """Return the most freed by the amount charged, after adding the amount up to `count` times."""
    result, step = dict(states), 1
    while count > 0 and amount.charged:
        more = amount.times(min(step, count))
        for charged, freed in sorted(result.items(), reverse=True):
            total = charged + more.charged
            if total < excess:
                result[total] = max(result.get(total, 0), freed + more.freed)
        count, step = count - step, step * 2
    return result
