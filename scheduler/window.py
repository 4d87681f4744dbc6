"""What a sliding window forgets: the ledger at the start of the window.

What was used inside the window is the ledger now less the ledger then, faded by the time since. So nothing
has to be sampled: where something changed the ledger was written down, and between two such points it is
known in closed form. Points are kept at most so many to a window; what changed in between is taken as
even, which is off by less than one such step of the parent's share.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection

from pools.models import NodePool
from scheduler.models import Usage, UsagePoint

STEPS = 256  # points to a window at most


@dataclass(frozen=True, slots=True)
class Then:
    """The points just before and just after the window's begin, as far as there are any."""

    before: UsagePoint | None = None
    after: UsagePoint | None = None


def slides(pool: NodePool) -> bool:
    return bool(pool.window) and not pool.tumbling_window


def begins(pool: NodePool, now: datetime) -> datetime:
    return now - timedelta(seconds=pool.window or 0)


def points(pools: Iterable[NodePool], now: datetime) -> Mapping[int, Then]:
    """By ledger, for pools with a sliding window."""
    found: dict[int, Then] = {}
    for pool in pools:
        if slides(pool):
            rows, at = UsagePoint.objects.filter(usage__pool=pool), begins(pool, now)
            before = rows.filter(at__lte=at).order_by("usage_id", "-at").distinct("usage_id")
            after = rows.filter(at__gt=at).order_by("usage_id", "at").distinct("usage_id")
            earlier = {row.usage_id: row for row in before}
            later = {row.usage_id: row for row in after}
            for key in earlier.keys() | later.keys():
                found[key] = Then(earlier.get(key), later.get(key))
    return found


def keep_points(rows: Sequence[Usage], pools: Mapping[int, NodePool]) -> None:
    """In the caller's transaction, of ledgers just settled. The first is always kept, so is a late one."""
    sliding = [row for row in rows if slides(pools[row.pool_id])]
    if not sliding:
        return
    newest = UsagePoint.objects.filter(usage__in=sliding).order_by("usage_id", "-at").distinct("usage_id")
    last = dict(newest.values_list("usage_id", "at"))
    kept = []
    for row in sliding:
        step = timedelta(seconds=(pools[row.pool_id].window or 0) / STEPS)
        if row.pk not in last or row.settled_at - last[row.pk] >= step:
            kept.append(UsagePoint(usage=row, at=row.settled_at, used=row.used, parent=row.parent))
    UsagePoint.objects.bulk_create(kept, ignore_conflicts=True)
    _forget(sliding, pools)


def _forget(rows: Sequence[Usage], pools: Mapping[int, NodePool]) -> None:
    """Points before the one that the window's begin still needs."""
    table = UsagePoint._meta.db_table
    with connection.cursor() as cursor:
        cursor.executemany(
            f"""DELETE FROM {table} WHERE usage_id = %s AND at < (
                    SELECT max(at) FROM {table} WHERE usage_id = %s AND at <= %s)""",  # noqa: S608
            [(row.pk, row.pk, begins(pools[row.pool_id], row.settled_at)) for row in rows],
        )
