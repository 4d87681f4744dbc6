"""Change the phases of workloads by compare-and-set, recording one event per change."""

import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction

from berth.db.queries import prepared
from berth.db.writes.moves import RowChange, change_rows
from projects.engine import lifecycle
from projects.engine.lifecycle import PROGRESS_TIME
from projects.models import Event, Phase, Workload
from projects.services import announce, events
from projects.services.notifications import deliveries

RESERVABLE = frozenset({Phase.PENDING, Phase.RESERVED, Phase.STARTING, Phase.RUNNING})
NEXT_VALUES = {
    "version": "current.version + 1",
    # A run that has made progress resets the count of runs without progress, regardless of how it ended.
    "peer_failures": f"""
        CASE WHEN current.phase = 'stopping' AND (
                  current.last_checkpoint_at > current.started_at
                  OR current.since - current.started_at >= interval '{PROGRESS_TIME.seconds} seconds'
             ) THEN 0 ELSE current.peer_failures END
    """,
}
CLOSED_REASON = {
    # Set the end of the last pending reason, unless it is already set.
    "pending_reasons": """
        CASE WHEN current.pending_reasons #>> '{-1,until}' IS NULL
             THEN jsonb_set(current.pending_reasons, '{-1,until}', to_jsonb(written.since))
             ELSE current.pending_reasons END
    """
}


@dataclass(frozen=True, slots=True)
class PhaseTransition:
    """A workload's transition from one of the `expected` phases to `to`, which `lifecycle` must allow.

    `columns` are written in the same query. `keep_reservations` is for a workload that stops only to restart
    on its reserved nodes.
    """

    workload: Workload
    expected: Collection[str]
    to: str
    reason: str
    message: str
    data: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, Any] = field(default_factory=dict)
    keep_reservations: bool = False

    def __post_init__(self) -> None:
        for source in self.expected:
            assert lifecycle.is_transition_allowed(source, self.to), (
                f"transition from {source} to {self.to} is not allowed"
            )

    @property
    def ends_pending_reason(self) -> bool:
        return self.to != Phase.PENDING and Phase.PENDING in self.expected

    def row_change(self, now: datetime) -> RowChange:
        columns = {"phase": self.to, "reason": self.reason, "message": self.message, "since": now}
        if self.to != Phase.PENDING:
            columns["held"] = False
        elif Phase.RESERVED not in self.expected:
            columns["pending_since"] = now
        if self.to in lifecycle.ENDED:
            columns["ended_at"] = now
        if self.to != Phase.STOPPING:
            columns["next_phase"] = ""
        return RowChange(self.workload.pk, self.expected, {**columns, **self.columns})

    def event(self, actor: str) -> Event:
        data = {"reason": self.reason, **self.data}
        return events.build(str(self.to), self.workload, self.message or self.reason, actor=actor, data=data)


def change_phase(
    workload: Workload,
    *,
    expected: Collection[str],
    to: str,
    reason: str,
    message: str,
    actor: str,
    now: datetime,
    data: dict[str, Any] | None = None,
    keep_reservations: bool = False,
    **columns: Any,
) -> bool:
    """Change the phase of one workload. Return False if the workload is not in an expected phase."""
    transitions = [
        PhaseTransition(workload, expected, to, reason, message, data or {}, columns, keep_reservations)
    ]
    return bool(change_phases(transitions, actor=actor, now=now))


def change_phases(
    transitions: Sequence[PhaseTransition], *, actor: str, now: datetime
) -> list[PhaseTransition]:
    """Change the phases of several workloads, and return the applied transitions.

    Workloads that are not in an expected phase are skipped. If a workload has several transitions, an event
    is recorded for each.
    """
    with transaction.atomic(savepoint=False):
        changed = _update_rows(transitions, now)
        applied = [transition for transition in transitions if transition.workload.pk in changed]
        if not applied:
            return []
        _delete_reservations(applied)
        events.record_all([transition.event(actor) for transition in applied])
        deliveries.enqueue_phase_changes(
            [
                deliveries.PhaseChange(
                    transition.workload, transition.to, transition.reason, transition.message
                )
                for transition in applied
            ],
            now,
        )
        announce.workloads_changed([transition.workload for transition in applied])
    return applied


def _update_rows(transitions: Sequence[PhaseTransition], now: datetime) -> set[Any]:
    changed: set[Any] = set()
    successive: dict[uuid.UUID, list[PhaseTransition]] = defaultdict(list)
    for transition in transitions:
        successive[transition.workload.pk].append(transition)
    for ends_pending_reason in (False, True):
        changes = [
            _merge([transition.row_change(now) for transition in steps])
            for steps in successive.values()
            if any(step.ends_pending_reason for step in steps) is ends_pending_reason
        ]
        expressions = {**NEXT_VALUES, **(CLOSED_REASON if ends_pending_reason else {})}
        changed |= change_rows(Workload, "phase", changes, expressions)
    return changed


def _merge(changes: Sequence[RowChange]) -> RowChange:
    """Merge successive changes of one row. Only the last one may stop the workload."""
    first, *later = changes
    if not later:
        return first
    assert all(change.columns["phase"] != Phase.STOPPING for change in changes[:-1]), "store the stop first"
    return RowChange(
        first.pk, first.expected, {name: value for each in changes for name, value in each.columns.items()}
    )


def delete_reservations(workloads: Sequence[uuid.UUID]) -> None:
    """Delete the reservations of workloads in the caller's transaction."""
    table = Workload._meta.get_field("reservations").related_model._meta.db_table
    prepared.execute(f'DELETE FROM "{table}" WHERE workload_id = ANY(%s)', [list(workloads)])  # noqa: S608


def _delete_reservations(transitions: Sequence[PhaseTransition]) -> None:
    ids = [
        transition.workload.pk
        for transition in transitions
        if transition.to not in RESERVABLE and not transition.keep_reservations
    ]
    if ids:
        delete_reservations(ids)
