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
            warnings.simplefilter("error", GetPassWarning)  # the password would be echoed
            return str(typer.prompt(label, err=True, **options))
    except GetPassWarning:
        pass
    except typer.Abort:
        if sys.stdin.isatty():  # Ctrl-C or Ctrl-D
            raise
    print(file=sys.stderr)  # the prompt has no line break
    raise InvalidInput(f"{label}: the command cannot prompt for this value without a terminal. {instead}")
