"""Here a cycle's snapshot is kept as a scenario file, for replay and bug reports, for a while."""

import json
import zlib
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from scheduler.engine.model import Snapshot
from scheduler.engine.scenario.dump import snapshot_to_scenario
from scheduler.models import Cycle

SCENARIOS_KEPT = timedelta(days=2)
CYCLES_KEPT = timedelta(days=30)
MOST_BYTES = 256 * 1024 * 1024  # of all that are kept together
MOST_WORKLOADS = 20_000  # a larger cluster's snapshot is not kept with every cycle


DROP_SURPLUS = """
    UPDATE scheduler_cycle SET scenario = NULL WHERE id IN (
        SELECT id FROM (
            SELECT id, sum(octet_length(scenario)) OVER (ORDER BY id DESC) AS so_far
              FROM scheduler_cycle WHERE scenario IS NOT NULL AND at >= %s
        ) AS kept WHERE so_far > %s)
"""


def as_scenario(snapshot: Snapshot) -> bytes | None:
    if len(snapshot.workloads) > MOST_WORKLOADS:
        return None
    return zlib.compress(json.dumps(snapshot_to_scenario(snapshot), separators=(",", ":")).encode(), 1)


def scenario_of(cycle: Cycle) -> dict[str, Any] | None:
    """What the cycle saw; None when it was not kept, or not for so long."""
    if cycle.scenario is None:
        return None
    document: dict[str, Any] = json.loads(zlib.decompress(bytes(cycle.scenario)))
    return document


def drop_old(
    now: datetime,
    most_bytes: int = MOST_BYTES,
    *,
    scenarios_kept: timedelta = SCENARIOS_KEPT,
    cycles_kept: timedelta = CYCLES_KEPT,
) -> int:
    """Returns how many scenarios went: those of former days, and the older ones where they are too much."""
    old = Cycle.objects.filter(at__lt=now - scenarios_kept, scenario__isnull=False)
    dropped = old.update(scenario=None)
    with connection.cursor() as cursor:
        cursor.execute(DROP_SURPLUS, [now - scenarios_kept, most_bytes])
        dropped += cursor.rowcount
    Cycle.objects.filter(at__lt=now - cycles_kept).delete()
    return dropped
