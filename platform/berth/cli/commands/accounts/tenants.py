"""The `berth department` and `berth project` commands."""

from typing import Annotated, Any, Literal

import typer

from berth.cli.exits import InvalidInput
from berth.cli.options.arguments import (
    DepartmentOption,
    IdleRuleOption,
    department_names,
    open_client,
    project_names,
)
from berth.cli.options.quantities import parse_duration, parse_idle_rule
from berth.cli.printing.output import Column, Output, OutputOption, print_fields, show_list, show_one
from berth.cli.printing.text import format_duration

Title = Annotated[str | None, typer.Option(help="Display name.", show_default=False)]
Rank = Annotated[
    int | None, typer.Option(help="Rank. Higher ranks are served first. Defaults to 0.", show_default=False)
]
ReclaimAfter = Annotated[
    str | None,
    typer.Option(
        metavar="TIME|default",
        help="Minimum runtime before borrowed resources can be reclaimed.",
        show_default=False,
    ),
]
PreemptAfter = Annotated[
    str | None,
    typer.Option(
        metavar="TIME|default",
        help="Minimum runtime before preemption by a higher-priority workload of the same project.",
        show_default=False,
    ),
]

department_app = typer.Typer(no_args_is_help=True, help="Manage departments, which are groups of projects.")
DepartmentArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Department name.", autocompletion=department_names)
]


@department_app.command("list")
def list_departments(output: OutputOption = Output.TABLE) -> None:
    """List the departments that you can see.

    \b
    berth department list
    """
    with open_client() as client:
        departments = list(client.departments.list())
    show_list(
        departments,
        tenant_columns(),
        output,
        "No departments. Create one with `berth department create NAME`.",
    )


@department_app.command("describe")
def describe_department(name: DepartmentArgument, output: OutputOption = Output.TABLE) -> None:
    """Show one department with its projects and members.

    \b
    berth department describe research
    """
    with open_client() as client:
        tenant = client.departments.get(name)
        projects, members = [], []
        if not output.is_data:
            projects = [project.name for project in client.projects.list(name)]
            members = list(client.members.list(department=name))
    show_one(
        tenant,
        output,
        lambda department: describe_tenant(department, [("Projects", ", ".join(projects))], members),
    )


@department_app.command("create")
def create_department(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name: lowercase letters, digits and hyphens.")],
    title: Title = None,
    rank: Rank = None,
    reclaim_after: ReclaimAfter = None,
    preempt_after: PreemptAfter = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a department. A department without a quota has no guaranteed resources.

    \b
    berth department create research --title "Research" --rank 10
    berth quota set research --department --pool train --gpu 16
    """
    values = tenant_values(title, rank, reclaim_after, preempt_after)
    with open_client() as client:
        created = client.departments.create(name, **values)
    show_one(created, output, lambda department: print(f"{department.name} created"))


@department_app.command("edit")
def edit_department(
    *,
    name: DepartmentArgument,
    title: Title = None,
    rank: Rank = None,
    reclaim_after: ReclaimAfter = None,
    preempt_after: PreemptAfter = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change a department's settings.

    \b
    berth department edit research --rank 20 --reclaim-after 10m
    """
    _edit_tenant("department", name, tenant_values(title, rank, reclaim_after, preempt_after), output)


@department_app.command("delete")
def delete_department(name: DepartmentArgument) -> None:
    """Delete a department. Exits with code 5 if it still has projects.

    \b
    berth department delete research
    """
    with open_client() as client:
        client.departments.delete(name)
    print(f"{name} deleted")


project_app = typer.Typer(no_args_is_help=True, help="Manage projects, which own workloads.")
ProjectArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Project name.", autocompletion=project_names)
]


@project_app.command("list")
def list_projects(department: DepartmentOption = None, output: OutputOption = Output.TABLE) -> None:
    """List projects.

    \b
    berth project list --department research
    """
    with open_client() as client:
        projects = list(client.projects.list(department))
    show_list(
        projects,
        tenant_columns(Column("DEPARTMENT", lambda p: p.department)),
        output,
        "No projects. Create one with `berth project create NAME`.",
    )


@project_app.command("describe")
def describe_project(name: ProjectArgument, output: OutputOption = Output.TABLE) -> None:
    """Show one project with its department and members.

    \b
    berth project describe vision
    """
    with open_client() as client:
        tenant = client.projects.get(name)
        members = [] if output.is_data else list(client.members.list(project=name))
    show_one(
        tenant,
        output,
        lambda project: describe_tenant(
            project,
            [
                ("Department", project.department),
                ("Idle rule", project.idle_rule.text if project.idle_rule else "that of the pool"),
                *(("Volume", _format_volume(volume)) for volume in project.volumes),
            ],
            members,
        ),
    )


@project_app.command("create")
def create_project(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name: lowercase letters, digits and hyphens.")],
    department: Annotated[
        str, typer.Option(help="Department that the project belongs to.", autocompletion=department_names)
    ],
    title: Title = None,
    rank: Rank = None,
    reclaim_after: ReclaimAfter = None,
    preempt_after: PreemptAfter = None,
    idle_rule: IdleRuleOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a project in a department. A project without a quota has no guaranteed resources.

    \b
    berth project create vision --department research
    berth quota set vision --pool train --gpu 8
    berth member add dave --role member --project vision
    """
    values = project_values(title, rank, reclaim_after, preempt_after, idle_rule)
    with open_client() as client:
        created = client.projects.create(name, department, **values)
    show_one(
        created, output, lambda project: print(f"Project {project.name} created in {project.department}.")
    )


@project_app.command("edit")
def edit_project(
    *,
    name: ProjectArgument,
    title: Title = None,
    rank: Rank = None,
    reclaim_after: ReclaimAfter = None,
    preempt_after: PreemptAfter = None,
    idle_rule: IdleRuleOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change a project's settings. The project's idle rule overrides the idle rules of pools.

    \b
    berth project edit vision --rank 5 --preempt-after default
    berth project edit vision --idle-rule below=5%,after=2h,action=suspend,grace=1h
    berth project edit vision --idle-rule action=none     exempt the project
    """
    values = project_values(title, rank, reclaim_after, preempt_after, idle_rule)
    _edit_tenant("project", name, values, output)


@project_app.command("delete")
def delete_project(name: ProjectArgument) -> None:
    """Delete a project. Exits with code 5 if it still has workloads.

    \b
    berth project delete vision
    """
    with open_client() as client:
        client.projects.delete(name)
    print(f"{name} deleted")


def tenant_values(
    title: str | None, rank: int | None, reclaim_after: str | None, preempt_after: str | None
) -> dict[str, Any]:
    """Return the options that were set, keyed by REST field name."""
    values: dict[str, Any] = {}
    if title is not None:
        values["title"] = title
    if rank is not None:
        values["rank"] = rank
    for key, option, text in (
        ("reclaim_min_runtime", "--reclaim-after", reclaim_after),
        ("preempt_min_runtime", "--preempt-after", preempt_after),
    ):
        if text is not None:
            values[key] = None if text == "default" else parse_duration(option, text)
    return values


def project_values(
    title: str | None,
    rank: int | None,
    reclaim_after: str | None,
    preempt_after: str | None,
    idle_rule: str | None,
) -> dict[str, Any]:
    """Return the project options that were set, keyed by REST field name."""
    rule = {} if idle_rule is None else {"idle_rule": parse_idle_rule(idle_rule)}
    return {**tenant_values(title, rank, reclaim_after, preempt_after), **rule}


def _edit_tenant(
    kind: Literal["department", "project"], name: str, changes: dict[str, Any], output: Output
) -> None:
    if not changes:
        allowed = "--title, --rank, --reclaim-after, --preempt-after"
        if kind == "project":
            allowed += ", --idle-rule"
        raise InvalidInput(f"{kind} edit: specify at least one of {allowed}")
    with open_client() as client:
        tenants = client.departments if kind == "department" else client.projects
        changed: Any = tenants.edit(name, changes)
    show_one(changed, output, lambda tenant: print(f"{tenant.name} changed"))


def tenant_columns(*extra_columns: Column) -> list[Column]:
    return [
        Column("NAME", lambda t: t.name),
        *extra_columns,
        Column("RANK", lambda t: str(t.rank), right=True),
        Column("TITLE", lambda t: t.title, flexible=True),
        Column("RECLAIM AFTER", lambda t: _format_min_runtime(t.reclaim_min_runtime), right=True, wide=True),
        Column("PREEMPT AFTER", lambda t: _format_min_runtime(t.preempt_min_runtime), right=True, wide=True),
    ]


def describe_tenant(tenant: Any, related_fields: list[tuple[str, str]], members: list[Any]) -> None:
    """Print a department with its projects, or a project with its department."""
    print_fields(
        [
            ("Name", tenant.name),
            ("Title", tenant.title),
            *related_fields,
            ("Rank", str(tenant.rank)),
            ("Reclaim after", _format_min_runtime(tenant.reclaim_min_runtime)),
            ("Preempt after", _format_min_runtime(tenant.preempt_min_runtime)),
            ("Members", ", ".join(f"{member.user} ({member.role})" for member in members)),
        ]
    )


def _format_volume(volume: Any) -> str:
    nodes = f"{volume.nodes} of {volume.pool_nodes} nodes"
    return f"{volume.name} in pool {volume.pool}, {volume.access.replace('_', '-')}, on {nodes}"


def _format_min_runtime(seconds: int | None) -> str:
    return "default" if seconds is None else format_duration(seconds)
