"""Test that models and migrations agree."""

from typing import Any

import pytest
from django.core.management import call_command
from django.db.migrations import Migration
from django.db.migrations.graph import MigrationGraph
from django.db.migrations.operations import AlterField
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ModelState, ProjectState
from django.db.models import CharField, Field

from berth.db.schema.changes import SchemaChangeDetector


@pytest.mark.django_db
def test_migrations_match_the_models() -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=1)


def test_new_choices_and_help_text_need_no_migration() -> None:
    explained = CharField(max_length=9, choices=[("local", "Local")], help_text="Where nodes come from.")

    assert operations_between(CharField(max_length=9), explained) == []


def test_migration_of_a_changed_column_omits_its_choices() -> None:
    longer = CharField(max_length=12, choices=[("local", "Local")])

    [operation] = operations_between(CharField(max_length=9), longer)

    assert isinstance(operation, AlterField)
    assert operation.field.deconstruct()[3] == {"max_length": 12}


def operations_between(before: "Field[Any, Any]", after: "Field[Any, Any]") -> list[Operation]:
    states = []
    for field in (before, after):
        states.append(ProjectState())
        states[-1].add_model(ModelState("pools", "Site", [("provider", field)]))
    graph = MigrationGraph()
    graph.add_node(("pools", "0001_initial"), Migration("0001_initial", "pools"))
    changes = SchemaChangeDetector(*states).changes(graph)
    return [operation for migration in changes.get("pools", []) for operation in migration.operations]
