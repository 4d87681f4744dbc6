"""Lock that serializes changes to pools, quota groups and quotas."""

from django.db import connection

KEY = 0x71756F74  # key of the PostgreSQL advisory lock


def lock_pools_and_quotas() -> None:
    """Take the lock, and hold it until the end of the transaction.

    Call this before creating a pool, or before changing a group or quota. Without the lock, a pool and a
    group could get the same name.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [KEY])
