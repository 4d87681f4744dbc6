"""Compile the scheduler loop's queries to SQL only once.

For a query with a dozen columns, Django's compiler takes longer than PostgreSQL takes to run the query.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, cast

from django.db import connection, connections
from django.db.models import Expression, Field, ForeignObject, JSONField, Lookup, Model, QuerySet
from django.db.models.expressions import Col
from django.db.models.query import FlatValuesListIterable, ModelIterable, ValuesListIterable
from psycopg.sql import Literal
from pydantic_core import from_json

from berth.db.queries.prepared import fetch_all

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
    """Lookup `column__any=values`: the column equals any of the values.

    All values are passed as one SQL parameter.
    """

    lookup_name = "any"
    prepare_rhs = False

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
        column, parameters = self.process_lhs(compiler, connection)
        value = self.rhs if isinstance(self.rhs, Parameter) else list(self.rhs)
        return f"{column} = ANY(%s::{self.lhs.output_field.db_type(connection)}[])", (*parameters, value)


def compiled_once(
    build: Callable[..., "QuerySet[M, R]"], *, planned_once: bool = True
) -> Callable[..., list[R]]:
    """Return a function that runs the query returned by `build`.

    The query is compiled on the first call only. If an argument is a list, the query must use it in an
    `any` lookup. With `planned_once=False`, the database plans the query on every call, which is better for
    joins of tables that grow.
    """

    @cache
    def compile_query(count: int) -> _CompiledQuery:
        return _compile(build(*(Parameter(position) for position in range(count))))

    fetch = fetch_all if planned_once else _fetch_without_preparing

    def query(*values: Any) -> list[R]:
        compiled = compile_query(len(values))
        rows = fetch(compiled.sql, [values[position] for position in compiled.positions])
        return cast("list[R]", compiled.build(_convert_rows(rows, compiled)))

    return query


@dataclass(frozen=True, slots=True)
class _CompiledQuery:
    """SQL of a query, with the converter, position and expression of each column."""

    database: str
    sql: str
    positions: tuple[int, ...]  # index of the argument for each SQL parameter
    converters: Sequence[tuple[int, Any, Callable[[Any, Any, Any], Any]]]
    build: Callable[[Iterable[Any]], list[Any]]


def _compile(queryset: QuerySet[Any, Any]) -> _CompiledQuery:
    compiler = queryset.query.get_compiler(queryset.db)
    sql, values = compiler.as_sql()
    parts = ["%s" if isinstance(each, Parameter) else _sql_literal(each) for each in values]
    columns = [column for column, *_ in compiler.select[: compiler.col_count]]
    return _CompiledQuery(
        queryset.db,
        sql % tuple(parts),
        tuple(each.position for each in values if isinstance(each, Parameter)),
        [
            (position, expression, _fastest_converter(converter, expression))
            for position, (converters, expression) in compiler.get_converters(columns).items()
            for converter in converters
        ],
        _row_builder(queryset, compiler),
    )


def _fastest_converter(converter: Any, expression: Expression) -> Callable[[Any, Any, Any], Any]:
    field = getattr(converter, "__self__", None)
    is_json = isinstance(field, JSONField) and field.decoder is None and isinstance(expression, Col)
    return _parse_json if is_json else converter


def _parse_json(value: str | None, expression: Expression, connection: Any) -> Any:
    return None if value is None else from_json(value)


def _convert_rows(rows: Iterable[Sequence[Any]], compiled: _CompiledQuery) -> Iterable[Sequence[Any]]:
    if not compiled.converters:
        return rows
    database, converted = connections[compiled.database], [list(row) for row in rows]
    for position, expression, converter in compiled.converters:
        for row in converted:
            row[position] = converter(row[position], expression, database)
    return converted


def _row_builder(queryset: QuerySet[Any, Any], compiler: Any) -> Callable[[Iterable[Any]], list[Any]]:
    """Return a function that builds the same results from converted rows as Django would."""
    kind: Any = queryset._iterable_class
    if kind is ValuesListIterable:
        return lambda rows: [tuple(row) for row in rows]
    if kind is FlatValuesListIterable:
        return lambda rows: [row[0] for row in rows]
    assert kind is ModelIterable, f"{kind.__name__} is not supported"
    build_instance = _instance_builder(compiler.klass_info, compiler.select, queryset.db)
    annotations = [*compiler.annotation_col_map.items()]

    def build(rows: Iterable[Any]) -> list[Any]:
        instances = []
        for row in rows:
            instance = build_instance(row)
            for name, position in annotations:
                setattr(instance, name, row[position])
            instances.append(instance)
        return instances

    return build


def _instance_builder(info: Any, select: Sequence[Any], database: str) -> Callable[[Any], Any]:
    """Return a function that builds an instance with its `select_related` objects from a row.

    The instance and each of these objects may be None.
    """
    model, fields = info["model"], info["select_fields"]
    start, end = fields[0], fields[-1] + 1
    names = [column.target.attname for column, *_ in select[start:end]]
    key = start + names.index(model._meta.pk.attname)
    related = [
        (_instance_builder(each, select, database), each["local_setter"], each["remote_setter"])
        for each in info.get("related_klass_infos", ())
    ]

    def build(row: Sequence[Any]) -> Any:
        if row[key] is None:
            return None
        instance = model.from_db(database, names, row[start:end])
        for build_related, set_related, set_reverse in related:
            other = build_related(row)
            set_related(instance, other)
            if other is not None:
                set_reverse(other, instance)
        return instance

    return build


def _fetch_without_preparing(statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall()


def _sql_literal(value: Any) -> str:
    """Return SQL for a constant. Unlike a parameter, it lets the database use partial indexes."""
    connection.ensure_connection()
    return Literal(value).as_string(connection.connection).replace("%", "%%")
