"""Store the input and plan of each cycle for a while."""

import json
import zlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection

from scheduler.engine.model import Snapshot
from scheduler.engine.plan import Evict, Place, Plan, Step
from scheduler.models import Cycle
from scheduler.simulator.scenario.export import snapshot_to_scenario
from scheduler.snapshot_codec import Texts, Unreadable, decoded, written

SNAPSHOTS_KEPT = timedelta(days=2)
CYCLES_KEPT = timedelta(days=30)
MOST_WORKLOADS = 20_000  # a larger cluster's snapshot is not kept with every cycle
Document = dict[str, Any]

DROP_SURPLUS = """
    UPDATE scheduler_cycle SET snapshot = NULL WHERE id IN (
        SELECT id FROM (
            SELECT id, sum(octet_length(snapshot)) OVER (ORDER BY id DESC) AS so_far
              FROM scheduler_cycle WHERE snapshot IS NOT NULL AND at >= %s
        ) AS kept WHERE so_far > %s)
"""


@dataclass(frozen=True, slots=True)
class Kept:
    snapshot: Snapshot
    decided: Document


def packed(snapshot: Snapshot, plan: Plan, texts: Texts | None = None) -> bytes | None:
    """The same with `texts`, which one cycle leaves to the next, and without; but for the effort.

    The first time it costs more than a decision: not for a transaction that others wait for.
    """
    if len(snapshot.workloads) > MOST_WORKLOADS:
        return None
    text = f'{{"snapshot":{(texts or Texts()).of(snapshot)},"decided":{written(decided(plan))}}}'
    return zlib.compress(text.encode(), 1)


def decided(plan: Plan) -> Document:
    """The plan as far as two of them are the same: what is done, who waits for what, and all shares."""
    return {
        "bundles": [
            {
                "kind": str(bundle.kind),
                "workload": bundle.workload,
                "pool": bundle.pool,
                "steps": [_step(step) for step in bundle.steps],
                "evictions": [
                    [str(gone.kind), gone.workload, gone.preemptor, gone.rule] for gone in bundle.evictions
                ],
            }
            for bundle in plan.bundles
        ],
        "waits": {
            refusal.workload: [refusal.position, *(str(found.reason) for found in refusal.blockers)]
            for refusal in plan.refusals
        },
        "shares": {f"{report.queue} on {report.pool}": list(report.share) for report in plan.queues},
    }


def kept(cycle: Cycle) -> Kept | None:
    """None when it was not kept, or not for so long. Raises Unreadable."""
    if cycle.snapshot is None:
        return None
    document: Document = json.loads(zlib.decompress(bytes(cycle.snapshot)))
    return Kept(decoded(document.get("snapshot")), document.get("decided") or {})


def scenario_of(cycle: Cycle) -> Document | None:
    """What the cycle saw, as a scenario file; None when that is not kept or cannot be read any more."""
    try:
        found = kept(cycle)
    except Unreadable:
        return None
    return None if found is None else snapshot_to_scenario(found.snapshot)


def drop_old(
    now: datetime,
    most_bytes: int | None = None,
    *,
    snapshots_kept: timedelta = SNAPSHOTS_KEPT,
    cycles_kept: timedelta = CYCLES_KEPT,
) -> int:
    """Returns how many snapshots went: those of former days, and the older ones where they are too much."""
    most = settings.BERTH_SNAPSHOT_MIB * 1024 * 1024 if most_bytes is None else most_bytes
    dropped = Cycle.objects.filter(at__lt=now - snapshots_kept, snapshot__isnull=False).update(snapshot=None)
    with connection.cursor() as cursor:
        cursor.execute(DROP_SURPLUS, [now - snapshots_kept, most])
        dropped += cursor.rowcount
    Cycle.objects.filter(at__lt=now - cycles_kept).delete()
    return dropped


def _step(step: Step) -> list[Any]:
    what = "stop" if isinstance(step, Evict) else "promise" if step.reserved else "place"
    assert isinstance(step, Evict | Place)
    return [what, step.workload, step.role, step.index, step.node, list(step.devices), step.milli]
