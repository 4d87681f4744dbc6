"""Report every error of a command on stderr with its exit code."""

import sys
from typing import Any

import typer
from typer.core import TyperGroup

from berth.cli.exits import explained
from berth.cli.text import safe


class Guarded(TyperGroup):
    """The whole command: its errors are told, not traced."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, typer.TyperException):
            raise
        except Exception as error:
            told = explained(error)
            if told is None:
                raise
            code, lines = told
            for line in lines:
                print(f"berth: {safe(line)}", file=sys.stderr)
            raise typer.Exit(code) from None
