"""Lock that keeps pools and quota groups apart."""

from django.db import connection

KEY = 0x71756F74  # of the advisory lock


def lock_places() -> None:
    """Until this transaction ends, let no other one create pools, change quota groups or write quotas.

    Otherwise, a pool and a group could get the same name, or two quotas of one owner could count in one pool.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [KEY])
