"""Limit each project's concurrent dry runs across all web processes."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction

from berth.core.errors import RateLimited
from projects.models import Project

# maximum number of concurrent dry runs per project; each can keep a core busy for seconds
MAX_DRY_RUNS = 3
RETRY_AFTER = 2  # seconds after which a client may retry
LOCK_CLASS = 0x62647279  # first key of the advisory locks; the second consists of project and slot


@contextmanager
def dry_run_slot(project: Project, *, is_background: bool = False) -> Iterator[None]:
    """Hold one of the project's dry-run slots during the block.

    Background dry runs share the first slot. Raises RateLimited if no slot is free.
    """
    slots = range(1) if is_background else reversed(range(MAX_DRY_RUNS))
    with transaction.atomic():
        if not any(_acquire_slot(project.pk, slot) for slot in slots):
            raise RateLimited(
                RETRY_AFTER,
                f"{project.name} already has the maximum of {MAX_DRY_RUNS} dry runs in progress. "
                f"Try again in {RETRY_AFTER} s.",
            )
        yield


def _acquire_slot(project: int, slot: int) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_try_advisory_xact_lock(%s, %s)", [LOCK_CLASS, project * MAX_DRY_RUNS + slot]
        )
        (held,) = cursor.fetchone()
    return bool(held)
