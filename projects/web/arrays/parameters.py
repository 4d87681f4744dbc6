"""Filter and sort an array's tasks by their parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from django.db.models import QuerySet
from django.http import QueryDict

from berth.server.web.lists.paging import SIZE, PageSlice
from projects.models import Workload

PREFIX = "parameter-"  # prefix of the sort keys and of the filters' query parameters

COLUMNS_MAX, COLUMN_WIDTH = 4, 16  # maximum number of parameter columns, and of characters per value
NAMES_MAX, VALUES_MAX = 4, 50  # maximum number of parameter filters, and of values per filter


@dataclass(frozen=True, slots=True)
class ParameterFilter:
    """Task filter for one parameter.

    `field` is the filter's query parameter. `chosen` is the selected value, or empty if the filter is not
    set.
    """

    name: str
    field: str
    values: Sequence[str]
    chosen: str


def parameter_filters(parameters: Mapping[int, Mapping[str, str]], query: QueryDict) -> list[ParameterFilter]:
    """Return filters for the first parameters that have between 2 and VALUES_MAX values."""
    distinct: dict[str, dict[str, None]] = {}
    for values in parameters.values():
        for name, value in values.items():
            distinct.setdefault(name, {})[value] = None
    filters = []
    for name, of_name in distinct.items():
        if 1 < len(of_name) <= VALUES_MAX:
            chosen = query.get(field := f"{PREFIX}{name}", "")
            filters.append(ParameterFilter(name, field, list(of_name), chosen if chosen in of_name else ""))
    return filters[:NAMES_MAX]


def parameter_columns(parameters: Mapping[int, Mapping[str, str]]) -> list[str]:
    """Return the names of all parameters, or none if their columns do not fit into the table."""
    names = list(dict.fromkeys(name for values in parameters.values() for name in values))
    is_short = all(len(value) <= COLUMN_WIDTH for values in parameters.values() for value in values.values())
    return names if len(names) <= COLUMNS_MAX and is_short else []


def matching_indexes(
    parameters: Mapping[int, Mapping[str, str]], filters: Sequence[ParameterFilter]
) -> list[int] | None:
    """Return the indexes of the tasks that match all filters, or None if no filter is set."""
    chosen = {each.name: each.chosen for each in filters if each.chosen}
    if not chosen:
        return None
    return [index for index, values in parameters.items() if chosen.items() <= values.items()]


def slice_by_parameter(
    tasks: QuerySet[Workload], parameters: Mapping[int, Mapping[str, str]], sort: str, cursor: str
) -> PageSlice[Workload]:
    """Return one page of tasks, sorted by a parameter and then by index.

    The cursor is the number of tasks on earlier pages.
    """
    name = sort.removeprefix("-").removeprefix(PREFIX)
    value_of = {index: values.get(name, "") for index, values in parameters.items()}
    is_numeric = all(_number(value) is not None for value in value_of.values())
    indexes = list(tasks.order_by("array_index").values_list("array_index", flat=True))
    indexes.sort(
        key=lambda index: _sort_key(value_of.get(index or 0, ""), is_numeric), reverse=sort[0] == "-"
    )
    start = int(cursor) if cursor.isdecimal() and len(cursor) < 9 else 0
    shown = indexes[start : start + SIZE]
    by_index = {task.array_index: task for task in tasks.filter(array_index__in=shown)}
    return PageSlice(
        [by_index[index] for index in shown if index in by_index],
        sort,
        next=str(start + SIZE) if len(indexes) > start + SIZE else None,
        previous=str(max(start - SIZE, 0)) if start else None,
    )


def _sort_key(value: str, is_numeric: bool) -> tuple[float, str]:
    return (_number(value) or 0.0, "") if is_numeric else (0.0, value)


def _number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if isfinite(number) else None
