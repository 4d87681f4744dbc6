"""Change the password of the person who is signed in."""

import os
import sys
from dataclasses import replace
from typing import Annotated

import typer

from berth.cli.exits import BadInput
from berth.cli.link import connected


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

    Your browser sessions and the tokens of `berth login` on other machines end. This one stays signed in.

    \b
    berth password
    berth password --revoke-tokens
    printf '%s\\n' "$OLD" "$NEW" | berth password --password-stdin
    """
    current, new = _from_stdin() if password_stdin else _from_terminal()
    with connected() as client:
        used = client.settings.token
        changed = client.change_password(current, new, revoke_tokens=revoke_tokens)
    if changed.token is not None:
        _store(used, changed.token)
    tokens = "1 token" if changed.revoked_tokens == 1 else f"{changed.revoked_tokens} tokens"
    print(f"Password changed, {tokens} revoked.", file=sys.stderr)


def _from_stdin() -> tuple[str, str]:
    lines = [sys.stdin.readline().rstrip("\n") for _ in range(2)]
    if not all(lines):
        raise BadInput("--password-stdin: needs two lines, the current and the new password")
    return lines[0], lines[1]


def _from_terminal() -> tuple[str, str]:
    current = typer.prompt("Current password", hide_input=True)
    new = typer.prompt("New password", hide_input=True, confirmation_prompt="Repeat the new password")
    return current, new


def _store(used: str, token: str) -> None:
    """Put the new token in the place of the one that ended: the file, or on stdout for an environment."""
    from berth.client.config import read_contexts, settings_path, write_contexts

    path = settings_path()
    contexts = read_contexts(path)
    name = os.environ.get("BERTH_CONTEXT") or contexts.current
    stored = contexts.chosen(name)
    if stored.token == used:
        write_contexts(path, replace(contexts, known={**contexts.known, name: replace(stored, token=token)}))
        return
    print("berth: the token in BERTH_TOKEN has ended; this one replaces it:", file=sys.stderr)
    print(token)
