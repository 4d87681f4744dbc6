"""Tests that tables in the documentation are well-formed, and that all paths in the documentation exist."""

import os
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
SKIPPED = {".venv", ".git", "node_modules"}
PATH = re.compile(
    r"(?<![\w./-])(?:platform|scheduler|projects|pools|templates|tests|examples|docs|deploy|benchmarks)/[\w./-]*\w"
)
PARSER = MarkdownIt("commonmark").enable("table")


def find_documents() -> list[Path]:
    documents: list[Path] = []
    for directory, folders, names in os.walk(ROOT):
        folders[:] = set(folders) - SKIPPED  # an installed virtual environment takes a second
        documents += (Path(directory, name) for name in names if name.endswith(".md"))
    return sorted(documents)


def stray_rows(text: str) -> list[str]:
    """Return table rows that belong to no table: rows after a blank line and rows without a header."""
    stray = []
    for token in PARSER.parse(text):
        if token.type == "inline":
            stray += [line for line in token.content.splitlines() if line.lstrip().startswith("|")]
    return stray


def uneven_rows(text: str) -> list[int]:
    """Return the line numbers (from 1) of rows whose number of cells differs from their table's header."""
    uneven, lines = [], text.splitlines()
    for token in PARSER.parse(text):
        if token.type == "table_open" and token.map:
            begin, end = token.map
            counts = {number: _cells(lines[number]) for number in range(begin, end)}
            uneven += [number + 1 for number, count in counts.items() if count != counts[begin]]
    return uneven


def _cells(line: str) -> int:
    return line.strip().strip("|").replace("\\|", "").count("|") + 1


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "README.md", "scheduler/engine/README.md"])
def test_paths_named_in_guides_exist(name: str) -> None:
    assert not [path for path in PATH.findall((ROOT / name).read_text()) if not (ROOT / path).exists()]


@pytest.mark.parametrize("path", find_documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_table_row_belongs_to_a_table(path: Path) -> None:
    text = path.read_text()
    assert stray_rows(text) == []
    assert uneven_rows(text) == []


def test_table_row_after_a_blank_line_is_reported() -> None:
    cut = "| Word | Not |\n|---|---|\n| one | two |\n\n| three | four |\n"
    assert stray_rows(cut) == ["| three | four |"]
    assert stray_rows(cut.replace("\n\n", "\n")) == []
    assert uneven_rows("| a | b |\n|---|---|\n| one |\n") == [3]
