"""Snapshot the browser test data and restore it within tenths of a second."""

import pickle
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from django.utils import timezone

from tests.browser.data.scene import Scene, busy
from tests.harness.database_cleanup import CONSTANT_TABLES

SCHEMA = "scene_copy"
# Whole hours and minutes stay unchanged. All other timestamps are shifted by the age of the copy.
NOT_MOVED = {("scheduler_usagehour", "hour"), ("scheduler_utilizationpoint", "at")}


@dataclass(frozen=True)
class Snapshot:
    inserts: list[str]
    scene: bytes
    taken_at: datetime

    @classmethod
    def take(cls) -> "Snapshot":
        """Create the test data in an empty database and copy its tables into a separate schema."""
        taken_at = timezone.now()
        scene = busy()
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"CREATE SCHEMA {SCHEMA}")
            tables = set(connection.introspection.django_table_names(only_existing=True)) - {*CONSTANT_TABLES}
            inserts = []
            for table in sorted(tables):
                cursor.execute(f'SELECT 1 FROM "{table}" LIMIT 1')
                if cursor.fetchone() is not None:
                    cursor.execute(f'CREATE TABLE {SCHEMA}."{table}" AS TABLE "{table}"')
                    inserts.append(_insert(cursor, table))
        return cls(inserts, pickle.dumps(scene), taken_at)

    def restore(self) -> Scene:
        """Restore the rows in an empty database, with times as if the data had been created just now."""
        parameters: dict[str, Any] = {"age": timezone.now() - self.taken_at}
        with transaction.atomic(), connection.cursor() as cursor:
            for insert in self.inserts:
                cursor.execute(insert, parameters)
        return pickle.loads(self.scene)

    def drop(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP SCHEMA {SCHEMA} CASCADE")


def _insert(cursor: CursorWrapper, table: str) -> str:
    cursor.execute(
        "SELECT column_name, data_type FROM information_schema.columns "
        "WHERE table_schema = current_schema() AND table_name = %s ORDER BY ordinal_position",
        [table],
    )
    columns = cursor.fetchall()
    names = ", ".join(f'"{name}"' for name, _ in columns)
    values = ", ".join(
        f'"{name}" + %(age)s::interval' if moved else f'"{name}"'
        for name, kind in columns
        for moved in [kind == "timestamp with time zone" and (table, name) not in NOT_MOVED]
    )
    return f'INSERT INTO "{table}" ({names}) SELECT {values} FROM {SCHEMA}."{table}"'
