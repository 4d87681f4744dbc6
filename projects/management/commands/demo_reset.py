"""Empty the database and seed the demo organization again."""

from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection, transaction
from django.db.models.functions import Now

from berth.db.models import Lease


class Command(BaseCommand):
    help = "Empty the whole database, then seed the demo organization. Berth must not be running."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--yes", action="store_true", help="Skip the confirmation prompt.")

    def handle(self, *args: Any, yes: bool, **options: Any) -> None:
        leader = _leader()
        if leader is not None:
            raise CommandError(f"Berth is running ({leader.holder} leads {leader.name}). Stop Berth first.")
        name = connection.settings_dict["NAME"]
        if (
            not yes
            and input(f"This deletes everything in the database {name!r}. Type its name to continue: ")
            != name
        ):
            raise CommandError("Nothing was deleted, because the name does not match.")
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("DROP SCHEMA public CASCADE")
            cursor.execute("CREATE SCHEMA public")
        call_command("migrate", verbosity=0, interactive=False)
        call_command("demo", stdout=self.stdout)


def _leader() -> Lease | None:
    """Return the current leader's lease, or None if there is no leader or the table does not exist yet."""
    if Lease._meta.db_table not in connection.introspection.table_names():
        return None
    return Lease.objects.filter(expires_at__gt=Now()).exclude(holder="").first()
