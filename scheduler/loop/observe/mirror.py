"""Copies of live rows that are updated by reading only the rows that have changed.

A trigger sets a row's `changed_in` to the ID of the transaction that changed it. Each read selects the rows
with `changed_in` at or after the oldest transaction that was open at the previous read. Everything is read
again if changes might otherwise be missed, for example on a new connection or after a deletion.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from django.db import connection

from berth.db.queries import prepared

MOMENT = """
    SELECT pg_snapshot_xmin(seen)::text::bigint AS horizon, pg_snapshot_xmax(seen)::text::bigint AS after,
           pg_postmaster_start_time() AS server
      FROM pg_current_snapshot() AS seen
"""
MAX_AGE_SECONDS = 3600.0  # all rows are read again after this time; deletions are recorded for a day


class HasKey(Protocol):
    @property
    def pk(self) -> uuid.UUID: ...


Row = TypeVar("Row", bound=HasKey)


@dataclass(frozen=True, slots=True)
class MirrorQuery(Generic[Row]):
    """SQL for a table's live rows."""

    columns: str  # list of columns, with the ID first
    source: str  # table, or parenthesized join, that has the columns
    changed_in: str
    is_live: str
    build_row: Callable[[Iterable[Any]], Row]
    ids: str = ""  # query for the IDs of all live rows, if `is_live` alone is slow

    def read_all(self) -> Sequence[tuple[Any, ...]]:
        """Fetch all live rows. The result has at least one row, which contains the time of the read."""
        condition = self.is_live
        if self.ids:
            condition = f"{self.columns.partition(',')[0]} IN ({self.ids})"
        with connection.cursor() as cursor:
            cursor.execute(
                f"""SELECT moment.horizon, moment.server, false, true, {self.columns}
                      FROM ({MOMENT}) AS moment LEFT JOIN {self.source} ON {condition}"""  # noqa: S608
            )
            return cursor.fetchall()

    def read_changes(self, horizon: int) -> Sequence[tuple[Any, ...]]:
        """Fetch all rows that have changed since the last read.

        The result has at least one row, which contains the time of the read. `horizon` is the oldest
        transaction open at the last read.
        """
        # The plan is made without a value for `horizon`, so PostgreSQL expects few rows and uses the index.
        return prepared.fetch_all(
            f"""SELECT moment.horizon, moment.server,
                       EXISTS (SELECT FROM projects_workloaddeletion AS deletion
                                WHERE deletion.deleted_in >= %(horizon)s
                                  AND deletion.deleted_in < moment.after),
                       {self.is_live}, {self.columns}
                  FROM ({MOMENT}) AS moment
                  LEFT JOIN {self.source}
                       ON {self.changed_in} >= %(horizon)s AND {self.changed_in} < moment.after""",  # noqa: S608
            {"horizon": horizon},
        )


@dataclass(slots=True)
class Mirror(Generic[Row]):
    """Live rows as of the last read, keyed by ID.

    An unchanged row remains the same object.
    """

    source: MirrorQuery[Row]
    rows: dict[uuid.UUID, Row] = field(default_factory=dict)
    _horizon: int | None = None  # oldest transaction open at the last read; None: read all rows
    _server: datetime | None = None  # start time of the database server
    # Connection used for the last read.
    # A new connection requires a full read, because transaction IDs may be reused after a crash.
    _connection: object = None
    _read_at: float = 0.0  # monotonic time of the last read

    def read(self) -> set[uuid.UUID]:
        """Update the rows, and return the IDs of added, changed and removed rows."""
        horizon, self._horizon = self._horizon, None  # after an error, read all rows again
        age, self._read_at = time.monotonic() - self._read_at, time.monotonic()
        if (
            horizon is None
            or age > MAX_AGE_SECONDS
            or connection.in_atomic_block
            or connection.connection is not self._connection
        ):
            return self._read_all()
        answer = self.source.read_changes(horizon)
        new_horizon, server, is_row_missing, *_ = answer[0]
        if is_row_missing or server != self._server or new_horizon < horizon:
            return self._read_all()
        self._horizon = new_horizon
        changed = set()
        for _, _, _, is_live, *columns in answer:
            row = self.source.build_row(columns)
            if row.pk is None:
                break  # no row has changed
            if is_live and self.rows.get(row.pk) != row:
                self.rows[row.pk] = row
            elif is_live or self.rows.pop(row.pk, None) is None:
                continue
            changed.add(row.pk)
        return changed

    def _read_all(self) -> set[uuid.UUID]:
        before = self.rows
        answer = self.source.read_all()
        rows = [self.source.build_row(columns) for _, _, _, _, *columns in answer if columns[0] is not None]
        self.rows = {row.pk: before[row.pk] if before.get(row.pk) == row else row for row in rows}
        if not connection.in_atomic_block:
            self._horizon, self._server = answer[0][:2]
            self._connection = connection.connection
        changed = {pk for pk, row in self.rows.items() if before.get(pk) is not row}
        return changed | (before.keys() - self.rows.keys())
