"""Check the tables for the columns that the models expect."""

from collections.abc import Iterator
from pathlib import Path

from django.apps import apps
from django.db import connection
from django.db.models import Model

from berth.db.embedded.cluster import EmbeddedCluster

COLUMNS = """
SELECT table_name, column_name, is_nullable = 'NO' AND column_default IS NULL AND is_identity = 'NO'
FROM information_schema.columns WHERE table_schema = current_schema()
"""
LISTED = 3  # maximum number of differences in a message


def schema_differences() -> list[str]:
    """Return how the tables differ from the models, for example "table a_b has no column c".

    Only column names and required values are compared. The initial migrations change until the first release,
    so Django cannot tell that an older database does not match.
    """
    with connection.cursor() as cursor:
        cursor.execute(COLUMNS)
        columns: dict[str, dict[str, bool]] = {}
        for table, column, is_required in cursor.fetchall():
            columns.setdefault(table, {})[column] = is_required
    models = [model for model in apps.get_models(include_auto_created=True) if model._meta.managed]
    return sorted({text for model in models for text in _differences(model, columns)})


def foreign_database_message(differences: list[str], home: Path) -> str:
    """Return instructions for a database whose tables differ from the models."""
    if connection.settings_dict["OPTIONS"].get("host") == str(EmbeddedCluster(home / "postgres").socket):
        place = f"The database of this home ({home})"
        remedy = "Set BERTH_HOME to a new directory, or delete all data with `make demo-reset`"
    else:
        place, remedy = "The database at DATABASE_URL", "Use an empty database"
    listed, rest = "; ".join(differences[:LISTED]), len(differences) - LISTED
    more = f"; and {rest} more" if rest > 0 else ""
    return (
        f"{place} was created by another development version of Berth, and this version cannot use it. "
        f"{remedy}, or continue with that version. Differences: {listed}{more}."
    )


def _differences(model: type[Model], columns: dict[str, dict[str, bool]]) -> Iterator[str]:
    table = model._meta.db_table
    if model._meta.proxy:
        return
    if table not in columns:
        yield f"table {table} is missing"
        return
    expected = {field.column: field for field in model._meta.local_concrete_fields if field.column}
    for column in expected.keys() - columns[table].keys():
        yield f"table {table} has no column {column}"
    for column, is_required in columns[table].items():
        if is_required and (column not in expected or expected[column].null):
            yield f"column {column} of table {table} must not be empty"
