"""Tests that every command quoted in messages, help texts, pages and docstrings exists."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from berth.cli.main import app

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("platform", "pools", "projects", "scheduler", "templates")
QUOTED = re.compile(r"`berth ([a-z][^`]*)`|<code>berth ([a-z][^<]*)</code>")
VALUE = "VALUE"


def texts_of(path: Path) -> Iterator[str]:
    """Yield a template, or the string constants of a Python file, with VALUE for each inserted value."""
    content = path.read_text()
    if "berth " not in content:
        return
    if path.suffix == ".html":
        yield re.sub(r"{{.*?}}|{%.*?%}", VALUE, content)
        return
    parts = set[ast.AST]()
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.JoinedStr):
            parts.update(node.values)
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
            yield node.value


def quoted_commands() -> list[tuple[str, str]]:
    """Return the file and the words after `berth` for each quoted command."""
    listed = subprocess.run(
        ["git", "ls-files", *(f"{folder}/*.{end}" for folder in FOLDERS for end in ("py", "html"))],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    return [
        (name, match[1] or match[2])
        for name in listed
        for text in texts_of(ROOT / name)
        for match in QUOTED.finditer(text)
    ]


def option_names(word: str) -> list[str]:
    """Return the options in a word: `--set` of `--set=x`, and `-i` and `-t` of `-it`."""
    if word.startswith("--"):
        return [word.partition("=")[0]]
    return [f"-{letter}" for letter in word[1:]] if re.fullmatch(r"-[a-z]+", word) else []


def problem_of(command: str) -> str:
    """Return why the command line has no such command or option, or ""."""
    current: Any = get_command(app)
    words = [word.strip("'\",.()[]") for word in command.partition(" -- ")[0].split()]
    while words and (subcommands := getattr(current, "commands", None)):
        child = subcommands.get(words[0])
        if child is None:
            return f"no command {words[0]}"
        current, words = child, words[1:]
    options = {"--help"}.union(*({*option.opts, *option.secondary_opts} for option in current.params))
    unknown = sorted({name for word in words for name in option_names(word)} - options)
    return f"no option {unknown[0]}" if unknown else ""


def test_every_quoted_command_exists() -> None:
    commands = quoted_commands()
    assert len(commands) > 100
    assert [(name, command, problem) for name, command in commands if (problem := problem_of(command))] == []


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("pool lists", "no command lists"), ("pool list --al", "no option --al"),
        ("pool list --watch", ""), ("submit -f FILE", ""),
    ],
)  # fmt: skip
def test_misspelled_command_is_reported(command: str, problem: str) -> None:
    assert problem_of(command) == problem
