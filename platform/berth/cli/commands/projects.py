"""`berth project`: list, create, edit and delete projects."""

from typing import Annotated, Any

import typer

from berth.cli.link import connected
from berth.cli.names import DepartmentOption, department_names, project_names
from berth.cli.output import Column, Output, OutputOption, show_list, show_one
from berth.cli.tenant_values import (
    PreemptAfter,
    Rank,
    ReclaimAfter,
    Title,
    describe_tenant,
    something,
    tenant_columns,
    tenant_values,
)

app = typer.Typer(no_args_is_help=True, help="Projects: every workload belongs to one.")
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the project.", autocompletion=project_names)
]


@app.command("list")
def list_projects(department: DepartmentOption = None, output: OutputOption = Output.TABLE) -> None:
    """Projects that you see.

    \b
    berth project list --department research
    """
    with connected() as client:
        found = list(client.projects.list(department))
    show_list(found, tenant_columns(Column("DEPARTMENT", lambda p: p.department)), output, "No projects.")


@app.command("describe")
def describe(name: Name, output: OutputOption = Output.TABLE) -> None:
    """One project: its department, and who has a role in it.

    \b
    berth project describe vision
    """
    with connected() as client:
        found = client.projects.get(name)
        members = [] if output.is_data else list(client.members.list(project=name))
    show_one(found, output, lambda one: describe_tenant(one, [("Department", one.department)], members))


@app.command("create")
def create(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Lower case letters, digits, hyphens.")],
    department: Annotated[
        str, typer.Option("--department", help="In this department.", autocompletion=department_names)
    ],
    title: Title = None,
    rank: Rank = None,
    reclaim_after: ReclaimAfter = None,
    preempt_after: PreemptAfter = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a project in a department. It may expect nothing until it has a quota.

    \b
    berth project create vision --department research
    berth quota set vision --pool train --gpu 8
    berth member add dave --role member --project vision
    """
    values = tenant_values(title, rank, reclaim_after, preempt_after)
    with connected() as client:
        made = client.projects.create(name, department, **values)
    show_one(made, output, lambda one: print(f"{one.name} made in {one.department}"))


@app.command("edit")
def edit(
    *,
    name: Name,
    title: Title = None,
    rank: Rank = None,
    reclaim_after: ReclaimAfter = None,
    preempt_after: PreemptAfter = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change what is named; the rest stays.

    \b
    berth project edit vision --rank 5 --preempt-after default
    """
    changes = something("project edit", tenant_values(title, rank, reclaim_after, preempt_after))
    with connected() as client:
        changed: Any = client.projects.edit(name, changes)
    show_one(changed, output, lambda one: print(f"{one.name} changed"))


@app.command("delete")
def delete(name: Name) -> None:
    """Remove a project that has no workloads. Refused (exit 5) while it has.

    \b
    berth project delete vision
    """
    with connected() as client:
        client.projects.delete(name)
    print(f"{name} deleted")
