"""Copies of the scene that cost tenths of a second instead of seconds."""

import pickle
import time
from dataclasses import dataclass

from django.db import connection, transaction

from tests.browser.scene import Scene, busy
from tests.emptying import CONSTANT_TABLES

# Pages show times such as "12 minutes ago", so a snapshot is only used while it is about this old.
MAX_AGE_SECONDS = 60


@dataclass(frozen=True)
class Snapshot:
    """The rows of every table, in PostgreSQL's binary format, and the pickled scene."""

    rows: dict[str, bytes]
    scene: bytes
    taken_at: float

    @classmethod
    def take(cls) -> "Snapshot":
        """Create the scene in the empty database and copy its rows."""
        taken_at = time.monotonic()
        scene = busy()
        with connection.cursor() as cursor:
            tables = set(connection.introspection.django_table_names(only_existing=True)) - {*CONSTANT_TABLES}
            rows = {}
            for table in sorted(tables):
                with cursor.copy(f'COPY "{table}" TO STDOUT (FORMAT binary)') as copy:
                    rows[table] = b"".join(copy)
                cursor.execute(f'SELECT 1 FROM "{table}" LIMIT 1')
                if cursor.fetchone() is None:
                    del rows[table]
        return cls(rows, pickle.dumps(scene), taken_at)

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() - self.taken_at < MAX_AGE_SECONDS

    def restore(self) -> Scene:
        """Write the rows into the empty database. Foreign keys are checked when the transaction ends."""
        with transaction.atomic(), connection.cursor() as cursor:
            for table, data in self.rows.items():
                with cursor.copy(f'COPY "{table}" FROM STDIN (FORMAT binary)') as copy:
                    copy.write(data)
        return pickle.loads(self.scene)
