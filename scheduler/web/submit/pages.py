"""Submission page with form, document and preview."""

from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from django.http import HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.views.decorators.http import require_http_methods, require_POST

from berth.core.errors import BerthError, Forbidden, Invalid
from berth.core.problems import SUGGESTION, Problem
from berth.core.spec import parse_workload
from berth.core.wording.words import format_count
from berth.documents import read_document
from berth.server.web.error_sentences import NAME_IN_USE
from berth.server.web.pages import Request, page, signed_in, success_response
from projects.access import may_submit_anywhere
from projects.actor import Actor
from projects.models import Project
from projects.services import arrays
from projects.services.workloads import free_name_to_suggest, submit_with_warnings
from projects.services.workloads.prediction import Prediction, TasksPrediction, dry_run, validate
from projects.web.arrays.replaced_tasks import replaced_tasks
from scheduler.web.accepted_prediction import ask_before_evicting, store_prediction
from scheduler.web.submit.array_copy import (
    COPIED_TASKS,
    ArrayCopy,
    count_pending_originals,
    find_array_copy,
    link_to_cancel,
    submitted_copy,
)
from scheduler.web.submit.document_presets import example_links, initial_text, usable_templates
from scheduler.web.submit.edit_changes import describe_change
from scheduler.web.submit.excessive_field import mark_excessive_field
from scheduler.web.submit.form.code import code_context, require_chosen_code
from scheduler.web.submit.form.draft import (
    Draft,
    apply_form_action,
    open_draft,
    open_submitted_document,
    read_draft,
)
from scheduler.web.submit.form.presentation import RenderedForm, prepare_form
from scheduler.web.submit.form_choices import choices_for
from scheduler.web.submit.kind_defaults import apply_kind_defaults
from scheduler.web.submit.missing_step import find_missing_step
from scheduler.web.submit.predicted_outcome import PredictedOutcome

NEVER_STARTS = "It can never start as specified."
CHECK, PREDICT, SUBMIT, SUBMIT_EVICTING = "look", "try", "submit", "submit-evicting"
REPLACE, REPLACE_EVICTING = "replace", "replace-evicting"  # submit an array copy and cancel the originals
CONFIRMED = {SUBMIT: SUBMIT_EVICTING, REPLACE: REPLACE_EVICTING}
SUBMISSIONS = (*CONFIRMED, *CONFIRMED.values())
CANNOT_REPLACE = (
    "Nothing was submitted, because the original array no longer exists or you may no longer cancel its "
    "tasks. To submit only the copy, click Submit copy only."
)


@dataclass
class CheckResult(PredictedOutcome):
    """Errors in a document, or the predicted outcome if there are none."""

    problems: list[Problem] = field(default_factory=list)
    rejected: str = ""
    prediction: Prediction | None = None
    array: TasksPrediction | None = None

    @property
    def is_clean(self) -> bool:
        return not self.problems and not self.rejected


@signed_in
@require_http_methods(["GET", "POST"])
def index(request: Request) -> HttpResponse:
    if request.method == "GET":
        if not may_submit_anywhere(request.actor):
            raise Forbidden(
                "To submit workloads, you need the member role in a project. Ask a project admin to grant it."
            )
        if (missing := find_missing_step(request.actor)) is not None:
            return page(request, "scheduler/submit/not_ready.html", {"missing": missing})
        copy = find_array_copy(request.actor, request.GET)
        text = copy.text if copy else initial_text(request.actor, request.GET)
        draft, answer = open_draft(text), CheckResult()
        _run_form_action(request, draft, CHECK, answer)
        return _render_page(request, draft, answer, copy=copy)
    form_action = request.POST.get("step", CHECK)
    draft = read_draft(request.POST, choices_for(request.actor))
    apply_kind_defaults(draft, request.POST)
    if form_action not in (CHECK, PREDICT, *SUBMISSIONS):
        apply_form_action(draft, form_action, mail=getattr(request.user, "email", ""))
        form_action = CHECK
    answer = CheckResult()
    submitted = _run_form_action(request, draft, form_action, answer)
    if submitted is not None:
        return submitted
    status = 200 if form_action == CHECK or answer.is_clean else 422
    copy = submitted_copy(request.actor, request.POST.get(COPIED_TASKS, ""))
    return _render_page(request, draft, answer, status=status, copy=copy)


def _run_form_action(
    request: Request, draft: Draft, form_action: str, answer: CheckResult
) -> HttpResponse | None:
    """Check the draft, predict its outcome, or submit it.

    Return the response, or None to show the form again.
    """
    try:
        if draft.problems:
            raise Invalid([*draft.problems, *_document_problems(request.actor, draft)])
        document = read_document(draft.text)
        if form_action in SUBMISSIONS:
            require_chosen_code(document, request.POST.get("code-source", ""))
            predict = cache(partial(_predict_document, request.actor, document))
            confirmed = CONFIRMED.get(form_action, "")
            if confirmed and (question := _ask_before_evicting(request, document, predict, confirmed)):
                return question
            # Predict again only if the page has already shown this outcome.
            never_starts = False
            if "never-starts" in request.POST:
                with suppress(BerthError):  # the submission reports any error in the document
                    never_starts = predict().never_starts
            is_replacement = form_action in (REPLACE, REPLACE_EVICTING)
            return _submit(request, document, never_starts=never_starts, is_replacement=is_replacement)
        if form_action == PREDICT:
            _predict(request.actor, document, answer)
            answer.sign(request, document)
        else:
            _validate(request.actor, document)
    except BerthError as error:
        _add_error(answer, error)
    return None


def _document_problems(actor: Actor, draft: Draft) -> list[Problem]:
    """Return the problems of a draft's document, apart from those of fields with invalid text."""
    try:
        _validate(actor, draft.data or {})
    except Invalid as error:
        return draft.problems_elsewhere(error.problems)
    except BerthError:  # reported once the fields are valid
        pass
    return []


def _validate(actor: Actor, document: Mapping[str, Any]) -> None:
    if _is_array(document):
        arrays.validate(actor=actor, document=document)
    else:
        validate(actor=actor, document=document)


def _ask_before_evicting(
    request: Request, document: Mapping[str, Any], predict: Callable[[], CheckResult], form_action: str
) -> HttpResponse | None:
    _validate(request.actor, document)
    note = ""
    if form_action == REPLACE_EVICTING:
        copy = submitted_copy(request.actor, request.POST.get(COPIED_TASKS, ""))
        originals = count_pending_originals(copy, document)
        if copy is not None and originals:
            note = f"{format_count(originals, 'pending task')} of {copy.array.name} will be cancelled."
    return ask_before_evicting(
        request,
        document,
        lambda: predict().summarize(),
        form_action=form_action,
        verb="Submit",
        note=note,
    )


@signed_in
@require_POST
def prediction(request: Request) -> HttpResponse:
    """Predict the outcome of submitting the document, or show its errors in the form."""
    answer, draft = CheckResult(), open_submitted_document(request.POST)
    _run_form_action(request, draft, PREDICT, answer)
    copy = submitted_copy(request.actor, request.POST.get(COPIED_TASKS, ""))
    if answer.problems:
        return _render_page(request, draft, answer, copy=copy)
    if answer.never_starts:
        _mark_excessive_field(answer, draft, prepare_form(draft, choices_for(request.actor)))
    context = {"answer": answer, "originals": count_pending_originals(copy, draft.data)}
    return page(request, "scheduler/submit/prediction.html", context)


def _mark_excessive_field(answer: CheckResult, draft: Draft, shown: RenderedForm) -> None:
    if answer.prediction is not None:
        answer.excessive = mark_excessive_field(answer.prediction, draft.form_data or {}, shown)


def _predict_document(actor: Actor, document: Mapping[str, Any]) -> CheckResult:
    answer = CheckResult()
    _predict(actor, document, answer)
    return answer


def _is_array(document: Mapping[str, Any]) -> bool:
    return document.get("array") is not None


def _submit(
    request: Request, document: Mapping[str, Any], *, never_starts: bool, is_replacement: bool
) -> HttpResponse:
    """Store a workload or an array, and redirect to its page.

    With `is_replacement`, cancel the pending tasks that the array copies.
    """
    replaced, cancelled = None, 0
    copy = submitted_copy(request.actor, request.POST.get(COPIED_TASKS, ""))
    if is_replacement and copy is None:
        raise Forbidden(CANNOT_REPLACE)
    if _is_array(document):
        submission, cancelled = _submit_array(request.actor, document, copy if is_replacement else None)
        to, kind, name = reverse("array", args=[submission.array.pk]), "Array", submission.array.name
        warnings = submission.warnings
        replaced = replaced_tasks(copy.array, submission.array) if copy else None
    else:
        stored = submit_with_warnings(actor=request.actor, document=document)
        kind, name = "Service" if "service" in stored.workload.spec else "Workload", stored.workload.name
        to, warnings = reverse(kind.lower(), args=[stored.workload.pk]), stored.warnings
        store_prediction(request, stored.workload.pk, document)
    if never_starts:
        warnings = [NEVER_STARTS, *warnings]
    message = format_html("{} <strong>{}</strong> submitted. {}", kind, name, " ".join(warnings))
    if cancelled and copy is not None:
        tasks = format_count(cancelled, "pending task")
        message = format_html("{} {} of {} cancelled.", message, tasks, copy.array.name)
    link = link_to_cancel(replaced) if replaced is not None and replaced.indexes else ""
    message = format_html("{} {}", message, link)
    # A message with a link stays until the user closes it.
    return success_response(request, message, to=to, leave=True, warns=bool(warnings or link))


def _submit_array(
    actor: Actor, document: Mapping[str, Any], copy: ArrayCopy | None
) -> tuple[arrays.ArraySubmission, int]:
    """Store an array. Return it with the number of pending tasks of the copied array that were cancelled."""
    if copy is None:
        return arrays.submit(actor=actor, document=document), 0
    replacement = arrays.replace_pending(actor=actor, array=copy.array, document=document)
    return replacement.submission, replacement.cancelled


def _predict(actor: Actor, document: Mapping[str, Any], answer: CheckResult) -> None:
    if _is_array(document):
        _, answer.array = arrays.predict(actor=actor, document=document)
        answer.prediction = answer.array.first_task
    else:
        answer.prediction = dry_run(actor=actor, document=document)
    answer.add_cost(actor, parse_workload(document))


def _add_error(answer: CheckResult, error: BerthError) -> None:
    """Attach an error to the parts of the document that caused it, or show it at the top of the page."""
    if isinstance(error, Invalid):
        answer.problems = list(error.problems)
    elif isinstance(error, Forbidden):
        answer.problems = [Problem("project", error.detail)]
    elif named := error.extra.get("errors"):
        answer.problems = [Problem(**problem) for problem in named]
    else:
        answer.rejected = error.detail


def _suggest_free_name(problem: Problem, draft: Draft, projects: Container[str]) -> Problem:
    name, project = ((draft.form_data or {}).get(key) for key in ("name", "project"))
    if problem.path != "name" or not problem.message.startswith(NAME_IN_USE) or project not in projects:
        return problem
    stored = Project.objects.filter(name=project).first()
    if stored is None or not isinstance(name, str):
        return problem
    free = free_name_to_suggest(stored, name)
    return replace(problem, allowed=f"{SUGGESTION}`{free}`?") if free else problem


def _render_page(
    request: Request,
    draft: Draft,
    answer: CheckResult,
    *,
    status: int = 200,
    copy: ArrayCopy | None = None,
) -> HttpResponse:
    offer = choices_for(request.actor, draft.form_data)
    problems = [_suggest_free_name(each, draft, offer.projects) for each in answer.problems]
    shown = prepare_form(draft, offer, problems)
    _mark_excessive_field(answer, draft, shown)
    is_service = (draft.form_data or {}).get("kind") == "service"
    context = {
        "submit_label": "Create service" if is_service else "Submit workload",
        "menu_path": reverse("services") if is_service else request.path,
        "text": draft.text,
        "draft": draft,
        "shown": shown,
        **code_context(request.actor, draft.form_data, shown.git, request.POST.get("code-source", "")),
        "answer": answer,
        "copy": copy,
        "originals": count_pending_originals(copy, draft.form_data),
        "copy_changes": [describe_change(change, shown) for change in copy.changes] if copy else [],
        "offer": offer,
        "starts": example_links(),
        "templates": usable_templates(request.actor),
    }
    return page(
        request, "scheduler/submit/page.html", context, inner="scheduler/submit/inner.html", status=status
    )
