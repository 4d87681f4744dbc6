"""Delete history before a specified day."""

from argparse import ArgumentParser
from datetime import UTC, date, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connection, transaction

from projects.actor import Actor
from projects.models import Project
from projects.services import audit

# Tables, each with the trigger that prevents row deletion.
HISTORY = (
    ("projects_event", "projects_event_append_only"),
    ("projects_audit", "projects_audit_append_only"),
    ("scheduler_eviction", "scheduler_eviction_append_only"),
    ("pools_scalingevent", "pools_scalingevent_append_only"),
)


class Command(BaseCommand):
    help = "Delete events, audit rows, evictions and scaling events older than a day. Export them first."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--before",
            required=True,
            type=_parse_day,
            metavar="YYYY-MM-DD",
            help="First day to keep, in UTC.",
        )
        parser.add_argument(
            "--yes", action="store_true", help="Delete the rows instead of only counting them."
        )

    def handle(self, *args: Any, before: datetime, yes: bool, **options: Any) -> None:
        if before > datetime.now(UTC):
            raise CommandError(f"--before {before:%Y-%m-%d} is not in the past. Use an earlier day.")
        for table, trigger in HISTORY:
            count = _prune(table, trigger, before) if yes else _count_older_rows(table, before)
            self.stdout.write(f"{table}: {count} rows {'deleted' if yes else 'are older'}")
        if not yes:
            self.stdout.write("Nothing was deleted. Repeat the command with --yes to delete the rows.")


def _parse_day(text: str) -> datetime:
    day = date.fromisoformat(text)
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _count_older_rows(table: str, before: datetime) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {connection.ops.quote_name(table)} WHERE at < %s", [before])  # noqa: S608
        return int(cursor.fetchone()[0])


def _prune(table: str, trigger: str, before: datetime) -> int:
    """Delete old rows, and return their number. Other writers wait while the trigger is disabled."""
    name, quoted_trigger = connection.ops.quote_name(table), connection.ops.quote_name(trigger)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {name} DISABLE TRIGGER {quoted_trigger}")
        cursor.execute(f"DELETE FROM {name} WHERE at < %s", [before])  # noqa: S608
        deleted = cursor.rowcount
        cursor.execute(f"ALTER TABLE {name} ENABLE TRIGGER {quoted_trigger}")
        if deleted:
            after = {"before": f"{before:%Y-%m-%d}", table: deleted}
            audit.write_entry(Actor.system("prune"), "prune", Project(name="history"), after=after)
    return deleted
