"""Cancel, suspend or resume several workloads after confirmation. Arrays can only be cancelled."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from berth.core.words import format_count
from berth.server.web.pages import Request, done, page, signed_in
from projects.access import Action, may
from projects.actor import Actor
from projects.models import ArrayState, Phase, Workload, WorkloadArray
from projects.models.workloads import ENDED_PHASES
from projects.selectors import arrays, workloads
from projects.services import arrays as array_service
from projects.services import workloads as service
from projects.services.workloads import bulk_change

MAX_SELECTED = 200


@dataclass(frozen=True, slots=True)
class BulkStep:
    """Action on several workloads, with the texts of its confirmation."""

    title: str
    done: str
    warning: str
    dismiss: str
    change: service.Change
    danger: bool = False


STEPS: Mapping[str, BulkStep] = {
    "cancel": BulkStep(
        "Cancel",
        "cancelled",
        "The pods get the grace period to stop. Cancelled workloads cannot be resumed.",
        "Keep running",
        service.cancel,
        danger=True,
    ),
    "suspend": BulkStep(
        "Suspend",
        "suspended",
        "The pods get the grace period to stop. The workloads stay suspended until you resume them.",
        "Keep running",
        service.suspend,
    ),
    "resume": BulkStep(
        "Resume",
        "queued again",
        "The workloads return to the queues of their projects.",
        "Keep suspended",
        service.resume,
    ),
}


@signed_in
@require_http_methods(["GET", "POST"])
def act(request: Request, step: str) -> HttpResponse:
    """Ask for confirmation (GET), or change the selected workloads (POST).

    Skip workloads that the user may not change, and workloads whose state does not allow the action.
    """
    query = request.POST if request.method == "POST" else request.GET
    selected: list[Workload | WorkloadArray] = [
        *_visible_workloads(request, query.getlist("w"), step),
        *(_visible_arrays(request, query.getlist("a")) if step == "cancel" else ()),
    ]
    allowed = [row for row in selected if may(request.actor, Action.OPERATE, row)]
    chosen_workloads = [row for row in allowed if isinstance(row, Workload)]
    chosen_arrays = [row for row in allowed if isinstance(row, WorkloadArray)]
    action = STEPS[step]
    if request.method == "POST":
        message = _change(request.actor, action, chosen_workloads, chosen_arrays)
        return done(request, message, to=reverse("workloads"))
    excluded_count = len(selected) - len(allowed)
    warning = action.warning
    if excluded_count:
        warning += (
            f" Your role does not allow you to {step} {format_count(excluded_count, 'other workload')}."
        )
    context = {
        "title": f"{action.title} {_describe(chosen_workloads, chosen_arrays)}?"
        if allowed
        else f"Nothing to {step}",
        "warning": warning if allowed else _nothing_text(step),
        "label": f"{action.title} workloads",
        "dismiss": action.dismiss,
        "post_to": request.path,
        "back": reverse("workloads"),
        "danger": action.danger,
        "workloads": chosen_workloads,
        "arrays": chosen_arrays,
    }
    return page(request, "projects/workloads/bulk.html", context, inner="projects/workloads/bulk_form.html")


def _nothing_text(step: str) -> str:
    kind = "suspended" if step == "resume" else "live"
    return f"Select {kind} workloads that your role allows you to {step}."


def _change(
    actor: Actor, step: BulkStep, rows: Sequence[Workload], chosen_arrays: Sequence[WorkloadArray]
) -> str:
    """Change the rows, and return a message."""
    outcome = bulk_change(actor=actor, workloads=rows, change=step.change)
    for array in chosen_arrays:
        array_service.cancel(actor=actor, array=array)
    message = f"{_describe(outcome.changed, chosen_arrays)} {step.done}."
    if outcome.rejected:
        message += " " + "; ".join(f"{each.name}: {reason}" for each, reason in outcome.rejected[:3])
    return message


def _describe(rows: Sequence[object], chosen_arrays: Sequence[WorkloadArray]) -> str:
    counts = [format_count(len(rows), "workload")] if rows or not chosen_arrays else []
    counts += [format_count(len(chosen_arrays), "array")] if chosen_arrays else []
    return " and ".join(counts)


def _visible_workloads(request: Request, ids_as_text: Iterable[str], step: str) -> list[Workload]:
    """Return the visible workloads with these IDs whose state allows the action."""
    rows = workloads(request.actor).filter(pk__in=_parse_ids(ids_as_text)).exclude(phase__in=ENDED_PHASES)
    if step == "suspend":
        rows = rows.exclude(phase=Phase.SUSPENDED)
    elif step == "resume":
        rows = rows.filter(phase=Phase.SUSPENDED)
    return list(rows.order_by("project__name", "name"))


def _visible_arrays(request: Request, ids_as_text: Iterable[str]) -> list[WorkloadArray]:
    """Return the active arrays with these IDs that the user may see."""
    rows = arrays(request.actor).filter(pk__in=_parse_ids(ids_as_text), state=ArrayState.ACTIVE)
    return list(rows.order_by("project__name", "name"))


def _parse_ids(ids_as_text: Iterable[str]) -> list[uuid.UUID]:
    ids = []
    for text in list(ids_as_text)[:MAX_SELECTED]:
        try:
            ids.append(uuid.UUID(text))
        except ValueError:
            continue
    return ids
