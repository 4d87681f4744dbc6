"""Usage ledger state at the start of a sliding window.

Usage inside the window is the current ledger minus this state, decayed since then. The ledger is stored at
most `STEPS` times per window, and its values in between are interpolated.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection

from pools.models import NodePool
from scheduler.models import Usage, UsagePoint

STEPS = 256  # maximum number of points per window


@dataclass(frozen=True, slots=True)
class WindowStart:
    """Stored ledger points just before and just after a window's start, if they exist."""

    before: UsagePoint | None = None
    after: UsagePoint | None = None


def is_sliding(pool: NodePool) -> bool:
    return bool(pool.window) and not pool.tumbling_window


def window_start(pool: NodePool, now: datetime) -> datetime:
    return now - timedelta(seconds=pool.window or 0)


def window_starts(pools: Iterable[NodePool], now: datetime) -> Mapping[int, WindowStart]:
    """Return the usage points directly before and after the start of each sliding window, keyed by
    ledger ID.
    """
    starts: dict[int, WindowStart] = {}
    for pool in pools:
        if is_sliding(pool):
            rows, at = UsagePoint.objects.filter(usage__pool=pool), window_start(pool, now)
            before = rows.filter(at__lte=at).order_by("usage_id", "-at").distinct("usage_id")
            after = rows.filter(at__gt=at).order_by("usage_id", "at").distinct("usage_id")
            earlier = {row.usage_id: row for row in before}
            later = {row.usage_id: row for row in after}
            for key in earlier.keys() | later.keys():
                starts[key] = WindowStart(earlier.get(key), later.get(key))
    return starts


def store_points(rows: Sequence[Usage], pools: Mapping[int, NodePool]) -> None:
    """Store a point for each settled ledger with a sliding window, at most one per step, and delete old
    points. Must be called in a transaction.
    """
    sliding = [row for row in rows if is_sliding(pools[row.pool_id])]
    if not sliding:
        return
    newest = UsagePoint.objects.filter(usage__in=sliding).order_by("usage_id", "-at").distinct("usage_id")
    last = dict(newest.values_list("usage_id", "at"))
    points = []
    for row in sliding:
        step = timedelta(seconds=(pools[row.pool_id].window or 0) / STEPS)
        if row.pk not in last or row.settled_at - last[row.pk] >= step:
            points.append(UsagePoint(usage=row, at=row.settled_at, used=row.used, parent=row.parent))
    UsagePoint.objects.bulk_create(points, ignore_conflicts=True)
    _delete_old_points(sliding, pools)


def _delete_old_points(rows: Sequence[Usage], pools: Mapping[int, NodePool]) -> None:
    """Delete all points before the window's start except the last."""
    table = UsagePoint._meta.db_table
    with connection.cursor() as cursor:
        cursor.executemany(
            f"""DELETE FROM {table} WHERE usage_id = %s AND at < (
                    SELECT max(at) FROM {table} WHERE usage_id = %s AND at <= %s)""",  # noqa: S608
            [(row.pk, row.pk, window_start(pools[row.pool_id], row.settled_at)) for row in rows],
        )
