"""`berth budget`: show, set and remove monthly budgets."""

from typing import Annotated, Any, Literal

import typer

from berth.cli.exits import BadInput
from berth.cli.link import connected
from berth.cli.listing import WatchOption, listing
from berth.cli.names import OwnerArgument
from berth.cli.output import Column, Output, OutputOption, show_list, show_one

app = typer.Typer(
    no_args_is_help=True, help="Budgets: how many GPU-hours a month a department or project means to use."
)
Name = OwnerArgument
OfDepartment = Annotated[bool, typer.Option("--department", help="NAME is a department.")]
HIGH = 100


@app.command("list")
def list_budgets(watch: WatchOption = False, output: OutputOption = Output.TABLE) -> None:
    """Budgets of this month: used, and what it will come to at the pace of the last seven days.

    \b
    berth budget list
    """
    with connected() as client:
        listing(lambda: list(client.budgets.list()), _columns, output, "No budgets.", watch=watch)


@app.command("set")
def set_budget(
    *,
    name: Name,
    gpu_hours: Annotated[int | None, typer.Argument(metavar="[GPU-HOURS]", help="A month.")] = None,
    department: OfDepartment = False,
    warn_at: Annotated[
        str | None, typer.Option(metavar="PERCENTS", help="When to tell, as 50,80,100.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Set a budget, or some of it; the rest stays. It is watched and told of; it stops nobody.

    \b
    berth budget set vision 2000
    berth budget set research 10000 --department --warn-at 50,80,100
    """
    from berth.client import NotFound

    changes: dict[str, Any] = {} if gpu_hours is None else {"gpu_hours": gpu_hours}
    if warn_at is not None:
        changes["warn_at"] = _percents(warn_at)
    if not changes:
        raise BadInput("budget set: nothing to set; allowed: GPU-HOURS, --warn-at")
    kind = _kind(department)
    with connected() as client:
        try:
            client.budgets.get(kind, name)
        except NotFound:
            stored = client.budgets.create(kind, name, changes)
        else:
            stored = client.budgets.edit(kind, name, changes)
    show_one(stored, output, lambda _: show_list([stored], _columns(), output, ""))


@app.command("remove")
def remove(*, name: Name, department: OfDepartment = False) -> None:
    """Remove a budget. What was used stays known.

    \b
    berth budget remove vision
    """
    with connected() as client:
        client.budgets.remove(_kind(department), name)
    print(f"{name} has no budget any more")


def _kind(department: bool) -> Literal["department", "project"]:
    return "department" if department else "project"


def _percents(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise BadInput(f"--warn-at: given {text!r}; allowed: whole percents, such as 50,80,100") from None


def _columns() -> list[Column]:
    return [
        Column("OWNER", lambda b: b.owner["name"]),
        Column("KIND", lambda b: b.owner["kind"], spare=True),
        Column("GPU-HOURS", lambda b: f"{b.gpu_hours}", right=True),
        Column("USED", lambda b: f"{b.month.used:.1f}", right=True),
        Column("%", lambda b: f"{b.month.percent:.0f}", right=True, style=_style),
        Column("FORECAST", lambda b: f"{b.month.forecast:.1f}", right=True, spare=True),
        Column("FORECAST %", lambda b: f"{b.month.forecast_percent:.0f}", right=True, style=_style),
        Column("WARN AT", lambda b: ",".join(map(str, b.warn_at)) or "-", wide=True),
    ]


def _style(budget: Any) -> str:
    if budget.month.percent >= HIGH:
        return "red"
    return "yellow" if budget.month.forecast_percent > HIGH else ""
