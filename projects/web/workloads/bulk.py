"""Cancel, suspend, resume, retry, resubmit or delete several workloads and arrays after a confirmation."""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from berth.core.errors import BerthError, Conflict, Invalid
from berth.core.wording.words import format_count
from berth.server.web.pages import Request, page, signed_in, success_response
from projects.actor import Actor
from projects.models import Phase, Workload, WorkloadArray, WorkloadKind
from projects.selectors import arrays, workloads
from projects.services import arrays as array_service
from projects.services import workloads as service
from projects.services.arrays import TaskCounts, count_tasks_by_array
from projects.services.workloads import bulk_change
from projects.web.services.serving import load_serving_statuses
from projects.web.workloads.actions import inapplicable_reason
from projects.web.workloads.stops import PHASES_WITH_PODS, STOPPING_ACTIONS, stop_cost

MAX_SELECTED = 200
CONFIRMED = "confirmed"  # name of the field in the confirmation form
MAX_NAMES = 5  # maximum number of unchanged rows that are listed for each reason
Rows = Sequence[Workload | WorkloadArray]


def _delete(*, actor: Actor, workload: Workload) -> Workload:
    service.delete(actor=actor, workload=workload)
    return workload


def _resubmit(*, actor: Actor, workload: Workload) -> Workload:
    try:
        return service.resubmit(actor=actor, workload=workload).workload
    except Invalid as error:
        raise Conflict(error.detail) from None


@dataclass(frozen=True, slots=True)
class BulkAction:
    """Action on several workloads and arrays, with the text of its confirmation.

    In the texts, `{rows}` is replaced by a word such as "workloads". `warnings` contains the text for one row
    and the text for several rows.
    """

    title: str
    done: str
    warnings: tuple[str, str]
    dismiss: str
    # Function that changes arrays, or None if arrays do not support the action.
    change_array: Callable[..., object] | None
    # Function that changes workloads, or None if workloads do not support the action.
    change: service.WorkloadOperation | None = None
    danger: bool = False


ACTIONS: Mapping[str, BulkAction] = {
    "suspend": BulkAction(
        "Suspend",
        "suspended",
        (
            "The {rows} stays suspended until you resume it.",
            "The {rows} stay suspended until you resume them.",
        ),
        "Keep {rows}",
        array_service.suspend,
        service.suspend,
    ),
    "resume": BulkAction(
        "Resume",
        "queued again",
        (
            "The {rows} returns to the queue of its project.",
            "The {rows} return to the queues of their projects.",
        ),
        "Keep suspended",
        array_service.resume,
        service.resume,
    ),
    "retry": BulkAction(
        "Retry failed tasks of",
        "queued again",
        ("The tasks are submitted again, with the next attempt number.",) * 2,
        "Close",
        array_service.retry,
    ),
    "resubmit": BulkAction(
        "Resubmit",
        "submitted again",
        (
            "The document is submitted again as a new workload with the next free name.",
            "Each document is submitted again as a new workload with the next free name.",
        ),
        "Close",
        None,
        _resubmit,
    ),
    "cancel": BulkAction(
        "Cancel",
        "cancelled",
        ("A cancelled {rows} cannot be resumed.", "Cancelled {rows} cannot be resumed."),
        "Keep {rows}",
        array_service.cancel,
        service.cancel,
        danger=True,
    ),
    "delete": BulkAction(
        "Delete",
        "deleted",
        ("The logs and files are deleted too. The events and evictions are kept in the history.",) * 2,
        "Keep {rows}",
        array_service.delete,
        _delete,
        danger=True,
    ),
}


@dataclass(frozen=True, slots=True)
class UnchangedRows:
    """Selected rows to which the action does not apply, all for the same reason."""

    reason: str
    rows: Rows

    @property
    def names(self) -> str:
        shown = [f"{row.project.name}/{row.name}" for row in self.rows[:MAX_NAMES]]
        more = [f"{len(self.rows) - MAX_NAMES} more"] if len(self.rows) > MAX_NAMES else []
        return ", ".join([*shown, *more])


@signed_in
@require_http_methods(["GET", "POST"])
def apply_to_selection(request: Request, action_name: str) -> HttpResponse:
    """Ask for confirmation (GET), or change the selected workloads and arrays (POST).

    The confirmation lists the rows that the action cannot change, with the reason.
    """
    query = request.POST if request.method == "POST" else request.GET
    selected = _selected_rows(request.actor, query.getlist("w"), query.getlist("a"))
    counts = count_tasks_by_array([row for row in selected if isinstance(row, WorkloadArray)])
    chosen, unchanged = _split_selection(request.actor, action_name, selected, counts)
    action = ACTIONS[action_name]
    is_post = request.method == "POST"
    if is_post and action_name == "resubmit" and len(selected) == 1 and isinstance(selected[0], Workload):
        # The view for a single workload asks before it evicts others.
        return redirect("workload-resubmit", selected[0].pk, preserve_request=True)
    if is_post and (action_name != "resubmit" or CONFIRMED in request.POST):
        return success_response(request, _change(request.actor, action, chosen), to=reverse("workloads"))
    cost = stop_cost(action_name, chosen)
    lost_by_row = cost.lost_by_row if cost else {}
    serving = load_serving_statuses(
        row
        for row in chosen
        if isinstance(row, Workload) and row.kind == WorkloadKind.SERVICE and row.phase == Phase.RUNNING
    )
    context = {
        "title": f"{action.title} {_describe(chosen)}?" if chosen else f"Nothing to {action_name}",
        "warning": _warning_text(action, chosen)
        if chosen
        else ""
        if selected
        else _selection_hint(action_name),
        "cost": cost,
        "label": f"{action.title} {_describe(chosen)}",
        "dismiss": _dismiss_label(action_name, chosen) if chosen else "Close",
        "post_to": request.path,
        "back": reverse("workloads"),
        "danger": action.danger,
        "workloads": [
            (row, serving.get(row.pk), lost_by_row.get(row.pk, 0))
            for row in chosen
            if isinstance(row, Workload)
        ],
        "arrays": [
            (row, _describe_tasks(action_name, counts[row.pk]), lost_by_row.get(row.pk, 0))
            for row in chosen
            if isinstance(row, WorkloadArray)
        ],
        "unchanged": unchanged,
        "unchanged_text": _describe_unchanged_rows([row for each in unchanged for row in each.rows]),
    }
    return page(request, "projects/workloads/bulk.html", context, inner="projects/workloads/bulk_form.html")


def _split_selection(
    actor: Actor, action_name: str, selected: Rows, counts: Mapping[uuid.UUID, TaskCounts]
) -> tuple[Rows, list[UnchangedRows]]:
    by_reason = dict[str, list[Workload | WorkloadArray]]()
    for row in selected:
        reason = inapplicable_reason(actor, action_name, row, counts.get(row.pk, TaskCounts()))
        by_reason.setdefault(reason, []).append(row)
    chosen = by_reason.pop("", [])
    return chosen, [UnchangedRows(reason, rows) for reason, rows in by_reason.items()]


def _warning_text(action: BulkAction, rows: Rows) -> str:
    return action.warnings[len(rows) > 1].format(rows=_kind_label(rows))


def _dismiss_label(action_name: str, rows: Rows) -> str:
    have_pods = all(isinstance(row, Workload) and row.phase in PHASES_WITH_PODS for row in rows)
    if action_name in STOPPING_ACTIONS and have_pods:
        return "Keep running"
    kind = _kind_label(rows)
    return ACTIONS[action_name].dismiss.format(rows="all" if " and " in kind else kind)


def _kind_label(rows: Rows) -> str:
    """Return "array", "workloads", "workloads and arrays" or the like."""
    kinds = {"array" if isinstance(row, WorkloadArray) else "workload" for row in rows}
    return " and ".join(kind if len(rows) == 1 else f"{kind}s" for kind in sorted(kinds, reverse=True))


def _selection_hint(action_name: str) -> str:
    kind = {
        "resume": "suspended workloads",
        "retry": "arrays with failed tasks",
        "resubmit": "ended workloads",
        "delete": "ended workloads",
    }
    return f"Select {kind.get(action_name, 'live workloads')} that your role allows you to {action_name}."


def _change(actor: Actor, action: BulkAction, rows: Rows) -> str:
    """Change the rows, and return a message for the user."""
    changed, rejected = list[Workload | WorkloadArray](), list[tuple[str, str]]()
    if action.change:
        chosen = [row for row in rows if isinstance(row, Workload)]
        outcome = bulk_change(actor=actor, workloads=chosen, change=action.change)
        changed += outcome.changed
        rejected += [(row.name, reason) for row, reason in outcome.rejected]
    for array in rows:
        if isinstance(array, WorkloadArray) and action.change_array:
            try:
                action.change_array(actor=actor, array=array)
                changed.append(array)
            except BerthError as rejection:
                rejected.append((array.name, rejection.detail))
    message = f"{_describe(changed)} {action.done}."
    if rejected:
        message += " " + "; ".join(f"{name}: {reason}" for name, reason in rejected[:3])
    return message


def _describe(rows: Rows) -> str:
    array_count = sum(isinstance(row, WorkloadArray) for row in rows)
    workload_count = len(rows) - array_count
    counts = [format_count(workload_count, "workload")] if workload_count or not array_count else []
    counts += [format_count(array_count, "array")] if array_count else []
    return " and ".join(counts)


def _describe_tasks(action_name: str, counts: TaskCounts) -> str:
    if action_name == "retry":
        return format_count(counts.failed, "failed task")
    if action_name == "resume":
        return format_count(counts.suspended, "suspended task")
    return format_count(counts.total if action_name == "delete" else counts.live, "task")


def _describe_unchanged_rows(rows: Rows) -> str:
    return f"{_describe(rows)} {'stays' if len(rows) == 1 else 'stay'} unchanged:"


def _selected_rows(actor: Actor, workload_ids: Iterable[str], array_ids: Iterable[str]) -> Rows:
    by_name = ("project__name", "name")
    return [
        *workloads(actor).filter(pk__in=_parse_ids(workload_ids)).order_by(*by_name),
        *arrays(actor).filter(pk__in=_parse_ids(array_ids)).order_by(*by_name),
    ]


def _parse_ids(ids_as_text: Iterable[str]) -> list[uuid.UUID]:
    ids = []
    for text in list(ids_as_text)[:MAX_SELECTED]:
        try:
            ids.append(uuid.UUID(text))
        except ValueError:
            continue
    return ids
