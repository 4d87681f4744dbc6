"""The demo can be created again, also from nothing."""

from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from projects.management.commands import demo_reset
from tests.factories import scheduler_leads


def test_a_database_without_tables_has_nobody_who_leads(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """So `make demo-reset` works before the first `make run`."""
    monkeypatch.setattr(connection.introspection, "table_names", lambda *args: [])
    assert demo_reset._leader() is None


def test_nothing_is_deleted_while_somebody_leads(db: None, monkeypatch: Any) -> None:
    scheduler_leads()
    with pytest.raises(CommandError, match="stop it first"):
        call_command("demo_reset", yes=True)
