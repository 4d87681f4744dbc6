"""Page that edits a pending or suspended workload's document."""

import json
import uuid
from dataclasses import dataclass, field, replace
from typing import Any

from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from berth.core.errors import BerthError, Invalid, PreconditionFailed
from berth.core.merge_patch import apply_patch, find_patch
from berth.core.problems import Problem
from berth.core.spec import parse_workload
from berth.core.spec.parsing.manifest import is_manifest
from berth.core.values.amounts import MILLI
from berth.documents import read_document
from berth.documents.ordered import dump_workload
from berth.documents.units import with_units, without_units
from berth.server.web.numbers import thousandths
from berth.server.web.pages import Request, page, signed_in, success_response
from projects.access import Action, require
from projects.models import Phase, Workload
from projects.selectors import find_workload
from projects.services import workloads
from projects.services.workloads import DocumentChange, Edit
from projects.services.workloads.prediction import Prediction, compare_edit
from scheduler.web.accepted_prediction import AcceptedPrediction, ask_before_evicting, store_prediction
from scheduler.web.submit.edit_changes import describe_changes, find_unchecked_changes
from scheduler.web.submit.excessive_field import mark_excessive_field
from scheduler.web.submit.form.code import code_context, require_chosen_code
from scheduler.web.submit.form.draft import (
    Draft,
    apply_form_action,
    open_draft,
    open_submitted_document,
    read_draft,
)
from scheduler.web.submit.form.presentation import prepare_form
from scheduler.web.submit.form_choices import choices_for
from scheduler.web.submit.limit_wait import LimitWait
from scheduler.web.submit.predicted_outcome import PredictedOutcome
from scheduler.web.submit.verdict import QUEUED, Verdict

PREDICT, SAVE, SAVE_EVICTING = "try", "save", "save-evicting"
STARTS, UNKNOWN = ("would_start", "would_evict"), "unknown"
FIXED_FIELDS = frozenset({"name", "project", "kind"})


@dataclass
class EditPage(PredictedOutcome):
    """Contents of the page: the edit as it would be stored, or the reason why it was rejected."""

    condition = "after this change"

    workload: Workload
    version: int
    edit: Edit | None = None
    prediction: Prediction | None = None
    unedited: Prediction | None = None  # prediction for the stored document, made at the same time
    problems: list[Problem] = field(default_factory=list)
    rejected: str = ""

    @property
    def verdict(self) -> Verdict | None:
        verdict = super().verdict
        if verdict and verdict.title == QUEUED and self.workload.phase == Phase.PENDING:
            return replace(verdict, title="Stays queued")
        return verdict

    @property
    def offers_smallest_change(self) -> bool:
        """Whether the page offers the smallest change that would let the stored workload start."""
        return self.workload.phase == Phase.PENDING and not self.changes

    @property
    def changes(self) -> list[DocumentChange]:
        return self.edit.changes if self.edit else []

    @property
    def changes_include_request(self) -> bool:
        """Whether the listed changes already show the workload's request."""
        return any(change.path.startswith("roles") for change in self.changes)

    @property
    def effects(self) -> dict[str, tuple[str, str]]:
        """Values of `gpus`, `start` and `position` before and after the edit.

        Values that the edit does not change are omitted. Times are in UTC.
        """
        seen, unedited = self.prediction, self.unedited
        if seen is None or unedited is None or not self.changes:
            return {}
        gpus = thousandths(self.workload.gpu_milli_min), thousandths(round(seen.workload["gpus"] * MILLI))
        # With one GPU per pod, the changed number of replicas already shows the same values.
        is_listed = gpus in [(str(change.before), str(change.after)) for change in self.changes]
        values = {} if is_listed else {"gpus": gpus}
        start, position = _describe_start(unedited), unedited.queue_position
        if start != UNKNOWN or position:
            values["start"] = start, _describe_start(seen)
        if position:
            values["position"] = str(position), _describe_position(seen)
        return {name: (before, after) for name, (before, after) in values.items() if before != after}


@signed_in
@require_http_methods(["GET", "POST"])
def edit(request: Request, workload_id: uuid.UUID) -> HttpResponse:
    workload = find_workload(request.actor, workload_id)
    require(request.actor, Action.OPERATE, workload)
    edit_page = EditPage(workload, workload.version)
    if request.method == "GET":
        document = _patched_document(workload, request.GET.get("patch", ""))
        _apply_edit(request, edit_page, document, dry_run=True)
        return _render_page(request, open_draft(dump_workload(with_units(document))), edit_page)
    draft = read_draft(request.POST, replace(choices_for(request.actor), for_edit=True))
    edit_page.version = _parse_version(request.POST.get("version")) or workload.version
    form_action = request.POST.get("step", "")
    saves, predicts = form_action in (SAVE, SAVE_EVICTING), form_action == PREDICT
    if not (saves or predicts):
        apply_form_action(draft, form_action)
    try:
        if draft.problems:
            checked = EditPage(workload, edit_page.version)
            _apply_edit(request, checked, draft.data or {}, dry_run=True)
            raise Invalid([*draft.problems, *draft.problems_elsewhere(checked.problems)])
        document = read_document(draft.text)
        if saves:
            require_chosen_code(document, request.POST.get("code-source", ""))
    except BerthError as error:
        _add_error(edit_page, error)
    else:
        if form_action == SAVE and (question := _ask_before_evicting(request, edit_page, document)):
            return question
        _apply_edit(request, edit_page, document, dry_run=not saves)
        if predicts:
            _predict(request, edit_page, document)
    if saves and edit_page.edit is not None and not edit_page.rejected:
        if edit_page.edit.changes:
            store_prediction(request, workload.pk, document)
        message = (
            f"{workload.name} edited." if edit_page.edit.changes else f"{workload.name} has not changed."
        )
        return success_response(request, message, to=reverse("workload", args=[workload.pk]), leave=True)
    return _render_page(request, draft, edit_page, status=422 if saves else 200)


def _ask_before_evicting(
    request: Request, edit_page: EditPage, document: dict[str, Any]
) -> HttpResponse | None:
    checked = EditPage(edit_page.workload, edit_page.version)
    _apply_edit(request, checked, document, dry_run=True)
    if not checked.changes or checked.rejected:
        return None

    def predict() -> AcceptedPrediction | None:
        _add_prediction(request, checked, document)
        return checked.summarize(is_edit=True)

    return ask_before_evicting(request, document, predict, form_action=SAVE_EVICTING, verb="Save")


@signed_in
@require_POST
def prediction(request: Request, workload_id: uuid.UUID) -> HttpResponse:
    """Predict the effect of saving the edited document.

    Errors in the document are not repeated, because the page already shows them.
    """
    workload = find_workload(request.actor, workload_id)
    require(request.actor, Action.OPERATE, workload)
    edit_page = EditPage(workload, workload.version)
    try:
        document = read_document(request.POST.get("document", ""))
    except BerthError as error:
        _add_error(edit_page, error)
    else:
        _apply_edit(request, edit_page, document, dry_run=True)
        _predict(request, edit_page, document)
        if edit_page.never_starts:
            _mark_excessive_field(request, edit_page)
    return page(request, "scheduler/submit/edit_prediction.html", {"edit_page": edit_page})


def _mark_excessive_field(request: Request, edit_page: EditPage) -> None:
    if edit_page.prediction is None:
        return
    draft = open_submitted_document(request.POST)
    shown = prepare_form(draft, replace(choices_for(request.actor, draft.form_data), for_edit=True))
    describe_changes(edit_page.changes, shown)  # marks the changed fields
    edit_page.excessive = mark_excessive_field(edit_page.prediction, draft.form_data or {}, shown)


def _predict(request: Request, edit_page: EditPage, document: dict[str, Any]) -> None:
    """Add the predicted effect and the cost of a valid edit, or the error, to `edit_page`."""
    try:
        _add_prediction(request, edit_page, document)
    except BerthError as error:
        _add_error(edit_page, error)


def _add_prediction(request: Request, edit_page: EditPage, document: dict[str, Any]) -> None:
    if edit_page.edit is None:
        return
    edit_page.prediction, edit_page.unedited = compare_edit(actor=request.actor, edit=edit_page.edit)
    edit_page.add_cost(request.actor, edit_page.edit.draft.spec)
    start, wait = edit_page.unedited and edit_page.unedited.expected_start, edit_page.limit_wait
    if edit_page.edit.increases and start and wait and wait.at < start:  # a larger request starts no earlier
        edit_page.limit_wait = LimitWait(start, ())
    edit_page.sign(request, document, is_edit=True)


def _apply_edit(request: Request, edit_page: EditPage, document: dict[str, Any], *, dry_run: bool) -> None:
    workload = edit_page.workload
    try:
        patch = _find_patch(workload, document)
        edit_page.edit = workloads.edit(
            actor=request.actor,
            workload=workload,
            patch=patch,
            version=None if dry_run else edit_page.version,
            dry_run=dry_run,
        )
    except PreconditionFailed:
        edit_page.version = workload.version
        _apply_edit(request, edit_page, document, dry_run=True)
        edit_page.rejected = edit_page.rejected or (
            f"The workload changed while you were editing; it is now {workload.phase}. "
            "Your text is unchanged. Saving again makes the changes below to the current document."
        )
    except BerthError as error:
        _add_error(edit_page, error)


def _patched_document(workload: Workload, text: str) -> dict[str, Any]:
    """Apply the JSON merge patch `text` to the workload's document, and return the result.

    If the patch is invalid, return the document unchanged.
    """
    try:
        patch = json.loads(text or "{}")
        if isinstance(patch, dict) and patch:
            return read_document(dump_workload(apply_patch(workload.spec, patch)))
    # The patch is not JSON or is nested too deeply for a document.
    except (ValueError, RecursionError, Invalid):
        pass
    return dict(workload.spec)


def _find_patch(workload: Workload, document: dict[str, Any]) -> dict[str, Any]:
    """Return the edit as a patch of the stored document. Raises SpecError for an invalid manifest."""
    if is_manifest(document):
        document = parse_workload(document).document()
    return find_patch(workload.spec, {"project": workload.project.name, **without_units(document)})


def _add_error(edit_page: EditPage, error: BerthError) -> None:
    if isinstance(error, Invalid):
        edit_page.problems = list(error.problems)
    else:
        edit_page.rejected = error.detail


def _render_page(request: Request, draft: Draft, edit_page: EditPage, *, status: int = 200) -> HttpResponse:
    data = {**(draft.form_data or {}), "project": edit_page.workload.project.name}
    offer = replace(choices_for(request.actor, data), for_edit=True)
    shown = prepare_form(
        draft,
        offer,
        edit_page.problems,
        read_only=FIXED_FIELDS,
        stored=edit_page.workload.spec if edit_page.workload.run else None,
    )
    unchecked = find_unchecked_changes(edit_page.workload, draft.form_data) if shown.faults else []
    context = {
        "text": draft.text,
        "draft": draft,
        "shown": shown,
        **code_context(request.actor, data, shown.git, request.POST.get("code-source", "")),
        "edit_page": edit_page,
        "changes": describe_changes(edit_page.changes or unchecked, shown),
        "workload": edit_page.workload,
        "offer": offer,
        "kind_label": shown.kind_label,
        "post_to": request.path,
    }
    return page(
        request,
        "scheduler/submit/edit.html",
        context,
        inner="scheduler/submit/edit_inner.html",
        status=status,
    )


def _describe_start(prediction: Prediction) -> str:
    at = prediction.expected_start
    if prediction.outcome in STARTS:
        return "now"
    return UNKNOWN if at is None else f"{at:%Y-%m-%d %H:%M} UTC"


def _describe_position(prediction: Prediction) -> str:
    return "none" if prediction.outcome in STARTS else str(prediction.queue_position or "none")


def _parse_version(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else 0
