"""Prompt for values on the terminal."""

import sys
import warnings
from getpass import GetPassWarning
from typing import Any

import typer

from berth.cli.exits import InvalidInput


def ask(label: str, *, instead: str, **options: Any) -> str:
    """Prompt for a value. Without a terminal, raise InvalidInput with the advice in `instead`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", GetPassWarning)  # fail if the terminal would echo the password
            return str(typer.prompt(label, err=True, **options))
    except GetPassWarning:
        pass
    except typer.Abort:
        if sys.stdin.isatty():  # the user pressed Ctrl-C or Ctrl-D
            raise
    print(file=sys.stderr)  # end the prompt's line
    raise InvalidInput(f"{label}: the command cannot prompt for this value without a terminal. {instead}")
