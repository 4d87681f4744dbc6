"""Limit each project's concurrent dry runs across all web processes."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction

from berth.core.errors import RateLimited
from projects.models import Project

SLOTS = 3  # per project, because one dry run may take a core for seconds
RETRY_AFTER = 2  # seconds
LOCK_CLASS = 0x62647279  # first key of the advisory locks; the second key is project and slot


@contextmanager
def dry_run_slot(project: Project) -> Iterator[None]:
    """Hold one of the project's slots. Raises RateLimited if all slots are taken.

    The lock belongs to a transaction and ends with the transaction, even if the process dies.
    """
    with transaction.atomic():
        if not any(_take_slot(project.pk, slot) for slot in range(SLOTS)):
            raise RateLimited(
                RETRY_AFTER,
                f"{project.name} has {SLOTS} dry runs in progress, the maximum. "
                f"Try again in {RETRY_AFTER} s.",
            )
        yield


def _take_slot(project: int, slot: int) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", [LOCK_CLASS, project * SLOTS + slot])
        (held,) = cursor.fetchone()
    return bool(held)
