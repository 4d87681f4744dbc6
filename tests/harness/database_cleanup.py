"""Empty the test database after tests that commit, faster than Django's flush and without deadlocks.

Django truncates every table under exclusive locks and recreates its permissions and content types. Most tests
write to few of about 90 tables, so this module uses `DELETE`, which does not wait for readers, and keeps
Django's own rows.

Triggers enforce append-only tables and foreign keys. A separate connection deletes the rows with all triggers
disabled, as on a replica. Disabling them with `ALTER TABLE` would make each connection reload the table's
catalog rows and replan its statements.
"""

import time

import psycopg
from django.db import OperationalError, connection, transaction
from django.test import TransactionTestCase

# Tables whose rows are kept: most are written by migrations only.
CONSTANT_TABLES = (
    "auth_permission", "django_content_type", "django_migrations",
    "projects_workloaddeletion",  # tells the caches of this process that the cleanup has deleted workloads
)  # fmt: skip
WORKLOADS = "projects_workload"  # the only table whose triggers are wanted
# Time in which leftover requests and threads can end before they are disconnected.
PROBE_TIMEOUT_SECONDS = 30.0
ATTEMPTS = 3

TABLES = """
SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> ALL (%s) ORDER BY tablename
"""
# One statement per table, so that PostgreSQL keeps their plans between calls.
FUNCTION = """
CREATE OR REPLACE FUNCTION empty_tables() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    {statements}
END $$
"""
BUSY = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
AND state <> 'idle'
"""
_state: dict[str, psycopg.Connection] = {}


def install() -> None:
    """Create the cleanup function in the test database and call it after each test that commits.

    Connections stay open between tests, because a new connection reads the system catalogs again.
    """
    with connection.cursor() as cursor:
        tables = cursor.execute(TABLES, [[*CONSTANT_TABLES, WORKLOADS]]).fetchall()
        statements = [f'DELETE FROM "{table}";' for (table,) in tables]
        cursor.execute(FUNCTION.format(statements="\n    ".join(statements)))
    TransactionTestCase._fixture_teardown = lambda _: empty()  # type: ignore[attr-defined]
    TransactionTestCase._should_reload_connections = lambda _: False  # type: ignore[attr-defined]


def empty() -> None:
    """Delete the rows of every table once no other connection is inside a transaction."""
    connection.close_if_unusable_or_obsolete()
    deadline = time.monotonic() + PROBE_TIMEOUT_SECONDS
    with connection.cursor() as cursor:
        while busy := [pid for (pid,) in cursor.execute(BUSY).fetchall()]:
            if time.monotonic() > deadline:
                cursor.execute("SELECT pg_terminate_backend(pid, 5000) FROM unnest(%s) AS pid", [busy])
            time.sleep(0.01)
    for attempt in range(ATTEMPTS):
        try:
            without_triggers().execute("SELECT empty_tables()")
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(f"DELETE FROM {WORKLOADS}")
            return
        except (
            OperationalError,
            psycopg.OperationalError,
        ):  # a deadlock with a request that has just started
            if attempt == ATTEMPTS - 1:
                raise


def without_triggers() -> psycopg.Connection:
    """Return this process's connection with triggers disabled. Reconnect if a test closed it."""
    opened = _state.get("connection")
    if opened is None or opened.closed:
        parameters = connection.get_connection_params()
        names = ("dbname", "host", "port", "user", "password")
        opened = psycopg.connect(
            **{name: parameters[name] for name in names if name in parameters},
            autocommit=True,
            options="-c session_replication_role=replica",
        )
        _state["connection"] = opened
    return opened
