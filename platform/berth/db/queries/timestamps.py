"""Load timestamps more than ten times as fast as Django does with psycopg."""

from datetime import UTC, datetime

from django.db.backends.postgresql.psycopg_any import get_adapters_template
from psycopg.abc import Buffer
from psycopg.types.datetime import TimestamptzLoader


class UtcLoader(TimestamptzLoader):
    timezone = UTC  # Django compares this attribute with the connection's time zone

    def load(self, data: Buffer) -> datetime:
        try:
            return datetime.fromisoformat(str(data, "ascii"))
        except ValueError:
            return super().load(data)  # raises an error for dates that Python cannot represent


def use_fast_timestamp_loader() -> None:
    """Register the fast timestamp loader for all connections that are opened from now on."""
    get_adapters_template(True, UTC).register_loader("timestamptz", UtcLoader)
