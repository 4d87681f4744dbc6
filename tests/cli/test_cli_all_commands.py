"""Tests that every command has an example and machine-readable output and never prints a traceback."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.main import get_command

from berth.cli import reference
from berth.cli.main import app
from tests.cli.terminal import Terminal
from tests.client.stub_server import StubServer, problem
from tests.harness.samples import sample

ROOT = Path(__file__).resolve().parents[2]
ALL = dict(reference.walk_commands(get_command(app), ("berth",)))
WORDS = sorted(ALL)
LOCAL = {  # commands that need no server
    "up", "doctor", "simulate", "trace", "completion", "help", "version", "context", "admin", "login",
    "logout",
}  # fmt: skip
REMOTE_COMMANDS = [words for words in WORDS if words[1] not in LOCAL and words[:2] != ("berth", "workload")]
WITHOUT_DATA = {  # commands that print neither a list nor an object
    "logs", "open", "delete", "remove", "revoke", "completion", "help", "version", "up", "login", "logout",
    "use", "password", "accept", "forget", "download", "exec", "cp",
    "port-forward", "ssh", "cat",
}  # fmt: skip
PRINTS_DATA = {("berth", "machine", "remove")}
CHANGED_BY_USERS = (  # these lists have no --watch
    "token", "context", "department", "project", "member", "user", "subscription", "template", "secret",
    "schedule", "group",
)  # fmt: skip
PREVIEWS = {("quota", "preview"), ("quota", "group", "preview")}  # these exit with code 255 on errors
SEPARATORS = {"|", "||", "&&", ">", "<", "#"}


def examples(words: tuple[str, ...]) -> list[list[str]]:
    """Return each `berth` command line in a command's help, without the shell syntax around it."""
    called = []
    for line in (ALL[words].help or "").splitlines():
        if not re.match(r"\s*([A-Z_]+=\S+ |[^`]+\| )?berth ", line):
            continue
        call: list[str] = []
        for part in [*shlex.split(re.split(r"(?<=\S)\s{3,}", line)[0]), "#"]:
            if part in SEPARATORS:
                called += [call[call.index("berth") :]] if "berth" in call else []
                call = []
            else:
                call.append(part)
    return called


def own_examples(words: tuple[str, ...]) -> list[list[str]]:
    short = ("berth", *words[2:]) if words[:2] == ("berth", "workload") else words
    return [call for call in examples(words) if tuple(call[: len(short)]) == short]


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_every_command_has_an_example_that_parses(words: tuple[str, ...]) -> None:
    called = own_examples(words)
    assert called, f"{' '.join(words)} has no example"
    for call in examples(words):
        at: Any = get_command(app)
        rest = call[3:] if call[1] == "--context" else call[1:]
        while hasattr(at, "commands"):
            assert rest[0] in at.commands, call
            at, rest = at.commands[rest[0]], rest[1:]
        at.make_context(" ".join(call), rest)


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_every_command_that_prints_data_has_an_output_option(words: tuple[str, ...]) -> None:
    options = {option for parameter in ALL[words].params for option in parameter.opts}
    without = words[-1] in WITHOUT_DATA and words not in PRINTS_DATA
    assert ("--output" in options) is not without, sorted(options)
    if words[-1] == "list" and not set(words) & set(CHANGED_BY_USERS):
        assert "--watch" in options


@pytest.mark.parametrize("words", REMOTE_COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("reply", "code", "message"),
    sample(
        [
            (httpx.ConnectError("Connection refused"), 6, "cannot reach http://127.0.0.1:8000"),
            (problem(401, detail="The token has run out."), 3, "The token has run out. (berth login)"),
            (problem(404, detail="There is nothing of that name."), 4, "There is nothing of that name."),
        ],
        1,
    ),
    ids=["no server", "expired token", "unknown name"],
)
def test_common_error_prints_one_line_and_sets_the_exit_code(
    words: tuple[str, ...], reply: Any, code: int, message: str, terminal: Terminal, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    calls = [call for call in own_examples(words) if not {"-f", "--url", "--file"} & set(call)]
    if words == ("berth", "service", "autoscale"):
        calls = [["berth", "service", "autoscale", "chat"]]
    if words == ("berth", "password"):
        calls = [["berth", "password", "--password-stdin"]]
    arguments = [part for part in calls[0][1:] if part not in ("--watch", "-w")]
    done = terminal.run(*arguments, server=StubServer(reply), input="y\ny\n")
    assert isinstance(done.exception, SystemExit), done.exception
    wanted = 255 if words[1:] in PREVIEWS else code
    assert done.exit_code == wanted, done.output
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("berth: ")
    assert message in done.stderr


def test_reference_pages_match_the_commands() -> None:
    # If this fails, run: python -m berth.cli.reference docs
    docs = ROOT / "docs"
    stored = {f"cli/{page.name}": page.read_text() for page in (docs / "cli").iterdir()}
    assert {"cli.md": (docs / "cli.md").read_text(), **stored} == reference.render_pages()


def test_help_explains_commands_and_topics_and_suggests_similar_names(terminal: Terminal) -> None:
    assert "255 on errors" in terminal.run("help", "exit-codes").stdout
    assert "NO_COLOR" in terminal.run("help", "environment").stdout
    assert "berth quota preview -f quotas.yaml" in terminal.run("help", "quota", "preview").stdout
    unknown = terminal.run("help", "quota", "previw")
    assert (unknown.exit_code, unknown.stderr) == (
        2, "berth: unknown command 'quota previw'. Did you mean 'preview'?\n",
    )  # fmt: skip


@pytest.mark.parametrize("words", [("nonsense",), ("list", "--nonsense"), ("pool",), ("list", "-o", "xml")])
def test_invalid_arguments_exit_with_code_2(words: tuple[str, ...], terminal: Terminal) -> None:
    done = terminal.run(*words)
    assert done.exit_code == 2
    assert "Traceback" not in done.output


def test_bash_completes_commands_with_the_printed_script(tmp_path: Path) -> None:
    complete = """source <(berth completion bash)
        COMP_WORDS=(berth sus) COMP_CWORD=1
        _berth_completion berth && echo "${COMPREPLY[@]}"
    """
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", complete],
        env={**os.environ, "PATH": path, "BERTH_CONFIG": str(tmp_path / "config.toml")},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.stdout.split() == ["suspend"], done.stderr
