"""Counts of pending workloads by reason."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Count, Min, QuerySet, Sum

from projects.models import Workload
from projects.pending_reasons import SHOWN_REASON


@dataclass(frozen=True, slots=True)
class PendingCounts:
    """Number of pending workloads, in total and by reason. An array counts once."""

    total: int
    by_reason: list[tuple[str, int]]  # reasons with counts, most frequent first
    held_arrays: int  # arrays without a reason, because all pending tasks wait for earlier tasks
    gpu_milli: Mapping[str, int]  # requested milli-GPU by reason, without tasks that wait for earlier tasks


def count_by_reason(rows: QuerySet[Workload]) -> PendingCounts:
    """Count pending workloads by the reason that pages show."""
    groups = rows.order_by().annotate(shown=SHOWN_REASON).values_list("array", "shown", "held")
    reasons, gpu_milli, firsts = Counter[str](), Counter[str](), dict[UUID, tuple[bool, int, str]]()
    of_arrays = Counter[UUID]()
    for array, shown, held, count, index, milli in groups.annotate(
        n=Count("pk"), at=Min("array_index"), milli=Sum("gpu_milli_min")
    ):
        if array is None:
            reasons[shown] += count
            gpu_milli[shown] += milli
        else:
            first = held, index or 0, shown
            firsts[array] = min(first, firsts.get(array, first))
            of_arrays[array] += 0 if held else milli
    for array, (held, _, reason) in firsts.items():
        if not held:
            reasons[reason] += 1
            gpu_milli[reason] += of_arrays[array]
    return PendingCounts(
        reasons.total() + (held_arrays := sum(held for held, _, _ in firsts.values())),
        sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0])),
        held_arrays,
        gpu_milli,
    )
