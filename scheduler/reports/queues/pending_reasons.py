"""Counts of pending workloads by reason."""

from collections import Counter
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Count, Min, QuerySet

from projects.known_words import RESERVED
from projects.models import Phase, Workload


@dataclass(frozen=True, slots=True)
class PendingCounts:
    """Number of pending workloads, in total and by reason.

    An array counts once, with the reason of its first queued task.
    """

    total: int
    by_reason: list[tuple[str, int]]  # (reason, count) pairs, most frequent first
    held_arrays: int  # arrays without a reason, because all pending tasks wait for earlier tasks


def count_by_reason(rows: QuerySet[Workload]) -> PendingCounts:
    groups = rows.order_by().values_list("array", "phase", "reason", "held")
    reasons, firsts = Counter[str](), dict[UUID, tuple[bool, int, str]]()
    for array, phase, reason, held, count, index in groups.annotate(n=Count("pk"), at=Min("array_index")):
        shown = RESERVED if phase == Phase.RESERVED else reason
        if array is None:
            reasons[shown] += count
        else:
            first = held, index or 0, shown
            firsts[array] = min(first, firsts.get(array, first))
    reasons.update(reason for held, _, reason in firsts.values() if not held)
    return PendingCounts(
        reasons.total() + (held_arrays := sum(held for held, _, _ in firsts.values())),
        sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0])),
        held_arrays,
    )
