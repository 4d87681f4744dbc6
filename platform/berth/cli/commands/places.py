"""Here we list departments and projects."""

from typing import Annotated

import typer

from berth.cli.link import connected
from berth.cli.output import Column, Output, OutputOption, show_list

department = typer.Typer(no_args_is_help=True, help="Departments.")
project = typer.Typer(no_args_is_help=True, help="Projects.")


@department.command("list")
def list_departments(output: OutputOption = Output.TABLE) -> None:
    """Departments that you see."""
    columns = [
        Column("NAME", lambda d: d.name),
        Column("RANK", lambda d: str(d.rank), right=True),
        Column("TITLE", lambda d: d.title, grows=True),
    ]
    with connected() as client:
        found = list(client.departments.list())
    show_list(found, columns, output, "No departments.")


@project.command("list")
def list_projects(
    department: Annotated[str | None, typer.Option(help="Of this department.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Projects that you see."""
    columns = [
        Column("NAME", lambda p: p.name),
        Column("DEPARTMENT", lambda p: p.department),
        Column("RANK", lambda p: str(p.rank), right=True),
        Column("TITLE", lambda p: p.title, grows=True),
    ]
    with connected() as client:
        found = list(client.projects.list(department))
    show_list(found, columns, output, "No projects.")
