"""Edit the documents of pending and suspended workloads."""

import json
import re
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from berth.core.errors import Conflict, Invalid, PreconditionFailed
from berth.core.merge_patch import (
    apply_patch,
    differences,
    find_patch,
    format_difference,
    format_value_briefly,
)
from berth.core.problems import Problem, format_value, join_path
from berth.core.spec import SpecError, WorkloadSpec, parse_workload
from berth.core.spec.sections.after import WorkloadReference
from berth.db.loops.wake import wake
from projects.access import Action, require
from projects.actor import Actor
from projects.engine import edits
from projects.models import InferenceEngine, Phase, Pod, PodState, Service, Session, Workload
from projects.services import announce, audit, events
from projects.services.code_fetches import copy_code, store_fetches
from projects.services.secrets import require_submitter_for_personal_secrets
from projects.services.workloads.checks.document import parse_submission
from projects.services.workloads.control import lock_workload, reload_workload
from projects.services.workloads.storing import replace_roles
from projects.services.workloads.submission import (
    Draft,
    collect_warnings,
    prepare,
    require_valid_dependencies,
)
from projects.services.workloads.submission_view import SubmissionView

EDITABLE_PHASES = (Phase.PENDING, Phase.SUSPENDED)
MAX_RECORDED = 10  # maximum number of changed values that are recorded
HIDDEN = "(hidden)"
ENVIRONMENT = re.compile(r"(^|\.)env(\.|$)")  # pattern for paths of environment variables
TREE_KEYS = ("roles", "groups", "need")
EDITED_COLUMNS = (
    "spec", "labels", "pools", "priority", "preemptible", "max_runtime", "deadline", "idle_timeout",
    "gpu_milli_min", "code_id", "code_fetch_id", "code_wait",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DocumentChange:
    """Changed field of a document, such as `roles[0].gpu`. None means that the field is not set."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Edit:
    """Outcome of an edit.

    `increases` describes each larger amount, such as `3 GPUs instead of 2`. `draft` is the workload to store.
    """

    workload: Workload
    draft: Draft
    changes: list[DocumentChange]
    increases: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def edit(
    *,
    actor: Actor,
    workload: Workload,
    patch: Mapping[str, Any],
    version: int | None = None,
    dry_run: bool = False,
    now: datetime | None = None,
) -> Edit:
    """Apply a JSON merge patch to the document of a pending or suspended workload.

    The workload keeps its queue position unless its request increases. With `dry_run`, the edit is not
    stored. Raises Invalid for a document that a submission would reject, Conflict if the workload cannot be
    edited, and PreconditionFailed if it is no longer at `version`.
    """
    require(actor, Action.OPERATE, workload)
    at = now or timezone.now()
    with transaction.atomic():
        view = SubmissionView(actor, locks=True)
        view.refresh_project(workload.project)
        locked = lock_workload(workload)
        if version is not None and version != locked.version:
            raise PreconditionFailed("This workload has changed since you read it. Reload and try again.")
        if rejection := _edit_obstacle(locked):
            raise Conflict(rejection)
        before = _parse_stored_document(locked)
        draft = _prepare_edit(view, locked, before, patch, at)
        stored = locked.spec if before is None else {**before.document(), "project": locked.project.name}
        changes = _find_changes(stored, draft.workload.spec)
        increases = edits.find_increases(before, draft.spec) if before is not None and changes else []
        (warnings,) = collect_warnings(view, [draft])
        if changes and not dry_run:
            _store_edit(actor, locked, draft, changes, increases, at)
        fresh = reload_workload(locked)
    return Edit(fresh, draft, changes, increases, warnings)


def is_editable(workload: Workload) -> bool:
    return _edit_obstacle(workload) == ""


def editable_workloads(candidates: Collection[Workload]) -> set[uuid.UUID]:
    """Return the IDs of the workloads that can be edited, in a constant number of queries."""
    in_phase = [row for row in candidates if row.array_id is None and row.phase in EDITABLE_PHASES]
    return {row.pk for row in in_phase} - (managed_workloads(in_phase) if in_phase else set())


def managed_workloads(candidates: Collection[Workload]) -> set[uuid.UUID]:
    """Return the IDs of the workloads that are managed by a Python session, a service or an inference
    engine.
    """
    rows = (
        model.objects.filter(workload__in=candidates).order_by().values_list("workload", flat=True)
        for model in (Session, Service, InferenceEngine)
    )
    return {workload for each in rows for workload in each if workload is not None}


def _edit_obstacle(workload: Workload) -> str:
    if workload.array_id is not None:
        return "This workload is a task of an array. All tasks of an array run the same document."
    if Session.objects.filter(workload=workload).exists():
        return "This workload belongs to a Python session, which sets its document."
    is_service = Service.objects.filter(workload=workload).exists()
    if is_service or InferenceEngine.objects.filter(workload=workload).exists():
        return "This workload serves requests. Scale its service, or submit a new one."
    if workload.phase in EDITABLE_PHASES:
        return ""
    if workload.phase == Phase.RESERVED:
        return "GPUs are being freed for this workload, so it cannot be edited. Suspend it first."
    if workload.ended_at is not None:
        return f"This workload has ended ({workload.phase}). Submit a new one."
    return f"This workload is {workload.phase}. Suspend it to edit it."


def _parse_stored_document(locked: Workload) -> WorkloadSpec | None:
    """Parse the workload's stored document.

    Return None if the document is no longer valid. An edit can make it valid again.
    """
    try:
        return parse_workload(locked.spec)
    except SpecError:
        return None


def _prepare_edit(
    view: SubmissionView,
    locked: Workload,
    before: WorkloadSpec | None,
    patch: Mapping[str, Any],
    at: datetime,
) -> Draft:
    """Check the edited document like a submission, and return the workload as it would be stored."""
    document = apply_patch(locked.spec, patch)
    spec = parse_submission(view, document, project=locked.project, at=at)
    edited, stored = (spec.document(), locked.spec) if before is None else (vars(spec), vars(before))
    fixed = [key for key in edits.FIXED_KEYS if edited.get(key) != stored.get(key)]
    if fixed:
        raise Invalid(
            Problem(key, "cannot be edited", format_value(patch.get(key)), _fixed_value_advice(key, stored))
            for key in fixed
        )
    require_submitter_for_personal_secrets(view.actor, (before, spec), locked.submitted_by_id)
    draft = prepare(view, document, spec, project=locked.project, now=at)
    if draft.spec.after != (() if before is None else before.after):
        if locked.run:
            allowed = "the stored value; a workload that has started once no longer waits for others"
            raise Invalid([Problem("after", "cannot be edited", "", allowed)])
        require_valid_dependencies(view, draft, edited=WorkloadReference(locked.project.name, locked.name))
    draft.workload.pending_since = locked.pending_since
    if before is not None and before.code == spec.code and locked.code_fetch_id is not None:
        copy_code(draft.workload, locked)
    if set(find_patch(locked.spec, draft.workload.spec)) & {*TREE_KEYS} and _has_completed_replicas(locked):
        raise Conflict(
            "Replicas of this run have completed, so its roles and groups cannot be edited. "
            "Submit a new workload instead."
        )
    return draft


def _has_completed_replicas(locked: Workload) -> bool:
    return Pod.objects.filter(workload=locked, run=locked.run, state=PodState.SUCCEEDED).exists()


def _find_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[DocumentChange]:
    return [DocumentChange(join_path(path), old, new) for path, old, new in differences(before, after)]


def _store_edit(
    actor: Actor,
    locked: Workload,
    draft: Draft,
    changes: list[DocumentChange],
    increases: list[str],
    at: datetime,
) -> None:
    store_fetches([draft.workload])
    columns = {name: getattr(draft.workload, name) for name in EDITED_COLUMNS}
    if increases:
        columns["requeued_at"] = at
    Workload.objects.filter(pk=locked.pk).update(version=F("version") + 1, edits=F("edits") + 1, **columns)
    replace_roles(locked.pk, draft.tree)
    recorded = changes[:MAX_RECORDED]
    before = {change.path: _recorded_value(change, change.before) for change in recorded}
    after = {change.path: _recorded_value(change, change.after) for change in recorded}
    data = {"paths": list(after), "increases": increases}
    events.record("edited", locked, _event_message(actor, changes, increases), actor=actor.name, data=data)
    audit.write_entry(actor, "edit", locked, before=before, after=after, project=locked.project)
    announce.workload_changed(locked)
    wake("scheduler")


def _fixed_value_advice(key: str, stored: Mapping[str, Any]) -> str:
    value = stored.get(key)
    restore = f"Set it to {value} again" if isinstance(value, str) else f"Restore `{key}`"
    return f"{restore}, or submit a new workload"


def _sets_environment(change: DocumentChange) -> bool:
    """Return whether the values contain environment variables, which may be secret."""
    return bool(ENVIRONMENT.search(change.path)) or '"env":' in json.dumps([change.before, change.after])


def _recorded_value(change: DocumentChange, value: Any) -> int | float | str | None:
    """Return the value as None, a number or short text, without environment variables."""
    if value is None or isinstance(value, int | float):
        return value
    return HIDDEN if _sets_environment(change) else format_value_briefly(value)


def _event_message(actor: Actor, changes: list[DocumentChange], increases: list[str]) -> str:
    edited = [
        f"{change.path} changed"
        if _sets_environment(change)
        else format_difference(change.path, change.before, change.after)
        for change in changes[:MAX_RECORDED]
    ]
    if len(changes) > MAX_RECORDED:
        edited.append(f"{len(changes) - MAX_RECORDED} more changes")
    message = f"Edited by {actor.name}: {'; '.join(edited)}."
    if increases:
        message += f" It requests {' and '.join(increases)}, so it is queued as if submitted now."
    return message
