"""`berth department`: list, create, edit and delete departments."""

from typing import Annotated, Any

import typer

from berth.cli.link import connected
from berth.cli.names import department_names
from berth.cli.output import Output, OutputOption, show_list, show_one
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

app = typer.Typer(no_args_is_help=True, help="Departments, the upper level of tenants.")
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the department.", autocompletion=department_names)
]


@app.command("list")
def list_departments(output: OutputOption = Output.TABLE) -> None:
    """Departments that you see.

    \b
    berth department list
    """
    with connected() as client:
        found = list(client.departments.list())
    show_list(found, tenant_columns(), output, "No departments.")


@app.command("describe")
def describe(name: Name, output: OutputOption = Output.TABLE) -> None:
    """One department: its projects, and who has a role in it.

    \b
    berth department describe research
    """
    with connected() as client:
        found = client.departments.get(name)
        projects, members = [], []
        if not output.is_data:
            projects = [project.name for project in client.projects.list(name)]
            members = list(client.members.list(department=name))
    show_one(found, output, lambda one: describe_tenant(one, [("Projects", ", ".join(projects))], members))


@app.command("create")
def create(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Lower case letters, digits, hyphens.")],
    title: Title = None,
    rank: Rank = None,
    reclaim_after: ReclaimAfter = None,
    preempt_after: PreemptAfter = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a department. It may expect nothing until it has a quota.

    \b
    berth department create research --title "Research" --rank 10
    berth quota set research --department --pool train --gpu 16
    """
    values = tenant_values(title, rank, reclaim_after, preempt_after)
    with connected() as client:
        made = client.departments.create(name, **values)
    show_one(made, output, lambda one: print(f"{one.name} made"))


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
    berth department edit research --rank 20 --reclaim-after 10m
    """
    changes = something("department edit", tenant_values(title, rank, reclaim_after, preempt_after))
    with connected() as client:
        changed: Any = client.departments.edit(name, changes)
    show_one(changed, output, lambda one: print(f"{one.name} changed"))


@app.command("delete")
def delete(name: Name) -> None:
    """Remove a department that has no projects. Refused (exit 5) while it has.

    \b
    berth department delete research
    """
    with connected() as client:
        client.departments.delete(name)
    print(f"{name} deleted")
