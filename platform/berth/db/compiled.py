"""Compile the scheduler loop's queries to SQL only once.

Django composes the SQL of a query each time it runs, and collects the converters of its columns. For a query
with a dozen columns, that takes longer than PostgreSQL needs to answer it. PostgreSQL also plans such a query
only once per connection.
"""

import copy
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

from django.db import connection, connections
from django.db.models import Expression, Field, ForeignObject, Lookup, Model, QuerySet
from psycopg.sql import Literal

from berth.db.prepared import fetch_all

M = TypeVar("M", bound=Model)
R = TypeVar("R")


class Parameter(Expression):
    """Placeholder for a value, or a list of values, in a query that is being compiled."""

    def __init__(self, position: int) -> None:
        super().__init__()
        self.position = position

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        return "%s", (self,)


@ForeignObject.register_lookup
@Field.register_lookup
class AnyOf(Lookup):
    """Lookup `column__any=values`: the column equals any of the values, which are one SQL parameter."""

    lookup_name = "any"
    prepare_rhs = False

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
        column, parameters = self.process_lhs(compiler, connection)
        value = self.rhs if isinstance(self.rhs, Parameter) else list(self.rhs)
        return f"{column} = ANY(%s::{self.lhs.output_field.db_type(connection)}[])", (*parameters, value)


def compiled_once(
    build: Callable[..., "QuerySet[M, R]"], *, planned_once: bool = True
) -> Callable[..., "QuerySet[M, R]"]:
    """Wrap `build`, which returns a query, so that its SQL is compiled only on the first call.

    Arguments are lists, which `build` passes to the `any` lookup, or values that other lookups compare with a
    column. The query must not be filtered or ordered further.

    With `planned_once=False`, the database plans each call. A join that was planned while its tables were
    small would be slow once they have grown.
    """

    @cache
    def compile_query(count: int) -> tuple["QuerySet[M, R]", Any, str, tuple[int, ...]]:
        queryset = build(*(Parameter(position) for position in range(count)))
        compiler = queryset.query.get_compiler(queryset.db)
        sql, values = compiler.as_sql()
        parts = ["%s" if isinstance(each, Parameter) else _literal(each) for each in values]
        positions = tuple(each.position for each in values if isinstance(each, Parameter))
        converters = compiler.get_converters([column for column, *_ in compiler.select[: compiler.col_count]])
        compiler.get_converters = lambda columns: converters
        return queryset, compiler, sql % tuple(parts), positions

    fetch = fetch_all if planned_once else _fetch_unprepared

    def query(*values: Any) -> "QuerySet[M, R]":
        compiled, template, sql, positions = compile_query(len(values))
        bound = [values[position] for position in positions]

        def get_compiler(using: str, **_: Any) -> Any:
            compiler = copy.copy(template)
            compiler.connection = connections[using]  # each thread has its own
            compiler.execute_sql = lambda *_, **__: [fetch(sql, bound)]
            return compiler

        queryset = compiled.all()
        queryset.query.get_compiler = get_compiler  # type: ignore[method-assign, assignment]
        return queryset

    return query


def _fetch_unprepared(statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall()


def _literal(value: Any) -> str:
    """Return SQL for a constant. Unlike a parameter, a constant lets the database use partial indexes."""
    connection.ensure_connection()
    return Literal(value).as_string(connection.connection).replace("%", "%%")
