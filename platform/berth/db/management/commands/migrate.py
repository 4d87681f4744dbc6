"""Django's `migrate` command, adapted to Berth.

It ignores changes that do not affect the database. It rejects servers that are too old, and databases of
another development version.
"""

from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import NotSupportedError, connection

from berth.db.schema.changes import SchemaChangeDetector
from berth.db.schema.expected import foreign_database_message, schema_differences
from berth.db.schema.server_version import REMEDY, version_problem

# Options that keep the command from migrating the whole database to the latest version.
PARTIAL = ("app_label", "plan", "check_unapplied", "prune")


class UnusableDatabaseError(CommandError):
    """Raised if the server is too old, or if the tables differ from the models after all migrations."""


class Command(migrate.Command):
    autodetector = SchemaChangeDetector

    def handle(self, *args: Any, **options: Any) -> None:
        _require_supported_server()
        super().handle(*args, **options)
        if any(options.get(name) for name in PARTIAL):
            return
        if differences := schema_differences():
            raise UnusableDatabaseError(foreign_database_message(differences, settings.BERTH_HOME))


def _require_supported_server() -> None:
    try:
        connection.ensure_connection()
        version = connection.connection.info.server_version // 10_000
    except NotSupportedError as error:  # raised by Django for versions that it does not support
        raise UnusableDatabaseError(f"{error}. {REMEDY}") from error
    if problem := version_problem(version):
        raise UnusableDatabaseError(f"{problem} {REMEDY}")
