"""Forms that create and edit schedules."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, cast
from zoneinfo import available_timezones

from django import forms
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse, reverse_lazy
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods

from berth.core.errors import PreconditionFailed
from berth.core.problems import Problem
from berth.server.web.error_sentences import describe_problem
from berth.server.web.faults import add_remaining_errors, form_errors
from berth.server.web.forms import Form, FormSection
from berth.server.web.pages import Request, form_page, signed_in, success_response
from berth.server.web.zones import known_time_zone, user_time_zone
from projects.access import Action, may
from projects.actor import Actor
from projects.engine.cron_words import describe_cron
from projects.models import Project, Schedule
from projects.models.schedules import Overlap
from projects.selectors import find_project, projects, templates
from projects.services import schedules
from projects.web.schedules.frequency import (
    CUSTOM,
    DAILY,
    DEFAULTS,
    FREQUENCIES,
    HOURLY,
    MONTHLY,
    WEEKDAY_NAMES,
    WEEKDAYS,
    WEEKLY,
    build_cron,
    split_cron,
)
from projects.web.schedules.pages import find_schedule

CRON_HINT = (
    "Minute, hour, day of month, month and day of week. Examples: 0 3 * * 1-5 (weekdays at 03:00), "
    "*/15 * * * * (every 15 minutes), 0 6 1 * * (on the first of each month at 06:00)."
)
PREVIEWED_RUNS = 5
VALID_CRON = "@daily"  # replaces an invalid time while the other values are checked
BESIDE_FORM: dict[str, Any] = {"aside_template": "projects/schedules/next_runs.html"}
# Prefixes of legacy and technical time zone names, which the form does not offer.
OMITTED_ZONE_PREFIXES = (
    "Etc/",
    "US/",
    "Canada/",
    "Brazil/",
    "Chile/",
    "Mexico/",
    "SystemV/",
)
EXAMPLE = """\
# Name and project come from the schedule.
command: |-
  nvidia-smi || echo "no NVIDIA driver"
  for step in 1 2 3; do echo "step $step"; sleep 5; done
roles:
  - name: worker
    replicas: 1
    gpu: 1
    cpu: 2
    memory_mib: 4096
"""
TEMPLATE, DOCUMENT = "template", "document"
SOURCES = ((TEMPLATE, "A template of the project"), (DOCUMENT, "A document"))
OVERLAPS = (
    (Overlap.SKIP, "Skip the run"),
    (Overlap.QUEUE, "Start it afterwards"),
    (Overlap.REPLACE, "Cancel the previous run"),
)
MISSING = {TEMPLATE: "Choose a template.", DOCUMENT: "Enter a workload document."}
# The card beside the form lists the next runs, and is updated while the user types.
TIME_FIELDS = ("frequency", "minute", "at", "weekday", "day", "cron", "time_zone")
TIMES_PREVIEW = {
    "hx-get": reverse_lazy("schedule-times"),
    "hx-include": ", ".join(f"#schedule_{name}" for name in TIME_FIELDS),
    "hx-target": "#schedule_next_runs",
    "hx-swap": "innerHTML",
    "hx-trigger": ", ".join(
        ["load", "change delay:50ms"]
        + [f"input delay:300ms from:#schedule_{name}" for name in TIME_FIELDS if name != "frequency"]
    ),
}
# Fields that each frequency needs, and the frequencies for which each field is shown.
NEEDED = {
    HOURLY: ("minute",), DAILY: ("at",), WEEKDAYS: ("at",), WEEKLY: ("at", "weekday"), MONTHLY: ("at", "day"),
    CUSTOM: ("cron",),
}  # fmt: skip
SHOWN_FOR = {
    name: "|".join(frequency for frequency, names in NEEDED.items() if name in names)
    for name in ("minute", "at", "weekday", "day", "cron")
}
# The available templates depend on the selected project.
PROJECT_TEMPLATES = {
    "hx-get": reverse_lazy("schedule-templates"),
    "hx-target": "#schedule_template",
    "hx-swap": "innerHTML",
    "hx-trigger": "change",
}


class ScheduleForm(Form):
    frequency = forms.ChoiceField(
        label="Frequency", choices=FREQUENCIES, required=False,
        widget=forms.Select(attrs=TIMES_PREVIEW),
    )  # fmt: skip
    minute = forms.IntegerField(label="Minute", min_value=0, max_value=59, required=False)
    weekday = forms.ChoiceField(label="Day of the week", choices=WEEKDAY_NAMES, required=False)
    day = forms.IntegerField(
        label="Day of the month", min_value=1, max_value=31, required=False,
        help_text="Months without this day are skipped.",
    )  # fmt: skip
    at = forms.TimeField(
        label="Time", required=False, help_text="24-hour time, for example 17:30.",
        widget=forms.TimeInput(format="%H:%M", attrs={"class": "time", "autocomplete": "off"}),
        error_messages={"invalid": "Enter a time from 00:00 to 23:59."},
    )  # fmt: skip
    cron = forms.CharField(
        label="Cron", max_length=120, required=False, help_text=CRON_HINT,
        widget=forms.TextInput(attrs={"autocomplete": "off", "placeholder": "0 3 * * 1-5"}),
    )  # fmt: skip
    time_zone = forms.CharField(label="Time zone", max_length=64, widget=forms.Select)
    overlap = forms.ChoiceField(
        label="Overlap",
        choices=OVERLAPS,
        help_text="How to handle a run that is due before the previous run has ended.",
    )
    source = forms.ChoiceField(label="Workload source", choices=SOURCES, required=False)
    template = forms.ChoiceField(
        label="Template", required=False, help_text="Future runs use the template's latest version."
    )
    document = forms.CharField(
        label="Workload in YAML", required=False, strip=False,
        widget=forms.Textarea(attrs={"rows": 10, "spellcheck": "false", "wrap": "off", "data-numbered": ""}),
    )  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, shown_for in SHOWN_FOR.items():
            self.set_display_hints(name, shown_for=f"frequency={shown_for}", has_live_error=True)
        stored = (self.initial.get("time_zone"), self.data.get("time_zone"))
        cast("forms.Select", self.fields["time_zone"].widget).choices = _zone_choices(stored)
        for source in MISSING:
            self.set_display_hints(source, shown_for=f"source={source}")

    def set_template_choices(self, choices: Sequence[tuple[str, str]]) -> None:
        cast("forms.ChoiceField", self.fields["template"]).choices = choices

    def sections(self) -> Sequence[FormSection]:
        return (
            FormSection("Schedule", ("project", "name")),
            FormSection("Time", (*TIME_FIELDS, "overlap")),
            FormSection("Workload", ("source", "template", "document")),
        )

    def clean(self) -> dict[str, Any]:
        """Build the cron expression. Attach errors for missing values to the visible field."""
        cleaned = super().clean() or self.cleaned_data
        frequency = cleaned.get("frequency") or CUSTOM
        for name in NEEDED.get(frequency, ()):
            if name not in self.errors and cleaned.get(name) in (None, ""):
                self.add_error(name, "Enter a value.")
        has_time = not any(name in self.errors for name in TIME_FIELDS)
        cleaned["cron"] = build_cron(cleaned) if has_time else VALID_CRON
        source = cleaned.get("source")
        if source in MISSING and not cleaned.get(source, "").strip():
            self.add_error(source, MISSING[source])
        return cleaned

    def values(self) -> schedules.ScheduleValues:
        """Return the form's values, with either the template or the document, whichever the user chose.

        Invalid values are replaced by defaults.
        """
        cleaned = {"cron": VALID_CRON, "time_zone": "UTC", "overlap": Overlap.SKIP, **self.cleaned_data}
        source = cleaned.get("source")
        text = "" if source == TEMPLATE else cleaned.get("document", "").replace("\r\n", "\n")
        return schedules.ScheduleValues(
            cron=cleaned["cron"],
            time_zone=cleaned["time_zone"],
            overlap=cleaned["overlap"],
            text=text if text.strip() else "",
            template="" if source == DOCUMENT else cleaned.get("template", ""),
        )

    def add_errors_of_valid_fields(self, actor: Actor, project: Project, name: str) -> None:
        """Check the values that the form accepted, so that all errors of the form are shown together."""
        invalid = set(self.errors)
        if invalid & {"source", *MISSING}:
            invalid |= MISSING.keys()
        values, now = self.values(), timezone.now()
        add_remaining_errors(
            self, lambda: schedules.check_values(actor, project, name, values, now), invalid=invalid
        )


def _zone_choices(stored: Iterable[str | None]) -> list[Any]:
    """Return the time zones grouped by region, with UTC first. Valid zones in `stored` are included."""
    zones = available_timezones()
    listed = {name for name in zones if "/" in name and not name.startswith(OMITTED_ZONE_PREFIXES)}
    listed |= {name for name in stored if name in zones and name != "UTC"}
    regions: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name in sorted(listed):
        region, slash, place = name.partition("/")
        regions[region if slash else "Other"].append((name, (place or name).replace("_", " ")))
    return [("UTC", "UTC"), *regions.items()]


class NewScheduleForm(ScheduleForm):
    project = forms.ChoiceField(label="Project", widget=forms.Select(attrs=PROJECT_TEMPLATES))
    name = forms.CharField(label="Name", max_length=63, help_text="Lowercase letters, digits and hyphens.")


class EditScheduleForm(ScheduleForm):
    version = forms.IntegerField(widget=forms.HiddenInput)


@signed_in
@require_http_methods(["GET", "POST"])
def add(request: Request) -> HttpResponse:
    template = request.GET.get("template", "")
    offered = [row.name for row in projects(request.actor) if may(request.actor, Action.SUBMIT, row)]
    selected = request.POST.get("project") or request.GET.get("project", "")
    if selected not in offered:
        selected = offered[0] if offered else ""
    initial = {
        **DEFAULTS,
        "project": selected,
        "time_zone": str(user_time_zone(request)),
        "template": template,
        "document": EXAMPLE,
    }
    choices = _template_choices(request.actor, selected)
    initial["source"] = TEMPLATE if len(choices) > 1 else DOCUMENT
    form = NewScheduleForm(request.POST or None, auto_id="schedule_%s", initial=initial)
    cast("forms.ChoiceField", form.fields["project"]).choices = [(name, name) for name in offered]
    form.set_template_choices(choices)
    if request.method == "POST" and not form.is_valid() and selected:
        project = find_project(request.actor, selected)
        form.add_errors_of_valid_fields(request.actor, project, form.cleaned_data.get("name", ""))
    elif request.method == "POST":
        with form_errors(form):
            values = form.cleaned_data
            project = find_project(request.actor, values["project"])
            try:
                stored = schedules.set_schedule(
                    actor=request.actor, project=project, name=values["name"], values=form.values(),
                    expected_version=0,
                )  # fmt: skip
            except PreconditionFailed:
                form.add_error("name", "A schedule with this name exists. Choose another name")
            else:
                to = reverse("schedule", args=[project.name, stored.name])
                return success_response(request, f"Schedule {stored.name} created.", to=to, leave=True)
    return form_page(
        request, form, title="Create schedule", label="Create schedule", back=reverse("schedules"),
        crumbs=[("Schedules", reverse("schedules"))], **BESIDE_FORM,
    )  # fmt: skip


@signed_in
@require_http_methods(["GET", "POST"])
def edit(request: Request, project: str, name: str) -> HttpResponse:
    schedule = find_schedule(request, project, name)
    schedules.require_change_permission(request.actor, schedule)
    form = EditScheduleForm(request.POST or None, auto_id="schedule_%s", initial=_initial_values(schedule))
    form.set_template_choices(_template_choices(request.actor, project, schedule.template))
    back = reverse("schedule", args=[project, name])
    if request.method == "POST" and not form.is_valid():
        form.add_errors_of_valid_fields(request.actor, schedule.project, name)
    elif request.method == "POST":
        with form_errors(form):
            schedules.set_schedule(
                actor=request.actor, project=schedule.project, name=name, values=form.values(),
                expected_version=form.cleaned_data["version"],
            )  # fmt: skip
            return success_response(request, f"Schedule {name} changed.", to=back)
    takes_over = schedule.owner_id != request.user.pk
    return form_page(
        request, form, title=f"Edit {name}", label="Save schedule", back=back,
        text="You become the owner, and runs use your permissions." if takes_over else "",
        crumbs=[("Schedules", reverse("schedules")), (name, back)], **BESIDE_FORM,
    )  # fmt: skip


@signed_in
@require_GET
def template_options(request: Request) -> HttpResponse:
    """Return the options of the template field for a project."""
    project = find_project(request.actor, request.GET.get("project", ""))
    choices = _template_choices(request.actor, project.name)
    return render(request, "projects/schedules/template_options.html", {"choices": choices})


@signed_in
@require_GET
def preview_times(request: Request) -> HttpResponse:
    """Describe the entered time and list its next due times, or show the errors of the time fields."""
    entered = {name: request.GET.get(name, "").strip()[:120] for name in TIME_FIELDS}
    values = schedules.ScheduleValues(build_cron(entered), entered["time_zone"])
    errors = _live_errors(entered)
    context: dict[str, Any] = {"zone": values.time_zone, "field_errors": errors}
    if any(errors.values()):
        context["problem"] = "Correct the time to see the next runs."
    elif values.cron:
        runs, problems = schedules.preview_due_times(values, PREVIEWED_RUNS, timezone.now())
        zone, in_cron = known_time_zone(request), [each for each in problems if each.path == "cron"]
        context |= {
            "runs": [(f"{run:%a} {run.day} {run:%b, %H:%M}", run) for run in runs],
            "in_other_zone": zone is not None
            and any(run.utcoffset() != run.astimezone(zone).utcoffset() for run in runs),
            "times": "" if problems else describe_cron(values.cron),
            "problem": _problem_sentence(problems[0]) if problems else "",
        }
        errors["cron"] = _problem_sentence(in_cron[0]) if in_cron else ""
    return render(request, "projects/schedules/times.html", context)


def _live_errors(entered: dict[str, str]) -> dict[str, str]:
    """Return an error or "" for each time field. Fields without a value have no error."""
    form = ScheduleForm(entered)
    needed = NEEDED.get(entered["frequency"], ())
    shown = [name for name in needed if name != "cron" and entered[name] and name in form.errors]
    return {name: str(form.errors[name][0]) if name in shown else "" for name in SHOWN_FOR}


def _template_choices(actor: Actor, project: str, current: str = "") -> list[tuple[str, str]]:
    """Return the project's templates, including a deleted one if the schedule uses it."""
    names = list(templates(actor).filter(project__name=project).values_list("name", flat=True))
    choices = [(name, name) for name in names]
    if current and current not in names:
        choices.append((current, f"{current} (deleted)"))
    return [("", "Choose a template" if choices else f"No templates in {project}"), *choices]


def _problem_sentence(problem: Problem) -> str:
    sentence = describe_problem(problem).text
    return f"Time zone: {sentence}" if problem.path == "time_zone" else sentence


def _initial_values(schedule: Schedule) -> dict[str, Any]:
    names = ("time_zone", "overlap", "template", "version")
    source = TEMPLATE if schedule.template else DOCUMENT
    values = {name: getattr(schedule, name) for name in names}
    return {**split_cron(schedule.cron), **values, "document": schedule.text, "source": source}
