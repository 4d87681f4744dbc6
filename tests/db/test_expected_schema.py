"""Tests for databases created by an earlier development version of Berth."""

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from berth.db.schema.expected import LISTED, schema_differences

pytestmark = pytest.mark.django_db


def run_sql(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def test_migrated_database_has_the_tables_that_the_models_expect() -> None:
    assert schema_differences() == []
    call_command("migrate", verbosity=0)


def test_database_that_lacks_a_model_column_is_rejected() -> None:
    run_sql("ALTER TABLE projects_workload DROP COLUMN peer_failures")
    with pytest.raises(CommandError, match="created by another development version of Berth") as rejected:
        call_command("migrate", verbosity=0)
    assert "Differences: table projects_workload has no column peer_failures." in str(rejected.value)


def test_required_column_missing_from_the_models_is_reported_as_a_difference() -> None:
    run_sql(
        "ALTER TABLE projects_workload ADD COLUMN former_name varchar(8) NOT NULL DEFAULT 'x'",
        "ALTER TABLE projects_workload ALTER COLUMN former_name DROP DEFAULT",
        "ALTER TABLE projects_workload ADD COLUMN former_note varchar(8)",
    )
    assert schema_differences() == ["column former_name of table projects_workload must not be empty"]


def test_schema_error_lists_only_a_few_differences() -> None:
    run_sql(
        *(
            f"ALTER TABLE projects_workload DROP COLUMN {name} CASCADE"
            for name in ("name", "run", "phase", "kind")
        )
    )
    assert len(schema_differences()) == LISTED + 1
    with pytest.raises(CommandError, match="; and 1 more"):
        call_command("migrate", verbosity=0)
