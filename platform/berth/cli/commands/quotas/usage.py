"""The `berth usage` and `berth budget` commands."""

import sys
from typing import Annotated, Any, Literal

import typer

from berth.cli.exits import InvalidInput, invalid_value_error
from berth.cli.options.arguments import (
    DepartmentOption,
    OwnerArgument,
    PoolOption,
    ProjectOption,
    open_client,
)
from berth.cli.options.quantities import parse_timestamp
from berth.cli.printing.following import print_listing
from berth.cli.printing.output import Column, Output, OutputOption, WatchOption, show_list, show_one
from berth.cli.printing.text import format_number, utc_now
from berth.core.backports import StrEnum

usage_app = typer.Typer(
    no_args_is_help=True, help="Show GPU-hours and cost by department, project, user and pool."
)
DIMENSIONS = ("department", "project", "user", "pool")


class UsageStep(StrEnum):
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


@usage_app.command("report")
def report(
    *,
    by: Annotated[
        str, typer.Option(metavar="LIST", help="Comma-separated dimensions: department, project, user, pool.")
    ] = "department,project",
    step: Annotated[UsageStep | None, typer.Option(help="Length of each period.")] = None,
    since: Annotated[str, typer.Option(help="Start time: a timestamp, or an age such as 30d.")] = "30d",
    until: Annotated[str | None, typer.Option(help="End time: a timestamp, or an age such as 2h.")] = None,
    time_zone: Annotated[
        str | None, typer.Option(help="Time zone for days and months, for example Europe/Berlin.")
    ] = None,
    department: DepartmentOption = None,
    project: ProjectOption = None,
    user: Annotated[str | None, typer.Option(help="User who submitted the workloads.")] = None,
    pool: PoolOption = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV (same as -o csv).")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Report allocated resource-hours. The start time is rounded down to the hour.

    \b
    berth usage report --by project --step month --since 180d
    berth usage report --by user,pool --project vision
    berth usage report --step day --csv > usage.csv
    """
    dimensions = _parse_dimensions(by)
    query: dict[str, object] = {
        "group_by": dimensions,
        "step": step,
        "time_zone": time_zone,
        "since": parse_timestamp("--since", since, utc_now()),
        "until": None if until is None else parse_timestamp("--until", until, utc_now()),
        "department": department,
        "project": project,
        "user": user,
        "pool": pool,
    }
    with open_client() as client:
        if csv or output is Output.CSV:
            for piece in client.usage.csv(**query):
                sys.stdout.buffer.write(piece)
            return
        usage = client.usage.report(**query)

    def describe(_: object) -> None:
        show_list(usage.items, _usage_columns(dimensions, step), output, "No usage in this period.")
        if usage.items:
            cost = "" if usage.total.cost is None else f", cost {usage.total.cost:.2f}"
            print(f"\nTotal: {format_number(round(usage.total.gpu_hours, 3))} GPU-hours{cost}")

    show_one(usage, output, describe)


def _parse_dimensions(text: str) -> list[str]:
    dimensions = [dimension.strip() for dimension in text.split(",") if dimension.strip()]
    if not dimensions or any(dimension not in DIMENSIONS for dimension in dimensions):
        allowed = f"a comma-separated list of {', '.join(DIMENSIONS)}"
        raise invalid_value_error("--by", "is not a valid list of dimensions", text, allowed)
    return dimensions


def _usage_columns(dimensions: list[str], step: UsageStep | None) -> list[Column]:
    def dimension_getter(dimension: str) -> Any:
        return lambda used: getattr(used, dimension) or "-"

    return [
        *([Column(step.upper(), lambda used: _format_period(used.at, step))] if step else []),
        *(Column(dimension.upper(), dimension_getter(dimension)) for dimension in dimensions),
        Column("GPU-HOURS", lambda used: f"{used.gpu_hours:,.2f}", right=True),
        Column("CPU-HOURS", lambda used: f"{used.cpu_hours:,.1f}", right=True),
        Column("MEMORY GIB-H", lambda used: f"{used.memory_gib_hours:,.1f}", right=True, wide=True),
        Column("COST", lambda used: "-" if used.cost is None else f"{used.cost:,.2f}", right=True),
    ]


def _format_period(at: Any, step: UsageStep) -> str:
    if at is None:
        return "-"
    return str(
        at.strftime({UsageStep.HOUR: "%Y-%m-%d %H:00", UsageStep.MONTH: "%Y-%m"}.get(step, "%Y-%m-%d"))
    )


budget_app = typer.Typer(
    no_args_is_help=True, help="Manage monthly GPU-hour budgets of departments and projects."
)
Name = OwnerArgument
DepartmentFlag = Annotated[bool, typer.Option("--department", help="Treat NAME as a department.")]
FULL_PERCENT = 100


@budget_app.command("list")
def list_budgets(watch: WatchOption = False, output: OutputOption = Output.TABLE) -> None:
    """List this month's budgets, with usage and a forecast based on the last seven days.

    \b
    berth budget list
    """
    with open_client() as client:
        print_listing(
            lambda: list(client.budgets.list()),
            _budget_columns,
            output,
            "No budgets. Set one with `berth budget set NAME GPU-HOURS`.",
            watch=watch,
        )


@budget_app.command("set")
def set_budget(
    *,
    name: Name,
    gpu_hours: Annotated[
        int | None, typer.Argument(metavar="[GPU-HOURS]", help="GPU-hours per month.")
    ] = None,
    department: DepartmentFlag = False,
    warn_at: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENTS", help="Budget percentages that trigger notifications, for example 50,80,100."
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create or change a budget. Budgets send notifications, but do not stop workloads.

    \b
    berth budget set vision 2000
    berth budget set research 10000 --department --warn-at 50,80,100
    """
    from berth.client import NotFound

    changes: dict[str, Any] = {} if gpu_hours is None else {"gpu_hours": gpu_hours}
    if warn_at is not None:
        changes["warn_at"] = _parse_percentages(warn_at)
    if not changes:
        raise InvalidInput("budget set: specify GPU-HOURS or --warn-at")
    kind = _owner_kind(department)
    with open_client() as client:
        try:
            client.budgets.get(kind, name)
        except NotFound:
            stored = client.budgets.create(kind, name, changes)
        else:
            stored = client.budgets.edit(kind, name, changes)
    show_one(stored, output, lambda _: show_list([stored], _budget_columns(), output, ""))


@budget_app.command("delete")
def delete_budget(*, name: Name, department: DepartmentFlag = False) -> None:
    """Delete a budget. Recorded usage is kept.

    \b
    berth budget delete vision
    """
    with open_client() as client:
        client.budgets.delete(_owner_kind(department), name)
    print(f"Budget for {name} deleted.")


def _owner_kind(department: bool) -> Literal["department", "project"]:
    return "department" if department else "project"


def _parse_percentages(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        allowed = "whole percentages, for example 50,80,100"
        raise invalid_value_error("--warn-at", "is not a valid list of percentages", text, allowed) from None


def _budget_columns() -> list[Column]:
    return [
        Column("OWNER", lambda b: b.owner.name),
        Column("KIND", lambda b: b.owner.kind, optional=True),
        Column("GPU-HOURS", lambda b: format_number(b.gpu_hours), right=True),
        Column("USED", lambda b: f"{b.month.used:,.1f}", right=True),
        Column("%", lambda b: f"{b.month.percent:,.0f}", right=True, style=_budget_style),
        Column("FORECAST", lambda b: f"{b.month.forecast:,.1f}", right=True, optional=True),
        Column("FORECAST %", lambda b: f"{b.month.forecast_percent:,.0f}", right=True, style=_budget_style),
        Column("WARN AT", lambda b: ",".join(map(str, b.warn_at)) or "-", wide=True),
    ]


def _budget_style(budget: Any) -> str:
    if budget.month.percent >= FULL_PERCENT:
        return "red"
    return "yellow" if budget.month.forecast_percent > FULL_PERCENT else ""
