"""Run commands in this process against a stand-in for the server."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from berth.cli import arguments as cli_arguments
from berth.cli import commands, documents
from berth.cli.main import app
from berth.client import Client, Settings
from tests.client.desk import HERE, Desk


class Terminal:
    """A person at a keyboard, connected to a desk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._runner = CliRunner()

    def run(
        self, *arguments: str, desk: Desk | None = None, settings: Settings = HERE, **typed: Any
    ) -> Result:
        @contextmanager
        def connected() -> Iterator[Client]:
            with (desk or Desk(AssertionError("nothing was to be asked"))).client(settings) as client:
                yield client

        for module in (cli_arguments, documents, *_commands()):
            self._monkeypatch.setattr(module, "connected", connected, raising=False)
        return self._runner.invoke(app, list(arguments), **typed)


def _commands() -> list[Any]:
    """Every module of commands that talks to a server."""
    found = [import_module(f"{commands.__name__}.{each.name}") for each in iter_modules(commands.__path__)]
    return [module for module in found if hasattr(module, "connected")]
