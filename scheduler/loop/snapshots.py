"""Store each cycle's input and plan for a limited time."""

import json
import zlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection

from scheduler.engine.model import Snapshot
from scheduler.engine.plan import Evict, Place, Plan, Step
from scheduler.loop.snapshot_codec import Texts, Unreadable, decoded, written
from scheduler.models import Cycle
from scheduler.simulator.scenario.export import snapshot_to_scenario

SNAPSHOTS_KEPT = timedelta(days=2)
CYCLES_KEPT = timedelta(days=30)
MOST_WORKLOADS = 20_000  # snapshots of larger clusters are not stored
Document = dict[str, Any]

DROP_SURPLUS = """
    UPDATE scheduler_cycle SET snapshot = NULL WHERE id IN (
        SELECT id FROM (
            SELECT id, sum(octet_length(snapshot)) OVER (ORDER BY id DESC) AS so_far
              FROM scheduler_cycle WHERE snapshot IS NOT NULL AND at >= %s
        ) AS kept WHERE so_far > %s)
"""


@dataclass(frozen=True, slots=True)
class StoredCycle:
    snapshot: Snapshot
    decided: Document


def pack(snapshot: Snapshot, plan: Plan, texts: Texts | None = None) -> bytes | None:
    """Return the compressed snapshot and plan, or None if the cluster is too large.

    `texts` caches encoded parts from one cycle to the next. Packing without a cache costs more than a
    decision, so do not pack inside a transaction.
    """
    if len(snapshot.workloads) > MOST_WORKLOADS:
        return None
    text = f'{{"snapshot":{(texts or Texts()).of(snapshot)},"decided":{written(plan_document(plan))}}}'
    return zlib.compress(text.encode(), 1)


def plan_document(plan: Plan) -> Document:
    """Return the parts of a plan that a replay compares: steps, pending reasons and shares."""
    return {
        "bundles": [
            {
                "kind": str(bundle.kind),
                "workload": bundle.workload,
                "pool": bundle.pool,
                "steps": [_step_document(step) for step in bundle.steps],
                "evictions": [
                    [str(eviction.kind), eviction.workload, eviction.preemptor, eviction.rule]
                    for eviction in bundle.evictions
                ],
            }
            for bundle in plan.bundles
        ],
        "waits": {
            refusal.workload: [refusal.position, *(str(blocker.reason) for blocker in refusal.blockers)]
            for refusal in plan.refusals
        },
        "shares": {f"{report.queue} on {report.pool}": list(report.share) for report in plan.queues},
    }


def load_snapshot(cycle: Cycle) -> StoredCycle | None:
    """Return the stored snapshot and plan, or None if they are not stored (any more). Raises Unreadable."""
    if cycle.snapshot is None:
        return None
    document: Document = json.loads(zlib.decompress(bytes(cycle.snapshot)))
    return StoredCycle(decoded(document.get("snapshot")), document.get("decided") or {})


def scenario_of(cycle: Cycle) -> Document | None:
    """Return the cycle's snapshot as a scenario, or None if the snapshot is missing or unreadable."""
    try:
        stored = load_snapshot(cycle)
    except Unreadable:
        return None
    return None if stored is None else snapshot_to_scenario(stored.snapshot)


def drop_old(
    now: datetime,
    most_bytes: int | None = None,
    *,
    snapshots_kept: timedelta = SNAPSHOTS_KEPT,
    cycles_kept: timedelta = CYCLES_KEPT,
) -> int:
    """Drop expired cycles, expired snapshots, and the oldest snapshots beyond the size limit.

    Return the number of dropped snapshots.
    """
    most = settings.BERTH_SNAPSHOT_MIB * 1024 * 1024 if most_bytes is None else most_bytes
    dropped = Cycle.objects.filter(at__lt=now - snapshots_kept, snapshot__isnull=False).update(snapshot=None)
    with connection.cursor() as cursor:
        cursor.execute(DROP_SURPLUS, [now - snapshots_kept, most])
        dropped += cursor.rowcount
    Cycle.objects.filter(at__lt=now - cycles_kept).delete()
    return dropped


def _step_document(step: Step) -> list[Any]:
    what = "stop" if isinstance(step, Evict) else "promise" if step.reserved else "place"
    assert isinstance(step, Evict | Place)
    return [what, step.workload, step.role, step.index, step.node, list(step.devices), step.milli]
