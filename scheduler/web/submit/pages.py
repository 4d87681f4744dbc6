"""Submission page: form, document and preview."""

from dataclasses import dataclass, field

from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from berth.core.errors import BerthError, Forbidden, Invalid
from berth.core.problems import Problem
from berth.documents import read_document
from berth.server.web.pages import Request, done, page, signed_in
from projects.services.workloads import submit_with_warnings
from projects.services.workloads.prediction import Prediction, dry_run, validate
from scheduler.web.submit.document_presets import first_text, starts, template_starts
from scheduler.web.submit.form.draft import Draft, opened, sent, step
from scheduler.web.submit.form.presentation import shown
from scheduler.web.submit.form_choices import offer_to
from scheduler.web.workloads.details import Obstacle, obstacles

LOOK, TRY, SUBMIT = "look", "try", "submit"


@dataclass
class Answer:
    """The result of checking a document: its errors, or a prediction."""

    problems: list[Problem] = field(default_factory=list)
    refused: str = ""
    foreseen: Prediction | None = None

    @property
    def obstacles(self) -> list[Obstacle]:
        return obstacles(self.foreseen.blockers) if self.foreseen else []

    @property
    def is_clean(self) -> bool:
        return not self.problems and not self.refused


@signed_in
@require_http_methods(["GET", "POST"])
def index(request: Request) -> HttpResponse:
    if request.method == "GET":
        draft = opened(first_text(request.acting, request.GET))
        return _page(request, draft, Answer())
    wanted = request.POST.get("step", LOOK)
    draft = sent(request.POST, offer_to(request.acting))
    if wanted not in (LOOK, TRY, SUBMIT):
        step(draft, wanted, mail=getattr(request.user, "email", ""))
        wanted = LOOK
    answer = Answer()
    try:
        if draft.problems:
            raise Invalid(draft.problems)
        document = read_document(draft.text)
        if wanted == SUBMIT:
            stored = submit_with_warnings(acting=request.acting, document=document)
            to = reverse("workload", args=[stored.workload.pk])
            message = " ".join([f"Workload {stored.workload.name} submitted.", *stored.warnings])
            return done(request, message, to=to, leave=True)
        if wanted == TRY:
            answer.foreseen = dry_run(acting=request.acting, document=document)
        else:
            validate(acting=request.acting, document=document)
    except BerthError as error:
        _add_error(answer, error)
    return _page(request, draft, answer, status=200 if wanted == LOOK or answer.is_clean else 422)


@signed_in
@require_POST
def prediction(request: Request) -> HttpResponse:
    """Predict the outcome while the page is open. Errors in the document have already been reported."""
    answer = Answer()
    try:
        document = read_document(request.POST.get("document", ""))
        answer.foreseen = dry_run(acting=request.acting, document=document)
    except BerthError as error:
        _add_error(answer, error)
    return page(request, "scheduler/submit/prediction.html", {"answer": answer})


def _add_error(answer: Answer, error: BerthError) -> None:
    """Assign an error to the document parts that it concerns, or show the error at the top."""
    if isinstance(error, Invalid):
        answer.problems = list(error.problems)
    elif isinstance(error, Forbidden):
        answer.problems = [Problem("project", error.detail)]
    elif named := error.extra.get("errors"):
        answer.problems = [Problem(**each) for each in named]
    else:
        answer.refused = error.detail


def _page(request: Request, draft: Draft, answer: Answer, *, status: int = 200) -> HttpResponse:
    offer = offer_to(request.acting)
    context = {
        "text": draft.text,
        "draft": draft,
        "shown": shown(draft, offer, answer.problems),
        "answer": answer,
        "offer": offer,
        "starts": starts(),
        "templates": template_starts(request.acting),
    }
    return page(
        request, "scheduler/submit/page.html", context, inner="scheduler/submit/inner.html", status=status
    )
