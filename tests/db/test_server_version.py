"""Tests that Berth rejects a database server that is too old."""

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.db.backends.base import base

from berth.db.schema import server_version
from berth.server.doctor import server
from berth.server.doctor.check import CheckStatus

NEVER_RELEASED = 99


@pytest.fixture
def old_server(monkeypatch: pytest.MonkeyPatch) -> str:
    """Make Berth consider the real server too old. Return the start of the error message."""
    monkeypatch.setattr(server_version, "OLDEST_VERSION", NEVER_RELEASED)
    return r"PostgreSQL \d+ at DATABASE_URL is too old. Berth needs version 99 or newer."


@pytest.mark.django_db
def test_migration_rejects_a_server_that_is_too_old(old_server: str) -> None:
    with pytest.raises(CommandError, match=f"{old_server} Upgrade the server, or unset DATABASE_URL"):
        call_command("migrate", verbosity=0)


def test_migration_rejects_a_server_that_django_does_not_support(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection.features, "minimum_database_version", (NEVER_RELEASED,))
    monkeypatch.setattr(base, "RAN_DB_VERSION_CHECK", set())  # Django checks each database once
    connection.close()
    with pytest.raises(CommandError, match=r"PostgreSQL 99 or later is required .*Upgrade the server"):
        call_command("migrate", verbosity=0)


def test_doctor_reports_a_server_that_is_too_old(
    old_server: str, monkeypatch: pytest.MonkeyPatch, postgres: str
) -> None:
    monkeypatch.setenv("DATABASE_URL", postgres)
    check = server._check_database()
    assert check.status == CheckStatus.MISSING
    assert "Berth needs version 99 or newer." in check.finding
    assert check.remedy == server_version.REMEDY
