"""Cancel several workloads after confirmation."""

import uuid
from collections.abc import Iterable

from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from berth.core.words import format_count
from berth.server.web.pages import Request, done, page, signed_in
from projects.access import Action, may
from projects.models import Workload
from projects.models.workloads import ENDED_PHASES
from projects.selectors import workloads
from projects.services.workloads import bulk_cancel

MAX_WORKLOADS = 200


@signed_in
@require_http_methods(["GET", "POST"])
def cancel(request: Request) -> HttpResponse:
    """Ask for confirmation (GET) or cancel the workloads (POST).

    Workloads that the user may not cancel are skipped.
    """
    query = request.POST if request.method == "POST" else request.GET
    selected = _visible_workloads(request, query.getlist("w"))
    cancellable = [workload for workload in selected if may(request.actor, Action.OPERATE, workload)]
    if request.method == "POST":
        outcome = bulk_cancel(actor=request.actor, workloads=cancellable)
        message = f"{format_count(len(outcome.cancelled), 'workload')} cancelled."
        if outcome.refused:
            message += " " + "; ".join(f"{each.name}: {reason}" for each, reason in outcome.refused[:3])
        return done(request, message, to=reverse("workloads"))
    excluded_count = len(selected) - len(cancellable)
    warning = "The pods get the grace period to stop. Cancelled workloads cannot be resumed."
    if excluded_count:
        warning += (
            f" Your role does not allow you to cancel {format_count(excluded_count, 'other workload')}."
        )
    title = f"Cancel {format_count(len(cancellable), 'workload')}?"
    context = {
        "title": title if cancellable else "Nothing to cancel",
        "warning": warning if cancellable else "Select live workloads that your role allows you to cancel.",
        "label": "Cancel workloads",
        "post_to": request.path,
        "back": reverse("workloads"),
        "danger": True,
        "workloads": cancellable,
    }
    return page(
        request,
        "projects/workloads/bulk_cancel.html",
        context,
        inner="projects/workloads/bulk_cancel_form.html",
    )


def _visible_workloads(request: Request, ids_as_text: Iterable[str]) -> list[Workload]:
    """Return the live workloads with these IDs that the user may see."""
    ids = []
    for text in list(ids_as_text)[:MAX_WORKLOADS]:
        try:
            ids.append(uuid.UUID(text))
        except ValueError:
            continue
    rows = workloads(request.actor).filter(pk__in=ids).exclude(phase__in=ENDED_PHASES)
    return list(rows.order_by("project__name", "name"))
