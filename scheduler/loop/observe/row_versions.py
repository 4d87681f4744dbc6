"""Read only the rows that changed since the last read.

PostgreSQL never changes a row in place: each write creates a new version, by a later transaction or at
another location. A row's ID, writing transaction (`xmin`) and location (`ctid`) identify its content.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from django.db import connection

Row = TypeVar("Row")
ID_LENGTH = 36  # length of the ID at the start of each version


@dataclass(frozen=True, slots=True)
class RowQuery(Generic[Row]):
    """Query that returns a version for each row.

    The version consists of the row's ID, followed by text that changes with any column read.
    """

    version: str
    columns: str
    source: str  # FROM ... WHERE (...)
    id: str
    order: str
    build_row: Callable[[Iterable[Any]], Row]


@dataclass(slots=True)
class VersionedRows(Generic[Row]):
    """Rows of the last read, by version. Unchanged rows are represented by the same object."""

    query: RowQuery[Row]
    _rows: dict[str, Row] = field(default_factory=dict)

    def read(self) -> list[Row]:
        query, cached = self.query, self._rows
        if not cached:
            self._rows = dict(_read_rows(query))
            return list(self._rows.values())
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {query.version} {query.source} ORDER BY {query.order}")
            versions = [version for (version,) in cursor.fetchall()]
        changed = [version[:ID_LENGTH] for version in versions if version not in cached]
        fresh = (
            {version[:ID_LENGTH]: (version, row) for version, row in _read_rows(query, changed)}
            if changed
            else {}
        )
        rows: dict[str, Row] = {}
        for version in versions:
            if version in cached:
                rows[version] = cached[version]
            elif (
                version[:ID_LENGTH] in fresh
            ):  # a missing row has been deleted; a re-read row may have a newer version
                newer, row = fresh[version[:ID_LENGTH]]
                rows[newer] = row
        self._rows = rows
        return list(rows.values())


def _read_rows(query: RowQuery[Row], ids: list[str] | None = None) -> Iterable[tuple[str, Row]]:
    condition = "" if ids is None else f"AND {query.id} = ANY(%s::uuid[])"
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {query.version}, {query.columns} {query.source} {condition} ORDER BY {query.order}",
            None if ids is None else [ids],
        )
        return [(version, query.build_row(columns)) for version, *columns in cursor.fetchall()]
