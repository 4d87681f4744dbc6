"""Django's `makemigrations` command, except that it ignores changes that do not affect the database."""

from django.core.management.commands import makemigrations

from berth.db.schema.changes import SchemaChangeDetector


class Command(makemigrations.Command):
    autodetector = SchemaChangeDetector
