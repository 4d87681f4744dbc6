"""Lock an array, select its tasks, and audit changes to the tasks."""

from collections.abc import Collection, Sequence
from typing import Any

from django.db.models import QuerySet

from berth.core.errors import NotFound
from berth.core.spec.sections.arrays import compress
from projects.actor import Actor
from projects.models import Workload, WorkloadArray
from projects.services import audit
from projects.services.arrays.tasks import check_indexes


def lock_array(array: WorkloadArray) -> WorkloadArray:
    """Lock an array until the transaction ends. Raises NotFound if it was deleted."""
    rows = WorkloadArray.objects.select_for_update(of=("self",), no_key=True)
    locked = rows.select_related("project__department").filter(pk=array.pk).first()
    if locked is None:
        raise NotFound("This array has been deleted.")
    return locked


def select_tasks(array: WorkloadArray, indexes: Sequence[int] | None) -> QuerySet[Workload]:
    """Return the last attempt of each task, or of those in `indexes`.

    Raises Invalid for an index that the array does not have.
    """
    rows = Workload.objects.filter(array=array, superseded=False)
    if indexes is None:
        return rows
    existing = rows.values_list("array_index", flat=True)
    check_indexes([index for index in existing if index is not None], indexes)
    return rows.filter(array_index__in=set(indexes))


def audit_change(
    actor: Actor, action: audit.AuditAction, array: WorkloadArray, count: int, indexes: Collection[int | None]
) -> None:
    after: dict[str, Any] = {"tasks": count}
    if indexes:
        after["indexes"] = compress(index for index in indexes if index is not None)
    audit.write_entry(actor, action, array, after=after, project=array.project)
