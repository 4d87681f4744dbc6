"""Cancel several workloads and arrays after confirmation."""

import uuid
from collections.abc import Iterable, Sequence

from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from berth.core.words import format_count
from berth.server.web.pages import Request, done, page, signed_in
from projects.access import Action, may
from projects.actor import Actor
from projects.models import ArrayState, Workload, WorkloadArray
from projects.models.workloads import ENDED_PHASES
from projects.selectors import arrays, workloads
from projects.services import arrays as array_service
from projects.services.workloads import bulk_cancel

MAX_SELECTED = 200


@signed_in
@require_http_methods(["GET", "POST"])
def cancel(request: Request) -> HttpResponse:
    """Ask for confirmation (GET), or cancel the workloads and all tasks of the arrays (POST).

    Workloads and arrays that the user may not cancel are skipped.
    """
    query = request.POST if request.method == "POST" else request.GET
    selected: list[Workload | WorkloadArray] = [
        *_visible_workloads(request, query.getlist("w")),
        *_visible_arrays(request, query.getlist("a")),
    ]
    cancellable = [row for row in selected if may(request.actor, Action.OPERATE, row)]
    chosen_workloads = [row for row in cancellable if isinstance(row, Workload)]
    chosen_arrays = [row for row in cancellable if isinstance(row, WorkloadArray)]
    if request.method == "POST":
        message = _cancel(request.actor, chosen_workloads, chosen_arrays)
        return done(request, message, to=reverse("workloads"))
    excluded_count = len(selected) - len(cancellable)
    warning = "The pods get the grace period to stop. Cancelled workloads cannot be resumed."
    if excluded_count:
        warning += (
            f" Your role does not allow you to cancel {format_count(excluded_count, 'other workload')}."
        )
    context = {
        "title": f"Cancel {_describe(chosen_workloads, chosen_arrays)}?"
        if cancellable
        else "Nothing to cancel",
        "warning": warning if cancellable else "Select live workloads that your role allows you to cancel.",
        "label": "Cancel workloads",
        "post_to": request.path,
        "back": reverse("workloads"),
        "danger": True,
        "workloads": chosen_workloads,
        "arrays": chosen_arrays,
    }
    return page(
        request,
        "projects/workloads/bulk_cancel.html",
        context,
        inner="projects/workloads/bulk_cancel_form.html",
    )


def _cancel(actor: Actor, rows: Sequence[Workload], chosen_arrays: Sequence[WorkloadArray]) -> str:
    """Cancel the rows, and return a message."""
    outcome = bulk_cancel(actor=actor, workloads=rows)
    for array in chosen_arrays:
        array_service.cancel(actor=actor, array=array)
    message = f"{_describe(outcome.cancelled, chosen_arrays)} cancelled."
    if outcome.refused:
        message += " " + "; ".join(f"{each.name}: {reason}" for each, reason in outcome.refused[:3])
    return message


def _describe(rows: Sequence[object], chosen_arrays: Sequence[WorkloadArray]) -> str:
    counts = [format_count(len(rows), "workload")] if rows or not chosen_arrays else []
    counts += [format_count(len(chosen_arrays), "array")] if chosen_arrays else []
    return " and ".join(counts)


def _visible_workloads(request: Request, ids_as_text: Iterable[str]) -> list[Workload]:
    """Return the live workloads with these IDs that the user may see."""
    rows = workloads(request.actor).filter(pk__in=_ids(ids_as_text)).exclude(phase__in=ENDED_PHASES)
    return list(rows.order_by("project__name", "name"))


def _visible_arrays(request: Request, ids_as_text: Iterable[str]) -> list[WorkloadArray]:
    """Return the active arrays with these IDs that the user may see."""
    rows = arrays(request.actor).filter(pk__in=_ids(ids_as_text), state=ArrayState.ACTIVE)
    return list(rows.order_by("project__name", "name"))


def _ids(ids_as_text: Iterable[str]) -> list[uuid.UUID]:
    ids = []
    for text in list(ids_as_text)[:MAX_SELECTED]:
        try:
            ids.append(uuid.UUID(text))
        except ValueError:
            continue
    return ids
