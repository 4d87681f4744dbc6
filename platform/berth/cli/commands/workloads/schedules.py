"""The `berth schedule` command, which manages the schedules that submit workloads."""

from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.documents.files import resolve_project_and_name
from berth.cli.exits import InvalidInput
from berth.cli.options.arguments import open_client
from berth.cli.printing.output import (
    Column,
    Output,
    OutputOption,
    print_fields,
    print_items,
    print_section,
    show_list,
    show_one,
)
from berth.cli.printing.text import format_time

if TYPE_CHECKING:
    from berth.client import Client
    from berth.client.models.schedules import ScheduleDetail

app = typer.Typer(no_args_is_help=True, help="Manage schedules, which submit workloads at fixed times.")
ScheduleArgument = Annotated[
    str, typer.Argument(metavar="SCHEDULE", help="Schedule, as NAME or PROJECT/NAME.")
]
ScheduleProjectOption = Annotated[
    str | None,
    typer.Option(
        "--project", "-p", metavar="NAME", help="Project. Defaults to BERTH_PROJECT or the context's project."
    ),
]
FileArgument = Annotated[
    str | None,
    typer.Argument(metavar="FILE", help="Workload document, YAML or JSON (`-` for stdin)."),
]
CRON_HELP = 'Cron expression with five fields, for example "0 3 * * 1-5", or a nickname such as @daily.'
CronOption = Annotated[str | None, typer.Option(metavar="CRON", help=CRON_HELP)]
ZONE_HELP = "Time zone of the cron expression, for example Europe/Berlin. Defaults to UTC."
ZoneOption = Annotated[str | None, typer.Option(metavar="ZONE", help=ZONE_HELP)]
OVERLAP_HELP = "Policy if the previous run has not ended: skip (default), queue or replace."
OverlapOption = Annotated[str | None, typer.Option(metavar="POLICY", help=OVERLAP_HELP)]
TemplateOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Project template to use instead of FILE.")
]
RUNS_SHOWN = 10


@app.command("list")
def list_schedules(project: ScheduleProjectOption = None, output: OutputOption = Output.TABLE) -> None:
    """List the schedules of one project, or of all projects that you can see.

    \b
    berth schedule list -p vision
    """
    with open_client() as client:
        schedules = list(client.schedules.list(project))
    show_list(
        schedules,
        _schedule_columns(),
        output,
        "No schedules. Create one with `berth schedule create NAME FILE`.",
    )


@app.command("show")
def show(
    schedule: ScheduleArgument, project: ScheduleProjectOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Show a schedule with its next and last runs.

    \b
    berth schedule show vision/nightly
    """
    with open_client() as client:
        place = resolve_project_and_name(client, schedule, project)
        stored = client.schedules.get(*place)
        show_one(stored, output, lambda shown: _print_schedule(client, shown))


@app.command("create")
def create(
    *,
    schedule: ScheduleArgument,
    file: FileArgument = None,
    cron: Annotated[str, typer.Option(metavar="CRON", help=CRON_HELP)],
    time_zone: ZoneOption = None,
    overlap: OverlapOption = None,
    template: TemplateOption = None,
    project: ScheduleProjectOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a schedule for a document or template. You become its owner.

    \b
    berth schedule create vision/weekly --cron @weekly --template evaluate --overlap queue
    berth schedule create nightly --cron "0 3 * * 1-5" --time-zone Europe/Berlin train.yaml
    """
    if (file is None) == (template is None):
        raise InvalidInput("schedule create: specify either FILE or --template")
    with open_client() as client:
        stored = client.schedules.create(
            *resolve_project_and_name(client, schedule, project),
            cron,
            None if file is None else _read_file(file),
            template=template,
            time_zone=time_zone or "UTC",
            overlap=overlap or "skip",
        )
    show_one(stored, output, lambda shown: print(f"{shown.handle} created; {_describe_next_run(shown)}"))


@app.command("edit")
def edit(
    *,
    schedule: ScheduleArgument,
    file: FileArgument = None,
    cron: CronOption = None,
    time_zone: ZoneOption = None,
    overlap: OverlapOption = None,
    template: TemplateOption = None,
    project: ScheduleProjectOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change a schedule. You become its owner.

    \b
    berth schedule edit vision/nightly --cron "0 4 * * *"
    berth schedule edit nightly train.yaml
    """
    if file is not None and template is not None:
        raise InvalidInput("schedule edit: specify either FILE or --template")
    with open_client() as client:
        stored = client.schedules.edit(
            *resolve_project_and_name(client, schedule, project),
            cron=cron,
            document=None if file is None else _read_file(file),
            template=template,
            time_zone=time_zone,
            overlap=overlap,
        )
    show_one(stored, output, lambda shown: print(f"{shown.handle} changed; {_describe_next_run(shown)}"))


@app.command("pause")
def pause(
    schedule: ScheduleArgument, project: ScheduleProjectOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Pause a schedule. Submitted runs are not affected.

    \b
    berth schedule pause vision/nightly
    """
    with open_client() as client:
        stored = client.schedules.pause(*resolve_project_and_name(client, schedule, project))
    show_one(stored, output, lambda shown: print(f"{shown.handle} paused"))


@app.command("resume")
def resume(
    schedule: ScheduleArgument, project: ScheduleProjectOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Resume a paused schedule. Runs that were due during the pause are skipped.

    \b
    berth schedule resume vision/nightly
    """
    with open_client() as client:
        stored = client.schedules.resume(*resolve_project_and_name(client, schedule, project))
    show_one(stored, output, lambda shown: print(f"{shown.handle} resumed; {_describe_next_run(shown)}"))


@app.command("run")
def run(
    schedule: ScheduleArgument, project: ScheduleProjectOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Submit a run now, with your own permissions.

    \b
    berth schedule run vision/nightly
    """
    with open_client() as client:
        place = resolve_project_and_name(client, schedule, project)
        submitted = client.schedules.run(*place)
    show_one(submitted, output, lambda shown: print(f"{place[0]}/{shown.workload} submitted"))


@app.command("delete")
def delete(schedule: ScheduleArgument, project: ScheduleProjectOption = None) -> None:
    """Delete a schedule. Submitted workloads are kept.

    \b
    berth schedule delete vision/nightly
    """
    with open_client() as client:
        place = resolve_project_and_name(client, schedule, project)
        client.schedules.delete(*place)
    print(f"{'/'.join(place)} deleted")


def _read_file(file: str) -> str:
    from berth.client.documents import read_text

    return read_text(file)


def _print_schedule(client: "Client", schedule: "ScheduleDetail") -> None:
    print_fields(
        [
            ("Schedule", schedule.handle),
            ("Cron", f"{schedule.cron} ({schedule.time_zone})"),
            ("Overlap", schedule.overlap),
            ("Template", schedule.template or ""),
            ("Owner", schedule.owner or "a deleted user"),
            ("Paused", "" if schedule.paused_at is None else schedule.pause_message),
            ("Next runs", ", ".join(map(format_time, schedule.next_runs))),
        ]
    )
    runs = list(client.schedules.runs(schedule.project, schedule.name, limit=RUNS_SHOWN))
    if runs:
        print_section("Recent runs")
        print_items(runs, _run_columns())


def _describe_next_run(schedule: "ScheduleDetail") -> str:
    return "paused" if schedule.next_at is None else f"next run at {format_time(schedule.next_at)}"


def _schedule_columns() -> list[Column]:
    return [
        Column("SCHEDULE", lambda s: s.handle),
        Column("CRON", lambda s: s.cron),
        Column("TIME ZONE", lambda s: s.time_zone, optional=True),
        Column("OVERLAP", lambda s: s.overlap, optional=True),
        Column("NEXT RUN", lambda s: format_time(s.next_at) if s.next_at else "paused"),
        Column("OWNER", lambda s: s.owner or "-", optional=True),
        Column("MESSAGE", lambda s: s.pause_message, flexible=True),
    ]


def _run_columns() -> list[Column]:
    return [
        Column("DUE", lambda r: format_time(r.due_at)),
        Column("OUTCOME", lambda r: r.outcome),
        Column("WORKLOAD", lambda r: r.workload or "-"),
        Column("STATE", lambda r: r.phase or "-"),
        Column("BY", lambda r: r.started_by or "", optional=True),
        Column("MESSAGE", lambda r: r.message, flexible=True),
    ]
