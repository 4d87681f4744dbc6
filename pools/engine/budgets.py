"""Disruption budgets, which limit how many nodes may be drained at the same time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum

from pools.engine.schedule import Schedule


class DisruptionReason(StrEnum):
    """Reason for draining a node that its pool does not need."""

    EMPTY = "empty"  # no pod runs on the node
    UNDERUTILIZED = "underutilized"  # the pool does not need the node once its pods have moved


@dataclass(frozen=True, slots=True)
class Budget:
    """Limit on the nodes that may be disrupted at the same time, as a number or a percentage.

    If it has a `schedule`, the budget applies for `duration` from each scheduled time in `zone`. Otherwise,
    it always applies.
    """

    nodes: int | None = None
    percent: int | None = None
    reasons: frozenset[DisruptionReason] = frozenset(DisruptionReason)
    schedule: Schedule | None = None
    duration: timedelta = timedelta()
    zone: tzinfo = UTC
    text: str = ""

    def limit_for(self, total: int) -> int:
        """Return the maximum number of disrupted nodes out of `total`, rounded up: 10% of 19 nodes is 2."""
        if self.percent is None:
            return self.nodes or 0
        return -(-total * self.percent // 100)

    def is_active(self, now: datetime) -> bool:
        return self.schedule is None or self._window_start(now) is not None

    def active_until(self, now: datetime) -> datetime | None:
        """Return the end of the current window, or None if the budget is inactive or has no schedule."""
        start = None if self.schedule is None else self._window_start(now)
        return None if start is None else start + self.duration

    def _window_start(self, now: datetime) -> datetime | None:
        assert self.schedule is not None
        return self.schedule.last_run(now, self.zone, within=self.duration)


@dataclass(frozen=True, slots=True)
class Allowance:
    """Number of nodes that may still be drained for each reason, and the budget that limits it.

    A reason without an entry is not limited.
    """

    remaining: Mapping[DisruptionReason, int] = field(default_factory=dict)
    limiting_budgets: Mapping[DisruptionReason, Budget] = field(default_factory=dict)

    def allows(self, reason: DisruptionReason, chosen: int = 0) -> bool:
        """Return whether one more node may be drained for this reason after `chosen` nodes have been
        chosen.
        """
        return reason not in self.remaining or chosen < self.remaining[reason]

    def limit_count(self, reason: DisruptionReason, count: int) -> int:
        return min(count, self.remaining.get(reason, count))


UNLIMITED = Allowance()


def compute_allowance(budgets: Iterable[Budget], total: int, disrupted: int, now: datetime) -> Allowance:
    """Return how many more nodes may be drained for each reason.

    `total` is the number of nodes, and `disrupted` the number of those already disrupted.
    """
    remaining: dict[DisruptionReason, int] = {}
    limiting_budgets: dict[DisruptionReason, Budget] = {}
    for budget in budgets:
        if budget.is_active(now):
            left = max(0, budget.limit_for(total) - disrupted)
            for reason in sorted(budget.reasons):
                if reason not in remaining or left < remaining[reason]:
                    remaining[reason], limiting_budgets[reason] = left, budget
    return Allowance(remaining, limiting_budgets)
