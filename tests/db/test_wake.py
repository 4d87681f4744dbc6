"""Tests for waking loops: commits, file descriptors, timeouts and reconnection."""

import os
import threading

import pytest
from django.db import connection, transaction

from berth.db.loops.wake import Waiter, WakeResult, wake

pytestmark = pytest.mark.django_db(transaction=True)


def test_transaction_commit_wakes_the_waiter_and_passes_the_reason() -> None:
    with Waiter("scheduler") as waiter:
        with transaction.atomic():
            wake("scheduler", "submitted")
            assert not waiter.wait(0.05)
        assert waiter.wait(60) == WakeResult(frozenset({"submitted"}))


def test_rollback_does_not_wake_the_waiter() -> None:
    with Waiter("scheduler") as waiter:
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            wake("scheduler", "submitted")
            raise ZeroDivisionError
        assert not waiter.wait(0.05)


def test_wake_ups_for_other_channels_are_ignored() -> None:
    with Waiter("scheduler") as waiter:
        wake("scheduler", "a")
        wake("another loop", "b")
        wake("scheduler", "c")
        heard: set[str] = set()
        while "c" not in heard:  # notifications arrive in the order of the commits
            heard |= waiter.wait(60).reasons
        assert heard == {"a", "c"}


def test_waiter_returns_when_it_is_woken() -> None:
    def wake_from_another_thread() -> None:
        wake("scheduler", "late")
        connection.close()

    with Waiter("scheduler") as waiter:
        threading.Timer(0.05, wake_from_another_thread).start()
        assert waiter.wait(3600).reasons == {"late"}


def test_readable_file_descriptor_ends_the_wait() -> None:
    reading, writing = os.pipe()
    with Waiter("scheduler", files=[reading]) as waiter:
        os.write(writing, b"x")
        assert waiter.wait(60) == WakeResult(ready=frozenset({reading}))
    os.close(reading)
    os.close(writing)


def test_lost_database_connection_is_restored_and_reported() -> None:
    with Waiter("scheduler") as waiter:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE query LIKE 'LISTEN%%' AND datname = current_database()"
            )
        assert waiter.wait(60).reasons == {"reconnected"}
        wake("scheduler", "again")
        assert waiter.wait(60).reasons == {"again"}


def test_waiter_returns_at_the_timeout() -> None:
    with Waiter("scheduler") as waiter:
        assert waiter.wait(0) == WakeResult()
