"""Store inputs and plans of cycles for a limited time."""

import json
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, cast

from django.conf import settings
from django.db import connection
from pydantic_core import to_json

from scheduler.engine.explain.rejections import Position, Rejections
from scheduler.engine.model import Snapshot
from scheduler.engine.plan import Blocker, Evict, Place, Plan, Rejection, Step
from scheduler.loop.snapshot_codec import SnapshotEncoder, UnreadableSnapshot, decode_snapshot
from scheduler.models import Cycle
from scheduler.simulator.scenario.export import snapshot_to_scenario

SNAPSHOT_RETENTION = timedelta(days=2)
CYCLE_RETENTION = timedelta(days=30)
MAX_WORKLOADS = 20_000  # larger snapshots are not stored
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
    plan: Document


def compress_document(snapshot: Snapshot, plan: Plan, encoder: SnapshotEncoder | None = None) -> bytes | None:
    """Return the compressed snapshot and plan, or None if the snapshot has more than MAX_WORKLOADS workloads.

    `encoder` caches encoded parts between cycles. Must not be called inside a transaction.
    """
    parts = compress_in_parts(snapshot, plan, encoder or SnapshotEncoder(), MAX_WORKLOADS)
    while True:
        try:
            next(parts)
        except StopIteration as end:
            return cast("bytes | None", end.value)


def compress_in_parts(
    snapshot: Snapshot, plan: Plan, encoder: SnapshotEncoder, part_size: int
) -> Generator[bool, None, bytes | None]:
    """Return the same as `compress_document`, but yield True between parts of up to `part_size` workloads."""
    if len(snapshot.workloads) > MAX_WORKLOADS:
        return None
    while encoder.encode_part(snapshot, part_size):
        yield True
    pending: Document = {}
    entries = _pending_reasons(plan.rejections)
    while part := dict(islice(entries, part_size)):
        pending |= part
        yield True
    encoded = encoder.encode(snapshot)
    decided = plan_document(plan, pending)
    return zlib.compress(f'{{"snapshot":{encoded},"decided":{to_json(decided).decode()}}}'.encode(), 1)


def plan_document(plan: Plan, pending: Document | None = None) -> Document:
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
        "pending": dict(_pending_reasons(plan.rejections)) if pending is None else pending,
        "shares": {f"{report.queue} on {report.pool}": list(report.share) for report in plan.queues},
    }


def _pending_reasons(rejections: Iterable[Rejection]) -> Iterator[tuple[str, list[Any]]]:
    reasons: dict[int, tuple[Sequence[Blocker], list[str]]] = {}  # reasons by `id()` of the blockers
    for workload, position, blockers in _queue_positions(rejections):
        if id(blockers) not in reasons:
            reasons[id(blockers)] = blockers, [str(blocker.reason) for blocker in blockers]
        yield workload, [position, *reasons[id(blockers)][1]]


def _queue_positions(rejections: Iterable[Rejection]) -> Iterator[Position]:
    if isinstance(rejections, Rejections):
        return rejections.positions()
    return ((rejection.workload, rejection.position, rejection.blockers) for rejection in rejections)


def load_snapshot(cycle: Cycle) -> StoredCycle | None:
    """Return the stored snapshot and plan, or None if none are stored. Raises UnreadableSnapshot."""
    if cycle.snapshot is None:
        return None
    document: Document = json.loads(zlib.decompress(bytes(cycle.snapshot)))
    return StoredCycle(decode_snapshot(document.get("snapshot")), document.get("decided") or {})


def cycle_scenario(cycle: Cycle) -> Document | None:
    """Return the cycle's snapshot as a scenario, or None if the snapshot is missing or unreadable."""
    try:
        stored = load_snapshot(cycle)
    except UnreadableSnapshot:
        return None
    return None if stored is None else snapshot_to_scenario(stored.snapshot)


def drop_expired_cycles(
    now: datetime,
    max_bytes: int | None = None,
    *,
    snapshot_retention: timedelta = SNAPSHOT_RETENTION,
    cycle_retention: timedelta = CYCLE_RETENTION,
) -> int:
    """Drop expired cycles and snapshots, and the oldest snapshots above the size limit.

    Return the number of dropped snapshots.
    """
    size_limit = settings.BERTH_SNAPSHOT_MIB * 1024 * 1024 if max_bytes is None else max_bytes
    dropped = Cycle.objects.filter(at__lt=now - snapshot_retention, snapshot__isnull=False).update(
        snapshot=None
    )
    with connection.cursor() as cursor:
        cursor.execute(DROP_SURPLUS, [now - snapshot_retention, size_limit])
        dropped += cursor.rowcount
    Cycle.objects.filter(at__lt=now - cycle_retention).delete()
    return dropped


def _step_document(step: Step) -> list[Any]:
    action = "stop" if isinstance(step, Evict) else "reserve" if step.reserved else "place"
    assert isinstance(step, Evict | Place)
    return [action, step.workload, step.role, step.index, step.node, list(step.devices), step.milli]
