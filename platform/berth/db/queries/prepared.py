"""Run queries that each database connection plans only once.

Use this for queries that run on every request or tick and take longer to plan than to execute.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast
from weakref import WeakSet

import psycopg
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.postgresql.base import ServerBindingCursor

Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]

_configured: WeakSet[psycopg.Connection[Any]] = WeakSet()


def fetch_all(statement: str, parameters: Parameters) -> list[tuple[Any, ...]]:
    """Run a prepared query and return its rows."""
    return cast("list[tuple[Any, ...]]", _run(statement, parameters).fetchall())


def fetch_one(statement: str, parameters: Parameters) -> tuple[Any, ...] | None:
    """Run a prepared query and return its first row, or None if there is none."""
    return cast("tuple[Any, ...] | None", _run(statement, parameters).fetchone())


def execute(statement: str, parameters: Parameters) -> None:
    """Run a prepared query that returns no rows."""
    _run(statement, parameters)


def _run(statement: str, parameters: Parameters) -> Any:
    """Run a query with a cursor that prepares the query the second time it runs.

    Django's cursor wrapper takes as long as the query itself, so it is used only if queries are logged or
    intercepted.
    """
    # Django's connection proxy would look up the connection for each attribute access.
    connection: Any = connections[DEFAULT_DB_ALIAS]
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    connection.validate_thread_sharing()
    _plan_queries_once(connection)
    cursor = cast("Any", _LoggedCursor if connection.queries_logged else ServerBindingCursor)(
        connection.connection
    )
    if connection.queries_logged:
        cursor = connection.make_debug_cursor(cursor)
    elif connection.execute_wrappers:
        cursor = connection.make_cursor(cursor)
    else:
        connection.validate_no_broken_transaction()
        with connection.wrap_database_errors:
            return cursor.execute(statement, parameters)
    cursor.execute(statement, parameters)
    return cursor


class _LoggedCursor(ServerBindingCursor):
    """Cursor that prepares no queries, because Psycopg does not log the text of prepared queries."""

    def execute(self, query: Any, params: Any = None, **_: Any) -> Any:
        return super().execute(query, params, prepare=False)  # type: ignore[misc]


def _plan_queries_once(connection: Any) -> None:
    """Make the database plan each prepared query only once.

    The queries use unique keys, so a new plan would not be better.
    """
    raw: psycopg.Connection[Any] = connection.connection
    if raw not in _configured:
        with connection.wrap_database_errors:
            raw.execute("SET plan_cache_mode = force_generic_plan")
        _configured.add(raw)
