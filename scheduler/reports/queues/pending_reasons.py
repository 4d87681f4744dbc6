"""Counts of pending workloads by reason."""

from uuid import UUID

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Count, Q, QuerySet

from projects.models import Workload


def count_by_reason(rows: QuerySet[Workload]) -> tuple[int, list[tuple[str, int]]]:
    """Return the number of workloads, and the number for each reason, most frequent first.

    An array counts as one workload. Its held tasks have no reason.
    """
    groups = (
        rows.order_by()
        .values_list("reason", "held")
        .annotate(
            n=Count("pk", filter=Q(array__isnull=True)),
            arrays=ArrayAgg("array", filter=Q(array__isnull=False), distinct=True, default=[]),
        )
    )
    single, arrays, reasons = 0, set[UUID](), list[tuple[str, int]]()
    for reason, held, count, array_ids in groups:
        single += count
        arrays |= set(array_ids)
        if not held:
            reasons.append((reason, count + len(array_ids)))
    return single + len(arrays), sorted(reasons, key=lambda pair: (-pair[1], pair[0]))
