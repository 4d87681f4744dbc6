"""Forms that cancel, suspend, resume, retry or delete the tasks of an array."""

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from django import forms
from django.db.models import Q
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.html import format_html_join
from django.views.decorators.http import require_http_methods

from berth.core.spec.sections.arrays import RANGES_ALLOWED, TASKS_MAX, expand, parse_indexes, to_ranges
from berth.core.wording.words import format_count, format_ranges
from berth.server.web.faults import form_errors
from berth.server.web.forms import Form
from berth.server.web.pages import Request, confirm_page, form_page, signed_in, success_response
from projects.access import Action, require
from projects.models import Phase, Workload, WorkloadArray
from projects.models.workloads import ENDED_PHASES, LIVE_PHASES
from projects.selectors import find_array
from projects.services import arrays
from projects.services.arrays import count_tasks_by_array
from projects.web.arrays.replaced_tasks import REPLACED, ReplacedTasks, find_replaced_tasks
from projects.web.arrays.retry_forecast import describe_retry
from projects.web.workloads.stops import STOPPING_ACTIONS, StopCost, stop_cost

STOP_COST = "stop-cost"  # ID of the form section with the cost of stopping the selected tasks
STOP_COST_TEMPLATE = "projects/arrays/stop_cost.html"
FORECAST_TEMPLATE = "projects/arrays/retry_forecast.html"
USUAL, OTHER = "usual", "other"  # choices in the forms that select tasks
MAX_LISTED, MAX_INDEX_TEXT = 200, 60  # limits on the list of failed tasks in forms
# Tasks that are being suspended count as suspended.
IS_SUSPENDED = Q(phase=Phase.SUSPENDED) | Q(phase=Phase.STOPPING, next_phase=Phase.SUSPENDED)
CAN_BE_SUSPENDED = (
    Q(phase__in=LIVE_PHASES) & ~IS_SUSPENDED & ~Q(phase=Phase.STOPPING, next_phase__in=ENDED_PHASES)
)


class TasksForm(Form):
    """Form for choosing the tasks that an action changes: the usual tasks (described by `usual`), the tasks
    that a copy replaces, or tasks with given indexes.

    If `usual` is empty, the form asks only for indexes.
    """

    choice = forms.ChoiceField(label="Tasks", required=False, widget=forms.RadioSelect)
    copy = forms.CharField(required=False, widget=forms.HiddenInput)
    indexes = forms.CharField(
        label="Indexes",
        required=False,
        max_length=2000,
        help_text="Indexes and ranges such as 3, 0-99 or 0-99:10, separated by commas.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )

    def __init__(self, *args: Any, usual: str, replaced: ReplacedTasks | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.replaced = replaced
        if replaced is None:
            del self.fields["copy"]
        if usual:
            cast("forms.ChoiceField", self.fields["choice"]).choices = [
                (USUAL, usual),
                *([(REPLACED, replaced.label)] if replaced else []),
                (OTHER, "Other tasks"),
            ]
            self.initial.setdefault("choice", USUAL)
            if replaced is None and self.initial["choice"] == REPLACED:
                # The copy was deleted. The default tasks may be different ones, so do not select them.
                self.initial["choice"] = OTHER
            self.set_display_hints("indexes", shown_for=f"choice={OTHER}")
        else:
            del self.fields["choice"]
            self.fields["indexes"].required = True

    def clean_indexes(self) -> Sequence[int] | None:
        """Return the selected task indexes, or None if the action applies to its default tasks."""
        text = self.cleaned_data["indexes"].strip()
        choice = self.cleaned_data.get("choice", OTHER)
        if choice == REPLACED and self.replaced is not None:
            return self.replaced.indexes
        if choice == USUAL or not (text or choice):
            return None
        if not text:
            raise forms.ValidationError("Enter the task indexes.")
        try:
            parts = parse_indexes(text)
        except ValueError as error:
            raise forms.ValidationError(
                f'"{error}" is not a valid index or range. Enter {RANGES_ALLOWED}.'
            ) from None
        if sum(map(len, to_ranges(parts))) > TASKS_MAX:
            raise forms.ValidationError(f"The indexes select too many tasks. Select at most {TASKS_MAX}.")
        return expand(parts)


class CancelWorstForm(Form):
    count = forms.IntegerField(label="Tasks", min_value=1, max_value=TASKS_MAX, initial=1)
    metric = forms.CharField(label="Metric", max_length=64)
    goal = forms.ChoiceField(label="Best value", choices=[("min", "Lowest"), ("max", "Highest")])


@dataclass(frozen=True, slots=True)
class Change:
    """Action that changes some or all tasks of an array, with the text of its form."""

    verb: str
    text: str
    result: str
    run: Callable[..., int]
    dismiss: str = "Cancel"


CHANGES = {
    "cancel": Change(
        "Cancel",
        "Tasks that have ended stay unchanged.",
        "{} of {} cancelled.",
        arrays.cancel,
        "Keep tasks",
    ),
    "suspend": Change(
        "Suspend",
        "The tasks stay suspended until you resume them.",
        "{} of {} suspended.",
        arrays.suspend,
        "Keep tasks",
    ),
    "resume": Change(
        "Resume",
        "The tasks return to the project's queue in the order of their indexes.",
        "{} of {} queued again.",
        arrays.resume,
        "Keep suspended",
    ),
    "retry": Change(
        "Retry",
        "Each task is submitted again, with the next attempt number.",
        "{} of {} queued again.",
        arrays.retry,
    ),
}


@signed_in
@require_http_methods(["GET", "POST"])
def change(request: Request, array_id: uuid.UUID, action_name: str) -> HttpResponse:
    """Show the form for choosing tasks (GET) or change the tasks (POST)."""
    array = find_array(request.actor, array_id)
    require(request.actor, Action.OPERATE, array)
    action, url = CHANGES[action_name], reverse("array", args=[array.pk])
    usual, count = _default_tasks(array, action_name)
    query = request.POST or request.GET
    copies = action_name == "cancel" and usual
    replaced = find_replaced_tasks(request.actor, array, query.get("copy", "")) if copies else None
    make_form = partial(TasksForm, usual=usual, replaced=replaced)
    form = make_form(request.POST or None, initial=request.GET.dict(), auto_id="tasks_%s")
    if request.method == "POST" and form.is_valid():
        with form_errors(form):
            count = action.run(actor=request.actor, array=array, indexes=form.cleaned_data["indexes"])
            return success_response(
                request, action.result.format(format_count(count, "task"), array.name), to=url
            )
    text = _describe_change(array, action_name)
    is_shown_first = action_name == "retry" and usual and request.method == "GET"
    forecast = describe_retry(request.actor, array) if is_shown_first else ""
    stops = action_name in STOPPING_ACTIONS
    # The fields are in the query while the form is edited, and in links to a filled form.
    edited = make_form(request.GET) if {"indexes", "choice"} & request.GET.keys() else form
    cost = _stop_cost(array, action_name, _selected_indexes(edited, usual=usual)) if stops else None
    if request.htmx.target == STOP_COST:
        return _show_stop_cost(request, cost, text)
    runs_again = action_name == "retry" and not usual
    shown = form["choice"].value() if usual else ""
    texts = [(USUAL, format_count(count, "task")), (OTHER, "tasks")]
    if replaced is not None:
        texts.insert(1, (REPLACED, format_count(len(replaced.indexes), "task")))
    labels = format_html_join(
        "",
        '<span data-shown-for="choice={}"{}>{} {}</span>',
        [(value, "" if value == shown else " hidden", action.verb, text) for value, text in texts],
    )
    return form_page(
        request,
        form,
        title=f"Run tasks of {array.name} again?" if runs_again else f"{action.verb} tasks of {array.name}?",
        label=labels if usual else "Run tasks again" if runs_again else f"{action.verb} tasks",
        back=url,
        text=text,
        cost=cost,
        forecast=forecast,
        intro_template=STOP_COST_TEMPLATE if stops else FORECAST_TEMPLATE if forecast else "",
        danger=action_name == "cancel",
        dismiss=action.dismiss,
    )


def _describe_change(array: WorkloadArray, action_name: str) -> str:
    held = count_tasks_by_array([array])[array.pk].held
    if action_name not in STOPPING_ACTIONS or not held:
        return CHANGES[action_name].text
    waiting = f"{format_count(held, 'task')} that {'waits' if held == 1 else 'wait'} for earlier tasks"
    return f"The unfinished tasks include {waiting}. {CHANGES[action_name].text}"


def _selected_indexes(form: TasksForm, *, usual: str) -> Sequence[int] | None:
    """Return the indexes of the selected tasks, or None for the action's default tasks.

    An invalid form selects no tasks.
    """
    if not form.is_bound and usual:
        return None
    return form.cleaned_data["indexes"] if form.is_valid() else ()


def _stop_cost(array: WorkloadArray, action_name: str, indexes: Iterable[int] | None) -> StopCost | None:
    if indexes is None:
        return stop_cost(action_name, [array])
    tasks = Workload.objects.filter(array=array, superseded=False, array_index__in=indexes)
    return stop_cost(action_name, tasks.only("pk"))


def _default_tasks(array: WorkloadArray, action_name: str) -> tuple[str, int]:
    counts = count_tasks_by_array([array])[array.pk]
    if action_name == "cancel":
        return (f"All {format_count(counts.live, 'unfinished task')}" if counts.live else ""), counts.live
    if action_name in ("suspend", "resume"):
        is_resume = action_name == "resume"
        tasks = Workload.objects.filter(array=array, superseded=False)
        count = tasks.filter(IS_SUSPENDED if is_resume else CAN_BE_SUSPENDED).count()
        kind = "suspended task" if is_resume else "pending and running task"
        return (f"All {format_count(count, kind)}" if count else ""), count
    if not counts.failed:
        return "", 0
    failed = Workload.objects.filter(array=array, superseded=False, phase=Phase.FAILED)
    listed = failed.order_by().values_list("array_index", flat=True)[:MAX_LISTED]
    indexes = format_ranges(index or 0 for index in listed)
    is_short = counts.failed <= MAX_LISTED and len(indexes) <= MAX_INDEX_TEXT
    text = format_count(counts.failed, "failed task")
    return (f"{text} ({indexes})" if is_short else text), counts.failed


@signed_in
@require_http_methods(["GET", "POST"])
def cancel_worst(request: Request, array_id: uuid.UUID) -> HttpResponse:
    """Show the form (GET), or cancel the live tasks with the worst values of a metric (POST)."""
    array = find_array(request.actor, array_id)
    require(request.actor, Action.OPERATE, array)
    url = reverse("array", args=[array.pk])
    form = CancelWorstForm(request.POST or None, initial=request.GET.dict(), auto_id="worst_%s")
    edited = CancelWorstForm({"count": "1", **request.GET.dict()})
    cost = _stop_cost(array, "cancel", _worst_tasks(array, edited) if edited.is_valid() else ())
    text = "Tasks whose latest value is not finite are the worst. Tasks without any report are left out."
    if request.htmx.target == STOP_COST:
        return _show_stop_cost(request, cost, text)
    if request.method == "POST" and form.is_valid():
        count = arrays.cancel(actor=request.actor, array=array, indexes=_worst_tasks(array, form))
        return success_response(request, f"{format_count(count, 'task')} of {array.name} cancelled.", to=url)
    return form_page(
        request, form, title=f"Cancel the worst tasks of {array.name}?", label="Cancel tasks", back=url,
        text=text, cost=cost, intro_template=STOP_COST_TEMPLATE, danger=True, dismiss="Keep tasks",
    )  # fmt: skip


def _show_stop_cost(request: Request, cost: StopCost | None, text: str) -> HttpResponse:
    return render(request, STOP_COST_TEMPLATE, {"cost": cost, "text": text, "post_to": request.path})


def _worst_tasks(array: WorkloadArray, form: CancelWorstForm) -> list[int]:
    values = form.cleaned_data
    return arrays.worst_tasks(array, values["metric"], values["goal"], values["count"])


@signed_in
@require_http_methods(["GET", "POST"])
def delete(request: Request, array_id: uuid.UUID) -> HttpResponse:
    array = find_array(request.actor, array_id)
    require(request.actor, Action.OPERATE, array)
    if request.method == "POST":
        arrays.delete(actor=request.actor, array=array)
        return success_response(
            request, f"Array {array.name} was deleted.", to=reverse("workloads"), leave=True
        )
    return confirm_page(
        request,
        title=f"Delete {array.name}?",
        warning=f"{format_count(array.task_count, 'task')} and their logs will be deleted. The events and "
        "evictions are kept in the history.",
        label="Delete array",
        danger=True,
        back=reverse("array", args=[array.pk]),
    )
