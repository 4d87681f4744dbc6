"""Cards on the submission and edit pages with the smallest change that would let the workload start."""

import json
import uuid
from collections.abc import Mapping
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from berth.core.errors import BerthError
from berth.core.merge_patch import differences
from berth.core.problems import join_path
from berth.core.spec import parse_workload
from berth.documents import CannotEdit, read_document
from berth.documents.ordered import dump_workload
from berth.server.web.pages import Request, signed_in
from projects.access import Action, require
from projects.models import Workload
from projects.selectors import find_workload
from projects.services.workloads.prediction import validate
from scheduler.engine.smallest_change.change import ChangeKind
from scheduler.engine.smallest_change.sentences import WITHOUT_EVICTIONS
from scheduler.reports.visibility import viewer_for
from scheduler.reports.what_if.smallest_change import (
    RenderedChange,
    find_smallest_change,
    find_unsaved_workload_change,
)
from scheduler.web.submit.form.draft import DocumentEdits, apply_edits
from scheduler.web.workloads.pending.change_link import (
    apply_change_to_document,
    describe_change_and_effects,
    describe_responsible_admins,
    link_to_quota_pool_or_node,
)


@signed_in
@require_POST
def smallest_change(request: Request) -> HttpResponse:
    """Return a card with the smallest change that would let the workload on the open page start.

    The response is empty if there is no such change or if the document is invalid.
    """
    text = request.POST.get("document", "")
    try:
        draft = validate(actor=request.actor, document=read_document(text))
        answer = find_unsaved_workload_change(draft.workload, draft.spec, viewer_for(request.actor))
    except BerthError:
        return HttpResponse()
    return _render_card(request, draft.workload, text, answer)


@signed_in
@require_GET
def smallest_change_for_edit(request: Request, workload_id: uuid.UUID) -> HttpResponse:
    """Return the card with the smallest change for a pending workload's edit page.

    The response is empty if the search is not possible.
    """
    workload = find_workload(request.actor, workload_id)
    require(request.actor, Action.OPERATE, workload)
    try:
        answer = find_smallest_change(workload, viewer_for(request.actor))
    except BerthError:
        return HttpResponse()
    return _render_card(request, workload, dump_workload(dict(workload.spec)), answer)


def _render_card(request: Request, workload: Workload, text: str, answer: RenderedChange) -> HttpResponse:
    change = answer.change
    if change is None or change["kind"] == ChangeKind.BACKOFF_OVER:
        return HttpResponse()
    alternative = answer.change_without_evictions
    _, _, clause = answer.sentence.partition(WITHOUT_EVICTIONS)
    sentence, effects = describe_change_and_effects(request.actor, workload.project, answer, timezone.now())
    context = {
        "sentence": sentence,
        "effects": effects,
        "reasons": [clause for clause in (answer.fit, answer.rule) if clause],
        "note": describe_responsible_admins(request.actor, workload.project, change),
        "link": link_to_quota_pool_or_node(request.actor, workload.project, change),
        "form_action": _form_action(text, workload, change),
        "alternative": f"{WITHOUT_EVICTIONS.lstrip()}{clause}" if clause else "",
        "alternative_form_action": _form_action(text, workload, alternative) if alternative else "",
    }
    return render(request, "scheduler/submit/smallest_change.html", context)


def _form_action(text: str, workload: Workload, change: Mapping[str, Any]) -> str:
    """Return the value of a button that makes the change in the form, or "" if that is not possible."""
    edits = _find_edits(text, workload, change)
    return f"set:{json.dumps(edits)}" if edits else ""


def _find_edits(text: str, workload: Workload, change: Mapping[str, Any]) -> DocumentEdits:
    """Return the document edits that make the change, or an empty list if they cannot be made in place."""
    changed = apply_change_to_document(workload.spec, workload.pools, change)
    if changed is None:
        return []
    edits = [(join_path(path), after) for path, _, after in differences(workload.spec, changed)]
    try:
        edited = parse_workload(read_document(apply_edits(text, edits)))
        is_same = edited == parse_workload(changed)
    except (BerthError, CannotEdit):
        return []
    return edits if is_same else []
