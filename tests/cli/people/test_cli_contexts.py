"""Tests for `berth context`."""

import json
from pathlib import Path

from berth.client import Settings
from berth.client.config import Contexts, read_contexts, write_contexts
from tests.cli.terminal import Terminal

PROD = Settings("https://berth.example.org", "berth_prod", "vision")
LOCAL = Settings("http://127.0.0.1:8000", "berth_local")


def store_contexts(tmp_path: Path) -> Path:
    file = tmp_path / "config.toml"
    write_contexts(file, Contexts("prod", {"prod": PROD, "local": LOCAL}))
    return file


def test_contexts_are_listed_without_their_tokens(terminal: Terminal, tmp_path: Path) -> None:
    store_contexts(tmp_path)
    result = terminal.run("context", "list")
    assert [line.split()[:3] for line in result.stdout.splitlines()[1:]] == [
        ["*", "prod", "https://berth.example.org"], ["local", "http://127.0.0.1:8000", "-"],
    ]  # fmt: skip
    data = terminal.run("context", "list", "-o", "json").stdout
    assert [row["current"] for row in json.loads(data)] == [True, False]
    assert "berth_" not in result.stdout + data.replace("berth.example", "")


def test_context_with_a_project_can_be_selected_and_deleted(terminal: Terminal, tmp_path: Path) -> None:
    file = store_contexts(tmp_path)
    assert (
        terminal.run("context", "use", "local", "--project", "ads").stdout == "local: http://127.0.0.1:8000\n"
    )
    assert read_contexts(file).resolve() == Settings(LOCAL.address, LOCAL.token, "ads")
    assert terminal.run("context", "delete", "local").exit_code == 0
    assert read_contexts(file) == Contexts("", {"prod": PROD})
    unknown = terminal.run("context", "use", "local")
    assert (unknown.exit_code, unknown.stderr) == (
        2,
        "berth: context: does not exist; received 'local'; allowed: prod.\n",
    )
    assert terminal.run("context", "delete", "local").exit_code == 2


def test_context_option_applies_to_only_one_command(terminal: Terminal, tmp_path: Path) -> None:
    import os

    store_contexts(tmp_path)
    unknown = terminal.run("--context", "nowhere", "logout")
    assert unknown.exit_code == 2
    assert "context: does not exist; received 'nowhere'; allowed: prod, local" in unknown.stderr
    assert "BERTH_CONTEXT" not in os.environ
    assert terminal.run("context", "list").exit_code == 0
