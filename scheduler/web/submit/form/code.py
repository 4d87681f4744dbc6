"""State of the section `code` in a document, for the submission form."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from projects.actor import Actor
from projects.models import CodeTree
from projects.selectors import projects
from projects.services.code import find_tree


@dataclass(frozen=True, slots=True)
class ShownCode:
    """Files that the document names. `stored` is None if the project does not have them."""

    tree: str
    commit: str
    branch: str
    dirty: bool
    stored: CodeTree | None


def shown_code(actor: Actor, data: Mapping[str, Any] | None) -> ShownCode | None:
    """Return the files that a document names, or None if it names none."""
    section = (data or {}).get("code")
    tree = section.get("tree") if isinstance(section, Mapping) else None
    if not isinstance(section, Mapping) or not isinstance(tree, str):
        return None
    project = projects(actor).filter(name=str((data or {}).get("project"))).first()
    return ShownCode(
        tree=tree,
        commit=str(section.get("commit") or ""),
        branch=str(section.get("branch") or ""),
        dirty=section.get("dirty") is True,
        stored=None if project is None else find_tree(project, tree),
    )
