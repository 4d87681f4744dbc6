"""Replace an array's pending tasks with a copy of the array."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from berth.core.spec import ArraySpec
from projects.actor import Actor
from projects.models import Phase, Workload, WorkloadArray
from projects.services.arrays.control import cancel
from projects.services.arrays.rows import lock_array
from projects.services.arrays.submission import ArraySubmission, submit


@dataclass(frozen=True, slots=True)
class Replacement:
    """Stored copy of an array, and the number of original tasks that were cancelled."""

    submission: ArraySubmission
    cancelled: int


def pending_originals(array: WorkloadArray, section: ArraySpec) -> list[int]:
    """Return the indexes of the array's pending tasks that also occur in a copy's array section."""
    pending = Workload.objects.filter(
        array=array, superseded=False, phase__in=(Phase.PENDING, Phase.RESERVED)
    )
    copied = set(section.indexes)
    indexes = pending.order_by("array_index").values_list("array_index", flat=True)
    return [index for index in indexes if index is not None and index in copied]


def replace_pending(
    *, actor: Actor, array: WorkloadArray, document: Mapping[str, Any], now: datetime | None = None
) -> Replacement:
    """Submit a copy of an array, and cancel the array's pending tasks that the copy contains, or do neither.

    Tasks of the array that have started keep running. Raises the errors of `submit`, Forbidden if the user
    may not cancel the array's tasks, and NotFound if the array was deleted.
    """
    with transaction.atomic():
        locked = lock_array(array)  # lock the array before the project, as a retry does
        submission = submit(actor=actor, document=document, now=now)
        section = ArraySpec.model_validate(submission.array.spec["array"])
        indexes = pending_originals(locked, section)
        cancelled = cancel(actor=actor, array=locked, indexes=indexes, pending_only=True, now=now)
    return Replacement(submission, cancelled)
