"""Django's `migrate` command, with two differences.

The command ignores changes that do not affect the database, and rejects a database that another development
version created, even if all migrations are recorded as applied.
"""

from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.core.management.commands import migrate

from berth.db.expected_schema import foreign_database_message, schema_differences
from berth.db.schema_changes import SchemaChangeDetector

# Options that keep the command from migrating the whole database to the latest version.
PARTIAL = ("app_label", "plan", "check_unapplied", "prune")


class ForeignDatabaseError(CommandError):
    """Raised if the tables differ from the models although all migrations are applied."""


class Command(migrate.Command):
    autodetector = SchemaChangeDetector

    def handle(self, *args: Any, **options: Any) -> None:
        super().handle(*args, **options)
        if any(options.get(name) for name in PARTIAL):
            return
        if differences := schema_differences():
            raise ForeignDatabaseError(foreign_database_message(differences, settings.BERTH_HOME))
