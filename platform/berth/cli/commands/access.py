"""`berth member`, `berth user` and `berth token`."""

import sys
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer

from berth.cli.arguments import DepartmentOption, ProjectOption, connected
from berth.cli.exits import BadInput, ExitCode
from berth.cli.output import Column, Output, OutputOption, show_list, show_one
from berth.cli.quantities import seconds
from berth.cli.text import age, local, now, safe, short

member_app = typer.Typer(no_args_is_help=True, help="Members: who has which role where.")
user_app = typer.Typer(no_args_is_help=True, help="People whom Berth knows.")
Person = Annotated[str, typer.Argument(metavar="USER", help="User name.")]


class RoleWord(StrEnum):
    PLATFORM_ADMIN = "platform_admin"
    DEPARTMENT_ADMIN = "department_admin"
    PROJECT_ADMIN = "project_admin"
    MEMBER = "member"
    VIEWER = "viewer"


@member_app.command("list")
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
    show_list(found, _member_columns(), output, "No members.")


@member_app.command("add")
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


@member_app.command("remove")
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


@user_app.command("list")
def list_users(
    search: Annotated[str | None, typer.Option(help="With this in the name or the address.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List user_app with a role in what you administer.

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


@user_app.command("create")
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


def _member_columns() -> list[Column]:
    return [
        Column("USER", lambda m: m.user),
        Column("ROLE", lambda m: m.role),
        Column("OF", lambda m: m.scope),
        Column("SINCE", lambda m: local(m.created_at), brief=lambda m: short(m.created_at), spare=True),
        Column("ID", lambda m: str(m.id), right=True, wide=True),
    ]


token_app = typer.Typer(no_args_is_help=True, help="Tokens: by them programs act for you.")


@token_app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="To recognise it by.")],
    scope: Annotated[
        list[str] | None, typer.Option(help="read, write or admin; repeat. Default: read, write.")
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(help="After so long, such as 30d; never = not at all. Default: with the token in use."),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a token. Its secret is printed this once, alone on stdout.

    \b
    berth token create ci --scope read --scope write --expires 30d
    """
    given = None if expires in (None, "never") else expires
    until = None if given is None else now() + timedelta(seconds=seconds("--expires", given))
    with connected() as client:
        token = client.tokens.create(name, scope or ["read", "write"], until)
    if token.token is None:
        print(
            f"berth: {name} was made, but its secret was lost with the connection: revoke it", file=sys.stderr
        )
        raise typer.Exit(ExitCode.REFUSED)
    if expires == "never" and token.expires_at:
        print(f"berth: {name} ends with the token in use, {local(token.expires_at)}", file=sys.stderr)
    show_one(token, output, lambda _: print(token.token))


@token_app.command("list")
def list_tokens(
    every: Annotated[bool, typer.Option("--all", "-a", help="Also revoked ones.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Your tokens; the secrets are not kept anywhere.

    \b
    berth token list --all
    """
    moment = now()
    columns = [
        Column("NAME", lambda t: t.name),
        Column("BEGINS", lambda t: t.prefix),
        Column("SCOPES", lambda t: ",".join(t.scopes)),
        Column("EXPIRES", lambda t: local(t.expires_at) if t.expires_at else "never"),
        Column("SIGN-IN", lambda t: "yes" if t.interactive else "", wide=True),
        Column("USED", lambda t: age(t.last_used_at, moment), right=True),
        Column("REVOKED", lambda t: local(t.revoked_at), wide=not every),
        Column("ID", lambda t: str(t.id), right=True, wide=True),
    ]
    with connected() as client:
        found = [token for token in client.tokens.list() if every or token.revoked_at is None]
    show_list(found, columns, output, "No tokens.")


@token_app.command("revoke")
def revoke(name: Annotated[str, typer.Argument(metavar="NAME", help="Name or id of the token.")]) -> None:
    """Make a token worthless at once.

    \b
    berth token revoke ci
    """
    with connected() as client:
        live = [token for token in client.tokens.list() if token.revoked_at is None]
        found = [token for token in live if name in (token.name, str(token.id))]
        if len(found) != 1:
            known = ", ".join(token.name for token in live) or "none"
            raise BadInput(f"NAME: given {name!r}; allowed: {known}")
        client.tokens.revoke(found[0].id)
    print(f"{found[0].name} revoked")
