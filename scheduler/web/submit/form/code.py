"""Code section of a document, for the submission form."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from berth.core.errors import Invalid
from berth.core.problems import Problem
from berth.server.web.error_sentences import NO_FILES
from projects.actor import Actor
from projects.models import CodeTree
from projects.selectors import projects
from projects.services.code import find_tree
from scheduler.web.submit.form.presentation import FormSection

NO_CODE, FILES, GIT = "", "files", "git"
# Value, label, and the part of the label that is hidden on phones.
CODE_SOURCES = (
    (NO_CODE, "No code", ""),
    (FILES, "Files", " from this computer"),
    (GIT, "Git", " repository"),
)


@dataclass(frozen=True, slots=True)
class CodeReference:
    """Stored files or Git repository that the document refers to.

    `stored` is None if the project lacks the files.
    """

    tree: str = ""
    commit: str = ""
    branch: str = ""
    dirty: bool = False
    stored: CodeTree | None = None
    git: str = ""


def code_context(
    actor: Actor, data: Mapping[str, Any] | None, git: FormSection | None, selected: str
) -> dict[str, Any]:
    """Return the template context for the code card.

    `selected` is the code source that the user has chosen.
    """
    code = find_code_reference(actor, data)
    source = selected
    if source not in (FILES, GIT):
        source = FILES if code and code.tree else GIT if git and git.has_values else NO_CODE
    return {"code": code, "code_sources": CODE_SOURCES, "code_source": source}


def require_chosen_code(document: Mapping[str, Any], source: str) -> None:
    """Raise Invalid if the document specifies no code even though the user has selected a source of code."""
    section = document.get("code")
    if source == GIT and not section:
        raise Invalid([Problem("code.git.url", "is missing")])
    if source == FILES and not section:
        raise Invalid([Problem("code", NO_FILES)])


def find_code_reference(actor: Actor, data: Mapping[str, Any] | None) -> CodeReference | None:
    """Return the code that a document refers to, or None."""
    section = (data or {}).get("code")
    if not isinstance(section, Mapping):
        return None
    tree, git = section.get("tree"), section.get("git")
    if isinstance(git, Mapping):
        return CodeReference(git=str(git.get("url") or ""))
    if not isinstance(tree, str):
        return None
    project = projects(actor).filter(name=str((data or {}).get("project"))).first()
    return CodeReference(
        tree=tree,
        commit=str(section.get("commit") or ""),
        branch=str(section.get("branch") or ""),
        dirty=section.get("dirty") is True,
        stored=None if project is None else find_tree(project, tree),
    )
