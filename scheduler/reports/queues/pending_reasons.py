"""Counts of pending workloads by reason."""

from dataclasses import dataclass
from uuid import UUID

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Count, Q, QuerySet

from projects.models import Workload


@dataclass(frozen=True, slots=True)
class PendingCounts:
    """Numbers of pending workloads. An array counts as one workload, once for each reason of its tasks."""

    total: int
    by_reason: list[tuple[str, int]]  # most frequent first
    held_arrays: int  # arrays without a reason, because all pending tasks wait for earlier tasks


def count_by_reason(rows: QuerySet[Workload]) -> PendingCounts:
    groups = (
        rows.order_by()
        .values_list("reason", "held")
        .annotate(
            n=Count("pk", filter=Q(array__isnull=True)),
            arrays=ArrayAgg("array", filter=Q(array__isnull=False), distinct=True, default=[]),
        )
    )
    single, queued_arrays, held_arrays, reasons = 0, set[UUID](), set[UUID](), list[tuple[str, int]]()
    for reason, held, count, array_ids in groups:
        single += count
        if held:
            held_arrays |= set(array_ids)
        else:
            queued_arrays |= set(array_ids)
            reasons.append((reason, count + len(array_ids)))
    return PendingCounts(
        single + len(queued_arrays | held_arrays),
        sorted(reasons, key=lambda pair: (-pair[1], pair[0])),
        len(held_arrays - queued_arrays),
    )
