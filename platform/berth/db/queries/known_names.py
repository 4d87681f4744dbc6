"""Reject filters with unknown names instead of returning an empty list."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet

from berth.core.errors import Invalid
from berth.core.problems import Problem, format_value, suggest, suggest_visible_names

# maximum number of rows per source that are searched for similar names
COMPARED_MAX = 20_000


@dataclass(frozen=True, slots=True)
class NameColumn:
    """Names in one column of the rows that the user may see.

    By default, a name exists if a row has it in the column. If `condition` is set, a name exists if a row
    meets the condition.
    """

    rows: QuerySet[Any]
    column: str = "name"
    condition: Q | None = None

    def has_name(self, name: str) -> bool:
        condition = Q(**{self.column: name}) if self.condition is None else self.condition
        return self.rows.filter(condition).exists()

    def list(self) -> set[str]:
        """Return the names in the first rows only, because the table may have millions of rows."""
        names = self.rows.order_by().values_list(self.column, flat=True)[:COMPARED_MAX]
        return {str(name) for name in names if name}


def check_names(*problems: Problem | None) -> None:
    """Raise Invalid with all problems that are not None."""
    if unknown := [problem for problem in problems if problem is not None]:
        raise Invalid(unknown)


def unknown_name_problem(
    path: str, name: str | None, noun: str, sources: Iterable[NameColumn]
) -> Problem | None:
    """Return a problem if no source has the name, else None.

    Hidden objects are treated as missing and are never suggested.
    """
    sources = list(sources)
    if not name or any(source.has_name(name) for source in sources):
        return None
    visible = set().union(*(source.list() for source in sources))
    return Problem(path, "does not exist", format_value(name), suggest_visible_names(name, visible, noun))


def unknown_value_problem(
    path: str, word: str | None, words: Collection[str], *history: NameColumn
) -> Problem | None:
    """Return a Problem for an unknown word.

    Return None if the word is empty, in `words`, or in `history`.
    """
    if not word or word in words or any(names.has_name(word) for names in history):
        return None
    return Problem(path, "is not an allowed value", format_value(word), suggest(word, words))
