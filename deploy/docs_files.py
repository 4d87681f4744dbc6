"""mkdocs hooks for the documentation site: the application's logo and fonts, shell commands and links."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

STATIC = Path(__file__).parents[1] / "platform/berth/server/web/static/berth"
PATTERNS = ("mark.svg", "css/fonts.css", "fonts/*.woff2")
# Matches a code block without a language whose first line runs a program.
SHELL_BLOCK = re.compile(
    r"(?m)^( *)```\n(?=\1(?:berth|cat|cd|createdb|curl|docker|export|git|helm|kubectl|make|mkdir|pip|podman|"
    r"psql|python|scp|source|ssh|sudo|systemctl|tar) )"
)
TO_REPOSITORY = re.compile(r"\[([^\]]+)\]\(\.\./[A-Z][^)]*\)")  # such as a link to ../CONTRIBUTING.md


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the files under berth/, with the same relative paths as in the application."""
    for path in sorted(path for pattern in PATTERNS for path in STATIC.glob(pattern)):
        name = f"berth/{path.relative_to(STATIC)}"
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Highlight shell commands, and replace links to files outside the documentation with their text."""
    del page, config, files
    return TO_REPOSITORY.sub(r"\1", SHELL_BLOCK.sub(r"\1```bash\n", markdown))
