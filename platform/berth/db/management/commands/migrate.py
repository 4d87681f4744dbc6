"""Django's command `migrate`, which ignores changes that leave the database as it is."""

from django.core.management.commands import migrate

from berth.db.schema_changes import SchemaChangeDetector


class Command(migrate.Command):
    autodetector = SchemaChangeDetector
