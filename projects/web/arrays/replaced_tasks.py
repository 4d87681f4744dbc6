"""Tasks of an array that a copy of the array replaces."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from django.urls import reverse

from berth.core.spec import ArraySpec
from berth.core.wording.words import format_count
from projects.actor import Actor
from projects.models import Workload, WorkloadArray
from projects.models.workloads import LIVE_PHASES
from projects.selectors import arrays

REPLACED = "replaced"  # choice in the form that cancels tasks


@dataclass(frozen=True, slots=True)
class ReplacedTasks:
    """Unfinished tasks of an array whose indexes also exist in a copy of the array."""

    array: WorkloadArray
    copy: WorkloadArray
    indexes: Sequence[int]

    @property
    def label(self) -> str:
        return f"{format_count(len(self.indexes), 'unfinished task')} that {self.copy.name} replaces"

    @property
    def cancel_url(self) -> str:
        """URL of the form that cancels the tasks. Its length does not depend on their number."""
        query = urlencode({"choice": REPLACED, "copy": self.copy.pk})
        return f"{reverse('array-action', args=[self.array.pk, 'cancel'])}?{query}"


def replaced_tasks(array: WorkloadArray, copy: WorkloadArray) -> ReplacedTasks:
    copied = set(ArraySpec.model_validate(copy.spec["array"]).indexes)
    live = Workload.objects.filter(array=array, superseded=False, phase__in=LIVE_PHASES)
    indexes = live.order_by("array_index").values_list("array_index", flat=True)
    return ReplacedTasks(array, copy, [index for index in indexes if index is not None and index in copied])


def find_replaced_tasks(actor: Actor, array: WorkloadArray, copy_id: str) -> ReplacedTasks | None:
    """Return the tasks that a visible copy of the array replaces, or None if there is no such copy."""
    try:
        copy = arrays(actor).filter(pk=uuid.UUID(copy_id)).exclude(pk=array.pk).first()
    except ValueError:
        return None
    return None if copy is None else replaced_tasks(array, copy)
