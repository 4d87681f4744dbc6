"""Run statements that each database connection parses and plans only once.

This is meant for the few statements that run with every request. They bypass Django's query compiler and are
not planned again, because planning takes longer than running them.
"""

from collections.abc import Sequence
from typing import Any, cast
from weakref import WeakSet

import psycopg
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.postgresql.base import ServerBindingCursor

_configured: WeakSet[psycopg.Connection[Any]] = WeakSet()


def fetch_all(statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Run a prepared statement, and return its rows."""
    with _cursor() as cursor:
        cursor.execute(statement, parameters)
        return cast("list[tuple[Any, ...]]", cursor.fetchall())


def fetch_one(statement: str, parameters: Sequence[Any]) -> tuple[Any, ...] | None:
    """Run a prepared statement, and return its first row, or None if it has no row."""
    with _cursor() as cursor:
        cursor.execute(statement, parameters)
        return cast("tuple[Any, ...] | None", cursor.fetchone())


def execute(statement: str, parameters: Sequence[Any]) -> None:
    """Run a prepared statement that returns no rows."""
    with _cursor() as cursor:
        cursor.execute(statement, parameters)


def _cursor() -> Any:
    """Return Django's cursor, which sends parameters separately from the statement.

    The database prepares a statement that such a cursor runs for the second time, see `prepare_threshold` in
    the settings. Other cursors send complete statements, which are never prepared.
    """
    connection: Any = connections[DEFAULT_DB_ALIAS]  # the proxy would look it up for each attribute
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    connection.validate_thread_sharing()
    _keep_plans(connection)
    cursor = cast("Any", ServerBindingCursor)(connection.connection)
    wrap = connection.make_debug_cursor if connection.queries_logged else connection.make_cursor
    return wrap(cursor)


def _keep_plans(connection: Any) -> None:
    """Let the database plan prepared statements once instead of for each set of parameters.

    These statements find rows by unique keys, so no other plan would be better.
    """
    raw: psycopg.Connection[Any] = connection.connection
    if raw not in _configured:
        with connection.wrap_database_errors:
            raw.execute("SET plan_cache_mode = force_generic_plan")
        _configured.add(raw)
