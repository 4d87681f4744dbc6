"""Read only the rows that changed since the last read.

PostgreSQL never changes a row in place: each write makes another version of it, by a later transaction or at
another place. So the row's id with the writing transaction (`xmin`) and the place (`ctid`) names a content.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from django.db import connection

Row = TypeVar("Row")
ID = 36  # characters of an id, with which a mark begins


@dataclass(frozen=True, slots=True)
class Question(Generic[Row]):
    """What is read. The mark begins with the row's id and names the versions of all that is read of it."""

    mark: str
    columns: str
    source: str  # FROM ... WHERE (...)
    id: str
    order: str
    made: Callable[[Iterable[Any]], Row]


@dataclass(slots=True)
class Versions(Generic[Row]):
    """The rows of the last reading, by their marks. The same row stays the very same object."""

    question: Question[Row]
    _rows: dict[str, Row] = field(default_factory=dict)

    def read(self) -> list[Row]:
        asked, known = self.question, self._rows
        if not known:
            self._rows = dict(_read(asked))
            return list(self._rows.values())
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {asked.mark} {asked.source} ORDER BY {asked.order}")
            marks = [mark for (mark,) in cursor.fetchall()]
        unknown = [mark[:ID] for mark in marks if mark not in known]
        fresh = {mark[:ID]: (mark, row) for mark, row in _read(asked, unknown)} if unknown else {}
        found: dict[str, Row] = {}
        for mark in marks:
            if mark in known:
                found[mark] = known[mark]
            elif mark[:ID] in fresh:  # else it went meanwhile; it may have become another version too
                newer, row = fresh[mark[:ID]]
                found[newer] = row
        self._rows = found
        return list(found.values())


def _read(asked: Question[Row], ids: list[str] | None = None) -> Iterable[tuple[str, Row]]:
    chosen = "" if ids is None else f"AND {asked.id} = ANY(%s::uuid[])"
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {asked.mark}, {asked.columns} {asked.source} {chosen} ORDER BY {asked.order}",
            None if ids is None else [ids],
        )
        return [(mark, asked.made(columns)) for mark, *columns in cursor.fetchall()]
