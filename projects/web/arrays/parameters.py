"""Filter an array's tasks by their parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.http import QueryDict

COLUMNS_MAX, COLUMN_WIDTH = 4, 16  # maximum number of parameter columns, and of characters per value
NAMES_MAX, VALUES_MAX = 4, 50  # maximum number of parameters that are filters, and of values per filter


@dataclass(frozen=True, slots=True)
class ParameterFilter:
    """Filter by one task parameter.

    `field` is the filter's query parameter. `chosen` is empty if any value matches.
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
            chosen = query.get(field := f"parameter-{name}", "")
            filters.append(ParameterFilter(name, field, list(of_name), chosen if chosen in of_name else ""))
    return filters[:NAMES_MAX]


def parameter_columns(parameters: Mapping[int, Mapping[str, str]]) -> list[str]:
    """Return the names of the parameters that have their own columns, if all are short enough for a table."""
    names = list(dict.fromkeys(name for values in parameters.values() for name in values))
    is_short = all(len(value) <= COLUMN_WIDTH for values in parameters.values() for value in values.values())
    return names if len(names) <= COLUMNS_MAX and is_short else []


def matching_indexes(
    parameters: Mapping[int, Mapping[str, str]], filters: Sequence[ParameterFilter]
) -> list[int] | None:
    """Return the indexes of the tasks that match all filters, or None if no value is chosen."""
    chosen = {each.name: each.chosen for each in filters if each.chosen}
    if not chosen:
        return None
    return [index for index, values in parameters.items() if chosen.items() <= values.items()]
