"""Copies of an array's pending tasks, with a change that would let the tasks start."""

import json
import math
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict
from django.utils.html import format_html
from django.utils.safestring import SafeString
from pydantic import ValidationError

from berth.core.merge_patch import differences
from berth.core.problems import join_path
from berth.core.spec import ArraySpec
from berth.core.spec.sections.arrays import compress
from berth.core.wording.words import format_count
from projects.access import Action, may
from projects.actor import Actor
from projects.models import Workload, WorkloadArray
from projects.selectors import arrays
from projects.services.arrays import pending_originals
from projects.services.workloads import DocumentChange
from projects.web.arrays.replaced_tasks import ReplacedTasks
from scheduler.engine.smallest_change.change import ChangeKind
from scheduler.reports.explanations.workload import PENDING_PHASES
from scheduler.web.submit.document_presets import copy_name
from scheduler.web.workloads.details import document_text
from scheduler.web.workloads.pending.change_link import apply_change_to_document

COPIED_TASKS = "copied-tasks"  # hidden input of the form, with the value of an ArrayCopy
COUNT = re.compile(r"\d{1,5}", re.ASCII)
INTEGER_KINDS = (ChangeKind.PRIORITY_RAISED, ChangeKind.MAX_RUNTIME_LOWERED, ChangeKind.SPREAD_RAISED)


@dataclass(frozen=True, slots=True)
class ArrayCopy:
    """Document with an array's pending tasks and a change. `count` is the number of these tasks."""

    array: WorkloadArray
    count: int
    document: Mapping[str, Any]

    @property
    def value(self) -> str:
        """Value of the form's hidden input, which `submitted_copy` parses."""
        return f"{self.array.pk} {self.count}"

    @property
    def changes(self) -> list[DocumentChange]:
        """Differences between the array's document and the copy, except in the selection of tasks."""
        document = {**self.document, "array": self.array.spec["array"]}
        return [
            DocumentChange(join_path(path), before, after)
            for path, before, after in differences(self.array.spec, document)
        ]

    @property
    def text(self) -> str:
        name = copy_name(self.array)
        return document_text(self.array, **{**self.document, "name": name})


def find_array_copy(actor: Actor, query: QueryDict) -> ArrayCopy | None:
    """Return the array copy that a link to a smallest change opens, or None for any other query."""
    array = _find_array(actor, query.get("like", ""))
    change = _parse_change(query.get("change", ""))
    if array is None or change is None:
        return None
    pending = Workload.objects.filter(array=array, superseded=False, phase__in=PENDING_PHASES)
    task = pending.order_by("array_index").first()
    document = None if task is None else apply_change_to_document(array.spec, task.pools, change)
    if document is None:
        return None
    indexes = [index or 0 for index in pending.values_list("array_index", flat=True)]
    document["array"] = _select_tasks(document["array"], compress(indexes))
    return ArrayCopy(array, len(indexes), document)


def submitted_copy(actor: Actor, value: str) -> ArrayCopy | None:
    """Return the array copy for the value of the form's hidden input, or None if the value is invalid."""
    array_id, _, count = value.partition(" ")
    array = _find_array(actor, array_id)
    if array is None or not COUNT.fullmatch(count):
        return None
    return ArrayCopy(array, int(count), array.spec)


def count_pending_originals(copy: ArrayCopy | None, document: Mapping[str, Any] | None) -> int:
    """Return the number of pending tasks that the edited document of an array copy would replace."""
    if copy is None or not document or document.get("array") is None:
        return 0
    try:
        section = ArraySpec.model_validate(document["array"])
    except ValidationError:
        return 0
    return len(pending_originals(copy.array, section))


def link_to_cancel(replaced: ReplacedTasks) -> SafeString:
    """Return a sentence with a link to the form that cancels the tasks."""
    return format_html(
        '<a href="{}">Cancel the {} of {}</a> that it replaces.',
        replaced.cancel_url,
        format_count(len(replaced.indexes), "task"),
        replaced.array.name,
    )


def _find_array(actor: Actor, array_id: str) -> WorkloadArray | None:
    """Return the array, or None if the user may not cancel its tasks.

    If its tasks could not be cancelled, a copy would only duplicate them.
    """
    try:
        array = arrays(actor).filter(pk=uuid.UUID(array_id)).first()
    except ValueError:
        return None
    return array if array is not None and may(actor, Action.OPERATE, array) else None


def _parse_change(text: str) -> Mapping[str, Any] | None:
    try:
        change = json.loads(text)
        kind = ChangeKind(change["kind"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    change = {"subject": "", "resource": "", "before": None, "after": None, **change}
    is_valid = isinstance(change["subject"], str) and isinstance(change["resource"], str)
    return change if is_valid and _is_valid_amount(kind, change["after"]) else None


def _is_valid_amount(kind: ChangeKind, after: object) -> bool:
    if kind is ChangeKind.GPU_MODEL_ALLOWED:
        return isinstance(after, str)
    if kind is ChangeKind.REQUEST_LOWERED:
        return isinstance(after, int) or (isinstance(after, float) and math.isfinite(after))
    return kind not in INTEGER_KINDS or isinstance(after, int)


def _select_tasks(section: Mapping[str, Any], indexes: str) -> Mapping[str, Any]:
    """Return the array section, limited to the tasks in `indexes`.

    The tasks keep their indexes and parameters.
    """
    if compress(ArraySpec.model_validate(section).indexes) == indexes:
        return section
    parts = [int(part) if part.isdigit() else part for part in indexes.split(",")]
    return {**section, "tasks": parts}
