"""Compute how much of a resource a preemptor could reclaim or preempt, for explanations.

The amounts are exact for one resource, but do not show whether the preemptor would fit afterwards.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Gang, pod_gpu_milli
from scheduler.engine.board.ledger import GPU, QueueAccount
from scheduler.engine.explain.free import NodeView
from scheduler.engine.preemption.policies.base import PreemptionPolicy
from scheduler.engine.preemption.policies.pending import Preempt, Reclaim


class Amount(NamedTuple):
    """Amount that a victim frees for the preemptor, and the amount charged to the victim's queue."""

    freed: int
    charged: int

    def times(self, count: int) -> "Amount":
        return Amount(self.freed * count, self.charged * count)

    def plus(self, other: "Amount") -> "Amount":
        return Amount(self.freed + other.freed, self.charged + other.charged)


NOTHING = Amount(0, 0)
MAX_AMOUNT = 1 << 60


class EvictionUnit(NamedTuple):
    """Victims of one gang, whose extra replicas are evicted one by one before the rest."""

    extras: tuple[tuple[Amount, int], ...]  # amount per replica, and number of such replicas
    core: Amount

    @property
    def extra_replica_resources(self) -> Amount:
        result = NOTHING
        for extra, count in self.extras:
            result = result.plus(extra.times(count))
        return result

    @property
    def parts(self) -> tuple[Amount, ...]:
        return (*(extra for extra, _ in self.extras), self.core)

    @property
    def total(self) -> Amount:
        return self.extra_replica_resources.plus(self.core)


@dataclass(frozen=True, slots=True)
class Reclaimable:
    """Reclaimable amount of one resource, and the amounts that are protected, in engine units."""

    amount: int = 0
    by_runtime: int = 0  # additional amount if no workload were within its minimum runtime
    non_preemptible: int = 0  # additional amount if all workloads were preemptible

    @property
    def protected_amount(self) -> int:
        return self.by_runtime + self.non_preemptible

    def plus(self, other: "Reclaimable") -> "Reclaimable":
        return Reclaimable(
            self.amount + other.amount,
            self.by_runtime + other.by_runtime,
            self.non_preemptible + other.non_preemptible,
        )


class VictimsByProtection(NamedTuple):
    """Victims in a project, split into victims that can be evicted now and protected victims."""

    free: Counter[EvictionUnit]
    by_runtime: Counter[EvictionUnit]
    non_preemptible: Counter[EvictionUnit]


class ReclaimableAmounts:
    """Reclaimable and preemptible amounts on a board, cached by victim queue.

    The board must not change while this object is in use.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self._excluded = {board.gangs[name].account for name in board.cycle.excluded if name in board.gangs}
        self._amounts: dict[Hashable, Reclaimable] = {}

    def reclaimable_amounts(self, gang: Gang, view: NodeView, kind: int) -> Reclaimable:
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
            key = victim_queue, thresholds, kind, view.usable_nodes, view.units
            if key not in self._amounts:
                self._amounts[key] = self._reclaimable_from_queue(
                    policy, victim_queue, projects, thresholds, view, kind
                )
            result = result.plus(self._amounts[key])
        return result

    def preemptible_amounts(self, gang: Gang, view: NodeView, kind: int) -> Reclaimable:
        """Return how much of a resource the gang can preempt from its project's lower-priority workloads."""
        if Preempt.has_no_victims_if_over_share(self._board, gang):
            return Reclaimable()
        key = gang.account, gang.workload.priority, kind, view.usable_nodes, view.units
        if key not in self._amounts:
            policy = Preempt(self._board, gang, gang.requested)
            units = self._victims_in_project(policy, gang.account, view, kind, kind)
            self._amounts[key] = Reclaimable(
                *(sum(unit.total.freed * count for unit, count in part.items()) for part in units)
            )
        return self._amounts[key]

    def _reclaimable_from_queue(
        self,
        policy: Reclaim,
        victim_queue: QueueAccount,
        projects: Sequence[QueueAccount],
        thresholds: Sequence[tuple[int, int]],
        view: NodeView,
        kind: int,
    ) -> Reclaimable:
        best = [0, 0, 0]
        for charged_kind, threshold in thresholds:
            excess, units = victim_queue.allocated[charged_kind] - threshold, Counter[EvictionUnit]()
            by_project = [self._victims_in_project(policy, p, view, kind, charged_kind) for p in projects]
            for level, parts in enumerate(zip(*by_project, strict=True)):
                for part in parts:
                    units.update(part)
                best[level] = max(best[level], max_freed_amount(units, excess))
        free, with_runtime, everything = best
        return Reclaimable(free, with_runtime - free, everything - with_runtime)

    def _victims_in_project(
        self, policy: PreemptionPolicy, project: QueueAccount, view: NodeView, kind: int, charged_kind: int
    ) -> VictimsByProtection:
        """Return the project's victims, cached until its allocation changes.

        Victims that depend on the time or on this cycle are not cached.
        """
        seconds = policy.min_runtime(project)
        if isinstance(policy, Preempt) or seconds or project in self._excluded:
            return _count_units(policy, project, view, kind, charged_kind)
        key = "victims", kind, charged_kind, view.usable_nodes, view.units
        if key not in project.cache:
            project.cache[key] = _count_units(policy, project, view, kind, charged_kind)
        result: VictimsByProtection = project.cache[key]
        return result


def _count_units(
    policy: PreemptionPolicy, project: QueueAccount, view: NodeView, kind: int, charged_kind: int
) -> VictimsByProtection:
    board, excluded = policy.board, policy.board.cycle.excluded
    may_protect = policy.min_runtime(project) > 0 or policy.protects_new_gangs
    free, by_runtime, non_preemptible = (
        Counter[_GangAmounts](),
        Counter[_GangAmounts](),
        Counter[_GangAmounts](),
    )
    for gang in board.by_project.get(project, {}).values():
        if gang.name in excluded or not policy.is_candidate_victim(gang):
            continue
        core, extras = parts = _gang_amounts(gang, view, kind, charged_kind)
        if not core[0] and not any(freed for (freed, _), _ in extras):
            continue
        if gang.non_preemptible:
            non_preemptible[parts] += 1
        elif not (may_protect and policy.is_protected(gang)):
            free[parts] += 1
        else:
            # Unprotected extra replicas are counted individually.
            # A gang without protection would be evicted as a whole, and is counted as one unit.
            if extras:
                free[(0, 0), extras] += 1
                by_runtime[(0, 0), extras] -= 1
            by_runtime[parts] += 1
    return VictimsByProtection(
        _to_eviction_units(free), _to_eviction_units(by_runtime), _to_eviction_units(non_preemptible)
    )


# (freed, charged) of the gang's core, then (freed, charged) and number of each kind of extra replica.
_GangAmounts = tuple[tuple[int, int], tuple[tuple[tuple[int, int], int], ...]]


def _gang_amounts(gang: Gang, view: NodeView, kind: int, charged_kind: int) -> _GangAmounts:
    freed = charged = 0
    if not gang.is_elastic:
        for part in gang.parts:
            for pod in part.live.values():
                freed += view.amount_freed_by(part, pod, kind)
                charged += pod_gpu_milli(pod) if charged_kind == GPU else part.amounts[charged_kind]
        return (freed, charged), ()
    extras = dict[tuple[int, int], int]()
    for part in gang.parts:
        spare = max(0, min(part.replica_count - part.role.min, len(part.live)))
        # The newest replicas are evicted first.
        for number, index in enumerate(sorted(part.live, reverse=True) if spare else part.live):
            pod = part.live[index]
            amount = pod_gpu_milli(pod) if charged_kind == GPU else part.amounts[charged_kind]
            pair = view.amount_freed_by(part, pod, kind), amount
            if number < spare:
                extras[pair] = extras.get(pair, 0) + 1
            else:
                freed, charged = freed + pair[0], charged + pair[1]
    return (freed, charged), tuple(sorted(extras.items())) if extras else ()


def _to_eviction_units(counted: Mapping[_GangAmounts, int]) -> Counter[EvictionUnit]:
    """Return how many eviction units of each kind there are.

    `counted` maps the amounts of a gang to the number of gangs with the same amounts.
    """
    return Counter({
        EvictionUnit(tuple((Amount(*extra), number) for extra, number in extras), Amount(*core)): count
        for (core, extras), count in counted.items()
    })  # fmt: skip


def max_freed_amount(units: Mapping[EvictionUnit, int], excess: int) -> int:
    """Return the largest amount that evictions can free.

    Evictions stop once `excess` or more has been charged to the victims' queue.
    """
    units = {unit: count for unit, count in units.items() if count and unit.total.charged}
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
        if last.core.charged:  # the core is evicted after the extra replicas
            best = max(
                best, last.core.freed + _max_freed_amount_below(others, excess, last.extra_replica_resources)
            )
        for number, (extra, spare) in enumerate(last.extras):
            rest = (*last.extras[:number], (extra, spare - 1), *last.extras[number + 1 :])
            best = max(
                best,
                extra.freed
                + _max_freed_amount_below(others + Counter([EvictionUnit(rest, last.core)]), excess),
            )
    return best


def _max_freed_amount_below(units: Mapping[EvictionUnit, int], excess: int, first: Amount = NOTHING) -> int:
    """Return the largest amount that `first` and a subset of `units` can free while they are charged less
    than `excess`.

    The result is negative if `first` alone is charged that much.
    """
    if first.charged >= excess:
        return -first.freed - MAX_AMOUNT
    states = {first.charged: first.freed}
    for unit, count in units.items():
        if not unit.extras:
            states = _add_amount(states, unit.total, count, excess)
            continue
        for _ in range(count):
            whole = _add_amount(states, unit.total, 1, excess)
            for extra, spare in unit.extras:
                states = _add_amount(states, extra, spare, excess)
            states = {
                charged: max(states.get(charged, 0), whole.get(charged, 0))
                for charged in states.keys() | whole.keys()
            }
    return max(states.values())


def _add_amount(states: Mapping[int, int], amount: Amount, count: int, excess: int) -> dict[int, int]:
    """Return `states` extended by up to `count` uses of `amount`.

    `states` maps each total charge below `excess` to the largest amount that can be freed for that charge.
    """
    result, step = dict(states), 1
    while count > 0 and amount.charged:
        more = amount.times(min(step, count))
        for charged, freed in sorted(result.items(), reverse=True):
            total = charged + more.charged
            if total < excess:
                result[total] = max(result.get(total, 0), freed + more.freed)
        count, step = count - step, step * 2
    return result
