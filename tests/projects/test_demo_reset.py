"""Tests for `manage.py demo_reset`."""

from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from projects.management.commands import demo_reset
from tests.factories import create_scheduler_lease


def test_database_without_tables_has_no_leader(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # `make demo-reset` must work before the first `make run`.
    monkeypatch.setattr(connection.introspection, "table_names", lambda *args: [])
    assert demo_reset._leader() is None


def test_demo_reset_fails_while_a_scheduler_is_running(db: None, monkeypatch: Any) -> None:
    create_scheduler_lease()
    with pytest.raises(CommandError, match="Stop Berth first"):
        call_command("demo_reset", yes=True)
