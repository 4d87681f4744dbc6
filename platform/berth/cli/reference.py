"""Write the command reference from the help texts: `python -m berth.cli.reference`."""

import sys
from collections.abc import Iterator
from typing import Any

import typer
from typer.main import get_command

from berth.cli.commands.help import TOPICS

WIDTH = 100
HEAD = """# The command `berth`

<!-- Written by `python -m berth.cli.reference > docs/cli.md`; a test holds it to the commands. -->

`berth` is a client of the REST interface: what it may, a program with the same token may.
`berth simulate`, `berth trace`, `berth up` and `berth admin` work on the machine where they are called.

Workloads are called `NAME` where that is clear, `PROJECT/NAME` where it is not, or by their id. Lists take
`--watch`; lists and single things take `-o table|wide|json|yaml|csv`. On a narrow terminal tables leave out
what matters least and cut what is long; `-o wide` shows all, and so does a pipe. `berth login` remembers
each server as a context; `berth context use NAME` goes from one to another, `berth --context NAME ...` for
one command.

`berth completion bash|zsh|fish` prints what makes a shell complete commands, options, and names of
workloads, services, pools, nodes, projects and departments.

`berth list` and its like are also there as `berth workload list` and so on.
"""
Names = tuple[str, ...]


def text() -> str:
    from berth.cli.main import app

    root = get_command(app)
    parts = [HEAD]
    for topic, body in TOPICS.items():
        title, _, lines = body.replace("\b\n", "").partition(":\n")
        assert title.lower().replace(" ", "-") == topic
        parts.append(f"## {title}\n\n```\n{lines.rstrip()}\n```\n")
    parts.append("## Commands\n")
    parts += [
        f"### {' '.join(names)}\n\n```\n{help_of(command, names)}\n```\n"
        for names, command in walk(root, ("berth",))
        if names[:2] != ("berth", "workload")
    ]
    return "\n".join(parts)


def walk(command: Any, names: Names) -> Iterator[tuple[Names, Any]]:
    """Every command that does something, with its words."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield names, command
        return
    for name, each in inner.items():
        yield from walk(each, (*names, name))


def help_of(command: Any, names: Names) -> str:
    """As `--help` prints it, without what `--help` says of itself."""
    context = typer.Context(command, info_name=" ".join(names), terminal_width=WIDTH, max_content_width=WIDTH)
    told: list[str] = command.get_help(context).splitlines()
    return "\n".join(line.rstrip() for line in told if "Show this message and exit." not in line).rstrip()


if __name__ == "__main__":
    sys.stdout.write(text())
