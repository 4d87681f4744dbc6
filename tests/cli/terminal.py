"""Run commands in this process against a stub server."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from berth.cli import commands
from berth.cli.documents import files
from berth.cli.main import app
from berth.cli.options import arguments as cli_arguments
from berth.client import Client, Settings
from tests.client.stub_server import HERE, StubServer


class Terminal:
    """A terminal that runs `berth` commands in this process against a stub server."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._runner = CliRunner()

    def run(
        self, *arguments: str, server: StubServer | None = None, settings: Settings = HERE, **typed: Any
    ) -> Result:
        @contextmanager
        def open_client() -> Iterator[Client]:
            with (server or StubServer(AssertionError("no request was expected"))).client(settings) as client:
                yield client

        for module in (cli_arguments, files, *_commands()):
            self._monkeypatch.setattr(module, "open_client", open_client, raising=False)
        return self._runner.invoke(app, list(arguments), **typed)


@cache
def _commands() -> list[Any]:
    names = [module.name for module in walk_packages(commands.__path__, f"{commands.__name__}.")]
    modules = [import_module(name) for name in names]
    return [module for module in modules if hasattr(module, "open_client")]
