"""Check the values of a schedule."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from berth.core.errors import Invalid
from berth.core.problems import SUGGESTION, Problem, closest_match, format_value, suggest
from berth.core.spec import parse_workload
from berth.core.spec.values.texts import NAME, NAME_ALLOWED
from berth.core.spec.workload import WorkloadSpec
from berth.documents import read_document
from pools.engine.schedule import InvalidSchedule, parse_schedule
from projects.actor import Actor
from projects.engine.due_times import next_due_time, next_due_times
from projects.models import Project, Schedule, Template
from projects.models.schedules import Overlap
from projects.services.workloads.submission import prepare
from projects.services.workloads.submission_view import SubmissionView
from projects.services.workloads.templates import check_document, template_document

CRON_MAX = 120
CRON_EXAMPLE = "an expression such as 0 3 * * 1-5, for 03:00 from Monday to Friday"
ZONE_EXAMPLE = "a time zone such as UTC or Europe/Berlin"
# Keys that contain an absolute time, which would be the same in every run.
UNSCHEDULED_KEYS = ("deadline", "submitted")


@dataclass(frozen=True, slots=True)
class ScheduleValues:
    """Schedule values. Either `template` or `text` (a workload document in YAML) is set."""

    cron: str
    time_zone: str = "UTC"
    overlap: str = Overlap.SKIP
    text: str = ""
    template: str = ""


def check_values(
    actor: Actor, project: Project, name: str, values: ScheduleValues, now: datetime
) -> datetime:
    """Validate the values. Return the first due time. Raises Invalid with all problems."""
    problems: list[Problem] = []
    if not NAME.fullmatch(name):
        problems.append(Problem("name", "is not a valid name", format_value(name), NAME_ALLOWED))
    if values.overlap not in Overlap.values:
        allowed = suggest(values.overlap, Overlap.values)
        problems.append(Problem("overlap", "is not an allowed value", format_value(values.overlap), allowed))
    first, when_problems = _first_due_time(values, now)
    problems += when_problems
    problems += _source_problems(actor, project, name, values, now)
    if problems or first is None:
        raise Invalid(problems)
    return first


def schedule_document(schedule: Schedule) -> dict[str, Any]:
    """Return the document to submit, with the project and a name.

    Raises Invalid if the schedule's template no longer exists.
    """
    project = schedule.project
    if not schedule.template:
        return _add_name_and_project(read_document(schedule.text), schedule.name, project)
    template = _find_template(project, schedule.template)
    if template is None:
        raise Invalid([_missing_template_problem(project, schedule.template)])
    return _template_source(template, schedule.name)


def next_run_times(schedule: Schedule, count: int, now: datetime) -> list[datetime]:
    """Return the next due times. The list is empty while the schedule is paused."""
    if schedule.next_at is None:
        return []
    zone = ZoneInfo(schedule.time_zone)
    return [schedule.next_at, *next_due_times(schedule.cron, zone, max(schedule.next_at, now), count - 1)]


def preview_due_times(
    values: ScheduleValues, count: int, now: datetime
) -> tuple[list[datetime], list[Problem]]:
    """Return the next due times in the schedule's time zone, and the problems with its cron expression and
    time zone. One of the lists is empty.
    """
    first, problems = _first_due_time(values, now)
    if problems or first is None:
        return [], problems
    zone = ZoneInfo(values.time_zone)
    later = next_due_times(cron_expression(values.cron), zone, first, count - 1)
    return [run.astimezone(zone) for run in (first, *later)], []


def cron_expression(text: str) -> str:
    """Return the normalized expression, with nicknames such as @daily expanded."""
    return parse_schedule(text).expression


def _first_due_time(values: ScheduleValues, now: datetime) -> tuple[datetime | None, list[Problem]]:
    problems = []
    zone: ZoneInfo | None = None
    if values.time_zone in available_timezones():
        zone = ZoneInfo(values.time_zone)
    else:
        match = _closest_zone(values.time_zone)
        allowed = f"{SUGGESTION}`{match}`?" if match else ZONE_EXAMPLE
        problems.append(
            Problem("time_zone", "is not a valid time zone", format_value(values.time_zone), allowed)
        )
    received = format_value(values.cron)
    if len(values.cron) > CRON_MAX:
        problems.append(Problem("cron", "is too long", received, f"at most {CRON_MAX} characters"))
        return None, problems
    try:
        expression = cron_expression(values.cron)
    except InvalidSchedule as error:
        if _is_impossible_day(values.cron):
            problems.append(_impossible_day_problem(received))
        else:
            message, _, allowed = str(error).partition("; allowed: ")
            problems.append(Problem("cron", message, received, allowed or CRON_EXAMPLE))
        return None, problems
    first = next_due_time(expression, zone or ZoneInfo("UTC"), now)
    if first is None:
        problems.append(_impossible_day_problem(received))
    return first, problems


def _is_impossible_day(cron: str) -> bool:
    """Return whether all fields are valid but the selected day, such as February 30, never occurs."""
    fields = cron.split()
    if len(fields) != 5:
        return False
    try:
        parse_schedule(" ".join([*fields[:3], "*", fields[4]]))
        parse_schedule(" ".join([*fields[:2], "*", *fields[3:]]))
    except InvalidSchedule:
        return False
    return True


def _impossible_day_problem(received: str) -> Problem:
    allowed = "a day that exists in one of the months"
    return Problem("cron", "never fires: none of the months has this day", received, allowed)


def _closest_zone(name: str) -> str:
    zones = available_timezones()
    by_lower = {zone.lower(): zone for zone in zones}
    by_city = {zone.rpartition("/")[2].lower(): zone for zone in sorted(zones, reverse=True) if "/" in zone}
    text = name.strip().lower().replace(" ", "_")
    exact = by_lower.get(text) or by_city.get(text)
    return (
        exact
        or by_lower.get(closest_match(text, by_lower), "")
        or by_city.get(closest_match(text, by_city), "")
    )


def _source_problems(
    actor: Actor, project: Project, name: str, values: ScheduleValues, now: datetime
) -> Iterator[Problem]:
    if bool(values.text) == bool(values.template):
        received = "both" if values.text else "neither"
        yield Problem("document", "needs a document or a template", received, "one of the two")
        return
    path = "template" if values.template else "document"
    try:
        if values.template:
            template = _find_template(project, values.template)
            if template is None:
                yield _missing_template_problem(project, values.template)
                return
            document = _template_source(template, name)
        else:
            check_document(project, values.text)
            document = _add_name_and_project(read_document(values.text), name, project)
        spec = parse_schedulable_document(document)
        view = SubmissionView(actor)
        prepare(view, document, spec, project=project, now=now, is_array=spec.array is not None)
    except Invalid as error:
        for problem in error.problems:
            if problem.path == "name" and NAME.fullmatch(name) is None:
                continue  # reported for the schedule itself
            where = f"{path}.{problem.path}" if problem.path else path
            yield Problem(where, problem.message, problem.received, problem.allowed)


def parse_schedulable_document(document: dict[str, Any]) -> WorkloadSpec:
    """Return the parsed document. Raises Invalid if it is invalid or cannot be run repeatedly."""
    spec = parse_workload(document)
    problems = [
        Problem(key, "cannot be scheduled", "", "a document without this key")
        for key in UNSCHEDULED_KEYS
        if key in document
    ]
    if spec.kind == "service":
        problems.append(Problem("kind", "cannot be scheduled", format_value("service"), "another kind"))
    if problems:
        raise Invalid(problems)
    return spec


def lock_template(project: Project, name: str) -> None:
    """Prevent the template's deletion until the transaction ends. Raises Invalid if it no longer exists."""
    rows = Template.objects.select_for_update(no_key=True).filter(project=project, name=name)
    if rows.first() is None:
        raise Invalid([_missing_template_problem(project, name)])


def _find_template(project: Project, name: str) -> Template | None:
    return Template.objects.select_related("project").filter(project=project, name=name).first()


def _missing_template_problem(project: Project, name: str) -> Problem:
    names = Template.objects.filter(project=project).values_list("name", flat=True)
    allowed = suggest(name, names) or f"a template of {project.name}, which has none"
    return Problem("template", "does not exist", format_value(name), allowed)


def _template_source(template: Template, name: str) -> dict[str, Any]:
    """Return the template's document, named `name` if it has no name."""
    document = read_document(template.text)
    return {**template_document(template), "name": document.get("name", name)}


def _add_name_and_project(document: dict[str, Any], name: str, project: Project) -> dict[str, Any]:
    return {"name": name, **document, "project": project.name}
