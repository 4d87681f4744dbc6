"""Read and write many rows in one query.

The parameters of each query are one JSON document, because Django and psycopg are slow with thousands of
parameters.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias, cast

from django.db import connection
from django.db.models import Field, Model
from django.db.models.expressions import DatabaseDefault
from pydantic_core import to_json

from berth.db.queries import prepared

AnyField: TypeAlias = "Field[Any, Any]"
RelatedRows: TypeAlias = Callable[[list[Any]], Iterable[Model]]  # returns the rows that have the given keys


def insert_rows(rows: Sequence[Model]) -> None:
    """Insert rows of one model in order, and set the keys that the database assigns.

    A column must be set in all rows or in none.
    """
    if not rows:
        return
    options = rows[0]._meta
    fields = [field for field in options.concrete_fields if not _is_assigned_by_database(rows[0], field)]
    statement = _insert_statement(type(rows[0]), tuple(field.name for field in fields))
    names = [(field.column, field.attname) for field in fields]
    # Read the columns of unsaved rows with `vars`, which is faster than `getattr`.
    values = [{column: vars(row)[name] for column, name in names} for row in rows]
    for row, (pk,) in zip(rows, prepared.fetch_all(statement, [to_json_parameter(values)]), strict=True):
        row.pk, row._state.adding = pk, False


def update_rows(rows: Sequence[Model], names: Iterable[str]) -> None:
    """Update the given fields in rows of one model."""
    if not rows:
        return
    options = rows[0]._meta
    fields = [options.pk, *(cast("AnyField", options.get_field(name)) for name in names)]
    statement = _update_statement(type(rows[0]), tuple(field.name for field in fields[1:]))
    values = [{field.column: getattr(row, field.attname) for field in fields} for row in rows]
    prepared.execute(statement, [to_json_parameter(values)])


@cache
def _insert_statement(model: type[Model], names: Sequence[str]) -> str:
    options = model._meta
    fields = [cast("AnyField", options.get_field(name)) for name in names]
    columns = ", ".join(f'"{field.column}"' for field in fields)
    return f"""
        INSERT INTO "{options.db_table}" ({columns}) SELECT {columns} FROM {recordset_sql(fields)}
        RETURNING "{options.pk.column}"
    """  # noqa: S608 - names of tables and columns come from the model


@cache
def _update_statement(model: type[Model], names: Sequence[str]) -> str:
    options = model._meta
    fields = [cast("AnyField", options.get_field(name)) for name in names]
    assignments = ", ".join(f'"{field.column}" = written."{field.column}"' for field in fields)
    key = options.pk.column
    return f"""
        UPDATE "{options.db_table}" AS current SET {assignments} FROM {recordset_sql([options.pk, *fields])}
         WHERE current."{key}" = written."{key}"
    """  # noqa: S608 - names of tables and columns come from the model


def load_related_objects(rows: Sequence[Model], name: str, related: RelatedRows) -> None:
    """Load the objects of a foreign key. Rows with the same key share one object."""
    key = f"{name}_id"
    keys = [*{getattr(row, key) for row in rows}]
    objects = {each.pk: each for each in related(keys)} if keys else {}
    for row in rows:
        setattr(row, name, objects[getattr(row, key)])


def recordset_sql(fields: Iterable[AnyField], **others: str) -> str:
    """Return SQL that expands a JSON parameter to rows with the alias `written`.

    `others` maps additional columns to their types.
    """
    types = [f'"{field.column}" {field.rel_db_type(connection)}' for field in fields]
    types += [f"{name} {kind}" for name, kind in others.items()]
    return f"jsonb_to_recordset(%s::jsonb) AS written({', '.join(types)})"


def to_json_parameter(rows: Sequence[Mapping[str | None, Any]]) -> str:
    return to_json(rows, fallback=str).decode()


def _is_assigned_by_database(row: Model, field: AnyField) -> bool:
    value = getattr(row, field.attname)
    return isinstance(value, DatabaseDefault) or (field.primary_key and value is None)
