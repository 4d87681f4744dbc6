"""Record each round of a fair-share division."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class QueueInput:
    """Input of a fair-share division for one queue, in engine units. None means unlimited."""

    queue: str
    rank: int
    created: int
    quota: int | None
    limit: int | None
    over_quota: bool
    weight: Fraction
    usage: Fraction
    requested: int
    wanted: int  # the part of `requested` that the limits of the queue and its children allow
    share: int
    group: str = ""  # quota group; if set, `quota` and `limit` exclude allocations in the group's other pools


@dataclass(frozen=True, slots=True)
class Offer:
    """Amount offered to one queue in one round.

    `part` is the queue's fraction of the remaining amount. `plain` is this fraction before decayed usage is
    applied.
    """

    queue: str
    needed: int
    part: Fraction
    plain: Fraction
    offered: Fraction
    granted: int


@dataclass(frozen=True, slots=True)
class Round:
    """One round of offers to queues of the same rank that still need more.

    A remainder round distributes the units left over after rounding down.
    """

    phase: str  # phase of the division: "quota", "over_quota" or "remainder"
    within: str  # phase whose remainder is distributed: "quota" or "over_quota"
    rank: int
    left: int  # amount left at the start of the round
    offers: tuple[Offer, ...]


@dataclass(frozen=True, slots=True)
class Division:
    """Division of one resource among the projects of a department, or among the departments of a pool.

    `parent` is the department's name, or None for a division among departments.
    """

    parent: str | None
    resource: str
    total: int
    unit: int
    k: Fraction  # weight of history; 0 if history does not count
    by_quota: bool  # True if quotas serve as weights
    inputs: tuple[QueueInput, ...]
    rounds: tuple[Round, ...]

    def queue_input(self, queue: str) -> QueueInput | None:
        return next((entry for entry in self.inputs if entry.queue == queue), None)


@dataclass(slots=True)
class DivisionLog:
    """Log of the rounds in the division of one resource."""

    rounds: list[Round] = field(default_factory=list)
    phase: str = ""
    rank: int = 0

    def record_round(self, left: int, offers: Sequence[Offer]) -> None:
        self.rounds.append(Round(self.phase, self.phase, self.rank, left, tuple(offers)))

    def record_remainders(self, left: int, offers: Sequence[Offer]) -> None:
        self.rounds.append(Round("remainder", self.phase, self.rank, left, tuple(offers)))
