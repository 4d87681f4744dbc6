"""Run examples of the guides in a shell."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from tests.journeys.command import Terminal
from tests.journeys.installation import PATIENCE, ROOT


def guide_examples(heading: str, guide: str = "researchers") -> list[str]:
    """Return the code blocks of a chapter, without their language markers."""
    pages = [ROOT / "docs" / f"{guide}.md", *sorted((ROOT / "docs" / guide).glob("*.md"))]
    chapter = "\n".join(page.read_text() for page in pages).partition(f"## {heading}\n")[2]
    return [block.partition("\n")[2] for block in chapter.partition("\n## ")[0].split("```")[1::2]]


def run_as_written(
    dave: Terminal, example: str, place: Path, *, typed: str | None = None, **variables: str
) -> str:
    """Run the lines of an example in a shell as a signed-in user, on a terminal if `typed` is true."""
    programs = dave.config / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "berth").write_text(f'#!/bin/sh\nexec {sys.executable} -m berth.cli.main "$@"\n')
    (programs / "berth").chmod(0o755)
    path = {"PATH": f"{programs}:{os.environ['PATH']}", "TERM": "xterm"}
    command = ["sh", "-e", "-c", example]
    if typed is not None:
        (programs / "example").write_text(example)
        command = ["script", "-qec", shlex.join(["sh", "-e", str(programs / "example")]), "/dev/null"]
    done = subprocess.run(
        command, cwd=place, env=dave._environment() | path | variables, input=typed, capture_output=True,
        text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout
