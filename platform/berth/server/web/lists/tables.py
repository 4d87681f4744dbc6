"""Sorting, search, pagination and CSV export of lists.

An export contains all rows that match the page's filters, in the page's order and with its columns. On a page
with several tables, each table has a name, which is the prefix of its query parameters.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

from django.db.models import Model, QuerySet
from django.http import HttpRequest, QueryDict, StreamingHttpResponse

from berth.server.api.transport.streaming import cell, csv_file
from berth.server.web.lists.paging import SIZE, ordered, slice_of

AT_ONCE = 500  # maximum rows of a file
R = TypeVar("R")
M = TypeVar("M", bound=Model)


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """Column of a table. `value` returns a cell in `unit`.

    `order` is the database column, without nulls, by which long lists are sorted. An `in_file` column appears
    only in the CSV file.
    """

    key: str
    title: str
    value: Callable[[R], Any]
    unit: str = ""
    order: str = ""
    number: bool = False
    in_file: bool = False

    @property
    def head(self) -> str:
        return f"{self.title}, {self.unit}" if self.unit else self.title


@dataclass(frozen=True, slots=True)
class Listing(Generic[R]):
    """One page of a list.

    `sorts` are the sortable keys, `next` and `previous` are cursors, and `every` is all rows for a CSV file.
    """

    name: str
    file_name: str
    columns: Sequence[Column[R]]
    rows: list[R]
    sort: str
    search: str
    sorts: frozenset[str]
    next: str | None
    previous: str | None
    every: Iterable[R]
    begun_with: bool  # True if the list has rows without the search

    def word(self, what: str) -> str:
        return word_of(self.name, what)

    def as_csv(self, request: HttpRequest) -> StreamingHttpResponse:
        return csv_file(request, self.file_name, [each.head for each in self.columns], self._lines())

    def _lines(self) -> Iterator[list[Any]]:
        for row in self.every:
            yield [column.value(row) for column in self.columns]


def list_rows(
    request: HttpRequest, columns: Sequence[Column[R]], rows: Iterable[R], *, name: str = "", file_name: str,
    default: str, size: int = SIZE,
) -> Listing[R]:  # fmt: skip
    """List rows that are all in memory. They can be sorted by any column, and searched in all columns.

    If `default` is empty, the default order is the order of `rows`.
    """
    every, state = list(rows), table_state(request.GET, name)
    by = {column.key: column for column in columns}
    sort = state["sort"] if state["sort"].removeprefix("-") in by else default
    matches = [row for row in every if _matches(row, columns, state["search"])]
    if sort:
        value = by[sort.removeprefix("-")].value
        matches.sort(key=lambda row: _sort_key(value(row)))
    if sort.startswith("-"):
        matches.reverse()
    start = int(state["cursor"]) if state["cursor"].isdecimal() and len(state["cursor"]) < 9 else 0
    return Listing(
        name, file_name, columns, matches[start : start + size], sort, state["search"], frozenset(by),
        next=str(start + size) if len(matches) > start + size else None,
        previous=str(max(0, start - size)) if start else None,
        every=matches, begun_with=bool(every),
    )  # fmt: skip


def list_query(
    request: HttpRequest, columns: Sequence[Column[R]], rows: QuerySet[M],
    render: Callable[[list[M]], list[R]],
    *, name: str = "", file_name: str, default: str, size: int = SIZE,
) -> Listing[R]:  # fmt: skip
    """List the rows of a query that the page has filtered. `render` converts them to table rows."""
    state = table_state(request.GET, name)
    orders = {column.key: column.order for column in columns if column.order}
    matches = slice_of(rows, orders, sort=state["sort"], default=default, cursor=state["cursor"], size=size)
    every = (row for some in _in_batches(ordered(rows, orders, matches.sort)) for row in render(some))
    return Listing(
        name, file_name, columns, render(matches.rows), matches.sort, state["search"], frozenset(orders),
        next=matches.next, previous=matches.previous, every=every, begun_with=bool(matches.rows),
    )  # fmt: skip


def _in_batches(rows: QuerySet[M]) -> Iterator[list[M]]:
    reading = rows.iterator(chunk_size=AT_ONCE)
    while some := list(islice(reading, AT_ONCE)):
        yield some


def branches(matches: Listing[tuple[R, R]], tops: Iterable[R]) -> list[tuple[R, list[R]]]:
    """Return the tree of matching rows. Each match is a pair of a top and the top itself or a row below it.

    The tops keep their order, and the rows below each top are in list order.
    """
    every = list(tops)
    below: dict[int, list[R]] = {id(top): [] for top in every}
    named = set()
    for top, row in matches.rows:
        if row is top:
            named.add(id(top))
        else:
            below[id(top)].append(row)
    return [(top, below[id(top)]) for top in every if id(top) in named or below[id(top)]]


def exported(request: HttpRequest, *listings: Listing[Any]) -> StreamingHttpResponse | None:
    """Return the requested CSV file, or None if the request is for the page."""
    state = next((each for each in listings if request.GET.get(each.word("format")) == "csv"), None)
    return state.as_csv(request) if state else None


def table_state(query: QueryDict, name: str) -> dict[str, str]:
    """Return the sort key, search text and cursor of one table from the query parameters."""
    return {
        what: query.get(word_of(name, what), "").replace("\x00", "")[:400].strip()
        for what in ("sort", "search", "cursor")
    }


def word_of(name: str, what: str) -> str:
    return f"{name}-{what}" if name else what


def _matches(row: R, columns: Sequence[Column[R]], search: str) -> bool:
    if not search:
        return True
    render = " ".join(cell(column.value(row)) for column in columns).lower()
    return all(word in render for word in search.lower().split())


def _sort_key(value: Any) -> tuple[int, Any]:
    """Return a sort key that puts missing values first, then numbers, then times, then text."""
    if value is None or value == "":
        return (0, 0)
    if isinstance(value, bool | int | float):
        return (1, value)
    return (2, value.timestamp()) if hasattr(value, "timestamp") else (3, cell(value).lower())
