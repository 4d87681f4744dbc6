"""Leader election with a fenced lease.

All times come from the database, so the machines' clocks may differ.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import connection, transaction

from berth.db.models import Lease
from berth.db.queries import prepared

TABLE = Lease._meta.db_table
DO_NOT_WAIT_FOR_DISK = "set_config('synchronous_commit', 'off', true)"  # only for the current transaction

ACQUIRE = f"""
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
       AND {DO_NOT_WAIT_FOR_DISK} = 'off'
"""  # noqa: S608
RELEASE = f"""
    UPDATE {TABLE} SET holder = '', expires_at = clock_timestamp()
     WHERE name = %(name)s AND holder = %(holder)s AND epoch = %(epoch)s
"""  # noqa: S608


def _held_lease_query(column: str) -> str:
    """Return a query that selects `column` and locks the lease's row.

    The query returns no row if the lease is no longer held.
    """
    return f"""
        SELECT {column} FROM {TABLE}
         WHERE name = %s AND holder = %s AND epoch = %s
           FOR SHARE
    """  # noqa: S608


LOCK_IF_HELD, LOCK_WITHOUT_WAITING = _held_lease_query("1"), _held_lease_query(DO_NOT_WAIT_FOR_DISK)


@dataclass(frozen=True)
class HeldLease:
    """Lease that a process holds. Each write checks the name, holder and epoch to prove leadership."""

    name: str
    holder: str
    epoch: int


class LeadershipLost(Exception):
    """Raised if another process may now hold the lease. A fenced transaction is then rolled back."""


def holder_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def acquire(name: str, holder: str, ttl: float) -> HeldLease | None:
    """Acquire or extend the lease for `ttl` seconds. Return None if another process holds it."""
    with connection.cursor() as cursor:
        cursor.execute(ACQUIRE, {"name": name, "holder": holder, "ttl": ttl})
        row = cursor.fetchone()
    return HeldLease(name, holder, row[0]) if row else None


def renew(held: HeldLease, ttl: float) -> bool:
    """Extend the lease, even if it has expired. Return False if another process holds it."""
    return _execute(RENEW, held, ttl=ttl)


def release(held: HeldLease) -> bool:
    return _execute(RELEASE, held)


@contextmanager
def fenced_transaction(held: HeldLease, *, waits_for_disk: bool = True) -> Iterator[None]:
    """Run a transaction that commits only if the lease is still held.

    Raises LeadershipLost if another process holds it. With `waits_for_disk=False`, commits of the last second
    can be lost if the database crashes. Use this option only for rows that the next ticks would write again.
    """
    lock = LOCK_IF_HELD if waits_for_disk else LOCK_WITHOUT_WAITING
    with transaction.atomic():
        if prepared.fetch_one(lock, [held.name, held.holder, held.epoch]) is None:
            raise LeadershipLost(f"{held.holder} is no longer the leader of {held.name} (epoch {held.epoch})")
        yield


def _execute(statement: str, held: HeldLease, **values: float) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(statement, {**vars(held), **values})
        return cursor.rowcount == 1
