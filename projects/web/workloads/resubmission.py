"""Submit an ended workload again and open the new workload."""

from collections.abc import Callable
from urllib.parse import urlencode

from django.http import HttpResponse
from django.urls import reverse
from django.utils.html import format_html

from berth.core.errors import Invalid
from berth.server.web.pages import Request, confirm_page, open_url, success_response
from projects.actor import Actor
from projects.models import Event, Phase, Workload
from projects.selectors import workloads
from projects.services.workloads import RESUBMITTED_EVENT, next_free_name, resubmit


def resubmission_source(actor: Actor, workload: Workload) -> Workload | None:
    """Return the workload that this one was resubmitted from, or None if it was not resubmitted or the
    original is gone.
    """
    event = Event.objects.filter(workload_id=workload.pk, data__has_key="resubmitted_from").first()
    if event is None:
        return None
    rows = workloads(actor).filter(project=workload.project, name=event.data["resubmitted_from"])
    return rows.filter(submitted_at__lt=workload.submitted_at).order_by("-submitted_at").first()


def latest_resubmission(actor: Actor, workload: Workload) -> Workload | None:
    """Return the workload created by the latest resubmission of an ended workload.

    Return None if there is none, or if the user cannot see it.
    """
    if workload.ended_at is None:
        return None
    resubmitted = Event.objects.filter(workload_id=workload.pk, kind=RESUBMITTED_EVENT)
    event = resubmitted.order_by("-id").first()
    return workloads(actor).filter(pk=event.data["resubmitted_as"]).first() if event is not None else None


def confirm_resubmission(request: Request, workload: Workload) -> HttpResponse:
    return confirm_page(
        request,
        title=f"Resubmit {workload.name}?",
        warning=f"The document is submitted again as {next_free_name(workload.project, workload.name)}.",
        label="Resubmit workload",
        back=reverse("workload", args=[workload.pk]),
    )


def resubmit_and_open(
    request: Request, workload: Workload, *, on_stored: Callable[[Workload], None] | None = None
) -> HttpResponse:
    """Resubmit the workload, and open the page of the new workload.

    `on_stored` is called with the new workload. If the document is no longer valid, open the submission form
    with its errors.
    """
    try:
        stored = resubmit(actor=request.actor, workload=workload)
    except Invalid:
        query = urlencode({"like": str(workload.pk)})
        return open_url(request, f"{reverse('submit')}?{query}")
    if on_stored is not None:
        on_stored(stored.workload)
    kind = "service" if "service" in stored.workload.spec else "workload"
    name, warnings = stored.workload.name, " ".join(stored.warnings)
    message = format_html(
        "Workload <strong>{}</strong> resubmitted from <strong>{}</strong>{}. {}",
        name,
        workload.name,
        _checkpoint_note(workload),
        warnings,
    )
    to = reverse(kind, args=[stored.workload.pk])
    return success_response(request, message, to=to, leave=True, warns=bool(warnings))


def _checkpoint_note(workload: Workload) -> str:
    """Return a clause if the workload ran without completing and wrote no checkpoint, otherwise ""."""
    has_run = workload.started_at is not None and workload.phase != Phase.COMPLETED
    if not has_run or workload.last_checkpoint_at is not None:
        return ""
    return ", which wrote no checkpoint"
