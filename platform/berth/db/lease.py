"""Leader election by a fenced lease.

All times come from the database, so the clocks of machines may differ.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import connection, transaction

from berth.db.models import Lease

TABLE = Lease._meta.db_table

TAKE = f"""
    INSERT INTO {TABLE} AS lease (name, holder, epoch, renewed_at, expires_at)
    VALUES (%(name)s, %(holder)s, 1, clock_timestamp(), clock_timestamp() + %(ttl)s * interval '1 second')
    ON CONFLICT (name) DO UPDATE
       SET holder = EXCLUDED.holder, epoch = lease.epoch + 1,
           renewed_at = EXCLUDED.renewed_at, expires_at = EXCLUDED.expires_at
     WHERE lease.expires_at <= clock_timestamp() OR lease.holder IN ('', EXCLUDED.holder)
    RETURNING epoch
"""  # noqa: S608
RENEW = f"""
    UPDATE {TABLE}
       SET renewed_at = clock_timestamp(), expires_at = clock_timestamp() + %(ttl)s * interval '1 second'
     WHERE name = %(name)s AND holder = %(holder)s AND epoch = %(epoch)s
"""  # noqa: S608
RELEASE = f"""
    UPDATE {TABLE} SET holder = '', expires_at = clock_timestamp()
     WHERE name = %(name)s AND holder = %(holder)s AND epoch = %(epoch)s
"""  # noqa: S608
STILL = f"""
    SELECT 1 FROM {TABLE}
     WHERE name = %(name)s AND holder = %(holder)s AND epoch = %(epoch)s
       FOR SHARE
"""  # noqa: S608


@dataclass(frozen=True)
class Held:
    """Proof of leadership, checked at each write: name, holder and epoch of the lease."""

    name: str
    holder: str
    epoch: int


class LeadershipLost(Exception):
    """Another process leads now, and this block wrote nothing."""


def this_process() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def acquire(name: str, holder: str, ttl: float) -> Held | None:
    """Return the lease for `ttl` seconds if it is free, expired or already held by `holder`, else None."""
    with connection.cursor() as cursor:
        cursor.execute(TAKE, {"name": name, "holder": holder, "ttl": ttl})
        row = cursor.fetchone()
    return Held(name, holder, row[0]) if row else None


def renew(held: Held, ttl: float) -> bool:
    """Extend the lease. Return False if another process holds it; an expired lease can be renewed."""
    return _change(RENEW, held, ttl=ttl)


def release(held: Held) -> bool:
    return _change(RELEASE, held)


@contextmanager
def fenced(held: Held) -> Iterator[None]:
    """Run a transaction that commits only while `held` leads. A successor waits for the commit.

    Raises LeadershipLost.
    """
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(STILL, vars(held))
            if cursor.fetchone() is None:
                raise LeadershipLost(f"{held.holder} no longer leads {held.name} (epoch {held.epoch})")
        yield


def _change(statement: str, held: Held, **values: float) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(statement, {**vars(held), **values})
        return cursor.rowcount == 1
