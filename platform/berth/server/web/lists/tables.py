"""Sorting, search, pagination and CSV export of lists.

An export has all rows that match the page's filters. If a page has several tables, each has a name that
prefixes its query parameters.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

from django.db.models import Model, QuerySet
from django.http import HttpRequest, QueryDict, StreamingHttpResponse

from berth.server.api.transport.streaming import csv_response, format_cell
from berth.server.web.lists.paging import SIZE, load_slice, sort_rows

BATCH_ROWS = 500  # rows per batch of a CSV export
R = TypeVar("R")
M = TypeVar("M", bound=Model)


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """Table column.

    `value` returns a cell's value, in `unit`. `order` is the non-null database column, or columns, by which
    long lists are sorted. Lists in memory are sorted by `rank`, or by `value` if `rank` is not set. An
    `is_csv_only` column is not on the page, and an `is_secondary` column is hidden in narrow windows.
    `page_title` replaces `title` on the page. Searches include only columns with `is_searched`. With
    `is_largest_first`, the first click on the header sorts in descending order.
    """

    key: str
    title: str
    value: Callable[[R], Any]
    unit: str = ""
    order: str | tuple[str, ...] = ""
    number: bool = False
    is_csv_only: bool = False
    is_secondary: bool = False
    page_title: str = ""
    rank: Callable[[R], Any] | None = None
    is_searched: bool = True
    is_largest_first: bool = False

    @property
    def head(self) -> str:
        return f"{self.title} ({self.unit})" if self.unit else self.title


@dataclass(frozen=True, slots=True)
class Listing(Generic[R]):
    """One page of a list.

    `sorts` are the sortable keys, and `next` and `previous` are cursors. `all_rows` are written to the CSV
    file. `start` is the index of the page's first row. `total` is the number of all rows, which is known only
    if they are in memory.
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
    all_rows: Iterable[R]
    has_rows: bool  # True if the list has rows, ignoring the search
    start: int = 0
    total: int | None = None

    @property
    def row_range_text(self) -> str:
        """Describe the rows of the page, such as "51 to 100 of 4,000 rows"."""
        if self.total is None:
            return f"{len(self.rows)} rows"
        return f"{self.start + 1:,} to {self.start + len(self.rows):,} of {self.total:,} rows"

    def parameter(self, key: str) -> str:
        return parameter_name(self.name, key)

    def as_csv(self, request: HttpRequest) -> StreamingHttpResponse:
        return csv_response(
            request, self.file_name, [column.head for column in self.columns], self._csv_rows()
        )

    def _csv_rows(self) -> Iterator[list[Any]]:
        for row in self.all_rows:
            yield [column.value(row) for column in self.columns]


def list_rows(
    request: HttpRequest, columns: Sequence[Column[R]], rows: Iterable[R], *, name: str = "", file_name: str,
    default: str, size: int = SIZE,
) -> Listing[R]:  # fmt: skip
    """Return a listing of rows in memory, which can be searched and sorted by any column.

    If `default` is empty, `rows` keep their order until the user sorts them.
    """
    all_rows, state = list(rows), table_state(request.GET, name)
    columns_by_key = {column.key: column for column in columns}
    sort = state["sort"] if state["sort"].removeprefix("-") in columns_by_key else default
    matches = [row for row in all_rows if _contains_text(row, columns, state["search"])]
    if sort:
        column = columns_by_key[sort.removeprefix("-")]
        value = column.rank or column.value
        matches.sort(key=lambda row: _sort_key(value(row)))
    if sort.startswith("-"):
        matches.reverse()
    start = int(state["cursor"]) if state["cursor"].isdecimal() and len(state["cursor"]) < 9 else 0
    return Listing(
        name,
        file_name,
        columns,
        matches[start : start + size],
        sort,
        state["search"],
        frozenset(columns_by_key),
        next=str(start + size) if len(matches) > start + size else None,
        previous=str(max(0, start - size)) if start else None,
        all_rows=matches,
        has_rows=bool(all_rows),
        start=start,
        total=len(matches),
    )


def list_query(
    request: HttpRequest, columns: Sequence[Column[R]], rows: QuerySet[M],
    render: Callable[[list[M]], list[R]],
    *, name: str = "", file_name: str, default: str, size: int = SIZE,
) -> Listing[R]:  # fmt: skip
    """List the rows of a filtered query. `render` converts database rows to table rows."""
    state = table_state(request.GET, name)
    orders = {column.key: column.order for column in columns if column.order}
    matches = load_slice(rows, orders, sort=state["sort"], default=default, cursor=state["cursor"], size=size)
    all_rows = (row for batch in _in_batches(sort_rows(rows, orders, matches.sort)) for row in render(batch))
    return Listing(
        name, file_name, columns, render(matches.rows), matches.sort, state["search"], frozenset(orders),
        next=matches.next, previous=matches.previous, all_rows=all_rows, has_rows=bool(matches.rows),
    )  # fmt: skip


def _in_batches(rows: QuerySet[M]) -> Iterator[list[M]]:
    iterator = rows.iterator(chunk_size=BATCH_ROWS)
    while batch := list(islice(iterator, BATCH_ROWS)):
        yield batch


def group_by_top_row(matches: Listing[tuple[R, R]], tops: Iterable[R]) -> list[tuple[R, list[R]]]:
    """Return a pair for each matching row: its top-level row and the row itself.

    Top-level rows keep their order, and the rows below each of them are in the list's order.
    """
    all_rows = list(tops)
    below: dict[int, list[R]] = {id(top): [] for top in all_rows}
    matched_tops = set()
    for top, row in matches.rows:
        if row is top:
            matched_tops.add(id(top))
        else:
            below[id(top)].append(row)
    return [(top, below[id(top)]) for top in all_rows if id(top) in matched_tops or below[id(top)]]


def requested_csv(request: HttpRequest, *listings: Listing[Any]) -> StreamingHttpResponse | None:
    """Return the requested CSV file, or None if the request is for the page itself."""
    state = next(
        (listing for listing in listings if request.GET.get(listing.parameter("format")) == "csv"), None
    )
    return state.as_csv(request) if state else None


def table_state(query: QueryDict, name: str) -> dict[str, str]:
    """Return the sort key, search text and cursor of one table from the query parameters."""
    return {
        key: query.get(parameter_name(name, key), "").replace("\x00", "")[:400].strip()
        for key in ("sort", "search", "cursor")
    }


def sort_choices(choices: Mapping[str, str], current: str) -> list[tuple[str, str, bool]]:
    """Return (value, label, is current) for each option of a sort field.

    The current order is always included.
    """
    options = {**({} if current in choices else {current: "Current order"}), **choices}
    return [(value, label, value == current) for value, label in options.items()]


def parameter_name(name: str, key: str) -> str:
    return f"{name}-{key}" if name else key


def _contains_text(row: R, columns: Sequence[Column[R]], search: str) -> bool:
    if not search:
        return True
    searched = (column for column in columns if column.is_searched)
    render = " ".join(format_cell(column.value(row)) for column in searched).lower()
    return all(word in render for word in search.lower().split())


def _sort_key(value: Any) -> tuple[int, Any]:
    """Return a key that sorts missing values first, then numbers, times and text."""
    if value is None or value == "":
        return (0, 0)
    if isinstance(value, bool | int | float):
        return (1, value)
    return (2, value.timestamp()) if hasattr(value, "timestamp") else (3, format_cell(value).lower())
