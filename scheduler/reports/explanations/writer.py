"""Store the explanations of pending workloads, skipping unchanged rows."""

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
from scheduler.reports.visibility import redact_blocker

ACTOR = "scheduler"
MAX_REASONS = 16  # maximum number of pending reasons stored per workload
MAX_POSITION_UPDATES = 2000  # maximum per cycle, for workloads whose only change is the queue position

UPDATE_WORKLOADS = """
    UPDATE projects_workload AS workload
       SET explanation = written.explanation, explained_at = %(now)s,
           pending_reasons = CASE
               WHEN workload.phase <> 'pending' OR (
                   workload.pending_reasons #>> '{-1,reason}' = written.reason
                   AND workload.pending_reasons #>> '{-1,until}' IS NULL
               ) THEN workload.pending_reasons
               ELSE CASE
                   WHEN jsonb_array_length(workload.pending_reasons) < %(most)s THEN workload.pending_reasons
                   ELSE workload.pending_reasons - 0
               END || jsonb_build_object('reason', written.reason, 'since', %(now)s)
           END,
           reason = CASE WHEN workload.phase = 'pending' THEN written.reason ELSE workload.reason END,
           message = CASE WHEN workload.phase = 'pending' THEN written.message ELSE workload.message END
      FROM jsonb_to_recordset(%(rows)s::jsonb)
           AS written(id uuid, reason text, message text, explanation jsonb)
     WHERE workload.id = written.id AND workload.phase IN ('pending', 'reserved')
"""

QueueProgress = tuple[int, int, str]  # queue position, expected start and its reason
NO_FORECASTS: Mapping[str, Forecast] = MappingProxyType({})
NewRow = tuple[uuid.UUID, str, str, dict[str, Any]]  # id, reason, message, explanation


class ExplanationWriter:
    """Writer that remembers the stored explanations and writes only changes."""

    def __init__(self) -> None:
        self._written: dict[uuid.UUID, tuple[int, QueueProgress]] = {}

    def write(
        self,
        view: ClusterView,
        refusals: Iterable[Refusal],
        cycle: int | None,
        predicted: Mapping[str, Forecast] = NO_FORECASTS,
    ) -> int:
        """Write explanations in the caller's transaction and return the number of rows written."""
        changed, moved_up, current = [], [], {}
        for refusal in refusals:
            workload = view.workloads.get(refusal.workload)
            if workload is None or workload.phase not in (Phase.PENDING, Phase.RESERVED):
                continue
            expected = predicted.get(refusal.workload, Forecast(refusal.expected_start, ""))
            row = _build_row(workload.pk, refusal, expected)
            state = (_hash_explanation(refusal), (refusal.position or 0, expected.at or 0, expected.because))
            before = self._written.get(workload.pk)
            if before == state:
                current[workload.pk] = state
            elif before is not None and before[0] == state[0]:
                moved_up.append((row, state))
                current[workload.pk] = before
            else:
                changed.append((row, state))
        moved_up.sort(key=lambda entry: entry[1][1])
        chosen = [*changed, *moved_up[:MAX_POSITION_UPDATES]]
        _write_rows([row for row, _ in chosen], view.at, cycle)
        unschedulable = {pk: message for (pk, reason, message, _), _ in changed if reason == REASON}
        report_unschedulable(unschedulable, actor=ACTOR, now=view.at)
        current.update({row[0]: state for row, state in chosen})
        self._written = current
        _announce_changes([row[0] for row, _ in changed])
        return len(chosen)


def _build_row(pk: uuid.UUID, refusal: Refusal, expected: Forecast) -> NewRow:
    reasons = [redact_blocker(blocker, refusal.workload) for blocker in refusal.blockers]
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


def _hash_explanation(refusal: Refusal) -> int:
    """Hash everything except the queue position and remaining seconds, which change by themselves."""
    blockers = tuple(
        (blocker.reason, blocker.message, *(item for item in blocker.numbers.items() if item[0] != "seconds"))
        for blocker in refusal.blockers
    )
    return hash((refusal.pool, refusal.key, blockers))


def _write_rows(new_rows: list[NewRow], now: datetime, cycle: int | None) -> None:
    if not new_rows:
        return
    # Pass a single JSON document: each element of an array parameter would be quoted separately.
    rows = [
        {"id": str(pk), "reason": reason, "message": message, "explanation": {**explanation, "cycle": cycle}}
        for pk, reason, message, explanation in new_rows
    ]
    with connection.cursor() as cursor:
        cursor.execute(UPDATE_WORKLOADS, {"now": now, "rows": json.dumps(rows), "most": MAX_REASONS})


def _announce_changes(ids: list[uuid.UUID]) -> None:
    if ids:
        rows = Workload.objects.filter(pk__in=ids).select_related("project").order_by("pk")
        announce.workloads_changed(list(rows.only("pk", "project__department")))  # not the long documents
