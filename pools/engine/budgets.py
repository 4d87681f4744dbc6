"""How many nodes may be disrupted at once, by reason and time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum

from pools.engine.schedule import Schedule


class DisruptionReason(StrEnum):
    """Why the pool itself takes a node out of use."""

    EMPTY = "empty"  # nothing runs on it
    UNDERUTILISED = "underutilised"  # the pool can do without it, and what runs on it has to go


@dataclass(frozen=True, slots=True)
class Budget:
    """At most `nodes`, or `percent` of them, out of use at once. With a `schedule` it holds for `duration`
    from each time that comes round, by the clocks of `zone`; without one, always."""

    nodes: int | None = None
    percent: int | None = None
    reasons: frozenset[DisruptionReason] = frozenset(DisruptionReason)
    schedule: Schedule | None = None
    duration: timedelta = timedelta()
    zone: tzinfo = UTC
    text: str = ""

    def most_of(self, total: int) -> int:
        """Parts of a node count as one: 10 % of 19 nodes are 2."""
        if self.percent is None:
            return self.nodes or 0
        return -(-total * self.percent // 100)

    def holds(self, now: datetime) -> bool:
        return self.schedule is None or self._begun(now) is not None

    def until(self, now: datetime) -> datetime | None:
        """When it stops holding; None: never, or it does not hold."""
        begun = None if self.schedule is None else self._begun(now)
        return None if begun is None else begun + self.duration

    def _begun(self, now: datetime) -> datetime | None:
        assert self.schedule is not None
        return self.schedule.last_run(now, self.zone, within=self.duration)


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many more nodes may go now, for each reason that a budget binds, and which budget that is."""

    more: Mapping[DisruptionReason, int] = field(default_factory=dict)
    by: Mapping[DisruptionReason, Budget] = field(default_factory=dict)

    def allows(self, reason: DisruptionReason, taken: int = 0) -> bool:
        """One more, when `taken` are being taken already."""
        return reason not in self.more or taken < self.more[reason]

    def most(self, reason: DisruptionReason, wish: int) -> int:
        return min(wish, self.more.get(reason, wish))


UNBOUND = Allowance()


def allowance(budgets: Iterable[Budget], total: int, disrupted: int, now: datetime) -> Allowance:
    """Of several budgets the tightest binds. `disrupted` of the `total` nodes are out of use already, for
    whatever reason."""
    more: dict[DisruptionReason, int] = {}
    by: dict[DisruptionReason, Budget] = {}
    for budget in budgets:
        if budget.holds(now):
            left = max(0, budget.most_of(total) - disrupted)
            for reason in sorted(budget.reasons):
                if reason not in more or left < more[reason]:
                    more[reason], by[reason] = left, budget
    return Allowance(more, by)
