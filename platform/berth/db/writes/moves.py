"""Compare-and-set updates of rows."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar, cast

from django.db import connection
from django.db.models import Field, Model, QuerySet

from berth.db.queries import prepared
from berth.db.writes.bulk_rows import recordset_sql, to_json_parameter

M = TypeVar("M", bound=Model)


def compare_and_set(row: Model, field: str, *, expected: Collection[Any], to: Any, **changes: Any) -> bool:
    """Set `field` and apply `changes` if `field` still has an expected value.

    Return whether the row was updated. If not, the object in memory is unchanged.
    """
    values = {field: to, **changes}
    matching = type(row)._default_manager.filter(pk=row.pk, **{f"{field}__in": list(expected)})
    if matching.update(**values) == 0:
        return False
    for name, value in values.items():
        setattr(row, name, value)
    return True


def compare_and_set_all(
    rows: Sequence[M], field: str, *, expected: Collection[Any], to: Any, **changes: Any
) -> list[M]:
    """Update the rows that still have their expected value, and return them in order.

    Call this in a transaction, which keeps the rows locked.
    """
    if not rows:
        return []
    values, manager = {field: to, **changes}, type(rows[0])._default_manager
    matching = manager.filter(pk__in=[row.pk for row in rows], **{f"{field}__in": list(expected)})
    locked_ids = set(lock_keys(matching))
    manager.filter(pk__in=locked_ids).update(**values)
    moved = [row for row in rows if row.pk in locked_ids]
    for row in moved:
        for name, value in values.items():
            setattr(row, name, value)
    return moved


def lock_keys(rows: QuerySet[M]) -> list[Any]:
    """Lock the rows in key order until the transaction ends. Return the keys."""
    locked = rows.select_for_update(of=("self",), no_key=True).order_by("pk")
    return list(locked.values_list("pk", flat=True))


@dataclass(frozen=True, slots=True)
class RowChange:
    """Change of one row, written only if the compared field still has an `expected` value."""

    pk: Any
    expected: Collection[str]
    columns: Mapping[str, Any]


NO_EXPRESSIONS: Mapping[str, str] = MappingProxyType({})


def change_rows(
    model: type[Model],
    field: str,
    changes: Iterable[RowChange],
    expressions: Mapping[str, str] = NO_EXPRESSIONS,
) -> set[Any]:
    """Write the changes, each by compare-and-set on `field`. Return the keys of the changed rows.

    `expressions` maps additional columns to SQL, which may refer to the row as `current` and to the change as
    `written`. Rows are locked in arbitrary order, so lock them first if other transactions change several
    rows.
    """
    by_columns: dict[tuple[str, ...], list[RowChange]] = defaultdict(list)
    for change in changes:
        by_columns[tuple(sorted(change.columns))].append(change)
    changed: set[Any] = set()
    for columns, group in by_columns.items():
        changed |= _change_group(model, field, columns, group, expressions)
    return changed


def _change_group(
    model: type[Model],
    field: str,
    columns: Sequence[str],
    changes: Sequence[RowChange],
    expressions: Mapping[str, str],
) -> set[Any]:
    names = _column_names(model, columns)
    rows: list[dict[str | None, Any]] = [
        {
            "row_key": change.pk,
            "row_expected": list(change.expected),
            **{column: change.columns[name] for column, name in names},
        }
        for change in changes
    ]
    statement = _update_statement(model, field, tuple(columns), tuple(expressions.items()))
    return {pk for (pk,) in prepared.fetch_all(statement, [to_json_parameter(rows)])}


@cache
def _column_names(model: type[Model], names: Sequence[str]) -> list[tuple[str | None, str]]:
    return [(cast("Field[Any, Any]", model._meta.get_field(name)).column, name) for name in names]


@cache
def _update_statement(
    model: type[Model], field: str, columns: Sequence[str], expressions: Sequence[tuple[str, str]]
) -> str:
    table, key = model._meta.db_table, model._meta.pk
    fields = [cast("Field[Any, Any]", model._meta.get_field(name)) for name in columns]
    assignments = [f'"{column.column}" = written."{column.column}"' for column in fields]
    others = [(name, expression) for name, expression in expressions if name not in columns]
    assignments += [f'"{name}" = {expression}' for name, expression in others]
    return f"""
        UPDATE "{table}" AS current SET {", ".join(assignments)}
          FROM {recordset_sql(fields, row_key=str(key.rel_db_type(connection)), row_expected="text[]")}
         WHERE current."{key.column}" = written.row_key AND current."{field}" = ANY(written.row_expected)
        RETURNING current."{key.column}"
    """  # noqa: S608 - names of tables and columns come from the model
