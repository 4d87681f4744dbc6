"""Here we sign in and out, and say who is signed in."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.exits import BadInput, ExitCode
from berth.cli.link import connected
from berth.cli.output import Output, OutputOption, print_fields, show_one

if TYPE_CHECKING:
    from berth.client import Client, Settings

MADE_BY_LOGIN = "login "
STDIN = "-"


def login(
    address: Annotated[
        str | None, typer.Argument(help="Address of the server; default: the present one.")
    ] = None,
    username: Annotated[str | None, typer.Option("--username", "-u", help="Asked for when left out.")] = None,
    token: Annotated[
        str | None, typer.Option(help="Sign in with a token instead; - reads it from stdin.")
    ] = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from stdin.")
    ] = False,
    project: Annotated[str | None, typer.Option("--project", "-p", help="Project to use by default.")] = None,
) -> None:
    """Sign in, and remember address and token in a file that only you can read.

    \b
    berth login http://127.0.0.1:8000
    berth login https://berth.example.org --token - < token.txt
    echo "$PASSWORD" | berth login http://127.0.0.1:8000 -u admin --password-stdin
    """
    from berth.client import Client, Settings
    from berth.client.config import checked_address, load_settings, read_file, settings_path, write_file

    path = settings_path()
    present = load_settings()
    settings = Settings(checked_address(address) if address else present.address, "", "")
    _warn_of_plain_text(settings.address, settings.is_local)
    if token is not None:
        secret = sys.stdin.readline().strip() if token == STDIN else token
    else:
        secret = _signed_in(settings, username, password_stdin)
    if not secret:
        raise BadInput("--token: nothing given; allowed: a token such as berth_...")
    signed_in = replace(settings, token=secret)
    with Client(signed_in) as client:
        who = client.whoami().username
    kept = read_file(path).project if read_file(path).address == settings.address else ""
    write_file(path, replace(signed_in, project=project or kept))
    print(f"Signed in at {settings.address} as {who}.")


def logout() -> None:
    """Forget the stored token; a token that login made is revoked."""
    from berth.client import Client, ClientError
    from berth.client.config import read_file, settings_path, write_file

    path = settings_path()
    stored = read_file(path)
    if not stored.token:
        print("Nobody was signed in.")
        return
    try:
        with Client(stored) as client:
            _revoke(client, stored.token)
    except ClientError as error:
        print(f"berth: the token could not be revoked: {error}", file=sys.stderr)
    write_file(path, replace(stored, token=""))
    print(f"Signed out of {stored.address}.")


def whoami(output: OutputOption = Output.TABLE) -> None:
    """Who is signed in, with which roles, where."""
    with connected() as client:
        identity = client.whoami()
        address = client.settings.address

    def describe(_: object) -> None:
        everywhere = ["platform_admin"] if identity.platform_admin else []
        roles = ", ".join(dict.fromkeys([*everywhere, *map(_role, identity.roles)])) or "none"
        scopes = ", ".join(identity.scopes)
        print_fields([("User", identity.username), ("Roles", roles), ("Scopes", scopes), ("Server", address)])

    show_one(identity, output, describe)


def _signed_in(settings: "Settings", username: str | None, password_stdin: bool) -> str:
    from berth.client import Client, NotSignedIn

    name = username or typer.prompt("Username")
    password = (
        sys.stdin.readline().rstrip("\n") if password_stdin else typer.prompt("Password", hide_input=True)
    )
    with Client(settings) as client:
        try:
            return client.sign_in(name, password)
        except NotSignedIn as error:
            print(f"berth: {error.detail}", file=sys.stderr)
            raise typer.Exit(ExitCode.NOT_SIGNED_IN) from None


def _revoke(client: "Client", secret: str) -> None:
    """Only what `berth login` made: a token that somebody issued by hand may be in use elsewhere."""
    for token in client.tokens.list():
        if token.name.startswith(MADE_BY_LOGIN) and token.prefix and secret.startswith(token.prefix):
            client.tokens.revoke(token.id)


def _role(role: object) -> str:
    if not isinstance(role, dict):
        return str(role)
    scope = role.get("project") or role.get("department")
    return f"{role.get('role')} of {scope}" if scope else str(role.get("role"))


def _warn_of_plain_text(address: str, is_local: bool) -> None:
    if address.startswith("http://") and not is_local:
        print(f"berth: {address} is not encrypted: others on the way can read the token", file=sys.stderr)
