"""`berth usage`: report usage and cost."""

import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from berth.cli.exits import BadInput
from berth.cli.link import connected
from berth.cli.names import DepartmentOption, PoolOption, ProjectOption
from berth.cli.output import Column, Output, OutputOption, show_list, show_one
from berth.cli.quantities import moment
from berth.cli.text import now, number

app = typer.Typer(no_args_is_help=True, help="Usage: GPU-hours by whom and where, over time, and their cost.")
DIMENSIONS = ("department", "project", "person", "pool")


class Step(StrEnum):
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


@app.command("report")
def report(
    *,
    by: Annotated[
        str, typer.Option(metavar="LIST", help="department, project, person, pool: one, or some with commas.")
    ] = "department,project",
    step: Annotated[Step | None, typer.Option(help="Cut the time into these.")] = None,
    since: Annotated[str, typer.Option(help="From then on: a time, or so long ago, such as 30d.")] = "30d",
    until: Annotated[str | None, typer.Option(help="Before then.")] = None,
    zone: Annotated[str | None, typer.Option(help="Whose days and months, as Europe/Berlin; UTC.")] = None,
    department: DepartmentOption = None,
    project: ProjectOption = None,
    person: Annotated[str | None, typer.Option(help="Of what this person submitted.")] = None,
    pool: PoolOption = None,
    csv: Annotated[bool, typer.Option("--csv", help="The same as -o csv.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """What was used, up to now: whole hours, exact to the second within them.

    \b
    berth usage report --by project --step month --since 180d
    berth usage report --by person,pool --project vision
    berth usage report --step day --csv > usage.csv
    """
    dimensions = _dimensions(by)
    question: dict[str, object] = {
        "by": dimensions, "step": step, "zone": zone, "since": moment("--since", since, now()),
        "until": None if until is None else moment("--until", until, now()), "department": department,
        "project": project, "person": person, "pool": pool,
    }  # fmt: skip
    with connected() as client:
        if csv or output is Output.CSV:
            for piece in client.usage.csv(**question):
                sys.stdout.buffer.write(piece)
            return
        found = client.usage.report(**question)

    def describe(_: object) -> None:
        show_list(found.items, _columns(dimensions, step), output, "Nothing was used.")
        if found.items:
            cost = "" if found.total.cost is None else f", cost {found.total.cost:.2f}"
            print(f"\nAll together {number(round(found.total.gpu_hours, 3))} GPU-hours{cost}")

    show_one(found, output, describe)


def _dimensions(text: str) -> list[str]:
    found = [word.strip() for word in text.split(",") if word.strip()]
    if not found or any(word not in DIMENSIONS for word in found):
        raise BadInput(f"--by: given {text!r}; allowed: {', '.join(DIMENSIONS)}, with commas")
    return found


def _columns(dimensions: list[str], step: Step | None) -> list[Column]:
    def name_of(word: str) -> Any:
        return lambda used: getattr(used, word) or "-"

    return [
        *([Column(step.upper(), lambda used: _piece(used.at, step))] if step else []),
        *(Column(word.upper(), name_of(word)) for word in dimensions),
        Column("GPU-HOURS", lambda used: f"{used.gpu_hours:.2f}", right=True),
        Column("CPU-HOURS", lambda used: f"{used.cpu_hours:.1f}", right=True),
        Column("MEMORY GIB-H", lambda used: f"{used.memory_gib_hours:.1f}", right=True, wide=True),
        Column("COST", lambda used: "-" if used.cost is None else f"{used.cost:.2f}", right=True),
    ]


def _piece(at: Any, step: Step) -> str:
    if at is None:
        return "-"
    return str(at.strftime({Step.HOUR: "%Y-%m-%d %H:00", Step.MONTH: "%Y-%m"}.get(step, "%Y-%m-%d")))
