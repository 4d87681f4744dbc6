"""The `berth login`, `logout`, `whoami`, `password` and `context` commands."""

import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from berth.cli.exits import ExitCode, InvalidInput, unknown_name_message
from berth.cli.options.arguments import context_names, open_client
from berth.cli.options.prompts import ask
from berth.cli.printing.output import Column, Output, OutputOption, print_fields, show_list, show_one
from berth.cli.printing.text import print_message

if TYPE_CHECKING:
    from berth.client import Client, Settings
    from berth.client.config import Contexts
    from berth.client.models.people import Role

STDIN = "-"


def login(
    address: Annotated[
        str | None, typer.Argument(help="Server address. Defaults to the current server.")
    ] = None,
    username: Annotated[
        str | None,
        typer.Option("--username", "-u", help="Username. The command prompts for it if omitted."),
    ] = None,
    token: Annotated[
        str | None, typer.Option(help="Token to use instead of a password (`-` for stdin).")
    ] = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from stdin.")
    ] = False,
    project: Annotated[str | None, typer.Option("--project", "-p", help="Default project.")] = None,
    name: Annotated[
        str | None, typer.Option(help="Context name. Defaults to the server's host name.")
    ] = None,
) -> None:
    """Sign in to a server, and store its address and a token as a context that only you can read.

    \b
    berth login http://127.0.0.1:8000
    berth login https://berth.example.org --token - < token.txt
    berth login https://berth.example.org --name prod --project vision
    echo "$PASSWORD" | berth login http://127.0.0.1:8000 -u admin --password-stdin
    """
    from berth.client import Client, Settings
    from berth.client.config import (
        load_settings,
        read_contexts,
        settings_path,
        validate_address,
        write_contexts,
    )

    path = settings_path()
    current_settings = load_settings()
    settings = Settings(validate_address(address) if address else current_settings.address, "", "")
    _warn_about_plain_text(settings.address, settings.is_local)
    if token is not None:
        secret = sys.stdin.readline().strip() if token == STDIN else token
    else:
        secret = _sign_in(settings, username, password_stdin)
    if not secret:
        raise InvalidInput("--token is empty. Pass a token such as berth_...")
    signed_in = replace(settings, token=secret)
    with Client(signed_in) as client:
        signed_in_user = client.whoami().username
    contexts = read_contexts(path)
    context_name = name or _choose_context_name(settings.address, contexts)
    replaced = contexts.servers.get(context_name)
    previous_project = replaced.project if replaced and replaced.address == settings.address else ""
    write_contexts(
        path, contexts.with_context(context_name, replace(signed_in, project=project or previous_project))
    )
    print(f"Signed in at {settings.address} as {signed_in_user}.")


def logout() -> None:
    """Sign out: delete the stored token, and revoke it if `berth login` created it.

    \b
    berth logout
    """
    from berth.client import Client, ClientError
    from berth.client.config import read_contexts, settings_path, write_contexts

    path = settings_path()
    contexts = read_contexts(path)
    name = os.environ.get("BERTH_CONTEXT") or contexts.current
    stored = contexts.resolve(name)
    if not stored.token:
        print("Not signed in.")
        return
    try:
        with Client(stored) as client:
            _revoke(client, stored.token)
    except ClientError as error:
        print_message(f"the token could not be revoked: {error}")
    servers = {**contexts.servers, name: replace(stored, token="")}
    write_contexts(path, replace(contexts, servers=servers))
    print(f"Signed out of {stored.address}.")


def whoami(output: OutputOption = Output.TABLE) -> None:
    """Show the current user, roles and server.

    \b
    berth whoami
    """
    with open_client() as client:
        identity = client.whoami()
        address = client.settings.address

    def describe(_: object) -> None:
        platform_roles = ["platform_admin"] if identity.platform_admin else []
        roles = ", ".join(dict.fromkeys([*platform_roles, *map(_format_role, identity.roles)])) or "none"
        scopes = ", ".join(identity.scopes)
        print_fields([("User", identity.username), ("Roles", roles), ("Scopes", scopes), ("Server", address)])

    show_one(identity, output, describe)


def _sign_in(settings: "Settings", username: str | None, password_stdin: bool) -> str:
    from berth.client import Client, NotSignedIn

    instead = "Use --username with --password-stdin, or --token."
    name = username or ask("Username", instead=instead)
    if password_stdin:
        password = sys.stdin.readline().rstrip("\n")
    else:
        password = ask("Password", instead=instead, hide_input=True)
    with Client(settings) as client:
        try:
            return client.sign_in(name, password)
        except NotSignedIn as error:
            print_message(error.detail)
            raise typer.Exit(ExitCode.NOT_SIGNED_IN) from None


def _choose_context_name(address: str, contexts: "Contexts") -> str:
    if requested := os.environ.get("BERTH_CONTEXT"):
        return requested
    matching = [name for name, settings in contexts.servers.items() if settings.address == address]
    return (
        contexts.current if contexts.current in matching else next(iter(matching), urlsplit(address).netloc)
    )


def _revoke(client: "Client", secret: str) -> None:
    """Revoke the token if `berth login` created it.

    Other tokens are kept, because they may be in use elsewhere.
    """
    for token in client.tokens.list():
        if token.interactive and token.prefix and secret.startswith(token.prefix):
            client.tokens.revoke(token.id)


def _format_role(role: "Role") -> str:
    scope = role.project or role.department
    return f"{role.role} of {scope}" if scope else role.role


def _warn_about_plain_text(address: str, is_local: bool) -> None:
    if address.startswith("http://") and not is_local:
        print_message(f"{address} is not encrypted: the token can be read in transit")


def password(
    revoke_tokens: Annotated[
        bool, typer.Option("--revoke-tokens", help="Revoke all your other tokens as well.")
    ] = False,
    password_stdin: Annotated[
        bool,
        typer.Option("--password-stdin", help="Read two lines from stdin: the current and the new password."),
    ] = False,
) -> None:
    """Change your password.

    This ends your browser sessions and revokes the `berth login` tokens on your other machines. This machine
    stays signed in.

    \b
    berth password
    berth password --revoke-tokens
    printf '%s\\n' "$OLD" "$NEW" | berth password --password-stdin
    """
    current, new = _read_passwords_from_stdin() if password_stdin else _prompt_for_passwords()
    with open_client() as client:
        old_token = client.settings.token
        changed = client.change_password(current, new, revoke_tokens=revoke_tokens)
    if changed.token is not None:
        _store_token(old_token, changed.token)
    tokens = "1 token" if changed.revoked_tokens == 1 else f"{changed.revoked_tokens} tokens"
    print(f"Password changed, {tokens} revoked.", file=sys.stderr)


def _read_passwords_from_stdin() -> tuple[str, str]:
    lines = [sys.stdin.readline().rstrip("\n") for _ in range(2)]
    if not all(lines):
        raise InvalidInput("--password-stdin requires two lines: the current and the new password")
    return lines[0], lines[1]


def _prompt_for_passwords() -> tuple[str, str]:
    instead = "Use --password-stdin."
    current = ask("Current password", instead=instead, hide_input=True)
    repeat = "Repeat the new password"
    new = ask("New password", instead=instead, hide_input=True, confirmation_prompt=repeat)
    return current, new


def _store_token(old_token: str, token: str) -> None:
    from berth.client.config import read_contexts, settings_path, write_contexts

    path = settings_path()
    contexts = read_contexts(path)
    name = os.environ.get("BERTH_CONTEXT") or contexts.current
    stored = contexts.resolve(name)
    if stored.token == old_token:
        write_contexts(path, contexts.with_context(name, replace(stored, token=token)))
        return
    print_message("the token in BERTH_TOKEN is no longer valid; replace it with this one:")
    print(token)


context_app = typer.Typer(
    no_args_is_help=True, help="Manage contexts: named servers that you are signed in to."
)


@dataclass(frozen=True)
class ContextRow:
    name: str
    address: str
    project: str
    signed_in: bool
    current: bool

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Context name; see `berth context list`.", autocompletion=context_names
    ),
]


@context_app.command("list")
def list_contexts(output: OutputOption = Output.TABLE) -> None:
    """List stored contexts. An asterisk marks the current context.

    \b
    berth context list
    """
    from berth.client.config import read_contexts, settings_path

    contexts = read_contexts(settings_path())
    rows = [
        ContextRow(name, settings.address, settings.project, bool(settings.token), name == contexts.current)
        for name, settings in contexts.servers.items()
    ]
    columns = [
        Column("", lambda row: "*" if row.current else ""),
        Column("NAME", lambda row: row.name),
        Column("SERVER", lambda row: row.address, flexible=True),
        Column("PROJECT", lambda row: row.project or "-"),
        Column("SIGNED IN", lambda row: "yes" if row.signed_in else "no"),
    ]
    show_list(rows, columns, output, "No contexts. Create one with `berth login`.")


@context_app.command("use")
def use(
    name: Name,
    project: Annotated[str | None, typer.Option("--project", "-p", help="Default project.")] = None,
) -> None:
    """Switch to another context. For a single command, use `berth --context NAME ...`.

    \b
    berth context use prod
    berth context use prod --project vision
    """
    from berth.client.config import Contexts, read_contexts, settings_path, write_contexts

    contexts = read_contexts(settings_path())
    chosen = contexts.resolve(name)
    if project is not None:
        chosen = replace(chosen, project=project)
    write_contexts(settings_path(), Contexts(name, {**contexts.servers, name: chosen}))
    print(f"{name}: {chosen.address}")


@context_app.command("delete")
def delete(name: Name) -> None:
    """Delete a context and its stored token. Run `berth logout` first to revoke the token.

    \b
    berth --context old logout && berth context delete old
    """
    from berth.client.config import read_contexts, settings_path, write_contexts

    contexts = read_contexts(settings_path())
    if name not in contexts.servers:
        raise InvalidInput(unknown_name_message("context", name, name, list(contexts.servers)))
    write_contexts(settings_path(), contexts.without_context(name))
    print(f"Context {name} deleted.")
