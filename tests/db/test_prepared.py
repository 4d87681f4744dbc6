"""Tests for queries that bypass Django's cursors."""

from typing import Any

import pytest
from django.db import DataError, InternalError, ProgrammingError, connection, transaction
from django.test.utils import CaptureQueriesContext

from berth.db.queries import prepared

pytestmark = pytest.mark.django_db
ECHO = "SELECT %s::text, %s::integer"


def test_prepared_query_returns_its_rows() -> None:
    assert prepared.fetch_all(ECHO, ["a", 1]) == [("a", 1)]
    assert prepared.fetch_one(ECHO, ["%s", 2]) == ("%s", 2)
    assert prepared.fetch_one(f"{ECHO} WHERE false", ["a", 1]) is None


def test_database_errors_are_raised_as_django_errors_and_break_the_transaction() -> None:
    with pytest.raises(ProgrammingError), transaction.atomic():
        prepared.execute("SELECT no_such_column", [])
    with transaction.atomic():
        with pytest.raises(DataError):
            prepared.execute("SELECT %s::integer", ["x"])
        with pytest.raises(InternalError, match="transaction is aborted"):
            prepared.fetch_all(ECHO, ["a", 1])
        transaction.set_rollback(True)


def test_query_in_a_transaction_marked_for_rollback_is_rejected() -> None:
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(transaction.TransactionManagementError):
            prepared.fetch_all(ECHO, ["a", 1])


def test_prepared_queries_can_be_counted_and_intercepted() -> None:
    with CaptureQueriesContext(connection) as captured:
        prepared.fetch_all(ECHO, ["a", 1])
    assert len(captured) == 1
    statements: list[str] = []

    def intercept(execute: Any, sql: str, *rest: Any) -> Any:
        statements.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(intercept):
        assert prepared.fetch_all(ECHO, ["b", 2]) == [("b", 2)]
    assert statements == [ECHO]
