"""Read only the rows that changed since the last read.

PostgreSQL never changes a row in place: each write creates a new version, by a later transaction or at
another location. A row's id, writing transaction (`xmin`) and location (`ctid`) identify its content.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from django.db import connection

Row = TypeVar("Row")
ID_LENGTH = 36  # length of the ID at the start of each mark


@dataclass(frozen=True, slots=True)
class RowQuery(Generic[Row]):
    """A query with a mark per row. The mark starts with the row's ID and changes with any column read."""

    mark: str
    columns: str
    source: str  # FROM ... WHERE (...)
    id: str
    order: str
    build_row: Callable[[Iterable[Any]], Row]


@dataclass(slots=True)
class VersionedRows(Generic[Row]):
    """The rows of the last read, by mark. An unchanged row keeps the same object."""

    query: RowQuery[Row]
    _rows: dict[str, Row] = field(default_factory=dict)

    def read(self) -> list[Row]:
        query, cached = self.query, self._rows
        if not cached:
            self._rows = dict(_read_rows(query))
            return list(self._rows.values())
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {query.mark} {query.source} ORDER BY {query.order}")
            marks = [mark for (mark,) in cursor.fetchall()]
        changed = [mark[:ID_LENGTH] for mark in marks if mark not in cached]
        fresh = {mark[:ID_LENGTH]: (mark, row) for mark, row in _read_rows(query, changed)} if changed else {}
        rows: dict[str, Row] = {}
        for mark in marks:
            if mark in cached:
                rows[mark] = cached[mark]
            elif (
                mark[:ID_LENGTH] in fresh
            ):  # a missing row has been deleted; a fresh row may have a newer mark
                newer, row = fresh[mark[:ID_LENGTH]]
                rows[newer] = row
        self._rows = rows
        return list(rows.values())


def _read_rows(query: RowQuery[Row], ids: list[str] | None = None) -> Iterable[tuple[str, Row]]:
    condition = "" if ids is None else f"AND {query.id} = ANY(%s::uuid[])"
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {query.mark}, {query.columns} {query.source} {condition} ORDER BY {query.order}",
            None if ids is None else [ids],
        )
        return [(mark, query.build_row(columns)) for mark, *columns in cursor.fetchall()]
