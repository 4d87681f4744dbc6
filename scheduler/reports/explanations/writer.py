"""Store the explanations of pending workloads. Unchanged rows are not written."""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from django.db import transaction
from pydantic_core import to_json

from berth.db.queries import prepared
from berth.db.queries.compiled import compiled_once
from projects.models import Phase, Workload
from projects.services import announce
from projects.services.arrays.progress import lock_task_arrays
from projects.services.workloads.pending.unschedulable import REASON, report_unschedulable
from scheduler.engine.explain.reason_detail import reason_detail
from scheduler.engine.explain.reasons import is_schedulable
from scheduler.engine.forecast import Forecast
from scheduler.engine.plan import Blocker, Reason, Rejection
from scheduler.loop.observe.view import ClusterView
from scheduler.reports.explanations.awaited_ends import encode_awaited_ends
from scheduler.reports.visibility import redact_blocker

ACTOR = "scheduler"
MAX_REASONS = 16  # maximum number of pending reasons stored per workload
# Maximum number of updates per cycle for workloads whose pending reasons have not changed.
# Half of the updates are for the first workloads in the queue. The other workloads take turns.
# Each workload is updated within MAX_TURNS cycles, even if this takes more updates.
MAX_UPDATES, MAX_TURNS = 250, 40
BATCH_SIZE = 250  # maximum number of rows written in one transaction
PART_SIZE = 2000  # number of workloads that are compared with their stored explanations at a time

# Lock rows in the same order as other transactions that lock the tasks of an array.
UPDATE_WORKLOADS = """
    WITH written AS (
        SELECT * FROM jsonb_to_recordset(%(rows)s::jsonb)
            AS written(id uuid, reason text, message text, explanation jsonb)
    ), locked AS MATERIALIZED (
        SELECT id FROM projects_workload WHERE id IN (SELECT id FROM written) ORDER BY id FOR NO KEY UPDATE
    )
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
               END || jsonb_build_object('reason', written.reason, 'since', %(now)s::timestamptz)
           END,
           reason = CASE WHEN workload.phase = 'pending' THEN written.reason ELSE workload.reason END,
           message = CASE WHEN workload.phase = 'pending' THEN written.message ELSE workload.message END
      FROM written JOIN locked USING (id)
     WHERE workload.id = written.id AND workload.phase IN ('pending', 'reserved') AND NOT workload.held
"""

# Loads the columns of an announcement, without the long documents.
ANNOUNCED = compiled_once(
    lambda keys: (
        Workload.objects.filter(pk__any=keys)
        .select_related("project")
        .only("pk", "project__department")
        .order_by("pk")
    )
)
# Queue position, expected start and its explanation, and the workloads that must end first.
QueueProgress = tuple[int, int, str, tuple[tuple[str, int], ...]]
NO_FORECASTS: Mapping[str, Forecast] = MappingProxyType({})
Reasons = tuple[Reason, ...]
State = tuple[Reasons, int, QueueProgress]  # reasons, hash of the other values, and progress in the queue
NewRow = tuple[uuid.UUID, str, str, dict[str, Any]]  # workload ID, reason, message and explanation


class ExplanationChange(NamedTuple):
    """Change to a workload's stored explanation. `state` is the new state, and `before` the previous one."""

    pk: uuid.UUID
    rejection: Rejection
    expected: Forecast
    state: State
    before: State | None  # stored state; None if no explanation has been written

    @property
    def has_new_reasons(self) -> bool:
        return self.before is None or self.before[0] != self.state[0]

    @property
    def should_announce(self) -> bool:
        """Whether anything but the queue position and the expected start has changed."""
        return self.before is None or self.before[:2] != self.state[:2]


class ExplanationWriter:
    """Writer of explanations that have changed since they were stored.

    Changes that affect only numbers are not all written in the same cycle.
    """

    def __init__(self) -> None:
        self._written: dict[uuid.UUID, State] = {}
        self._unwritten: Sequence[ExplanationChange] = ()
        self._turns: dict[uuid.UUID, int] = {}  # cycle in which each workload last had its turn
        self._cycles = 0

    @property
    def has_unwritten_changes(self) -> bool:
        return bool(self._unwritten)

    def select_changes(
        self,
        view: ClusterView,
        rejections: Iterable[Rejection],
        predicted: Mapping[str, Forecast] = NO_FORECASTS,
    ) -> Iterator[bool]:
        """Select the explanations that `write_batch` writes. Yield True after every PART_SIZE workloads."""
        urgent: list[ExplanationChange] = []
        updates: list[ExplanationChange] = []
        current: dict[uuid.UUID, State] = {}
        hashes = _BlockerHashes()
        for count, rejection in enumerate(rejections, 1):
            if count % PART_SIZE == 0:
                yield True
            workload = view.workloads.get(rejection.workload)
            if workload is None or workload.phase not in (Phase.PENDING, Phase.RESERVED):
                continue
            expected = predicted.get(rejection.workload) or Forecast(rejection.expected_start, "")
            progress = (rejection.position or 0, expected.at or 0, expected.because, expected.after)
            reasons = tuple(blocker.reason for blocker in rejection.blockers)
            state = (
                reasons,
                hash(
                    (
                        workload.run,
                        rejection.pool,
                        rejection.key,
                        hashes.hash_ignoring_seconds(rejection.blockers),
                    )
                ),
                progress,
            )
            before = self._written.get(workload.pk)
            if before is not None:
                current[workload.pk] = before
            if before != state:
                change = ExplanationChange(workload.pk, rejection, expected, state, before)
                (urgent if change.has_new_reasons else updates).append(change)
        self._written = current
        self._unwritten = [*urgent, *self._select_next_updates(updates)]

    def _select_next_updates(self, updates: list[ExplanationChange]) -> list[ExplanationChange]:
        updates.sort(key=lambda change: change.state[2])
        half = -(-MAX_UPDATES // 2)
        first, others = updates[:half], updates[half:]
        others.sort(key=lambda change: self._turns.get(change.pk, 0))
        turns = others[: max(MAX_UPDATES - half, -(-len(others) // MAX_TURNS))]
        self._cycles += 1
        self._turns = {pk: turn for pk, turn in self._turns.items() if pk in self._written}
        self._turns |= {change.pk: self._cycles for change in turns}
        return first + turns

    def write_batch(self, now: datetime, cycle: int | None) -> int:
        """Write the next batch in the caller's transaction. Return the number of rows written."""
        batch, self._unwritten = self._unwritten[:BATCH_SIZE], self._unwritten[BATCH_SIZE:]
        rows = [_build_row(change.pk, change.rejection, change.expected) for change in batch]
        unschedulable = {
            pk: message
            for change, (pk, reason, message, _) in zip(batch, rows, strict=True)
            if reason == REASON and change.should_announce
        }
        if unschedulable:
            lock_task_arrays(unschedulable)
        _write_rows(rows, now, cycle)
        report_unschedulable(unschedulable, actor=ACTOR, now=now)
        states = {change.pk: change.state for change in batch}
        transaction.on_commit(lambda: self._written.update(states))
        _announce_changes([change.pk for change in batch if change.should_announce])
        return len(batch)


def _build_row(pk: uuid.UUID, rejection: Rejection, expected: Forecast) -> NewRow:
    reasons = [redact_blocker(blocker, rejection.workload) for blocker in rejection.blockers]
    first = reasons[0]
    reason = str(first.reason) if is_schedulable(rejection.blockers) else REASON
    detail = reason_detail([(each.reason, each.numbers) for each in reasons]) if reason != REASON else ""
    starts = expected.at
    return (
        pk,
        reason,
        f"{detail}." if detail and not first.message[1:].startswith(detail[1:]) else first.message,
        {
            "pool": rejection.pool,
            "queue_position": rejection.position,
            "ordering": list(rejection.key),
            "expected_start": None if starts is None else datetime.fromtimestamp(starts, UTC).isoformat(),
            "expected_start_reason": expected.because,
            "expected_start_after": encode_awaited_ends(expected.after),
            "blockers": [
                {"reason": str(b.reason), "message": b.message, "numbers": dict(b.numbers)} for b in reasons
            ],
        },
    )


class _BlockerHashes:
    """Hashes of blockers, computed only once for workloads that share their blockers."""

    def __init__(self) -> None:
        self._by_identity: dict[int, tuple[Sequence[Blocker], int]] = {}

    def hash_ignoring_seconds(self, blockers: Sequence[Blocker]) -> int:
        """Return a hash of the blockers. The hash ignores remaining seconds, which change as time passes."""
        entry = self._by_identity.get(id(blockers))
        if entry is None:
            values = tuple(
                (each.reason, each.message, *(item for item in each.numbers.items() if item[0] != "seconds"))
                for each in blockers
            )
            # The entry keeps `blockers` alive, so that its id() is not reused.
            entry = self._by_identity[id(blockers)] = (blockers, hash(values))
        return entry[1]


def _write_rows(new_rows: list[NewRow], now: datetime, cycle: int | None) -> None:
    if not new_rows:
        return
    # Pass one JSON document, because each element of an array parameter would be quoted separately.
    rows = [
        {"id": str(pk), "reason": reason, "message": message, "explanation": {**explanation, "cycle": cycle}}
        for pk, reason, message, explanation in new_rows
    ]
    values = {"now": now, "rows": to_json(rows).decode(), "most": MAX_REASONS}
    prepared.execute(UPDATE_WORKLOADS, values)


def _announce_changes(ids: list[uuid.UUID]) -> None:
    if ids:
        announce.workloads_changed(list(ANNOUNCED(ids)))
