"""Submit arrays: check the document, and store the array with its tasks."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone
from pydantic_core import to_json

from berth.core.errors import Conflict, Invalid
from berth.core.problems import Problem, format_value
from berth.core.spec import ArraySpec, WorkloadSpec
from berth.core.spec.rules.arrays import task_name
from berth.core.values.amounts import MILLI
from berth.db.loops.crash_points import crash_point
from berth.db.loops.wake import wake
from projects.actor import Actor
from projects.models import ArrayState, Workload, WorkloadArray
from projects.models.arrays import PENDING_MAX
from projects.models.workloads import ENDED_PHASES
from projects.services import audit
from projects.services.arrays.progress import release_held_tasks
from projects.services.arrays.tasks import store_tasks
from projects.services.code_fetches import store_fetches
from projects.services.workloads.checks.document import parse_submission
from projects.services.workloads.names import free_name_to_suggest
from projects.services.workloads.prediction import TasksPrediction, predict_drafts
from projects.services.workloads.submission import (
    Draft,
    collect_warnings,
    prepare,
    require_valid_dependencies,
)
from projects.services.workloads.submission_view import SubmissionView

STORED_MAX = 256 * 2**20  # maximum total size of an array's documents in bytes


@dataclass(frozen=True, slots=True)
class ArraySubmission:
    """Stored array, and the warnings for the submitter."""

    array: WorkloadArray
    warnings: list[str]


@dataclass(frozen=True, slots=True)
class ArrayDraft:
    """Checked, unsaved array. `model` is the workload to copy for each task."""

    array: WorkloadArray
    section: ArraySpec
    model: Draft


def submit(
    *,
    actor: Actor,
    document: Mapping[str, Any],
    now: datetime | None = None,
    on_checked: Callable[[WorkloadArray], None] | None = None,
) -> ArraySubmission:
    """Store a new active array with all of its tasks, or store nothing.

    `on_checked` is called with the array before it is stored, and may reject it. Raises Invalid with every
    problem in the document, NotFound or Forbidden if the user may not submit to the project, and Conflict if
    a name is in use.
    """
    at = now or timezone.now()
    spec = parse_submission(SubmissionView(actor), document, at=at, is_array=True)
    with transaction.atomic():  # use a savepoint, because the insert fails if a name is in use
        view = SubmissionView(actor, locks=True)
        draft = prepare_array(view, document, spec, now=at)
        array = draft.array
        if on_checked is not None:
            on_checked(array)
        _insert_array(array)
        (warnings,) = collect_warnings(view, [draft.model])
        store_fetches([draft.model.workload])
        store_tasks(array, draft.model, dict.fromkeys(draft.section.indexes, 1), actor, warnings)
        crash_point("array.stored")
        release_held_tasks([array.pk], array.submitted_at)
        if not actor.is_system:
            audit.write_entry(actor, "submit", array, after=_audit_values(array), project=array.project)
        wake("scheduler")
    return ArraySubmission(array, warnings)


def validate(*, actor: Actor, document: Mapping[str, Any], now: datetime | None = None) -> ArrayDraft:
    """Return the unsaved array that `submit` would store. Raises the same errors as `submit`."""
    return _prepare_valid_array(SubmissionView(actor), document, now)


def predict(
    *, actor: Actor, document: Mapping[str, Any], now: datetime | None = None
) -> tuple[WorkloadArray, TasksPrediction]:
    """Return the array that `submit` would store, and the outcome of the next cycle for its tasks.

    Raises the errors of `submit`, and RateLimited if too many dry runs of the project are in progress.
    """
    at = now or timezone.now()
    view = SubmissionView(actor)
    draft = _prepare_valid_array(view, document, at)
    array, model = draft.array, draft.model
    released = min(array.task_count, PENDING_MAX, array.max_running or PENDING_MAX)
    first, *others = (task_name(array.name, index) for index in draft.section.indexes[:released])
    model.workload.name = first
    return array, replace(predict_drafts(view, model, others, at), tasks=array.task_count)


def _prepare_valid_array(
    view: SubmissionView, document: Mapping[str, Any], now: datetime | None
) -> ArrayDraft:
    at = now or timezone.now()
    spec = parse_submission(view, document, at=at, is_array=True)
    draft = prepare_array(view, document, spec, now=at)
    array = draft.array
    if WorkloadArray.objects.filter(project=array.project, name=array.name, state=ArrayState.ACTIVE).exists():
        raise _name_taken_error(array, "an active array")
    names = [array.name, *(task_name(array.name, index) for index in draft.section.indexes)]
    live = Workload.objects.filter(project=array.project, name__in=names).exclude(phase__in=ENDED_PHASES)
    if (name := live.values_list("name", flat=True).first()) is not None:
        raise _name_taken_error(array, f"the live workload {name}")
    return draft


def prepare_array(
    view: SubmissionView, document: Mapping[str, Any], spec: WorkloadSpec, *, now: datetime | None = None
) -> ArrayDraft:
    """Check a parsed document, and return the array that `submit` would store."""
    model = prepare(view, document, spec, now=now, is_array=True)
    require_valid_dependencies(view, model)
    section, workload = spec.array, model.workload
    assert section is not None
    _check_size(section, workload.spec)
    array = WorkloadArray(
        id=uuid.uuid4(),
        project=workload.project,
        name=workload.name,
        submitted_by=workload.submitted_by,
        spec=workload.spec,
        priority=workload.priority,
        gpu_milli_min=workload.gpu_milli_min,
        task_count=len(section.indexes),
        max_running=section.max_running,
        submitted_at=workload.submitted_at,
    )
    return ArrayDraft(array, section, model)


def _check_size(section: ArraySpec, document: Mapping[str, Any]) -> None:
    """Raise Invalid if the documents of all tasks together are too large."""
    size = len(to_json({key: value for key, value in document.items() if key != "array"}))
    tasks = len(section.indexes)
    if size * tasks > STORED_MAX:
        received = f"{tasks} tasks of {size} bytes each"
        allowed = f"at most {STORED_MAX // 2**20} MiB in all; use fewer tasks, or a command in a file"
        raise Invalid([Problem("array", "is too large", received, allowed)])


def _insert_array(array: WorkloadArray) -> None:
    """Insert the array. Raises Conflict if its name is in use."""
    WorkloadArray.objects.bulk_create([array], ignore_conflicts=True)
    if not WorkloadArray.objects.filter(pk=array.pk).exists():
        raise _name_taken_error(array, "an active array")
    live = Workload.objects.filter(project=array.project, name=array.name).exclude(phase__in=ENDED_PHASES)
    if live.exists():
        raise _name_taken_error(array, "a live workload")


def _name_taken_error(array: WorkloadArray, owner: str) -> Conflict:
    free = free_name_to_suggest(array.project, array.name)
    another = "a name that no live workload or active array of the project has"
    allowed = f"{free}, or {another}" if free else another
    problem = Problem("name", f"is already in use by {owner}", format_value(array.name), allowed)
    return Conflict(
        f"The name {array.name} is in use by {owner} of {array.project.name}. "
        f"Choose another name{f', such as {free}' if free else ''}, or wait until that one ends.",
        errors=[problem.to_dict()],
    )


def _audit_values(array: WorkloadArray) -> dict[str, Any]:
    return {
        "tasks": array.task_count,
        "max_running": array.max_running,
        "priority": array.priority,
        "gpus": array.gpu_milli_min / MILLI,
    }
