"""Django's command `makemigrations`, which ignores changes that leave the database as it is."""

from django.core.management.commands import makemigrations

from berth.db.schema_changes import SchemaChangeDetector


class Command(makemigrations.Command):
    autodetector = SchemaChangeDetector
