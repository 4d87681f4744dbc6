"""Bound the dry runs of one project that run at the same time, in all web processes together."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction

from berth.core.errors import RateLimited
from projects.models import Project

SLOTS = 3  # of each project; one dry run may take a core for seconds
RETRY_AFTER = 2  # seconds
LOCK_CLASS = 0x62647279  # of advisory locks, whose second half is project and slot


@contextmanager
def dry_run_slot(project: Project) -> Iterator[None]:
    """Hold one of the project's slots. Raises RateLimited when all of them are taken.

    The lock belongs to a transaction, so that it ends with it, whatever happens to the process.
    """
    with transaction.atomic():
        if not any(_takes(project.pk, slot) for slot in range(SLOTS)):
            raise RateLimited(
                RETRY_AFTER,
                f"{project.name} has {SLOTS} dry runs in progress, the maximum. "
                f"Try again in {RETRY_AFTER} s.",
            )
        yield


def _takes(project: int, slot: int) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", [LOCK_CLASS, project * SLOTS + slot])
        (held,) = cursor.fetchone()
    return bool(held)
