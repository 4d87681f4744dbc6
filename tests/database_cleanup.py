"""Empty the test database after a test that committed, faster than Django's flush and without deadlocks.

Django truncates every table, which takes exclusive locks, and then creates its permissions and content types
again. Most tests write to a few of about 90 tables. This module empties only those tables, with `DELETE`,
which does not wait for readers. Django's own rows are kept.
"""

import time

from django.db import OperationalError, connection, transaction
from django.test import TransactionTestCase

# Tables whose rows are kept: most are written by migrations only.
CONSTANT_TABLES = (
    "auth_permission", "django_content_type", "django_migrations",
    "projects_workloaddeletion",  # tells the caches of this process that the cleanup has deleted workloads
)  # fmt: skip
# Time in which leftover requests and threads can end before they are disconnected.
PROBE_TIMEOUT_SECONDS = 30.0
ATTEMPTS = 3

# Triggers of these tables keep a history append-only, and announce changes. Those of workloads are wanted.
TABLES = """
SELECT tablename, tablename <> 'projects_workload' AND EXISTS (
    SELECT FROM pg_trigger WHERE tgrelid = tablename::regclass AND NOT tgisinternal
)
FROM pg_tables WHERE schemaname = 'public' AND tablename <> ALL (%s) ORDER BY tablename
"""
# One statement per table, so that PostgreSQL keeps their plans between calls.
FUNCTION = """
CREATE OR REPLACE FUNCTION empty_tables() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    with_triggers text[] = '{{}}';
    name text;
BEGIN
    {statements}
    SET CONSTRAINTS ALL IMMEDIATE;
    FOREACH name IN ARRAY with_triggers LOOP
        EXECUTE format('ALTER TABLE %I ENABLE TRIGGER USER', name);
    END LOOP;
END $$
"""
DELETE = 'DELETE FROM "{table}";'
DELETE_WITHOUT_TRIGGERS = """
    IF EXISTS (SELECT FROM "{table}") THEN
        ALTER TABLE "{table}" DISABLE TRIGGER USER;
        DELETE FROM "{table}";
        with_triggers = with_triggers || '{table}'::text;
    END IF;"""
BUSY = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
AND state <> 'idle'
"""


def install() -> None:
    """Create the function in the test database and call it after each test that committed.

    Connections stay open between tests: a new connection reads the system catalogs again.
    """
    with connection.cursor() as cursor:
        tables = cursor.execute(TABLES, [list(CONSTANT_TABLES)]).fetchall()
        statements = [
            (DELETE_WITHOUT_TRIGGERS if has_triggers else DELETE).format(table=table)
            for table, has_triggers in tables
        ]
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
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SELECT empty_tables()")
            return
        except OperationalError:  # a deadlock with a request that has just started
            if attempt == ATTEMPTS - 1:
                raise
