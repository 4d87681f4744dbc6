"""`berth member` and `berth user`: roles and accounts."""

import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from berth.cli.exits import BadInput
from berth.cli.link import connected
from berth.cli.names import DepartmentOption, ProjectOption
from berth.cli.output import Column, Output, OutputOption, show_list, show_one
from berth.cli.text import local, safe, short

app = typer.Typer(no_args_is_help=True, help="Members: who has which role where.")
users = typer.Typer(no_args_is_help=True, help="People whom Berth knows.")
Person = Annotated[str, typer.Argument(metavar="USER", help="User name.")]


class RoleWord(StrEnum):
    PLATFORM_ADMIN = "platform_admin"
    DEPARTMENT_ADMIN = "department_admin"
    PROJECT_ADMIN = "project_admin"
    MEMBER = "member"
    VIEWER = "viewer"


@app.command("list")
def list_members(
    project: ProjectOption = None,
    department: DepartmentOption = None,
    user: Annotated[str | None, typer.Option(help="Of this person.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Who has a role in what you see.

    \b
    berth member list --project vision
    berth member list --user dave
    """
    with connected() as client:
        found = list(client.members.list(project=project, department=department, user=user))
    show_list(found, _columns(), output, "No members.")


@app.command("add")
def add(
    *,
    user: Person,
    role: Annotated[RoleWord, typer.Option(help="Which role.")],
    project: ProjectOption = None,
    department: DepartmentOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Give a person a role in a project or a department; platform_admin needs neither.

    \b
    berth member add dave --role member --project vision
    berth member add bob --role department_admin --department research
    """
    with connected() as client:
        made = client.members.grant(user, role.value, project=project, department=department)
    show_one(made, output, lambda one: print(safe(f"{one.user} is {one.role} of {one.scope}")))


@app.command("remove")
def remove(
    *,
    user: Person,
    role: Annotated[RoleWord | None, typer.Option(help="Only this role.")] = None,
    project: ProjectOption = None,
    department: DepartmentOption = None,
) -> None:
    """Take a role away: where a person has several, say which.

    \b
    berth member remove dave --project vision
    """
    with connected() as client:
        known = client.members.list(project=project, department=department, user=user)
        found = [one for one in known if role in (None, one.role)]
        if not found:
            raise BadInput(f"{user} has no such role that you see; see: berth member list --user {user}")
        if len(found) > 1:
            several = ", ".join(f"{one.role} of {one.scope}" for one in found)
            raise BadInput(f"{user} is {several}; allowed: --role, --project, --department to say which")
        client.members.revoke(found[0].id)
    print(safe(f"{user} is no {found[0].role} of {found[0].scope} any more"))


@users.command("list")
def list_users(
    search: Annotated[str | None, typer.Option(help="With this in the name or the address.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List users with a role in what you administer.

    To grant a role to another user, give the exact user name to: berth member add.

    \b
    berth user list --search example.org
    """
    columns = [
        Column("USERNAME", lambda u: u.username),
        Column("EMAIL", lambda u: u.email or "-", grows=True),
        Column("ACTIVE", lambda u: "yes" if u.active else "no"),
    ]
    with connected() as client:
        found = list(client.users.list(search))
    show_list(found, columns, output, "Nobody.")


@users.command("create")
def create_user(
    *,
    user: Person,
    email: Annotated[str, typer.Option(help="For notifications.")] = "",
    password_stdin: Annotated[
        bool,
        typer.Option("--password-stdin", help="Read a password from stdin; else by single sign-on only."),
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a person known. Roles are given with `berth member add`.

    \b
    berth user create erin --email erin@example.org
    pass berth/erin | berth user create erin --password-stdin
    """
    password = sys.stdin.readline().rstrip("\n") if password_stdin else None
    with connected() as client:
        made: Any = client.users.create(user, email=email, password=password)
    show_one(made, output, lambda one: print(safe(f"{one.username} made")))


def _columns() -> list[Column]:
    return [
        Column("USER", lambda m: m.user),
        Column("ROLE", lambda m: m.role),
        Column("OF", lambda m: m.scope),
        Column("SINCE", lambda m: local(m.created_at), brief=lambda m: short(m.created_at), spare=True),
        Column("ID", lambda m: str(m.id), right=True, wide=True),
    ]
