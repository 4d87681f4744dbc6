"""Rows of the decision list, with one shared row for array tasks that have the same decision."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any
from uuid import UUID

from scheduler.reports.decisions import CycleDecisions, Decision

MIN_TASKS = 3  # with fewer tasks, each task has its own row


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """Row of one decision, or of a cycle without decisions (`decision` is None).

    `is_first` is True for the first row of a cycle.
    """

    cycle: CycleDecisions
    decision: Decision | None
    is_first: bool = True


@dataclass(frozen=True, slots=True)
class ArrayTasksRow:
    """Decisions of the same kind about tasks of one array, latest first."""

    tasks: Sequence[DecisionRow]

    @property
    def latest(self) -> DecisionRow:
        return self.tasks[0]

    @property
    def earliest_row(self) -> DecisionRow:
        return self.tasks[-1]


def decision_rows(cycles: Iterable[CycleDecisions]) -> list[DecisionRow | ArrayTasksRow]:
    """Return the cycles' rows.

    Consecutive decisions of the same kind about tasks of one array share a row.
    """
    rows: list[DecisionRow | ArrayTasksRow] = []
    for key, group in groupby(_single_rows(cycles), _group_key):
        members = list(group)
        if key is not None and len(members) >= MIN_TASKS:
            rows.append(ArrayTasksRow(members))
            continue
        if rows and isinstance(rows[-1], ArrayTasksRow):  # the row above may belong to several cycles
            members[0] = replace(members[0], is_first=True)
        rows += members
    return rows


def _single_rows(cycles: Iterable[CycleDecisions]) -> Iterable[DecisionRow]:
    for cycle in cycles:
        if not cycle.decisions:
            yield DecisionRow(cycle, None)
        for place, decision in enumerate(cycle.decisions):
            yield DecisionRow(cycle, decision, is_first=place == 0)


def _group_key(row: DecisionRow) -> tuple[str, str, UUID] | None:
    """Return the key that decisions in the same row share, or None if the decision needs its own row."""
    cycle, decision = row.cycle, row.decision
    has_more: Any = cycle.hidden or cycle.stale or cycle.row.notes
    if has_more or decision is None or decision.workload.array is None:
        return None
    if decision.victims or decision.message:
        return None
    return decision.kind, decision.pool, decision.workload.array[0]
