"""Store why each pending workload is pending; rows that say the same already are left alone."""

import json
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from django.db import connection

from projects.models import Phase, Workload
from projects.services import announce
from projects.services.workloads.unschedulable import REASON, report_unschedulable
from scheduler.engine.explain.reasons import is_schedulable
from scheduler.engine.forecast import Forecast
from scheduler.engine.plan import Refusal
from scheduler.loop.observe.view import ClusterView
from scheduler.reports.visibility import discreet

ACTOR = "scheduler"
MOST_REASONS = 16  # for which a workload waited, one after another, that are remembered of it
MOST_POSITIONS = 2000  # changes of queue position alone written in one cycle, front of the queue first

WRITE = """
    UPDATE projects_workload AS workload
       SET explanation = told.explanation, explained_at = %(now)s,
           wait_reasons = CASE
               WHEN workload.phase <> 'pending' OR (
                   workload.wait_reasons #>> '{-1,reason}' = told.reason
                   AND workload.wait_reasons #>> '{-1,until}' IS NULL
               ) THEN workload.wait_reasons
               ELSE CASE
                   WHEN jsonb_array_length(workload.wait_reasons) < %(most)s THEN workload.wait_reasons
                   ELSE workload.wait_reasons - 0
               END || jsonb_build_object('reason', told.reason, 'since', %(now)s)
           END,
           reason = CASE WHEN workload.phase = 'pending' THEN told.reason ELSE workload.reason END,
           message = CASE WHEN workload.phase = 'pending' THEN told.message ELSE workload.message END
      FROM jsonb_to_recordset(%(told)s::jsonb)
           AS told(id uuid, reason text, message text, explanation jsonb)
     WHERE workload.id = told.id AND workload.phase IN ('pending', 'reserved')
"""

Place = tuple[int, int, str]  # in line, when it is expected to start, and why then
NOTHING_FORESEEN: Mapping[str, Forecast] = MappingProxyType({})
Told = tuple[uuid.UUID, str, str, dict[str, Any]]


class Explanations:
    """Remembers what was written last, so that only news is written."""

    def __init__(self) -> None:
        self._said: dict[uuid.UUID, tuple[int, Place]] = {}

    def write(
        self,
        seen: ClusterView,
        refusals: Iterable[Refusal],
        cycle: int | None,
        foreseen: Mapping[str, Forecast] = NOTHING_FORESEEN,
    ) -> int:
        """In the caller's transaction. Returns how many rows changed."""
        news, moved_up, current = [], [], {}
        for refusal in refusals:
            workload = seen.workloads.get(refusal.workload)
            if workload is None or workload.phase not in (Phase.PENDING, Phase.RESERVED):
                continue
            expected = foreseen.get(refusal.workload, Forecast(refusal.expected_start, ""))
            told = _told(workload.pk, refusal, expected)
            said = (_digest(refusal), (refusal.position or 0, expected.at or 0, expected.because))
            before = self._said.get(workload.pk)
            if before == said:
                current[workload.pk] = said
            elif before is not None and before[0] == said[0]:
                moved_up.append((told, said))
                current[workload.pk] = before
            else:
                news.append((told, said))
        moved_up.sort(key=lambda entry: entry[1][1])
        chosen = [*news, *moved_up[:MOST_POSITIONS]]
        _write([told for told, _ in chosen], seen.at, cycle)
        unschedulable = {pk: message for (pk, reason, message, _), _ in news if reason == REASON}
        report_unschedulable(unschedulable, actor=ACTOR, now=seen.at)
        current.update({told[0]: said for told, said in chosen})
        self._said = current
        _announce([told[0] for told, _ in news])
        return len(chosen)


def _told(pk: uuid.UUID, refusal: Refusal, expected: Forecast) -> Told:
    reasons = [discreet(found, refusal.workload) for found in refusal.blockers]
    first = reasons[0]
    reason = str(first.reason) if is_schedulable(refusal.blockers) else REASON
    starts = expected.at
    return (
        pk,
        reason,
        first.message,
        {
            "pool": refusal.pool,
            "queue_position": refusal.position,
            "ordering": list(refusal.key),
            "expected_start": None if starts is None else datetime.fromtimestamp(starts, UTC).isoformat(),
            "expected_start_reason": expected.because,
            "blockers": [
                {"reason": str(b.reason), "message": b.message, "numbers": dict(b.numbers)} for b in reasons
            ],
        },
    )


def _digest(refusal: Refusal) -> int:
    """Hash everything but the queue position, which changes with every start ahead in the queue."""
    blockers = tuple((found.reason, found.message, *found.numbers.items()) for found in refusal.blockers)
    return hash((refusal.pool, refusal.key, blockers))


def _write(told: list[Told], now: datetime, cycle: int | None) -> None:
    if not told:
        return
    # One text: of arrays, every element would be quoted on its own.
    rows = [
        {"id": str(pk), "reason": reason, "message": message, "explanation": {**explanation, "cycle": cycle}}
        for pk, reason, message, explanation in told
    ]
    with connection.cursor() as cursor:
        cursor.execute(WRITE, {"now": now, "told": json.dumps(rows), "most": MOST_REASONS})


def _announce(ids: list[uuid.UUID]) -> None:
    if ids:
        rows = Workload.objects.filter(pk__in=ids).select_related("project").order_by("pk")
        for workload in rows.only("pk", "project__department"):  # documents are long, and nobody asks
            announce.workload_changed(workload)
