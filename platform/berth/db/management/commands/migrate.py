"""Django's `migrate` command, except that it ignores changes that do not affect the database."""

from django.core.management.commands import migrate

from berth.db.schema_changes import SchemaChangeDetector


class Command(migrate.Command):
    autodetector = SchemaChangeDetector
