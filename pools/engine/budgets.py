"""Limits on the number of nodes disrupted at once, by reason and time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum

from pools.engine.schedule import Schedule


class DisruptionReason(StrEnum):
    """Reason for which the pool itself removes a node."""

    EMPTY = "empty"  # no pod runs on the node
    UNDERUTILISED = "underutilised"  # the pool does not need the node, but the node's pods have to move


@dataclass(frozen=True, slots=True)
class Budget:
    """Maximum number (`nodes`) or share (`percent`) of nodes that may be disrupted at once.

    With a `schedule` the budget applies for `duration` from each scheduled time in `zone`, otherwise always.
    """

    nodes: int | None = None
    percent: int | None = None
    reasons: frozenset[DisruptionReason] = frozenset(DisruptionReason)
    schedule: Schedule | None = None
    duration: timedelta = timedelta()
    zone: tzinfo = UTC
    text: str = ""

    def most_of(self, total: int) -> int:
        """Return the limit for a pool of `total` nodes, rounded up: 10 % of 19 nodes are 2."""
        if self.percent is None:
            return self.nodes or 0
        return -(-total * self.percent // 100)

    def holds(self, now: datetime) -> bool:
        return self.schedule is None or self._start(now) is not None

    def until(self, now: datetime) -> datetime | None:
        """Return the time at which the budget stops applying; None if it has no schedule or is inactive."""
        start = None if self.schedule is None else self._start(now)
        return None if start is None else start + self.duration

    def _start(self, now: datetime) -> datetime | None:
        assert self.schedule is not None
        return self.schedule.last_run(now, self.zone, within=self.duration)


@dataclass(frozen=True, slots=True)
class Allowance:
    """Number of nodes that may still be drained for each limited reason, and the budget that limits it."""

    more: Mapping[DisruptionReason, int] = field(default_factory=dict)
    by: Mapping[DisruptionReason, Budget] = field(default_factory=dict)

    def allows(self, reason: DisruptionReason, chosen: int = 0) -> bool:
        """Return True if a node may be drained in addition to `chosen` nodes."""
        return reason not in self.more or chosen < self.more[reason]

    def most(self, reason: DisruptionReason, count: int) -> int:
        return min(count, self.more.get(reason, count))


UNLIMITED = Allowance()


def allowance(budgets: Iterable[Budget], total: int, disrupted: int, now: datetime) -> Allowance:
    """Return the strictest budgets' allowance when `disrupted` of `total` nodes are already disrupted."""
    more: dict[DisruptionReason, int] = {}
    by: dict[DisruptionReason, Budget] = {}
    for budget in budgets:
        if budget.holds(now):
            left = max(0, budget.most_of(total) - disrupted)
            for reason in sorted(budget.reasons):
                if reason not in more or left < more[reason]:
                    more[reason], by[reason] = left, budget
    return Allowance(more, by)
