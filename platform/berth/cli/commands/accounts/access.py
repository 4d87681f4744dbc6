"""The `berth member`, `berth user` and `berth token` commands."""

import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.exits import ExitCode, InvalidInput
from berth.cli.options.arguments import DepartmentOption, ProjectOption, open_client
from berth.cli.options.quantities import parse_duration
from berth.cli.printing.output import Column, Output, OutputOption, print_fields, show_list, show_one
from berth.cli.printing.text import (
    format_age,
    format_short_time,
    format_time,
    print_message,
    printable,
    utc_now,
)
from berth.core.backports import StrEnum
from berth.core.wording.words import format_count

if TYPE_CHECKING:
    from berth.client.models.people import Deactivation, UserDetail

member_app = typer.Typer(no_args_is_help=True, help="Manage user roles in departments and projects.")
user_app = typer.Typer(no_args_is_help=True, help="Manage user accounts.")
UserArgument = Annotated[str, typer.Argument(metavar="USER", help="Username.")]


class RoleName(StrEnum):
    PLATFORM_ADMIN = "platform_admin"
    DEPARTMENT_ADMIN = "department_admin"
    PROJECT_ADMIN = "project_admin"
    MEMBER = "member"
    VIEWER = "viewer"


@member_app.command("list")
def list_members(
    project: ProjectOption = None,
    department: DepartmentOption = None,
    user: Annotated[str | None, typer.Option(help="Username.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the roles that you can see.

    \b
    berth member list --project vision
    berth member list --user dave
    """
    with open_client() as client:
        members = list(client.members.list(project=project, department=department, user=user))
    show_list(members, _member_columns(), output, "No members.")


@member_app.command("add")
def add(
    *,
    user: UserArgument,
    role: Annotated[RoleName, typer.Option(help="Role to grant.")],
    project: ProjectOption = None,
    department: DepartmentOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Grant a role in a project or department, or the platform-wide role platform_admin.

    \b
    berth member add dave --role member --project vision
    berth member add bob --role department_admin --department research
    """
    with open_client() as client:
        created = client.members.grant(user, role.value, project=project, department=department)
    show_one(
        created,
        output,
        lambda member: print(printable(f"{member.user} is {member.role} of {member.scope}")),
    )


@member_app.command("remove")
def remove(
    *,
    user: UserArgument,
    role: Annotated[
        RoleName | None, typer.Option(help="Role to revoke. Required if the user has several roles.")
    ] = None,
    project: ProjectOption = None,
    department: DepartmentOption = None,
) -> None:
    """Revoke a role.

    \b
    berth member remove dave --project vision
    """
    with open_client() as client:
        memberships = client.members.list(project=project, department=department, user=user)
        matching = [member for member in memberships if role in (None, member.role)]
        if not matching:
            raise InvalidInput(
                f"{user} does not have this role. List roles with `berth member list --user {user}`."
            )
        if len(matching) > 1:
            several = ", ".join(f"{member.role} of {member.scope}" for member in matching)
            raise InvalidInput(
                f"{user} has several roles ({several}). Choose one with --role, --project or --department."
            )
        client.members.revoke(matching[0].id)
    print(printable(f"Role {matching[0].role} of {matching[0].scope} revoked from {user}."))


@user_app.command("list")
def list_users(
    search: Annotated[
        str | None, typer.Option(help="Text to search for in the name or email address.")
    ] = None,
    inactive: Annotated[bool, typer.Option("--inactive", help="List only deactivated accounts.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List users who have a role in the projects and departments that you administer.

    To grant a role to any other user, pass the exact username to `berth member add`.

    \b
    berth user list --search example.org
    berth user list --inactive
    """
    columns = [
        Column("USERNAME", lambda u: u.username),
        Column("EMAIL", lambda u: u.email or "-", flexible=True),
        Column("ACTIVE", lambda u: "yes" if u.active else "no"),
    ]
    with open_client() as client:
        users = list(client.users.list(search, active=False if inactive else None))
    show_list(users, columns, output, "No users.")


@user_app.command("create")
def create_user(
    *,
    user: UserArgument,
    email: Annotated[str, typer.Option(help="Email address for notifications.")] = "",
    password_stdin: Annotated[
        bool,
        typer.Option(
            "--password-stdin",
            help="Read a password from stdin. Without one, the user can sign in only with single sign-on.",
        ),
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a user account. Grant roles with `berth member add`.

    \b
    berth user create erin --email erin@example.org
    pass berth/erin | berth user create erin --password-stdin
    """
    password = sys.stdin.readline().rstrip("\n") if password_stdin else None
    with open_client() as client:
        created: Any = client.users.create(user, email=email, password=password)
    show_one(created, output, lambda account: print(printable(f"User {account.username} created.")))


@user_app.command("describe")
def describe_user(*, user: UserArgument, output: OutputOption = Output.TABLE) -> None:
    """Show one user with their roles and number of live workloads.

    \b
    berth user describe dave
    """
    with open_client() as client:
        account = client.users.get(user)
    show_one(account, output, _print_user)


@user_app.command("deactivate")
def deactivate_user(*, user: UserArgument, output: OutputOption = Output.TABLE) -> None:
    """Deactivate a user, so that they can no longer sign in.

    Their tokens are revoked, and their browser sessions and open connections, such as commands in pods, are
    closed. Their workloads keep running, and their roles and history are kept.

    \b
    berth user deactivate dave
    berth list --by dave     show the workloads that keep running
    """
    with open_client() as client:
        result = client.users.deactivate(user)
    show_one(result, output, _print_deactivation)


@user_app.command("activate")
def activate_user(*, user: UserArgument, output: OutputOption = Output.TABLE) -> None:
    """Reactivate a user with the same roles as before. Revoked tokens stay revoked.

    \b
    berth user activate dave
    """
    with open_client() as client:
        account = client.users.activate(user)
    show_one(
        account,
        output,
        lambda active: print(printable(f"User {active.username} can sign in again.")),
    )


def _print_user(user: "UserDetail") -> None:
    roles = ", ".join(f"{role.role} of {role.scope}" for role in user.roles)
    print_fields(
        [
            ("Username", user.username),
            ("Email", user.email or "-"),
            ("Active", "yes" if user.active else "no"),
            ("Created", format_time(user.created_at)),
            ("Roles", roles or "none"),
            ("Live workloads", str(user.live_workloads)),
        ]
    )


def _print_deactivation(result: "Deactivation") -> None:
    name = printable(result.username)
    tokens = format_count(result.revoked_tokens, "token")
    print(
        f"User {name} deactivated. {tokens} revoked, {format_count(result.ended_sessions, 'session')} ended."
    )
    if result.live_workloads:
        print(
            f"Live workloads of {name}, which keep running: {result.live_workloads} (berth list --by {name})"
        )


def _member_columns() -> list[Column]:
    return [
        Column("USER", lambda m: m.user),
        Column("ROLE", lambda m: m.role),
        Column("SCOPE", lambda m: m.scope),
        Column(
            "SINCE",
            lambda m: format_time(m.created_at),
            brief=lambda m: format_short_time(m.created_at),
            optional=True,
        ),
        Column("ID", lambda m: str(m.id), right=True, wide=True),
    ]


token_app = typer.Typer(no_args_is_help=True, help="Manage access tokens for programs.")
TokenUserOption = Annotated[
    str | None, typer.Option("--user", help="User whose tokens to manage. Platform admins only.")
]


@token_app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="Token name.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(help="Scope: read, write or admin; repeatable. Defaults to read and write."),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            help="Lifetime, for example 7d, or never. Defaults to the remaining lifetime of the current "
            "token."
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a token. The secret is printed only once and is the only output on stdout.

    \b
    berth token create ci --scope read --scope write --expires 7d
    """
    lifetime = None if expires in (None, "never") else expires
    until = None if lifetime is None else utc_now() + timedelta(seconds=parse_duration("--expires", lifetime))
    with open_client() as client:
        token = client.tokens.create(name, scope or ["read", "write"], until)
    if token.token is None:
        print_message(
            f"{name} was created, but the connection was lost before the secret arrived. Revoke the "
            "token and create another one."
        )
        raise typer.Exit(ExitCode.REJECTED)
    if expires == "never" and token.expires_at:
        print_message(f"{name} expires with the current token, {format_time(token.expires_at)}")
    show_one(token, output, lambda _: print(token.token))


@token_app.command("list")
def list_tokens(
    show_all: Annotated[bool, typer.Option("--all", "-a", help="Include revoked tokens.")] = False,
    user: TokenUserOption = None,
    everyone: Annotated[
        bool, typer.Option("--everyone", help="List the tokens of all users. Platform admins only.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List your tokens or, as a platform admin, those of other users. Secrets are not stored.

    \b
    berth token list --all
    berth token list --everyone
    """
    moment = utc_now()
    columns = [
        Column("USER", lambda t: t.user, wide=not (everyone or user)),
        Column("NAME", lambda t: t.name),
        Column("PREFIX", lambda t: t.prefix),
        Column("SCOPES", lambda t: ",".join(t.scopes)),
        Column("EXPIRES", lambda t: format_time(t.expires_at) if t.expires_at else "never"),
        Column("INTERACTIVE", lambda t: "yes" if t.interactive else "", wide=True),
        Column("LAST USED", lambda t: format_age(t.last_used_at, moment), right=True),
        Column("REVOKED", lambda t: format_time(t.revoked_at), wide=not show_all),
        Column("ID", lambda t: str(t.id), right=True, wide=True),
    ]
    with open_client() as client:
        listed = client.tokens.list(user, everyone=everyone)
        tokens = [token for token in listed if show_all or token.revoked_at is None]
    show_list(tokens, columns, output, "No tokens. Create one with `berth token create NAME`.")


@token_app.command("revoke")
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name or ID of the token.")],
    user: TokenUserOption = None,
) -> None:
    """Revoke a token immediately.

    \b
    berth token revoke ci
    berth token revoke ci --user dave
    """
    with open_client() as client:
        live = [token for token in client.tokens.list(user) if token.revoked_at is None]
        matching = [token for token in live if name in (token.name, str(token.id))]
        if len(matching) != 1:
            names = ", ".join(token.name for token in live)
            advice = f"Use one of: {names}" if names else "You have no active tokens."
            raise InvalidInput(f"no active token has the name or ID {name!r}. {advice}")
        client.tokens.revoke(matching[0].id)
    print(f"{matching[0].name} revoked")
