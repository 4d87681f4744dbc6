"""Pages that list schedules, show their next and last runs, and offer actions on schedules."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from django.db.models import Q, Window
from django.db.models.functions import RowNumber
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods

from berth.core.errors import Conflict, Invalid
from berth.core.not_found import ObjectKind, not_found_error
from berth.core.wording.problem_sentences import describe_error
from berth.server.web.lists.tables import Column, list_query, list_rows, requested_csv, table_state
from berth.server.web.pages import Request, confirm_page, page, render_refusal, signed_in, success_response
from berth.server.web.zones import known_time_zone
from projects import selectors
from projects.access import Action, may, may_submit_anywhere
from projects.actor import Actor
from projects.engine.cron_words import describe_cron
from projects.models import Schedule, ScheduleRun, Template
from projects.services import schedules

NEXT_RUNS, LAST_RUNS = 5, 20  # maximum number of upcoming and of past runs on one page
DOTS = 5  # number of runs shown as dots per schedule


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """Schedule with its latest runs, newest first."""

    schedule: Schedule
    runs: Sequence[ScheduleRun]
    is_template_missing: bool = False
    reader_zone: ZoneInfo | None = None

    @property
    def next_run_in_schedule_zone(self) -> str:
        """Time of the next run in the schedule's zone, or "" if it is the same in the reader's zone."""
        at = self.schedule.next_at
        return schedule_time(at, self.schedule, self.reader_zone) if at is not None else ""

    @property
    def last_run_in_schedule_zone(self) -> str:
        """Due time of the last run in the schedule's zone, or "" if the reader's zone shows the same time."""
        last = self.last_run
        return schedule_time(last.due_at, self.schedule, self.reader_zone) if last is not None else ""

    @property
    def last_run(self) -> ScheduleRun | None:
        return self.runs[0] if self.runs else None

    @property
    def pause_note(self) -> str:
        """Text such as "by dave", or a sentence that gives another reason for the pause."""
        message = self.schedule.pause_message
        return message.removeprefix("Paused ").removesuffix(".") if message.startswith("Paused ") else message

    @property
    def run_states(self) -> list[tuple[str, str]]:
        """Return the state and the time of each run, oldest first."""
        return [(run_state(run), self._format_in_schedule_zone(run.due_at)) for run in reversed(self.runs)]

    def _format_in_schedule_zone(self, time: datetime) -> str:
        at = time.astimezone(ZoneInfo(self.schedule.time_zone))
        return f"{at:%a} {at.day} {at:%b, %H:%M} {self.schedule.time_zone}"


def schedule_time(at: datetime, schedule: Schedule, reader_zone: ZoneInfo | None) -> str:
    """Return the time in the schedule's zone, or "" if the reader's zone shows the same time.

    `reader_zone` may be None.
    """
    local = at.astimezone(ZoneInfo(schedule.time_zone))
    if reader_zone is None or local.utcoffset() == at.astimezone(reader_zone).utcoffset():
        return ""
    return f"{local:%H:%M} {schedule.time_zone}"


def run_state(run: ScheduleRun) -> str:
    """Return the state of the run's workload or array. If it has neither, return the run's outcome."""
    if run.workload:
        return str(run.workload.phase)
    return str(run.array.state) if run.array else str(run.outcome)


COLUMNS: tuple[Column[ScheduleRow], ...] = (
    Column("name", "Schedule", lambda row: row.schedule.name, order="name"),
    Column(
        "project", "Project", lambda row: row.schedule.project.name, order="project__name", is_secondary=True
    ),
    Column("times", "Times", lambda row: describe_cron(row.schedule.cron), page_title="Times"),
    Column("cron", "Cron", lambda row: row.schedule.cron, is_csv_only=True),
    Column("zone", "Time zone", lambda row: row.schedule.time_zone, is_csv_only=True),
    Column("last", "Last run", lambda row: row.last_run.due_at if row.last_run else None),
    Column(
        "outcome",
        "Outcome",
        lambda row: row.last_run.get_outcome_display() if row.last_run else "",
        is_csv_only=True,
    ),
    Column(
        "runs", "Last 5 runs", lambda row: ", ".join(run_state(run) for run in row.runs), is_secondary=True
    ),
    Column("next", "Next run", lambda row: row.schedule.next_at, order="next_at"),
    Column("owner", "Owner", lambda row: row.schedule.owner and str(row.schedule.owner), is_csv_only=True),
)
RUN_COLUMNS: tuple[Column[ScheduleRun], ...] = (
    Column("due", "Due", lambda run: run.due_at),
    Column("outcome", "Outcome", lambda run: run.get_outcome_display()),
    Column("workload", "Workload", lambda run: str(run.workload or run.array or "")),
    Column("message", "Message", lambda run: run.message),
)


@dataclass(frozen=True, slots=True)
class ScheduleAction:
    """Action on a schedule that the user must confirm, with the text of its dialog."""

    title: str
    warning: str
    label: str
    result: str
    run: Callable[..., object]
    is_danger: bool = False
    leaves: bool = False


ACTIONS = {
    "pause": ScheduleAction(
        "Pause {}?",
        "No runs are submitted until the schedule is resumed. Submitted runs are not affected.",
        "Pause schedule",
        "Schedule {} paused.",
        schedules.pause_schedule,
    ),
    "resume": ScheduleAction(
        "Resume {}?",
        "Due times that passed while the schedule was paused are skipped.",
        "Resume schedule",
        "Schedule {} resumed.",
        schedules.resume_schedule,
    ),
    "run": ScheduleAction(
        "Run {} now?",
        "The run is submitted with your permissions. The next due time does not change.",
        "Run now",
        "A run of {} was submitted.",
        schedules.run_now,
    ),
    "delete": ScheduleAction(
        "Delete {}?",
        "The history of its runs is deleted too. Their workloads are kept.",
        "Delete schedule",
        "Schedule {} deleted.",
        schedules.delete_schedule,
        is_danger=True,
        leaves=True,
    ),
}


@signed_in
@require_GET
def index(request: Request) -> HttpResponse | StreamingHttpResponse:
    rows = selectors.schedules(request.actor)
    names = list(rows.order_by("project__name").values_list("project__name", flat=True).distinct())
    project = request.GET.get("project", "")
    if project:
        rows = rows.filter(project__name=project)
    is_searched = bool(words := table_state(request.GET, "")["search"].split())
    for word in words:
        rows = rows.filter(Q(name__icontains=word) | Q(project__name__icontains=word))
    zone = known_time_zone(request)
    listing = list_query(
        request, COLUMNS, rows, lambda batch: _build_schedule_rows(batch, zone),
        file_name="schedules", default="name",
    )  # fmt: skip
    if file := requested_csv(request, listing):
        return file
    context = {
        "rows": [(row, _row_actions(request.actor, row)) for row in listing.rows],
        "listing": listing,
        "is_searched": is_searched or bool(project),
        "project": project,
        "projects": names,
        "may_create": may_submit_anywhere(request.actor),
    }
    return page(request, "projects/schedules/list.html", context, inner="projects/schedules/rows.html")


@signed_in
@require_GET
def detail(request: Request, project: str, name: str) -> HttpResponse | StreamingHttpResponse:
    schedule = find_schedule(request, project, name)
    runs = list_rows(
        request,
        RUN_COLUMNS,
        schedule.runs.select_related("workload", "array"),
        file_name=f"runs-of-{name}",
        default="-due",
        size=LAST_RUNS,
    )
    if file := requested_csv(request, runs):
        return file
    is_template_missing = bool(_ids_with_missing_template([schedule]))
    context = {
        "schedule": schedule,
        "is_template_missing": is_template_missing,
        "times": describe_cron(schedule.cron),
        "next_runs": [
            (at, schedule_time(at, schedule, known_time_zone(request)))
            for at in schedules.next_run_times(schedule, NEXT_RUNS, timezone.now())
        ],
        "runs": runs.rows,
        "listing": runs,
        "actions": [
            (action_name, label)
            for action_name, label in _allowed_actions(request.actor, schedule)
            if not (action_name == "run" and is_template_missing)
        ],
        "may_change": schedules.may_change(request.actor, schedule),
    }
    return page(request, "projects/schedules/page.html", context, inner="projects/schedules/body.html")


@signed_in
@require_http_methods(["GET", "POST"])
def apply_action(request: Request, project: str, name: str, action_name: str) -> HttpResponse:
    """Ask for confirmation (GET), or perform the action (POST)."""
    schedule = find_schedule(request, project, name)
    if action_name == "run":
        request.require("submit", schedule.project)
    else:
        schedules.require_change_permission(request.actor, schedule)
    chosen = ACTIONS[action_name]
    back = reverse("schedule", args=[project, name])
    if action_name == "run" and _ids_with_missing_template([schedule]):
        text = f"Template {schedule.template} no longer exists. Edit the schedule to choose another workload."
        return _render_run_refusal(request, schedule, text, status=422 if request.method == "POST" else 200)
    if request.method == "POST":
        try:
            chosen.run(actor=request.actor, schedule=schedule)
        except (Conflict, Invalid) as error:
            if action_name != "run":
                raise
            return _render_run_refusal(request, schedule, describe_error(error), status=error.status)
        to = reverse("schedules") if chosen.leaves else back
        return success_response(request, chosen.result.format(name), to=to, leave=chosen.leaves)
    return confirm_page(
        request,
        title=chosen.title.format(name),
        warning=chosen.warning,
        label=chosen.label,
        back=back,
        danger=chosen.is_danger,
    )


def _render_run_refusal(request: Request, schedule: Schedule, text: str, *, status: int) -> HttpResponse:
    """Explain why no run can be submitted. Offer to edit the schedule if the user may do so."""
    arguments = [schedule.project.name, schedule.name]
    may_edit = schedules.may_change(request.actor, schedule)
    return render_refusal(
        request,
        title=f"{schedule.name} cannot run now",
        text=text,
        back=reverse("schedule", args=arguments),
        action=("Edit schedule", reverse("schedule-edit", args=arguments)) if may_edit else None,
        status=status,
    )


def _ids_with_missing_template(rows: Sequence[Schedule]) -> set[int]:
    """Return the IDs of the schedules whose template has been deleted."""
    names = {row.template for row in rows if row.template}
    stored = (
        set(Template.objects.filter(name__in=names).values_list("project_id", "name")) if names else set()
    )
    return {row.pk for row in rows if row.template and (row.project_id, row.template) not in stored}


def _build_schedule_rows(rows: list[Schedule], zone: ZoneInfo | None) -> list[ScheduleRow]:
    ranked = ScheduleRun.objects.filter(schedule__in=rows).annotate(
        place=Window(RowNumber(), partition_by="schedule_id", order_by=("-due_at", "-pk"))
    )
    latest = ranked.filter(place__lte=DOTS).select_related("workload", "array")
    runs: dict[int, list[ScheduleRun]] = defaultdict(list)
    for run in latest.order_by("schedule_id", "place"):
        runs[run.schedule_id].append(run)
    broken = _ids_with_missing_template(rows)
    return [ScheduleRow(row, runs[row.pk], row.pk in broken, zone) for row in rows]


def find_schedule(request: Request, project: str, name: str) -> Schedule:
    row = selectors.schedules(request.actor).filter(project__name=project, name=name).first()
    if row is None:
        raise not_found_error(ObjectKind.SCHEDULE, name=name, owner=project)
    return row


def _row_actions(actor: Actor, row: ScheduleRow) -> list[tuple[str, str]]:
    """Return the row's actions. Run now comes last, so that its buttons are aligned."""
    actions = [
        (action_name, label.removesuffix(" schedule"))
        for action_name, label in _allowed_actions(actor, row.schedule)
        if action_name != "delete" and not (action_name == "run" and row.is_template_missing)
    ]
    return sorted(actions, key=lambda action: action[0] == "run")


def _allowed_actions(actor: Actor, schedule: Schedule) -> Iterator[tuple[str, str]]:
    if may(actor, Action.SUBMIT, schedule.project):
        yield "run", ACTIONS["run"].label
    if schedules.may_change(actor, schedule):
        change = "pause" if schedule.paused_at is None else "resume"
        yield change, ACTIONS[change].label
        yield "delete", ACTIONS["delete"].label
